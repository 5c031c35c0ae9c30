//! A waiter for a fair lock, or to write, that meets with no fault has it in the order of arrival.

use std::time::Duration;

use super::Violation;
use crate::clock::{nanos, seconds};
use crate::names::LockKind;
use crate::story::{Acquisition, Story};

/// A process that stands still for less than that does not say so, and begins to wait as much later than it
/// says.
const LIMIT: u64 = nanos(Duration::from_millis(200));

/// By how much a later waiter was served before an earlier one, in all that were compared.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// In order; only those overtaken.
    overtaken: Vec<u64>,
    /// How many waits were compared with the others.
    pub(crate) compared: usize,
}

impl Order {
    pub(crate) fn longest(&self) -> u64 {
        self.overtaken.last().copied().unwrap_or(0)
    }

    /// How many were overtaken by more than so much.
    pub(crate) fn beyond(&self, nanos: u64) -> usize {
        self.overtaken.len() - self.overtaken.partition_point(|by| *by <= nanos)
    }
}

pub(super) fn check(story: &Story, violations: &mut Vec<Violation>) -> Order {
    let mut order = Order::default();
    let mut served: Vec<&Acquisition> = story.acquisitions.iter().filter(|it| queues(it)).collect();
    served.sort_by_key(|it| (it.name, it.acquired));
    for of_name in served.chunk_by(|a, b| a.name == b.name) {
        // From the last to be served on: which of those that were served before it came after it.
        let mut earlier: Vec<(u64, u64)> =
            of_name.iter().map(|it| (it.wanted, it.acquired.unwrap_or(it.wanted))).collect();
        for acquisition in of_name.iter().rev() {
            earlier.pop();
            let Some(acquired) = acquisition.acquired else { continue };
            if story.in_line_until(acquisition) != Some(acquired) {
                continue;
            }
            order.compared += 1;
            // Only those served while it waited; the others are none of its business.
            let since = earlier.partition_point(|(_, at)| *at <= acquisition.wanted);
            let by =
                earlier[since..].iter().map(|(wanted, _)| wanted.saturating_sub(acquisition.wanted)).max();
            let Some(by) = by.filter(|by| *by > 0) else { continue };
            order.overtaken.push(by);
            if by > LIMIT {
                let what = format!(
                    "{} was overtaken before lock {}, which has a queue, by one that came {:.3} s later, and no fault is to blame",
                    acquisition.tag(),
                    acquisition.name,
                    seconds(by),
                );
                violations.push(Violation { at: acquisition.wanted, what });
            }
        }
    }
    order.overtaken.sort_unstable();
    order
}

/// Whether it took its place in the queue, and got the lock by it.
fn queues(acquisition: &Acquisition) -> bool {
    LockKind::of(acquisition.name).queues()
        && !acquisition.wish.reads
        && acquisition.acquired.is_some()
        && acquisition.stands_in_line()
}
