//! A transport that does not confirm what is subscribed to: messages cannot be relied on, and who waits looks for itself.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use latchwork::local::{Local, ThreadRuntime};
use latchwork::{
    Backend, HandedOver, HoldKey, Inbox, LockClient, LockName, LockOptions, Owner, Registry, Released,
    Transport, Tried,
};

const WATCHDOG: Duration = Duration::from_millis(300);
const SOON: Duration = Duration::from_secs(5);

/// Is still at it.
struct Deaf;

impl Transport for Deaf {
    fn subscribe(&self, _: &Arc<str>, _: Inbox) {}

    fn unsubscribe(&self, _: &Arc<str>) {}
}

struct WithoutMessages {
    local: Local,
    registry: Registry<Deaf>,
}

impl Backend for WithoutMessages {
    type Error = Infallible;
    type Transport = Deaf;
    type Runtime = ThreadRuntime;

    fn registry(&self) -> &Registry<Deaf> {
        &self.registry
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
        owner: &Owner,
        holds: u64,
        lease: Duration,
        fenced: bool,
    ) -> Result<Tried, Infallible> {
        self.local.try_acquire(name, owner, holds, lease, fenced).await
    }

    async fn release(&self, name: &LockName, owner: &Owner, left: u64) -> Result<Released, Infallible> {
        self.local.release(name, owner, left).await
    }

    async fn hand_over(
        &self,
        name: &LockName,
        owner: &Owner,
        next: &Owner,
        lease: Duration,
        fenced: bool,
    ) -> Result<HandedOver, Infallible> {
        self.local.hand_over(name, owner, next, lease, fenced).await
    }

    async fn force_release(&self, name: &LockName) -> Result<bool, Infallible> {
        self.local.force_release(name).await
    }

    async fn renew(&self, holds: &[HoldKey], lease: Duration) -> Result<Vec<bool>, Infallible> {
        self.local.renew(holds, lease).await
    }

    async fn hold_count(&self, name: &LockName, owner: &Owner) -> Result<u64, Infallible> {
        self.local.hold_count(name, owner).await
    }

    async fn remaining(&self, name: &LockName) -> Result<Option<Duration>, Infallible> {
        self.local.remaining(name).await
    }
}

/// The second one had never asked how long the lease lasts, and waited for the confirmation without end.
#[tokio::test]
async fn whoever_is_not_first_in_line_looks_for_itself_too() {
    let local = Local::new();
    let theirs = LockClient::new(local.clone()).get_lock("orders").unwrap();
    let backend = WithoutMessages { local, registry: Registry::new(Deaf) };
    let client =
        LockClient::with_options(backend, &LockOptions::default().watchdog_timeout(WATCHDOG)).unwrap();
    let lock = client.get_lock("orders").unwrap();
    let held = theirs.lock().await.unwrap();
    let waiter = || {
        let lock = lock.clone();
        tokio::spawn(async move { lock.lock().await.unwrap() })
    };
    let first = waiter();
    while client.registry().stats().interest < 1 {
        tokio::task::yield_now().await;
    }
    let second = waiter();
    while client.registry().stats().interest < 2 {
        tokio::task::yield_now().await;
    }
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    held.unlock().await.unwrap();
    let guard =
        tokio::time::timeout(Duration::from_secs(10), second).await.expect("it did not look").unwrap();
    guard.unlock().await.unwrap();
}

/// Who knew that its own client had the lock went to sleep over the confirmation, and neither the lock's being free nor its being
/// handed over woke it.
#[tokio::test]
async fn whoever_waits_for_the_confirmation_can_be_handed_the_lock_and_looks_for_itself() {
    for hand_overs in [0, 32] {
        let runtime = ThreadRuntime::paused();
        let local = Local::with_runtime(runtime.clone());
        let backend = WithoutMessages { local, registry: Registry::new(Deaf) };
        let options = LockOptions::default().hand_overs(hand_overs, Duration::from_secs(3600));
        let client = LockClient::with_options(backend, &options).unwrap();
        let lock = client.get_lock("orders").unwrap();
        let guard = lock.lock().await.unwrap();
        let waits = tokio::spawn({
            let lock = lock.clone();
            async move { lock.lock().await.unwrap() }
        });
        while client.registry().stats().interest < 1 {
            tokio::task::yield_now().await;
        }
        guard.unlock().await.unwrap();
        if hand_overs == 0 {
            // Far less than the lease that it might wait for. Who is handed the lock needs no time at all.
            runtime.advance(Duration::from_secs(2));
        }
        let guard = tokio::time::timeout(SOON, waits).await.expect("asleep beside it").unwrap();
        assert_eq!(lock.stats().hand_offs, u64::from(hand_overs.min(1)));
        guard.unlock().await.unwrap();
    }
}
