//! Where no queue is ever empty, every process has its turn.

use std::time::Duration;

use super::Violation;
use crate::clock::{nanos, seconds};
use crate::names::{ALL_CROWDED, LEASE};
use crate::spans::Spans;
use crate::story::Story;

/// Some three times what is promised, which is five tenures of 30 ms for each of the four processes: on a
/// machine that has other things to do as well, and where connections are killed meanwhile.
const LIMIT: u64 = nanos(Duration::from_secs(2));

/// The longest wait that no fault is to blame for.
pub(super) fn check(story: &Story, violations: &mut Vec<Violation>) -> u64 {
    // The lock may be with any of them, so what goes wrong with one keeps all waiting; and what it leaves at
    // the store, for a lease.
    let troubles = Spans::union(story.troubles.iter().map(|trouble| {
        let left = if trouble.kind.strands_commands() { nanos(LEASE) } else { 0 };
        (trouble.from, trouble.to + trouble.kind.recovery() + left)
    }));
    let mut longest = 0;
    for acquisition in story.acquisitions.iter().filter(|acquisition| ALL_CROWDED.contains(&acquisition.name))
    {
        let waited = Spans::union(acquisition.waited()).without(&troubles).total();
        longest = longest.max(waited);
        if waited > LIMIT {
            let what = format!(
                "{} was kept waiting for {:.3} s before lock {}, and no fault is to blame",
                acquisition.tag(),
                seconds(waited),
                acquisition.name,
            );
            violations.push(Violation { at: acquisition.wanted, what });
        }
    }
    longest
}
