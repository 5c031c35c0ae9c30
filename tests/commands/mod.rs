//! Commands that a test gives a store by itself, one by one.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::time::Duration;

use latchwork::{
    AcquireOutcome, AcquireRequest, Backend, Holder, LeaseId, LeaseKey, LockName, Mode, ReleaseOutcome,
    Runtime as _,
};

/// What a release of a lock that has a queue comes to.
pub(crate) const RELEASED: ReleaseOutcome = ReleaseOutcome::Released { heard: 0 };

pub(crate) trait Commands: Backend {
    /// For a lease from now on, without a token and without a position.
    fn request(&self, id: &LeaseId, lease: Duration) -> AcquireRequest {
        AcquireRequest::new(id.clone(), lease, self.runtime().now().into())
    }

    /// The one lease of a lock that many cannot have.
    async fn holder(&self, mode: Mode, name: &LockName) -> Result<Option<Holder>, Self::Error> {
        let mut holders = self.holders(mode, name).await?;
        assert!(holders.len() <= 1, "{mode}: {holders:?}");
        Ok(holders.pop())
    }
}

impl<B: Backend> Commands for B {}

pub(crate) fn keys(name: &LockName, ids: &[&LeaseId]) -> Vec<LeaseKey> {
    ids.iter().map(|id| LeaseKey { name: name.clone(), id: (*id).clone() }).collect()
}

pub(crate) fn is_acquired(outcome: AcquireOutcome) -> bool {
    matches!(outcome, AcquireOutcome::Acquired { .. })
}

/// How long to wait; `None` if there is nothing to wait for.
pub(crate) fn left(outcome: AcquireOutcome) -> Option<Duration> {
    match outcome {
        AcquireOutcome::Held { left } => Some(left),
        AcquireOutcome::Acquired { .. } => None,
    }
}

/// The last token of a lock that was to be free.
pub(crate) fn token(outcome: AcquireOutcome) -> u64 {
    match outcome {
        AcquireOutcome::Acquired { last_token } => last_token,
        held @ AcquireOutcome::Held { .. } => panic!("{held:?}"),
    }
}

/// Whether a reader had the lock.
pub(crate) fn did_read(outcome: ReleaseOutcome) -> bool {
    match outcome {
        RELEASED => true,
        ReleaseOutcome::NotHeld => false,
        other => panic!("{other:?}"),
    }
}
