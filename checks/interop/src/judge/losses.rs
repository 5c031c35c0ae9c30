//! A holder learns of each loss in time, and reports no false loss.

use std::time::Duration;

use fleet::clock::nanos;

use super::Judge;
use crate::history::{Outcome, Why};
use crate::story::Acquisition;

/// Time from the removal of a lock to the last renewal's answer that missed the removal.
const UNDER_WAY: u64 = nanos(Duration::from_millis(500));

impl Judge<'_> {
    pub(super) fn losses(&mut self) {
        for acquisition in self.story.acquisitions.iter().filter(|it| it.acquired.is_some()) {
            for (at, what) in [self.told(acquisition), self.never_told(acquisition)].into_iter().flatten() {
                self.wrong(at, format!("lock {}: {}: {what}", acquisition.name, acquisition.tag()));
            }
        }
    }

    fn told(&self, it: &Acquisition) -> Option<(u64, &'static str)> {
        let was_taken = |at| self.story.taken_away_by(it, at).is_some();
        let wrong = match (it.lost, it.let_go) {
            (Some((at, Why::Gone)), _) if !was_taken(at) && at < it.deadline => {
                (at, "told that it is gone, and it was not taken away")
            }
            (Some((at, Why::Expired | Why::Unreachable)), _) if at < it.deadline => {
                (at, "told that its lease has ended, before it had")
            }
            (Some((at, Why::Expired | Why::Unreachable)), _) if it.wish.watched && !self.is_late(it, at) => {
                (at, "not renewed, and nothing was wrong")
            }
            (None, Some((at, Outcome::NotHeld))) if at < it.deadline && !was_taken(at) => {
                (at, "gave back a lock that it did not have, and it was not taken away")
            }
            _ => return None,
        };
        Some(wrong)
    }

    fn never_told(&self, it: &Acquisition) -> Option<(u64, &'static str)> {
        // An explicit owner may have acquired the lock anew.
        let (first, last) = it.beliefs.filter(|_| !it.wish.explicit)?;
        let (begin, end) = self.story.cut_within(it.name, first, last)?;
        let is_wrong = begin >= first && last > end + it.wish.lease + UNDER_WAY;
        is_wrong.then_some((last, "still believed in, though it was taken away a lease ago"))
    }

    /// True if a fault could have delayed a renewal, from when it was due to the end of the lease.
    fn is_late(&self, it: &Acquisition, at: u64) -> bool {
        let since = at.saturating_sub(it.wish.lease * 3 / 2);
        self.story.woes[it.member].commands.last_within(since, at).is_some()
    }
}
