//! Errors of acquiring.

use std::error::Error;
use std::fmt;

use super::engine::Refused;

/// The semaphore is closed: no permit can be acquired.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use latchwork::{AcquireError, AsyncSemaphore};
///
/// let semaphore = AsyncSemaphore::new(1);
/// semaphore.close();
/// let error: AcquireError = semaphore.acquire().await.unwrap_err();
/// assert_eq!(error.to_string(), "semaphore closed");
/// # });
/// ```
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
///
/// # Examples
///
/// ```
/// use latchwork::{AsyncSemaphore, TryAcquireError};
///
/// let semaphore = AsyncSemaphore::new(0);
/// assert_eq!(semaphore.try_acquire().unwrap_err(), TryAcquireError::NoPermits);
/// semaphore.close();
/// assert_eq!(semaphore.try_acquire().unwrap_err(), TryAcquireError::Closed);
/// ```
#[derive(Debug, PartialEq, Eq)]
pub enum TryAcquireError {
    /// The semaphore is closed: no permit can be acquired.
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
