//! A transport that does not confirm what is subscribed to: messages cannot be relied on, and who waits looks for itself.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use latchwork::local::{Local, ThreadRuntime};
use latchwork::{
    Backend, HoldKey, Inbox, LockClient, LockName, LockOptions, Owner, Registry, Released, Transport, Tried,
};

const WATCHDOG: Duration = Duration::from_millis(300);

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
