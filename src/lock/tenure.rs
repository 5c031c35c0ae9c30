//! [`Tenure`]: for how long a lock has been with an owner, and with its client, without a break.

use std::time::{Duration, Instant};

/// For how long a lock has been with an owner, and with its client, without a break. All of an owner's holds have the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenure {
    /// How often it was handed from one of the client's owners to the next.
    pub(super) hand_overs: u32,
    /// When the first of them got it.
    pub(super) since: Instant,
    /// When the owner's time is over, whatever the watchdog does.
    pub(super) limit: Option<Instant>,
}

impl Tenure {
    /// `at_most`: how long an owner may have it.
    pub(super) fn new(since: Instant, at_most: Option<Duration>) -> Self {
        Self { hand_overs: 0, since, limit: at_most.and_then(|at_most| since.checked_add(at_most)) }
    }

    /// The next owner's, who has it from `now` on.
    pub(super) fn handed_over(self, now: Instant, at_most: Option<Duration>) -> Self {
        Self { hand_overs: self.hand_overs + 1, since: self.since, ..Self::new(now, at_most) }
    }

    /// As much of `lease` as does not go beyond the limit; zero if that is over.
    pub(super) fn cut(&self, now: Instant, lease: Duration) -> Duration {
        self.limit.map_or(lease, |limit| lease.min(limit.saturating_duration_since(now)))
    }
}
