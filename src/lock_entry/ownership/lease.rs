//! [`StoreLease`]: a lease granted to this process under one number.
//!
//! # The moments of a lease
//!
//! No command shortens a lease at the store, and commands may be under way, unanswered, or late. So the
//! store's end of the lease is known as a range only:
//!
//! ```text
//!   sure_until ≤ the end that the store keeps ≤ possible_until
//! ```
//!
//! * `sure_until` comes from commands that the store has confirmed, each counted from before it was sent. A
//!   hold is believed in until then and no longer: `is_held`, `remaining` and `lost` go by `sure_until`.
//! * `possible_until`, of the [record](super::record), comes from all commands that were sent, answered or
//!   not. A lease that is left, or whose holds have ended, is released unless `possible_until` has passed:
//!   otherwise an extension that was never answered would keep the lock at the store, unused.
//!
//! A hold may end before its lease does: when all leases of its owners' own are over, or after `max_hold`.
//! See [`Sharer`](super::owner_holds::Sharer).

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::support::moment::Moment;

use super::super::outcome::Attempt;
use super::record::StoreRecord;

/// Time of a round trip: a lease that expires this soon at the store, too, needs no look at its end.
const ROUND_TRIP: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct StoreLease {
    pub(super) record: StoreRecord,
    /// End of the tenure, counted from the question: from then on a lease goes back to the store when it is
    /// left.
    pub(super) tenure_ends: Moment,
    /// End of the lease by the commands that the store has confirmed.
    pub(super) sure_until: Moment,
    /// Unused tokens.
    pub(super) tokens: RangeInclusive<u64>,
    /// Send time of the latest command by which the store confirmed the lease.
    pub(super) confirmed: Moment,
    /// Send time of the first command, or answer time of the command that began the lease anew by this
    /// number. Answers to commands sent before may describe an earlier lease of the same number.
    pub(super) begun: Moment,
    pub(super) renew_at: Moment,
    pub(super) renewing: bool,
    /// A renewal was sent, and none was answered since.
    pub(super) renewal_unanswered: bool,
    /// Earliest time of the next renewal, once a renewal has failed.
    pub(super) not_before: Option<Moment>,
    /// The next look verifies the lease, for a waiter that cannot wait, or after a forced unlock.
    pub(super) verify: bool,
}

impl StoreLease {
    /// Returns the granted lease, counted from the attempt's sending. `third` of it: interval of renewals.
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

    /// Time for which the lease is still sure.
    pub(super) fn left(&self, now: Moment) -> Duration {
        self.sure_until.saturating_duration_since(now)
    }

    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.sure_until <= now
    }

    /// True if the client has to release the lease at `moment`, should its last hold end then.
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

    // === Commands ===

    /// Records a command about to be sent, which makes the lease last for at least `lease` from `sent` on.
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
    /// to ask for: at least as long as the store may keep the lease, since some stores set lengths exactly.
    pub(super) fn leases_anew(&mut self, sent: Moment, lease: Duration) -> Duration {
        let possible = self.record.possible_until.saturating_duration_since(sent);
        let lease = lease.max(possible);
        self.lengthens(sent, lease);
        self.record.may_run();
        lease
    }

    /// Records that the store has begun the lease anew. A coarse clock may give earlier commands `sent`, too.
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

    /// Records the loss of the lease at the store. Unanswered commands, and a position, may begin it anew.
    pub(super) fn gone(&mut self, now: Moment) {
        self.record.unanswered += u32::from(self.record.queued_at.is_some());
        (self.sure_until, self.record.possible_until) =
            (self.sure_until.min(now), self.record.possible_until.min(now));
    }
}
