//! [`Moment`]: a time, in one number.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// A time by which the lock decides, in one number: nanoseconds, so that to add to it and to compare it is one instruction each.
///
/// Made of an [`Instant`] by `From`. What is further away than 438 years is [`NEVER`](Self::NEVER).
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use latchwork::lock_entry::Moment;
///
/// let now = Instant::now();
/// let lease = Moment::from(now) + Duration::from_secs(30);
/// assert_eq!(lease.instant(), Some(now + Duration::from_secs(30)));
/// assert_eq!(lease + Duration::MAX, Moment::NEVER);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

/// The moment of [`AT_BASE`].
static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);
/// In the middle, so that an instant before it can be told as well.
const AT_BASE: u64 = 1 << 62;

const NANOS: u64 = 1_000_000_000;

fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(NANOS).saturating_add(time.subsec_nanos().into())
}

impl Moment {
    /// Later than any other.
    pub const NEVER: Self = Self(u64::MAX);

    /// The number, for an atomic.
    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// The moment of a [number](Self::number).
    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    pub(crate) fn of_number(number: u64) -> Self {
        Self(number)
    }

    /// The instant, for timers; `None` if that is never.
    pub fn instant(self) -> Option<Instant> {
        if self == Self::NEVER {
            return None;
        }
        match self.0.checked_sub(AT_BASE) {
            Some(since) => BASE.checked_add(Duration::from_nanos(since)),
            None => BASE.checked_sub(Duration::from_nanos(AT_BASE - self.0)),
        }
    }

    /// How long it is from `earlier` to this: zero if that is not the earlier one, [`Duration::MAX`] if this is never.
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        if self == Self::NEVER {
            return Duration::MAX;
        }
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// As [`saturating_duration_since`](Self::saturating_duration_since), in whole microseconds.
    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    pub(crate) fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1000
    }
}

impl From<Instant> for Moment {
    #[inline]
    fn from(instant: Instant) -> Self {
        let base = *BASE;
        match instant.checked_duration_since(base) {
            Some(since) => Self(nanos(since).saturating_add(AT_BASE)),
            None => Self(AT_BASE.saturating_sub(nanos(base.saturating_duration_since(instant)))),
        }
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// So much later; [`NEVER`](Self::NEVER) if it cannot be told.
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(nanos(time)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    /// So much earlier. What is never stays so.
    fn sub(self, time: Duration) -> Self {
        if self == Self::NEVER { self } else { Self(self.0.saturating_sub(nanos(time))) }
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.instant() {
            Some(instant) => instant.fmt(f),
            None => f.write_str("never"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moment_is_the_instant_that_it_was_made_of() {
        let now = Instant::now();
        let hour = Duration::from_secs(3600);
        // Before the first moment of all as well, if the system has been there for so long.
        for instant in [now, now + hour].into_iter().chain(now.checked_sub(hour)) {
            assert_eq!(Moment::from(instant).instant(), Some(instant));
            assert_eq!((Moment::from(instant) + hour).instant(), Some(instant + hour));
            assert_eq!(Moment::from(instant) + hour - hour, Moment::from(instant));
        }
        assert!(Moment::from(now) < Moment::from(now + Duration::from_nanos(1)));
    }

    #[test]
    fn never_is_later_than_all_and_stays_so() {
        let (now, hour) = (Moment::from(Instant::now()), Duration::from_secs(3600));
        assert_eq!(now + Duration::MAX, Moment::NEVER);
        assert_eq!((Moment::NEVER - hour, Moment::NEVER + hour), (Moment::NEVER, Moment::NEVER));
        assert_eq!((Moment::NEVER.instant(), Moment::NEVER > now + hour), (None, true));
        assert_eq!(Moment::NEVER.saturating_duration_since(now), Duration::MAX);
        assert_eq!(now.saturating_duration_since(now + hour), Duration::ZERO);
    }
}
