//! [`StoreRecord`]: the possible state of one of this process' numbers at the store; and [`StoreLease`]: a
//! lease granted under one number.
//!
//! A queue head hands its number's record to the granted lease, and a lease that passes to the next queue
//! head hands the record back: no command sent for a number is forgotten.
//!
//! # The moments of a lease
//!
//! This process shortens no lease at the store, and its commands may run late: the end is a range:
//!
//! ```text
//!   sure_until ≤ the end that the store keeps ≤ possible_until
//! ```
//!
//! * `sure_until` comes from commands that the store has confirmed, each counted from before its sending. The
//!   hold lasts until then: `is_held`, `remaining` and `lost` go by `sure_until`.
//! * `possible_until`, of the [record](StoreRecord), comes from all commands sent, answered or not. Until
//!   then a lease without a hold has to be released: an unanswered extension may keep the lock, unused.
//!
//! A hold may end before its lease: when its owners' own leases are over, or after `max_hold`.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::support::moment::Moment;

use super::super::events::{Attempt, PendingRelease};

/// Time of a round trip: the end of a hold needs no look if the store ends the lease this soon afterwards.
const ROUND_TRIP: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct StoreRecord {
    pub(super) number: u64,
    /// End of the time for which the store may keep the number, by all commands sent: counted from a
    /// command's answer, or, unanswered, from its sending.
    pub(super) possible_until: Moment,
    /// Count of unanswered commands that lease the name to the number. Each may run after a release, so the
    /// number is then rolled back, not only released.
    pub(super) unanswered: u32,
    /// Send time of the last command known to have queued the number or kept its position, or else of the
    /// first. In a lease's record: `Some` only if a message granted it, as a late attempt may queue it again.
    pub(super) queued_at: Option<Moment>,
}

impl StoreRecord {
    #[inline]
    pub(super) fn new(number: u64, until: Moment) -> Self {
        Self { number, possible_until: until, unanswered: 0, queued_at: None }
    }

    pub(super) fn lengthen(&mut self, until: Moment) {
        self.possible_until = self.possible_until.max(until);
    }

    /// Counts a leasing command that is about to be sent, or may run once more after its answer.
    pub(super) fn count_unanswered(&mut self) {
        self.unanswered += 1;
    }

    pub(super) fn count_answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Returns the number's release, which rolls back if a command may still run. (A position is given up by
    /// a plain release.) `appoints`: see [`PendingRelease::appoints`].
    pub(super) fn to_release(&self, appoints: bool) -> PendingRelease {
        let rolls_back = self.unanswered > 0;
        PendingRelease { number: self.number, until: self.possible_until, appoints, rolls_back }
    }
}

#[derive(Debug)]
pub(super) struct StoreLease {
    pub(super) record: StoreRecord,
    /// End of the tenure, counted from the question: a lease left later goes back to the store.
    pub(super) tenure_ends: Moment,
    pub(super) sure_until: Moment,
    pub(super) tokens: RangeInclusive<u64>,
    /// Send time of the latest command by which the store confirmed the lease.
    pub(super) confirmed: Moment,
    /// Send time of the first command, or answer time of the last command that began the lease anew. Answers
    /// to earlier commands may describe an earlier lease of the number.
    pub(super) begun: Moment,
    pub(super) renew_at: Moment,
    pub(super) renewing: bool,
    /// A renewal was sent, and the store has confirmed no command since.
    pub(super) renewal_unanswered: bool,
    /// Earliest time of the next renewal, once a renewal has failed.
    pub(super) not_before: Option<Moment>,
    /// The next look verifies the lease: for a waiter with a short limit, or after a forced unlock.
    pub(super) verify: bool,
}

impl StoreLease {
    /// Returns the granted lease, counted from the attempt's sending. `third`: interval of its renewals.
    #[inline]
    pub(super) fn granted(
        attempt: &Attempt,
        tokens: RangeInclusive<u64>,
        third: Duration,
        tenure_ends: Moment,
        mut record: StoreRecord,
    ) -> Self {
        let sure_until = attempt.sent + attempt.lease;
        record.lengthen(sure_until);
        Self {
            record,
            tenure_ends,
            sure_until,
            tokens,
            confirmed: attempt.sent,
            begun: attempt.sent,
            renew_at: sure_until - third * 2,
            renewing: false,
            renewal_unanswered: false,
            not_before: None,
            verify: false,
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.record.number
    }

    pub(super) fn left(&self, now: Moment) -> Duration {
        self.sure_until.saturating_duration_since(now)
    }

    /// True if enough of the lease is left to renew the lease for newcomers. `third`: of a renewed lease.
    pub(super) fn is_renewable(&self, third: Duration, now: Moment) -> bool {
        self.left(now) > third
    }

    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.sure_until <= now
    }

    /// True if the client has to release the lease when its last hold ends at `moment`.
    pub(super) fn is_to_be_ended(&self, moment: Moment) -> bool {
        self.may_outlast(moment + ROUND_TRIP)
    }

    pub(super) fn may_outlast(&self, moment: Moment) -> bool {
        moment < self.record.possible_until || self.record.unanswered > 0
    }

    pub(super) fn may_exceed(&self, lease: Duration, now: Moment) -> bool {
        self.record.possible_until > now + lease
    }

    pub(super) fn has_token(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Records a command about to be sent, for a lease of at least `lease` from `sent` on.
    pub(super) fn lengthens(&mut self, sent: Moment, lease: Duration) {
        self.record.lengthen(sent + lease);
    }

    /// Records a renewal about to be sent: for `lease`, or only to verify.
    pub(super) fn renews(&mut self, sent: Moment, lease: Option<Duration>) {
        (self.renewing, self.verify) = (true, false);
        if let Some(lease) = lease {
            self.renewal_unanswered = true;
            self.lengthens(sent, lease);
        }
    }

    /// Records a command about to be sent, which leases the name to this number anew, and returns the length
    /// to ask for: no shorter than the store may keep the lease, since some stores set lengths exactly.
    pub(super) fn leases_anew(&mut self, sent: Moment, lease: Duration) -> Duration {
        let possible = self.record.possible_until.saturating_duration_since(sent);
        let lease = lease.max(possible);
        self.lengthens(sent, lease);
        self.record.count_unanswered();
        lease
    }

    /// Records a lease begun anew. With a coarse clock, earlier commands may have the time `sent`, too.
    pub(super) fn begun_anew(&mut self, sent: Moment, now: Moment) {
        self.begun = now.max(sent + Duration::from_nanos(1));
    }

    /// Records a confirmation for at least `lease`, by a command sent at `sent` and answered at `now`.
    pub(super) fn confirm(&mut self, sent: Moment, now: Moment, lease: Option<Duration>, third: Duration) {
        (self.confirmed, self.renewal_unanswered, self.not_before) = (sent.max(self.confirmed), false, None);
        if let Some(lease) = lease {
            self.sure_until = self.sure_until.max(sent + lease);
            self.record.lengthen(now + lease);
            self.renew_at = self.sure_until - third * 2;
        }
    }

    /// Records the loss of the lease. Unanswered commands, or a position, may begin the lease anew.
    pub(super) fn gone(&mut self, now: Moment) {
        self.record.unanswered += u32::from(self.record.queued_at.is_some());
        (self.sure_until, self.record.possible_until) =
            (self.sure_until.min(now), self.record.possible_until.min(now));
    }
}
