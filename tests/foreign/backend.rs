//! A backend whose every call panics in turn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use latchwork::local::{Local, LocalTransport, OtherKind, ThreadRuntime};
use latchwork::{
    AcquireOutcome, Backend, Failure, FairBackend, FairReleaseOutcome, Holder, LeaseId, LeaseKey, LockClient,
    LockName, LockOptions, Moment, NameError, Next, Position, Registry, ReleaseOutcome,
};

use super::{poll, ready};

/// The store in memory, one call to which panics.
#[derive(Clone)]
struct Panics {
    local: Local,
    calls: Arc<AtomicUsize>,
    /// The call that panics; none if it is never reached.
    at: Arc<AtomicUsize>,
    /// All calls of `release` panic.
    always: Arc<AtomicBool>,
    /// Whether the command has run, when one panics.
    late: bool,
}

impl Panics {
    fn new(local: &Local, late: bool) -> Self {
        let (calls, at) = (Arc::default(), Arc::new(AtomicUsize::new(usize::MAX)));
        Self { local: local.clone(), calls, at, always: Arc::default(), late }
    }

    fn call(&self) {
        // Ordering: SeqCst, for no reason but that it is a test.
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        assert_ne!(call, self.at.load(Ordering::SeqCst), "on purpose");
    }

    /// A command, before or after which it may panic.
    async fn command<T>(&self, command: impl Future<Output = T>) -> T {
        if self.late {
            let outcome = command.await;
            self.call();
            outcome
        } else {
            self.call();
            command.await
        }
    }
}

impl Backend for Panics {
    type Error = OtherKind;
    type Transport = LocalTransport;
    type Runtime = ThreadRuntime;

    fn registry(&self) -> &Registry<LocalTransport> {
        self.call();
        self.local.registry()
    }

    fn runtime(&self) -> &ThreadRuntime {
        self.call();
        self.local.runtime()
    }

    fn channel(&self, name: &LockName) -> String {
        self.call();
        self.local.channel(name)
    }

    fn failure(&self, error: &OtherKind) -> Failure {
        self.call();
        self.local.failure(error)
    }

    fn reconnects(&self) -> u64 {
        self.call();
        0
    }

    fn check_name(&self, name: &LockName) -> Result<(), NameError> {
        self.call();
        self.local.check_name(name)
    }

    fn renewal_group(&self, name: &LockName) -> u64 {
        self.call();
        self.local.renewal_group(name)
    }

    async fn try_acquire(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        now: Moment,
    ) -> Result<AcquireOutcome, OtherKind> {
        self.command(self.local.try_acquire(name, id, lease, tokens, now)).await
    }

    async fn release(&self, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, OtherKind> {
        // Ordering: SeqCst, for no reason but that it is a test.
        assert!(!self.always.load(Ordering::SeqCst), "on purpose");
        self.command(self.local.release(name, id)).await
    }

    async fn roll_back(&self, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, OtherKind> {
        self.command(self.local.roll_back(name, id)).await
    }

    async fn force_release(&self, name: &LockName) -> Result<bool, OtherKind> {
        self.command(self.local.force_release(name)).await
    }

    async fn renew(&self, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, OtherKind> {
        self.command(self.local.renew(leases, lease)).await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>, OtherKind> {
        self.command(self.local.holder(name)).await
    }
}

impl FairBackend for Panics {
    fn grant_channel(&self, name: &LockName, client: &str) -> String {
        self.call();
        self.local.grant_channel(name, client)
    }

    async fn try_acquire_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        position: Option<Position>,
        now: Moment,
    ) -> Result<AcquireOutcome, OtherKind> {
        self.command(self.local.try_acquire_fair(name, id, lease, tokens, position, now)).await
    }

    async fn release_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
    ) -> Result<FairReleaseOutcome, OtherKind> {
        self.command(self.local.release_fair(name, id, next)).await
    }

    async fn force_release_fair(&self, name: &LockName) -> Result<bool, OtherKind> {
        self.command(self.local.force_release_fair(name)).await
    }
}

/// What `act` comes to, if it does not panic.
fn attempt<T>(act: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(act)).ok()
}

/// What a future comes to, if it is ready and does not panic.
fn attempt_ready<F: Future>(future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let polled = attempt_poll(future.as_mut());
    attempt(|| drop(future));
    polled
}

fn attempt_poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match attempt(|| poll(future, Waker::noop())) {
        Some(Poll::Ready(output)) => Some(output),
        _ => None,
    }
}

/// What two clients do with one name, beside a watched lock of the first one. How many calls of the backend it was.
fn act(backend: &Panics, clock: &ThreadRuntime, fair: bool, client: &LockClient<Panics>) -> usize {
    // A client takes its id from its runtime.
    let Some(other) = attempt(|| LockClient::new(backend.clone())) else {
        return backend.calls.load(Ordering::SeqCst);
    };
    let get = |client: &LockClient<Panics>| {
        attempt(|| if fair { client.fair_lock("orders") } else { client.get_lock("orders") }.unwrap())
    };
    let (Some(lock), Some(theirs)) = (get(client), get(&other)) else {
        return backend.calls.load(Ordering::SeqCst);
    };
    let held = attempt_ready(lock.lock()).and_then(Result::ok);
    let mut waits = Box::pin(lock.lock());
    let first = attempt_poll(waits.as_mut());
    let mut they_wait = Box::pin(theirs.lock());
    let they_first = attempt_poll(they_wait.as_mut());
    attempt(|| clock.advance(Duration::from_secs(11)));
    if let Some(held) = held {
        attempt_ready(held.unlock());
    }
    attempt(|| clock.advance(Duration::from_millis(100)));
    attempt(|| drop(first.or_else(|| attempt_poll(waits.as_mut()))));
    attempt(|| drop(waits));
    attempt(|| clock.advance(Duration::from_millis(100)));
    let they_hold = they_first.or_else(|| attempt_poll(they_wait.as_mut())).and_then(Result::ok);
    if let Some(they_hold) = &they_hold {
        attempt_ready(they_hold.ensure_held());
    }
    attempt_ready(lock.holder());
    attempt(|| client.metrics());
    attempt_ready(lock.try_lock_for(Duration::from_millis(10), Duration::from_secs(10)));
    attempt_ready(lock.force_unlock());
    attempt(|| drop(they_hold));
    attempt(|| drop(they_wait));
    attempt(|| drop((lock, theirs)));
    attempt(|| drop(other));
    backend.calls.load(Ordering::SeqCst)
}

#[test]
fn backend_that_panics_at_any_call_costs_no_name_and_no_renewal() {
    for (fair, late) in [(false, false), (false, true), (true, false), (true, true)] {
        let run = |at: Option<usize>| {
            let clock = ThreadRuntime::paused();
            let local = Local::with_runtime(clock.clone());
            let backend = Panics::new(&local, late);
            let client = LockClient::with_options(backend.clone(), &LockOptions::default()).unwrap();
            let watched = ready(client.get_lock("watched").unwrap().lock()).unwrap();
            backend.calls.store(0, Ordering::SeqCst);
            backend.at.store(at.unwrap_or(usize::MAX), Ordering::SeqCst);
            let calls = act(&backend, &clock, fair, &client);
            backend.at.store(usize::MAX, Ordering::SeqCst);
            // What has failed is repeated within a second, and not when a lease is over.
            clock.advance(Duration::from_secs(3));
            let place = format!("call {at:?}, fair: {fair}, late: {late}");
            let others = LockClient::new(local.clone());
            let lock = if fair { others.fair_lock("orders") } else { others.get_lock("orders") }.unwrap();
            assert!(ready(lock.try_lock()).unwrap().is_some(), "{place}: the name is dead");
            let lock = if fair { client.fair_lock("orders") } else { client.get_lock("orders") }.unwrap();
            assert!(ready(lock.try_lock()).unwrap().is_some(), "{place}: the name is dead here");
            for _ in 0..3 {
                clock.advance(Duration::from_secs(20));
                assert!(watched.is_held(), "{place}: no lease is renewed any more");
                ready(watched.ensure_held()).unwrap_or_else(|error| panic!("{place}: {error}"));
            }
            calls
        };
        let calls = run(None);
        assert!(calls > 50, "{calls} calls");
        for at in 0..calls {
            run(Some(at));
        }
    }
}

/// A second panic would end the process.
#[test]
fn guard_that_is_dropped_by_a_panic_beside_a_backend_that_panics_ends_no_process() {
    let clock = ThreadRuntime::paused();
    let backend = Panics::new(&Local::with_runtime(clock.clone()), false);
    let client = LockClient::new(backend.clone());
    let lock = client.get_lock("orders").unwrap();
    let held = ready(lock.lock()).unwrap();
    let mut waits = pin!(lock.lock());
    assert!(poll(waits.as_mut(), Waker::noop()).is_pending());
    backend.always.store(true, Ordering::SeqCst);
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _held = held;
        panic!("on purpose, too");
    }));
    assert!(panicked.is_err());
    let Poll::Ready(Ok(handed_on)) = poll(waits, Waker::noop()) else { panic!("it was not handed on") };
    // Begun in place, and repeated in the background.
    drop(handed_on);
    backend.always.store(false, Ordering::SeqCst);
    clock.advance(Duration::from_secs(2));
    assert!(ready(lock.try_lock()).unwrap().is_some(), "the release is not repeated");
}
