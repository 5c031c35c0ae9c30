//! Fair locks of [`Redis`].

use std::time::Duration;

use crate::lock::{
    AcquireOutcome, Backend, FairBackend, FairReleaseOutcome, LeaseId, LockName, Moment, Next, Position,
};

use super::backend::Redis;
use super::connection::Error;
use super::keys;
use super::queue::Kind;

impl FairBackend for Redis {
    fn grant_channel(&self, name: &LockName, client: &str) -> String {
        keys::grants(name.as_str()) + client
    }

    fn foreign_channel(&self, name: &LockName) -> Option<String> {
        Some(self.channel(name))
    }

    fn grants_suffice(&self) -> bool {
        // Of a lease that a release has granted no replica need have heard.
        self.acquisitions.is_none()
    }

    async fn try_acquire_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        position: Option<Position>,
        _now: Moment,
    ) -> Result<AcquireOutcome, Error> {
        self.take(Kind::Fair, name, id, lease, tokens, position).await
    }

    async fn release_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
    ) -> Result<FairReleaseOutcome, Error> {
        self.pass_on(Kind::Fair, &self.router, name, id, next).await
    }

    async fn roll_back_fair(&self, name: &LockName, id: &LeaseId) -> Result<FairReleaseOutcome, Error> {
        self.pass_on(Kind::Fair, self.attempts(), name, id, None).await
    }

    async fn force_release_fair(&self, name: &LockName) -> Result<bool, Error> {
        self.force(Kind::Fair, name).await
    }
}
