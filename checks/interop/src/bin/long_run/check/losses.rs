//! A holder learns of each loss in time, and of none that is not one.

use std::time::Duration;

use super::Violation;
use crate::clock::nanos;
use crate::history::{Outcome, Why};
use crate::story::{Acquisition, Story};

/// From a lock's being taken away to a renewal's answer that does not know of it yet.
const UNDER_WAY: u64 = nanos(Duration::from_millis(500));

pub(super) fn check(story: &Story, violations: &mut Vec<Violation>) {
    for acquisition in story.acquisitions.iter().filter(|acquisition| acquisition.acquired.is_some()) {
        let cut = |to| story.taken_away_by(acquisition, to);
        let mut wrong = |at, what: &str| {
            let what = format!("lock {}: {}: {what}", acquisition.name, acquisition.tag());
            violations.push(Violation { at, what });
        };
        match acquisition.lost {
            Some((at, Why::Gone)) if cut(at).is_none() && at < acquisition.deadline => {
                wrong(at, "told that it is gone, and it was not taken away");
            }
            Some((at, Why::Expired | Why::Unreachable)) if at < acquisition.deadline => {
                wrong(at, "told that its lease has ended, before it had");
            }
            Some((at, why))
                if acquisition.wish.watched && why != Why::Gone && !excused(story, acquisition, at) =>
            {
                wrong(at, "not renewed, and nothing was wrong");
            }
            _ => {}
        }
        if let (None, Some((at, Outcome::NotHeld))) = (acquisition.lost, acquisition.let_go)
            && at < acquisition.deadline
            && cut(at).is_none()
        {
            wrong(at, "gave back a lock that it did not have, and it was not taken away");
        }
        // An explicit owner may have got the lock anew.
        let (Some((first, last)), false) = (acquisition.beliefs, acquisition.wish.explicit) else { continue };
        if let Some((begin, end)) = story.cut_within(acquisition.name, first, last)
            && begin >= first
            && last > end + acquisition.wish.lease + UNDER_WAY
        {
            wrong(last, "still believed in, though it was taken away a lease ago");
        }
    }
}

/// Whether a renewal could have come too late, from the one that should have been made to the end of the
/// lease.
fn excused(story: &Story, acquisition: &Acquisition, at: u64) -> bool {
    story.woes[acquisition.worker]
        .commands
        .last_within(at.saturating_sub(acquisition.wish.lease * 3 / 2), at)
        .is_some()
}
