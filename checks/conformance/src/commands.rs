//! Single commands of a test to a store, for tests beside the suite.

use std::time::{Duration, Instant};

use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Backend, LeaseKey, LockName, Mode, ReleaseOutcome, Runtime as _,
};
use latchwork::{Holder, LeaseId};

/// The outcome of releasing a lock that no waiter is granted.
pub const RELEASED: ReleaseOutcome = ReleaseOutcome::Released { receivers: 0 };

/// Short forms of a backend's commands.
#[allow(async_fn_in_trait, reason = "it has one implementation")]
pub trait Commands: Backend {
    /// A request for a lease from now on, without a token or a position.
    fn request(&self, id: &LeaseId, lease: Duration) -> AcquireRequest {
        request_at(self.runtime().now(), id, lease)
    }

    /// The only holder of a lock that has one holder at a time.
    ///
    /// # Errors
    ///
    /// The backend's own.
    ///
    /// # Panics
    ///
    /// If the store reports several holders.
    async fn holder(&self, mode: Mode, name: &LockName) -> Result<Option<Holder>, Self::Error> {
        Ok(only(mode, self.holders(mode, name).await?))
    }
}

impl<B: Backend> Commands for B {}

pub(crate) fn request_at(now: Instant, id: &LeaseId, lease: Duration) -> AcquireRequest {
    AcquireRequest::new(id.clone(), lease, now.into())
}

pub(crate) fn only(mode: Mode, mut holders: Vec<Holder>) -> Option<Holder> {
    assert!(holders.len() <= 1, "{mode}: {holders:?}");
    holders.pop()
}

/// The keys of a name's leases.
pub fn keys(name: &LockName, ids: &[&LeaseId]) -> Vec<LeaseKey> {
    ids.iter().map(|id| LeaseKey { name: name.clone(), id: (*id).clone() }).collect()
}

/// True if the attempt acquired the lock.
pub fn is_acquired(outcome: AcquireOutcome) -> bool {
    matches!(outcome, AcquireOutcome::Acquired { .. })
}

/// The remaining lease of the holder; `None` if the attempt acquired the lock.
pub fn left(outcome: AcquireOutcome) -> Option<Duration> {
    match outcome {
        AcquireOutcome::Held { left } | AcquireOutcome::HeldUncalled { left } => Some(left),
        AcquireOutcome::Acquired { .. } => None,
    }
}

/// The last token of an attempt on a free lock.
///
/// # Panics
///
/// If the lock was held.
pub fn token(outcome: AcquireOutcome) -> u64 {
    match outcome {
        AcquireOutcome::Acquired { last_token } => last_token,
        held => panic!("{held:?}"),
    }
}

/// True if the released id was a reader.
///
/// # Panics
///
/// If no release of a reader has this outcome.
pub fn did_read(outcome: ReleaseOutcome) -> bool {
    match outcome {
        RELEASED => true,
        ReleaseOutcome::NotHeld => false,
        other => panic!("{other:?}"),
    }
}
