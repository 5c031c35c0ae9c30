//! [`StoreRecord`]: the possible state of one of this process' numbers at the store.
//!
//! A queue head hands its number's record over to the granted lease, and a lease that goes on with the next
//! queue head hands the record back. So no command sent for a number is forgotten on the way.

use crate::support::moment::Moment;

use super::super::outcome::PendingRelease;

#[derive(Debug)]
pub(super) struct StoreRecord {
    pub(super) number: u64,
    /// End of the time for which the store may keep the number, by all commands sent. Counted from a
    /// command's answer, or, without an answer, from before the command was sent.
    pub(super) possible_until: Moment,
    /// Count of commands without an answer, leasing the name to the number: each may still run, also after a
    /// release. So the number is rolled back, and not only released.
    pub(super) unanswered: u32,
    /// Send time of the last command known to have placed or kept the number in the store's queue; without
    /// such a command, of the first command. Of a lease: `Some` if a message has granted the lease. An
    /// attempt that ran after a forced unlock may have queued the number once more.
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
    pub(super) fn may_run(&mut self) {
        self.unanswered += 1;
    }

    /// Counts a leasing command as answered, also if the command did not run.
    pub(super) fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Returns the number's release, which rolls back if a command may still run. A position that is given
    /// up, with all commands answered, needs a plain release. `appoints`: see [`PendingRelease::appoints`].
    pub(super) fn to_release(&self, appoints: bool) -> PendingRelease {
        let rolls_back = self.unanswered > 0;
        PendingRelease { number: self.number, until: self.possible_until, appoints, rolls_back }
    }
}
