//! No waiter waits beside a free lock.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet::clock::{nanos, seconds};

use super::Judge;
use crate::names::{LEASE, LockKind};
use crate::spans::Spans;
use crate::story::{Acquisition, Story};

/// How long the store keeps a position in a fair lock's queue: a third of the watched lease.
const POSITION: u64 = nanos(LEASE) / 3;

/// Length of a turn of readers that do not come.
const TURN: u64 = nanos(Duration::from_secs(1));

/// A round trip on a busy machine; far shorter than a watched lease, which is the cost of a lost wake-up.
const LIMIT: u64 = nanos(Duration::from_millis(750));

impl Judge<'_> {
    pub(super) fn patience(&mut self) {
        for of_name in self.story.of_names(|_| true) {
            for reads in [false, true] {
                let waits = of_name.iter().filter(|it| it.wish.reads == reads).flat_map(|it| {
                    let woes = &self.story.woes[it.member].any;
                    Spans::union(it.waited()).without(woes).iter().collect::<Vec<_>>()
                });
                let waited = Spans::union(waits);
                *self.seen.entry("ms waited that were judged").or_default() += waited.total() / 1_000_000;
                self.free(&of_name, &waited.without(&kept_from(self.story, &of_name, reads)));
            }
        }
    }

    /// Checks the times in which the lock was `free` for a waiter.
    fn free(&mut self, of_name: &[&Acquisition], free: &Spans) {
        // Free times between the same two grants add up: an abandoned acquisition in between may have held
        // the lock, and must not restart the wait.
        let mut by_gap: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for (from, to) in free.iter() {
            // Acquisitions without a grant are sorted first.
            let gap = of_name.partition_point(|it| it.acquired.is_none_or(|at| at <= from));
            by_gap.entry(gap).or_insert((0, from)).0 += to - from;
        }
        for (wait, since) in by_gap.into_values().filter(|(wait, _)| *wait > LIMIT) {
            let (name, wait) = (of_name[0].name, seconds(wait));
            let what =
                format!("lock {name} was free for {wait:.3} s, and a task waited that no fault kept from it");
            self.wrong(since, what);
        }
    }
}

/// The times in which no reader, or no exclusive owner, could have the lock.
fn kept_from(story: &Story, of_name: &[&Acquisition], reads: bool) -> Spans {
    let held = of_name.iter().filter(|it| !reads || !it.wish.reads).filter_map(|it| story.may_be_held(it));
    // A waiter that stands still or is cut off may be granted the lock without taking it, for as long as its
    // position is kept; and readers that were let in may not come.
    let granted = of_name.iter().filter(|it| LockKind::of(it.name).queues()).flat_map(|acquisition| {
        let (waits, kept) = (acquisition.waited(), if acquisition.wish.reads { TURN } else { POSITION });
        let woes = &story.woes[acquisition.member].any;
        waits.into_iter().flat_map(move |(from, to)| {
            let woes = woes.iter().filter(move |(begin, end)| *begin <= to && from <= *end);
            woes.map(move |(begin, end)| (begin.max(from), end + kept))
        })
    });
    // No reader passes a waiting writer.
    let queued = of_name.iter().filter(|it| reads && !it.wish.reads).filter_map(|it| {
        let (from, to) = it.waited()?;
        Some((from, story.may_be_held(it).map_or(to, |(_, until)| until.max(to))))
    });
    Spans::union(held.chain(granted).chain(queued))
}
