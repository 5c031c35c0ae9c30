//! [`StoreRecord`]: everything that the store may have of one number of this process.
//!
//! A queue head has the record of the number by which it competes, and hands the record over to the lease
//! that the store grants. A lease that goes on with the next queue head hands its record back. So no command
//! that was sent for a number is forgotten on the way.

use crate::support::moment::Moment;

use super::super::outcome::PendingRelease;

#[derive(Debug)]
pub(super) struct StoreRecord {
    pub(super) number: u64,
    /// End of what the store may keep, by all commands that were sent. Counted from the answer of a command,
    /// or from before it was sent if there is none.
    pub(super) possible_until: Moment,
    /// Count of commands that lease the name to the number and were not answered: each may still run, also
    /// after a release. So the number is rolled back, and not only released.
    pub(super) unanswered: u32,
    /// Send time of the last command that is known to have put the number into the store's queue, or to have
    /// kept it there; of the first command, if none is known to. Of a lease: `Some` if a message has granted
    /// it. An attempt that ran after the lease was forced free has put the number into the queue once more.
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

    /// A command that leases the name is about to be sent; or such a command was answered, and may run once
    /// more.
    pub(super) fn may_run(&mut self) {
        self.unanswered += 1;
    }

    /// A command that leases the name was answered, or did not run.
    pub(super) fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// The release of all that the store may have. The number is rolled back if a command may still run; what
    /// was answered, as a position that is given up, is released like a lease. `appoints`: the next waiter
    /// comes once the release is under way.
    pub(super) fn to_release(&self, appoints: bool) -> PendingRelease {
        let rolls_back = self.unanswered > 0;
        PendingRelease { number: self.number, until: self.possible_until, appoints, rolls_back }
    }
}
