//! [`BackOff`]: how long to wait before the next try; and [`random_part`], so that not all processes try at the same time.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// How long to wait before the next try: a random time, up to a limit that doubles with each try.
#[derive(Debug)]
pub(crate) struct BackOff {
    range: (Duration, Duration),
    limit: Duration,
}

impl BackOff {
    /// Between two tries to be connected.
    pub(crate) fn between_dials() -> Self {
        Self::new(Duration::from_millis(20), Duration::from_secs(1))
    }

    /// The limit begins at `from` and stays at `to`.
    pub(crate) fn new(from: Duration, to: Duration) -> Self {
        Self { range: (from, to), limit: from }
    }

    /// At least half of the limit, so that a fast failure is not repeated at once.
    pub(crate) fn next(&mut self) -> Duration {
        let limit = self.limit;
        self.limit = (limit * 2).min(self.range.1);
        limit / 2 + random_part(limit / 2)
    }

    /// The next wait is as short as the first one.
    pub(crate) fn reset(&mut self) {
        self.limit = self.range.0;
    }
}

/// A random duration below `whole`.
pub(crate) fn random_part(whole: Duration) -> Duration {
    // Each has keys of its own, which the system chose at random for this thread. Nobody has to be kept from guessing.
    let random = RandomState::new().build_hasher().finish();
    whole.mul_f64(random as f64 / u64::MAX as f64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BackOff, random_part};

    const TO: Duration = Duration::from_secs(1);

    #[test]
    fn waits_double_up_to_the_limit_and_begin_anew_after_a_reset() {
        let mut back_off = BackOff::between_dials();
        let from = back_off.range.0;
        let mut limit = from;
        for _ in 0..10 {
            let wait = back_off.next();
            assert!((limit / 2..=limit).contains(&wait), "{wait:?} of {limit:?}");
            limit = (limit * 2).min(TO);
        }
        back_off.reset();
        assert!(back_off.next() <= from);
    }

    #[test]
    fn many_that_fail_at_once_do_not_try_again_at_once() {
        let mut waits: Vec<_> = (0..100).map(|_| random_part(TO)).collect();
        waits.sort();
        let most = waits.windows(40).map(|some| some[39] - some[0]).min().unwrap();
        assert!(most > TO / 10, "40 of 100 within {most:?}");
    }
}
