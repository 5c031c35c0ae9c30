use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// A time of the lock, in nanoseconds. Addition and comparison are one instruction each, and an
/// `Option<Moment>` is as small. Converts from [`Instant`]; times beyond 438 years are
/// [`NEVER`](Self::NEVER).
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use latchwork::lock_entry::Moment;
/// let now = Instant::now();
/// let lease = Moment::from(now) + Duration::from_secs(30);
/// assert_eq!(lease.instant(), Some(now + Duration::from_secs(30)));
/// assert_eq!(lease + Duration::MAX, Moment::NEVER);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(NonZeroU64);

/// The instant with the number [`AT_BASE`].
static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);
/// The middle of the range: earlier instants have numbers, too.
const AT_BASE: NonZeroU64 = NonZeroU64::new(1 << 62).expect("not zero");

const NANOS: u64 = 1_000_000_000;

#[inline]
fn nanos(time: Duration) -> u64 {
    // One comparison instead of checked steps: each acquisition converts several times.
    match time.as_secs() {
        secs if secs < u64::MAX / NANOS => secs * NANOS + u64::from(time.subsec_nanos()),
        _ => u64::MAX,
    }
}

/// Subtracts, down to 1: zero stands for `None` in an `Option<Moment>`.
#[inline]
fn saturating_sub(number: NonZeroU64, nanos: u64) -> NonZeroU64 {
    NonZeroU64::new(number.get().saturating_sub(nanos)).unwrap_or(NonZeroU64::MIN)
}

impl Moment {
    /// The latest moment, later than any instant.
    pub const NEVER: Self = Self(NonZeroU64::MAX);

    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    pub(crate) fn number(self) -> u64 {
        self.0.get()
    }

    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    pub(crate) fn of_number(number: u64) -> Self {
        Self(NonZeroU64::new(number).expect("the number of a moment"))
    }

    /// Returns the instant, for timers; `None` for [`NEVER`](Self::NEVER).
    pub fn instant(self) -> Option<Instant> {
        if self == Self::NEVER {
            return None;
        }
        match self.0.get().checked_sub(AT_BASE.get()) {
            Some(since) => BASE.checked_add(Duration::from_nanos(since)),
            None => BASE.checked_sub(Duration::from_nanos(AT_BASE.get() - self.0.get())),
        }
    }

    /// Returns the time since `earlier`, or zero; [`Duration::MAX`] if `self` is [`NEVER`](Self::NEVER).
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        if self == Self::NEVER {
            return Duration::MAX;
        }
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    pub(crate) fn micros_since(self, earlier: Self) -> u64 {
        self.0.get().saturating_sub(earlier.0.get()) / 1000
    }
}

impl From<Instant> for Moment {
    #[inline]
    fn from(instant: Instant) -> Self {
        let base = *BASE;
        match instant.checked_duration_since(base) {
            Some(since) => Self(AT_BASE.saturating_add(nanos(since))),
            None => Self(saturating_sub(AT_BASE, nanos(base.saturating_duration_since(instant)))),
        }
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// Adds a duration; [`NEVER`](Self::NEVER) on overflow.
    #[inline]
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(nanos(time)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    /// Subtracts a duration. [`NEVER`](Self::NEVER) stays `NEVER`.
    #[inline]
    fn sub(self, time: Duration) -> Self {
        if self == Self::NEVER { self } else { Self(saturating_sub(self.0, nanos(time))) }
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
        // Also an instant before `BASE`, if the system has run for an hour.
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
