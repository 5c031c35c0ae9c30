//! [`RateLimit`]: how often a waiter asks the store.

use std::time::Duration;

use crate::lock_entry::Moment;

use crate::lock::backend::Mode;

/// How often a waiter asks the store: some at once, and then at a steady rate. What makes it ask is a message
/// nearly always, which is a hint that costs its publisher next to nothing, and a question costs the store a
/// script.
///
/// A message that comes while the waiter may not ask is not lost: it asks as soon as it may.
#[derive(Debug)]
pub(super) struct RateLimit {
    burst: u32,
    every: Duration,
    /// When as many questions may be asked at once as in the beginning.
    rested: Moment,
}

impl RateLimit {
    pub(super) fn new(mode: Mode, now: Moment) -> Self {
        let (burst, every) = match mode {
            // Processes that have the lock for a millisecond each make it so: all are told of each release,
            // and one gets it.
            Mode::Plain => (200, Duration::from_millis(5)),
            // Those are granted what they wait for, or let in together.
            Mode::Fair | Mode::Read | Mode::Write => (20, Duration::from_millis(50)),
        };
        Self { burst, every, rested: now }
    }

    /// When the next question may be asked, which is from `now` on. It counts as asked then.
    pub(super) fn next(&mut self, now: Moment) -> Moment {
        let spare = self.every * (self.burst - 1);
        let at = now.max(self.rested - spare);
        self.rested = at.max(self.rested) + self.every;
        at
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn burst_is_asked_at_once_and_what_follows_at_the_rate() {
        for mode in [Mode::Plain, Mode::Fair, Mode::Read, Mode::Write] {
            let now = Moment::from(Instant::now());
            let mut rate_limit = RateLimit::new(mode, now);
            let (burst, every) = (rate_limit.burst, rate_limit.every);
            for _ in 0..burst {
                assert_eq!(rate_limit.next(now), now);
            }
            for number in 1..100 {
                assert_eq!(rate_limit.next(now), now + every * number, "{mode:?}");
            }
            // It has to rest for as long as it was in advance.
            let later = now + every * 99;
            assert_eq!(rate_limit.next(later), later + every);
            let rested = later + every * (burst + 1);
            for _ in 0..burst {
                assert_eq!(rate_limit.next(rested), rested, "{mode:?}");
            }
            assert_eq!(rate_limit.next(rested), rested + every, "{mode:?}");
        }
    }
}
