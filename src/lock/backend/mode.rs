//! [`Mode`]: the rules of a lock.

use std::fmt;
use std::time::Duration;

use crate::lock::lease::Lease;

/// Longest time for which a dead or suspended waiter may delay the others.
pub(in crate::lock) const LONGEST_POSITION: Duration = Duration::from_secs(10);

/// The rules by which the store grants a lock.
///
/// [`Write`](Self::Write) and [`Read`](Self::Read) are two modes of the same [kind](crate::LockKind) of lock.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// use latchwork::lock::Mode;
///
/// let prices = client.get_read_write_lock("prices")?;
/// let writer = prices.write().lock().await?;
/// assert_eq!(client.held()[0].mode, Mode::Write);
/// writer.unlock().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// One owner, in no order between clients: see [`LockClient::get_lock`](crate::LockClient::get_lock).
    Plain,
    /// One owner, in the order of arrival over all clients: see
    /// [`LockClient::get_fair_lock`](crate::LockClient::get_fair_lock).
    Fair,
    /// One owner, while there are no readers: see [`ReadWriteLock::write`](crate::ReadWriteLock::write).
    Write,
    /// Many owners, while there is no writer: see [`ReadWriteLock::read`](crate::ReadWriteLock::read).
    Read,
    /// A number of permits for all owners: see
    /// [`LockClient::get_semaphore`](crate::LockClient::get_semaphore).
    Permits,
}

impl Mode {
    /// True if the store queues the waiters, and grants the lock without a further request.
    pub(in crate::lock) fn is_queued(self) -> bool {
        matches!(self, Self::Fair | Self::Write | Self::Permits)
    }

    /// Time for which the store remembers a waiter, or `None`: short, since a dead waiter delays the others.
    pub(in crate::lock) fn position(self, renewed_lease: Duration) -> Option<Duration> {
        if self == Self::Plain {
            return None;
        }
        let third = Duration::from_millis((renewed_lease.min(Lease::MAX) / 3).as_millis() as u64);
        Some(third.clamp(Lease::MIN, LONGEST_POSITION))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Fair => "fair",
            Self::Write => "write",
            Self::Read => "read",
            Self::Permits => "permits",
        })
    }
}

/// A kind of lock, with its own rules for owners and waiters. Only one kind can hold a name at a time.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// use latchwork::{LockError, LockKind};
///
/// let guard = client.get_fair_lock("tickets")?.lock().await?;
/// match client.get_lock("tickets")?.try_lock().await {
///     Err(LockError::OtherKind { found, .. }) => assert_eq!(found, LockKind::Fair),
///     other => panic!("it is held as a fair lock: {other:?}"),
/// }
/// # drop(guard);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockKind {
    /// One owner, in no particular order between processes: [`Lock`](crate::Lock).
    Plain,
    /// One owner, in the order of arrival.
    Fair,
    /// Many readers or one writer.
    ReadWrite,
    /// A number of permits: [`NamedSemaphore`](crate::NamedSemaphore).
    Semaphore,
    /// A kind unknown to this version.
    Unknown,
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain lock",
            Self::Fair => "fair lock",
            Self::ReadWrite => "read-write lock",
            Self::Semaphore => "semaphore",
            Self::Unknown => "lock of an unknown kind",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A position kept for zero of the store's milliseconds would end before its waiter asks again.
    #[test]
    fn queue_position_lasts_between_a_millisecond_and_ten_seconds() {
        for mode in [Mode::Fair, Mode::Write, Mode::Read, Mode::Permits] {
            assert_eq!(mode.position(Lease::MIN), Some(Duration::from_millis(1)));
            assert_eq!(mode.position(Duration::from_secs(30)), Some(Duration::from_secs(10)));
            assert_eq!(mode.position(Duration::from_secs(15)), Some(Duration::from_secs(5)));
            assert_eq!(mode.position(Lease::MAX), Some(Duration::from_secs(10)));
        }
        assert_eq!(Mode::Plain.position(Lease::MIN), None);
    }
}
