//! Thousands of locks of one client that are held at a time.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use latchwork::local::{Local, LocalTransport, OtherKind, ThreadRuntime};
use latchwork::{
    AcquireOutcome, Backend, Guard, Holder, LeaseId, LeaseKey, LockClient, LockName, Moment, Registry,
    ReleaseOutcome,
};

fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// The store in memory, with the number of leases of each renewal.
#[derive(Clone)]
struct Counts {
    local: Local,
    renewals: Arc<Mutex<Vec<usize>>>,
}

impl Backend for Counts {
    type Error = OtherKind;
    type Transport = LocalTransport;
    type Runtime = ThreadRuntime;

    fn registry(&self) -> &Registry<LocalTransport> {
        self.local.registry()
    }

    fn runtime(&self) -> &ThreadRuntime {
        self.local.runtime()
    }

    fn channel(&self, name: &LockName) -> String {
        self.local.channel(name)
    }

    async fn try_acquire(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        now: Moment,
    ) -> Result<AcquireOutcome, OtherKind> {
        self.local.try_acquire(name, id, lease, tokens, now).await
    }

    async fn release(&self, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, OtherKind> {
        self.local.release(name, id).await
    }

    async fn force_release(&self, name: &LockName) -> Result<bool, OtherKind> {
        self.local.force_release(name).await
    }

    async fn renew(&self, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, OtherKind> {
        self.renewals.lock().unwrap().push(leases.len());
        self.local.renew(leases, lease).await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>, OtherKind> {
        self.local.holder(name).await
    }
}

#[test]
fn locks_that_were_taken_one_after_another_are_renewed_together() {
    const LOCKS: usize = 8000;
    let clock = ThreadRuntime::paused();
    let backend = Counts { local: Local::with_runtime(clock.clone()), renewals: Arc::default() };
    let client = LockClient::new(backend.clone());
    let guards: Vec<Guard> = (0..LOCKS)
        .map(|number| {
            clock.advance(Duration::from_millis(1));
            ready(client.get_lock(&format!("name:{number}")).unwrap().lock()).unwrap()
        })
        .collect();
    clock.advance(Duration::from_secs(60));
    assert!(guards.iter().all(Guard::is_held), "some lease was not renewed");
    let renewals = backend.renewals.lock().unwrap();
    // Each third of a lease of 30 s, a thirtieth early at most: eight times in 68 s.
    let (calls, leases): (usize, usize) = (renewals.len(), renewals.iter().sum());
    assert!(calls <= 100, "{calls} calls");
    assert!((5 * LOCKS..=8 * LOCKS).contains(&leases), "{leases} renewals of {LOCKS} leases");
}

#[test]
fn wait_of_milliseconds_ends_in_time_beside_thousands_of_held_locks() {
    const LOCKS: usize = 30_000;
    let client = LockClient::local();
    let take = |number| ready(client.get_lock(&format!("name:{number}")).unwrap().lock()).unwrap();
    let guards: Vec<_> = (0..LOCKS).map(take).collect();
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let wait = |number| {
        let lock = client.get_lock(&format!("name:{number}")).unwrap();
        let begun = Instant::now();
        let tried = tokio.block_on(lock.try_lock_for(Duration::from_millis(10), Duration::from_secs(5)));
        assert!(tried.unwrap().is_none());
        begun.elapsed()
    };
    // A machine under load may be late, but not each time.
    let quickest = (0..10).map(wait).min().unwrap();
    assert!(quickest < Duration::from_millis(250), "each wait of 10 ms took {quickest:?} at least");
    assert!(guards.iter().all(Guard::is_held));
}
