//! A fair lock whose release falls into a gap: between a waiter's question, its subscription, and its sleep.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use latchwork::local::{Local, LocalTransport, OtherKind, ThreadRuntime};
use latchwork::{
    AcquireOutcome, Backend, FairBackend, FairReleaseOutcome, Holder, Inbox, LeaseId, LeaseKey, LockClient,
    LockName, Moment, Next, Position, Registry, ReleaseOutcome, Runtime, Transport,
};

/// Shorter than a third of the time for which a position is kept, after which a waiter looks by itself.
const SOON: Duration = Duration::from_secs(2);
const LEASE: Duration = Duration::from_secs(30);

type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// A store in memory, and what happens before the next subscription.
struct Interrupted {
    local: Local,
    registry: Registry<InterruptedTransport>,
}

struct InterruptedTransport(Local, Hook);

impl InterruptedTransport {
    fn inner(&self) -> &LocalTransport {
        self.0.registry().transport()
    }
}

impl Transport for InterruptedTransport {
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
        if let Some(hook) = self.1.lock().unwrap().take() {
            hook();
        }
        self.inner().subscribe(channel, inbox);
    }

    fn unsubscribe(&self, channel: &Arc<str>) {
        self.inner().unsubscribe(channel);
    }
}

impl Backend for Interrupted {
    type Error = OtherKind;
    type Transport = InterruptedTransport;
    type Runtime = ThreadRuntime;

    fn registry(&self) -> &Registry<InterruptedTransport> {
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
        self.local.renew(leases, lease).await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>, OtherKind> {
        self.local.holder(name).await
    }
}

impl FairBackend for Interrupted {
    fn grant_channel(&self, name: &LockName, client: &str) -> String {
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
        self.local.try_acquire_fair(name, id, lease, tokens, position, now).await
    }

    async fn release_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
    ) -> Result<FairReleaseOutcome, OtherKind> {
        self.local.release_fair(name, id, next).await
    }

    async fn force_release_fair(&self, name: &LockName) -> Result<bool, OtherKind> {
        self.local.force_release_fair(name).await
    }
}

/// Nobody could be told of it, and so nobody was.
#[tokio::test]
async fn release_between_a_waiters_question_and_its_subscription_is_found() {
    let (local, name) = (Local::new(), LockName::new("orders").unwrap());
    let them: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse().unwrap();
    let now = local.runtime().now().into();
    let taken = local.try_acquire_fair(&name, &them, LEASE, 0, None, now).await.unwrap();
    assert_eq!(taken, AcquireOutcome::Acquired { last_token: 0 });
    let hook: Hook = Arc::default();
    *hook.lock().unwrap() = Some(Box::new({
        let (local, name) = (local.clone(), name.clone());
        move || {
            let released = futures_util::FutureExt::now_or_never(local.release_fair(&name, &them, None));
            assert_eq!(released, Some(Ok(FairReleaseOutcome::Released)));
        }
    }));
    let registry = Registry::new(InterruptedTransport(local.clone(), Arc::clone(&hook)));
    let client = LockClient::new(Interrupted { local, registry });
    let lock = client.fair_lock("orders").unwrap();
    let waits = tokio::time::timeout(SOON, lock.lock()).await.expect("it sleeps beside a free lock");
    assert!(hook.lock().unwrap().is_none(), "it has not subscribed, and this test says nothing");
    waits.unwrap().unlock().await.unwrap();
}
