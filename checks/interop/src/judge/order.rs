//! Waiters for a fair lock, or to write, that meet no fault acquire it in the order of arrival.

use fleet::clock::seconds;

use super::{Judge, UNNOTICED};
use crate::names::LockKind;
use crate::story::Acquisition;

impl Judge<'_> {
    pub(super) fn order(&mut self) {
        for of_name in self.story.of_names(queues) {
            // From the last acquisition back: the arrivals and grants of all earlier acquisitions.
            let mut earlier: Vec<(u64, u64)> =
                of_name.iter().map(|it| (it.wanted, it.acquired.unwrap_or(it.wanted))).collect();
            for acquisition in of_name.iter().rev() {
                earlier.pop();
                if self.story.in_line_until(acquisition) != acquisition.acquired {
                    continue;
                }
                *self.seen.entry("waits in line compared").or_default() += 1;
                // Only acquisitions served during this wait have overtaken it.
                let since = earlier.partition_point(|(_, at)| *at <= acquisition.wanted);
                let last = earlier[since..].iter().map(|(wanted, _)| *wanted).max().unwrap_or(0);
                let by = last.saturating_sub(acquisition.wanted);
                if by > UNNOTICED {
                    let what = format!(
                        "{} was overtaken before lock {}, which has a queue, by one that came {:.3} s later, and no fault is to blame",
                        acquisition.tag(),
                        acquisition.name,
                        seconds(by),
                    );
                    self.wrong(acquisition.wanted, what);
                }
            }
        }
    }
}

/// True if the acquisition entered the queue, and got the lock from there.
fn queues(acquisition: &Acquisition) -> bool {
    LockKind::of(acquisition.name).queues()
        && !acquisition.wish.reads
        && acquisition.acquired.is_some()
        && acquisition.stands_in_line()
}
