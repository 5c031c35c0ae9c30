//! [`StoreRecord`]: the possible state of one of this process' numbers at the store.
//!
//! A queue head hands its number's record to the granted lease, and a lease that passes to the next queue
//! head hands the record back: no command sent for a number is forgotten.

use crate::support::moment::Moment;

use super::super::outcome::PendingRelease;

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

    pub(super) fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Returns the number's release, which rolls back if a command may still run. (A position is given up by
    /// a plain release.) `appoints`: see [`PendingRelease::appoints`].
    pub(super) fn to_release(&self, appoints: bool) -> PendingRelease {
        let rolls_back = self.unanswered > 0;
        PendingRelease { number: self.number, until: self.possible_until, appoints, rolls_back }
    }
}
