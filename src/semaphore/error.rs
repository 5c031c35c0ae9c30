//! The errors of acquiring.

use std::error::Error;
use std::fmt;

use super::engine::Refused;

/// The semaphore was closed, so no permit can be acquired any more.
#[derive(Debug, PartialEq, Eq)]
pub struct AcquireError(());

impl AcquireError {
    pub(super) const fn closed() -> Self {
        Self(())
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("semaphore closed")
    }
}

impl Error for AcquireError {}

/// Why [`AsyncSemaphore::try_acquire`](super::AsyncSemaphore::try_acquire) returned no permit.
#[derive(Debug, PartialEq, Eq)]
pub enum TryAcquireError {
    /// The semaphore was closed, so no permit can be acquired any more.
    Closed,
    /// No permit is free now.
    NoPermits,
}

impl fmt::Display for TryAcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "semaphore closed",
            Self::NoPermits => "no permits available",
        })
    }
}

impl Error for TryAcquireError {}

impl From<Refused> for TryAcquireError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Closed => Self::Closed,
            Refused::NoPermits => Self::NoPermits,
        }
    }
}
