//! [`Lease`]: how long a lock stays held unless its owner gives it back.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// How long a lock stays held unless its owner gives it back.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// use std::time::Duration;
/// use latchwork::Lease;
///
/// let (wait, lease) = (Duration::from_secs(2), Duration::from_secs(60));
/// let lock = client.get_lock("orders:42")?;
/// drop(lock.try_lock_for(wait, Lease::Watched).await?);
/// drop(lock.try_lock_for(wait, lease).await?);
/// # Ok::<(), latchwork::LockError>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lease {
    /// For as long as the guard lives: the watchdog renews the lease. If the process dies, the lock is free
    /// after [`LockOptions::watchdog_timeout`](crate::LockOptions::watchdog_timeout) at the latest.
    Watched,
    /// For this long, even if the work takes longer. From [`Lease::MIN`] to [`Lease::MAX`].
    For(Duration),
}

impl Lease {
    /// The shortest lease: the millisecond, which stores count in.
    pub const MIN: Duration = Duration::from_millis(1);

    /// The longest lease: half an i64 of milliseconds, as stores add their clock, and Redis counts in floats.
    pub const MAX: Duration = Duration::from_millis(i64::MAX as u64 / 2);

    pub(crate) fn check(lease: Duration) -> Result<Duration, LeaseError> {
        if lease < Self::MIN {
            return Err(LeaseError::TooShort);
        }
        if lease > Self::MAX {
            return Err(LeaseError::TooLong);
        }
        Ok(lease)
    }
}

impl From<Duration> for Lease {
    fn from(lease: Duration) -> Self {
        Self::For(lease)
    }
}

/// Why a lease is refused.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// use std::time::Duration;
/// use latchwork::{LeaseError, LockError};
///
/// let refused = client.get_lock("orders:42")?.lock_with_lease(Duration::ZERO).await;
/// assert!(matches!(refused, Err(LockError::Lease(LeaseError::TooShort))));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseError {
    /// Shorter than the millisecond, which stores count in.
    TooShort,
    /// Longer than [`Lease::MAX`].
    TooLong,
    /// The lease was over before the store's answer came, and is rolled back.
    OverBeforeAnswer,
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => {
                "the lease is shorter than a millisecond; give at least 1 ms, or Lease::Watched to hold without a limit"
            }
            Self::TooLong => "the lease is longer than Lease::MAX; use Lease::Watched to hold without a limit",
            Self::OverBeforeAnswer => {
                "the lease was over before the store's answer came; give one that is longer than the store takes to answer"
            }
        })
    }
}

impl Error for LeaseError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_lengths_are_valid_between_the_shortest_and_the_longest() {
        const LITTLE: Duration = Duration::from_nanos(1);
        assert_eq!([Lease::MIN, Lease::MAX].map(Lease::check), [Ok(Lease::MIN), Ok(Lease::MAX)]);
        assert_eq!(Lease::check(Lease::MIN - LITTLE), Err(LeaseError::TooShort));
        assert_eq!(Lease::check(Lease::MAX + LITTLE), Err(LeaseError::TooLong));
    }
}
