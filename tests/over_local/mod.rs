//! The store in memory, with messages that come another way.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use latchwork::local::{Local, OtherKind, ThreadRuntime};
use latchwork::{
    AcquireOutcome, Backend, FairBackend, FairReleaseOutcome, Holder, LeaseId, LeaseKey, LockName, Moment,
    Next, Position, Registry, ReleaseOutcome, Transport,
};

/// What happens before the next attempt is answered, which takes no waiting otherwise.
pub(crate) type Meanwhile = Option<Box<dyn FnOnce() + Send>>;

/// The store in memory, with messages that come another way.
pub(crate) struct OverLocal<T: Transport> {
    local: Local,
    registry: Registry<T>,
    meanwhile: Arc<Mutex<Meanwhile>>,
}

impl<T: Transport> OverLocal<T> {
    pub(crate) fn new(local: Local, transport: T) -> Self {
        Self { local, registry: Registry::new(transport), meanwhile: Arc::default() }
    }

    #[allow(dead_code, reason = "each test file uses a part of it")]
    pub(crate) fn meanwhile(&self) -> Arc<Mutex<Meanwhile>> {
        Arc::clone(&self.meanwhile)
    }
}

impl<T: Transport> Backend for OverLocal<T> {
    type Error = OtherKind;
    type Transport = T;
    type Runtime = ThreadRuntime;

    fn registry(&self) -> &Registry<T> {
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
        let outcome = self.local.try_acquire(name, id, lease, tokens, now).await;
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
            tokio::task::yield_now().await;
        }
        outcome
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

impl<T: Transport> FairBackend for OverLocal<T> {
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
