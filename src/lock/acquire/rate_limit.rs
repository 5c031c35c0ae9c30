//! [`RateLimit`]: limits how often a queue head asks the store.

use std::time::Duration;

use crate::lock_entry::Moment;

use crate::lock::backend::Mode;

/// Limits the questions of a queue head: a burst at once, then a steady rate. A message is cheap, but the
/// question that follows costs the store a script. A message that comes during a pause is kept.
#[derive(Debug)]
pub(super) struct RateLimit {
    burst: u32,
    every: Duration,
    rested: Moment,
}

impl RateLimit {
    pub(super) fn new(mode: Mode, now: Moment) -> Self {
        let (burst, every) = match mode {
            // Each release wakes the heads of all processes: with short holds, heads ask often.
            Mode::Plain => (200, Duration::from_millis(5)),
            // The store grants these modes to a chosen waiter, or lets the waiters in together.
            Mode::Fair | Mode::Read | Mode::Write => (20, Duration::from_millis(50)),
        };
        Self { burst, every, rested: now }
    }

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
            // The limiter rests for as long as it was ahead before the burst is available again.
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
