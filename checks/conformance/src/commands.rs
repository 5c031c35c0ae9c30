//! Commands that a test gives a store by itself, one by one; for tests beside the suite.

use std::time::{Duration, Instant};

use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Backend, LeaseKey, LockName, Mode, ReleaseOutcome, Runtime as _,
};
use latchwork::{Holder, LeaseId};

/// What a release of a lock that has a queue comes to.
pub const RELEASED: ReleaseOutcome = ReleaseOutcome::Released { receivers: 0 };

/// Short forms of a backend's commands.
#[allow(async_fn_in_trait, reason = "it has one implementation")]
pub trait Commands: Backend {
    /// For a lease from now on, without a token and without a position.
    fn request(&self, id: &LeaseId, lease: Duration) -> AcquireRequest {
        request_at(self.runtime().now(), id, lease)
    }

    /// The one lease of a lock that many cannot have.
    ///
    /// # Errors
    ///
    /// The backend's own.
    ///
    /// # Panics
    ///
    /// If there are more.
    async fn holder(&self, mode: Mode, name: &LockName) -> Result<Option<Holder>, Self::Error> {
        Ok(only(mode, self.holders(mode, name).await?))
    }
}

impl<B: Backend> Commands for B {}

/// For a lease from `now` on, without a token and without a position.
pub(crate) fn request_at(now: Instant, id: &LeaseId, lease: Duration) -> AcquireRequest {
    AcquireRequest::new(id.clone(), lease, now.into())
}

/// The one lease of a lock that many cannot have.
pub(crate) fn only(mode: Mode, mut holders: Vec<Holder>) -> Option<Holder> {
    assert!(holders.len() <= 1, "{mode}: {holders:?}");
    holders.pop()
}

/// Leases of one name.
pub fn keys(name: &LockName, ids: &[&LeaseId]) -> Vec<LeaseKey> {
    ids.iter().map(|id| LeaseKey { name: name.clone(), id: (*id).clone() }).collect()
}

/// Whether an attempt has the lock.
pub fn is_acquired(outcome: AcquireOutcome) -> bool {
    matches!(outcome, AcquireOutcome::Acquired { .. })
}

/// How long to wait; `None` if there is nothing to wait for.
pub fn left(outcome: AcquireOutcome) -> Option<Duration> {
    match outcome {
        AcquireOutcome::Held { left } | AcquireOutcome::HeldUncalled { left } => Some(left),
        AcquireOutcome::Acquired { .. } => None,
    }
}

/// The last token of a lock that was to be free.
///
/// # Panics
///
/// If it was held.
pub fn token(outcome: AcquireOutcome) -> u64 {
    match outcome {
        AcquireOutcome::Acquired { last_token } => last_token,
        held => panic!("{held:?}"),
    }
}

/// Whether a reader had the lock that was released.
///
/// # Panics
///
/// If the release says what none of a reader does.
pub fn did_read(outcome: ReleaseOutcome) -> bool {
    match outcome {
        RELEASED => true,
        ReleaseOutcome::NotHeld => false,
        other => panic!("{other:?}"),
    }
}
