//! [`BackOff`]: how long to wait before the next try; and [`random_part`], so that not all processes try at
//! the same time.

use std::time::Duration;

use super::budget::BETWEEN_DIALS;

/// How long to wait before the next try: a random time, up to a limit that doubles with each try.
#[derive(Debug)]
pub(crate) struct BackOff {
    range: (Duration, Duration),
    limit: Duration,
}

impl BackOff {
    /// Between two tries to be connected.
    pub(crate) fn between_dials() -> Self {
        Self::new(BETWEEN_DIALS)
    }

    /// The limit begins at the one and stays at the other.
    pub(crate) fn new(range: (Duration, Duration)) -> Self {
        Self { range, limit: range.0 }
    }

    /// At least half of the limit, so that a fast failure is not repeated at once. `random`: the runtime's.
    pub(crate) fn next(&mut self, random: u64) -> Duration {
        let limit = self.limit;
        self.limit = (limit * 2).min(self.range.1);
        limit / 2 + random_part(limit / 2, random)
    }

    /// The next wait is as short as the first one.
    pub(crate) fn reset(&mut self) {
        self.limit = self.range.0;
    }
}

/// A random duration below `whole`. `random`: the runtime's.
pub(crate) fn random_part(whole: Duration, random: u64) -> Duration {
    whole.mul_f64(random as f64 / u64::MAX as f64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BackOff, random_part};

    const TO: Duration = Duration::from_secs(1);

    fn random() -> u64 {
        getrandom::u64().unwrap()
    }

    #[test]
    fn waits_double_up_to_the_limit_and_begin_anew_after_a_reset() {
        let [mut shortest, mut longest] = [BackOff::between_dials(), BackOff::between_dials()];
        for _ in 0..2 {
            for limit in [20, 40, 80, 160, 320, 640, 1000, 1000].map(Duration::from_millis) {
                assert_eq!((shortest.next(0), longest.next(u64::MAX)), (limit / 2, limit));
            }
            shortest.reset();
            longest.reset();
        }
    }

    #[test]
    fn many_that_fail_at_once_do_not_try_again_at_once() {
        let mut waits: Vec<_> = (0..100).map(|_| random_part(TO, random())).collect();
        waits.sort();
        let most = waits.windows(40).map(|some| some[39] - some[0]).min().unwrap();
        assert!(most > TO / 10, "40 of 100 within {most:?}");
    }
}
