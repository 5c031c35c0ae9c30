//! [`StoreLease`]: what the store granted to this process under one number.
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
//!   hold is believed in until then and no longer: `is_held`, `remaining` and `lost` go by it.
//! * `possible_until`, of the [record](super::record), comes from all commands that were sent, whatever
//!   became of them. A lease that is left, or whose holds have ended, is released unless that has passed:
//!   otherwise an extension that was never answered would keep the lock at the store, unused.
//!
//! A hold may end before its lease does: when all leases of its owners' own are over, or after `max_hold`.
//! See [`Sharer`](super::owner_holds::Sharer).

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::support::moment::Moment;

use super::super::outcome::Attempt;
use super::record::StoreRecord;

/// A store that keeps a lease for so long after it is over here is not told so, unless the lease is left: it
/// is the time of a round trip.
const ROUND_TRIP: Duration = Duration::from_millis(50);

/// What the store granted.
#[derive(Debug)]
pub(super) struct StoreLease {
    pub(super) record: StoreRecord,
    /// From then on the lease goes back to the store when it is left. Counted from when it was asked for.
    pub(super) tenure_ends: Moment,
    /// End of the lease by what the store has confirmed.
    pub(super) sure_until: Moment,
    /// Tokens that are left, from the first to the last.
    pub(super) tokens: RangeInclusive<u64>,
    /// Send time of the command by which the store confirmed the lease last.
    pub(super) confirmed: Moment,
    /// Send time of the first command; or, of a lease that was begun anew by this number, the time of that
    /// answer. Answers to commands sent before may describe an earlier lease of the same number.
    pub(super) begun: Moment,
    /// Time of the next renewal.
    pub(super) renew_at: Moment,
    /// A renewal is under way.
    pub(super) renewing: bool,
    /// A renewal went out, and none was answered since.
    pub(super) renewal_unanswered: bool,
    /// Earliest time of the next renewal, once one has failed.
    pub(super) not_before: Option<Moment>,
    /// A waiter cannot wait for the next renewal, or the lease may have been forced free before it was known.
    pub(super) verify: bool,
}

impl StoreLease {
    /// The store has granted what `attempt` asked for: `lease` from `sent` on at least. `third`: of the
    /// lease, by which it is renewed.
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

    /// For how long it is believed in.
    pub(super) fn left(&self, now: Moment) -> Duration {
        self.sure_until.saturating_duration_since(now)
    }

    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.sure_until <= now
    }

    /// Whether the store is to be told when nothing of it is left here at `moment`, with no command to be
    /// sent before.
    pub(super) fn is_to_be_ended(&self, moment: Moment) -> bool {
        self.may_outlast(moment + ROUND_TRIP)
    }

    /// Whether the store may keep it after `moment`.
    pub(super) fn may_outlast(&self, moment: Moment) -> bool {
        moment < self.record.possible_until || self.record.unanswered > 0
    }

    /// Whether the store may keep it for longer than a lease of this length.
    pub(super) fn may_exceed(&self, lease: Duration, now: Moment) -> bool {
        self.record.possible_until > now + lease
    }

    pub(super) fn has_token(&self) -> bool {
        !self.tokens.is_empty()
    }

    // === Commands ===

    /// A command is about to be sent that makes it last for `lease` from then on at least.
    pub(super) fn lengthens(&mut self, sent: Moment, lease: Duration) {
        self.record.lengthen(sent + lease);
    }

    /// A renewal is about to be sent, for as long as that, or to ask only.
    pub(super) fn renews(&mut self, sent: Moment, lease: Option<Duration>) {
        (self.renewing, self.verify) = (true, false);
        if let Some(lease) = lease {
            self.renewal_unanswered = true;
            self.lengthens(sent, lease);
        }
    }

    /// A command is about to be sent that leases the name to this number anew. For how long: at least as long
    /// as the store may keep it already, since a store that sets what it is told must not shorten what
    /// another command under way has made longer.
    pub(super) fn leases_anew(&mut self, sent: Moment, lease: Duration) -> Duration {
        let possible = self.record.possible_until.saturating_duration_since(sent);
        let lease = lease.max(possible);
        self.lengthens(sent, lease);
        self.record.may_run();
        lease
    }

    /// The store has begun it anew, by a command of `sent`. A clock may not tell that from a command before.
    pub(super) fn begun_anew(&mut self, sent: Moment, now: Moment) {
        self.begun = now.max(sent + Duration::from_nanos(1));
    }

    /// The store confirmed, by a command that was sent at `sent` and answered at `now`, that it lasts at
    /// least for `lease`.
    pub(super) fn confirm(&mut self, sent: Moment, now: Moment, lease: Option<Duration>, third: Duration) {
        (self.confirmed, self.renewal_unanswered, self.not_before) = (sent.max(self.confirmed), false, None);
        if let Some(lease) = lease {
            self.sure_until = self.sure_until.max(sent + lease);
            self.record.lengthen(now + lease);
            self.renew_at = self.sure_until - third * 2;
        }
    }

    /// The store does not keep it any more. What is unanswered may begin it anew, and so may a position in
    /// the store's queue.
    pub(super) fn gone(&mut self, now: Moment) {
        self.record.unanswered += u32::from(self.record.queued_at.is_some());
        (self.sure_until, self.record.possible_until) =
            (self.sure_until.min(now), self.record.possible_until.min(now));
    }
}
