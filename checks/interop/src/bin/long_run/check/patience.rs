//! No waiter waits beside a free lock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Violation;
use crate::clock::{nanos, seconds};
use crate::names::{LEASE, LockKind};
use crate::spans::Spans;
use crate::story::{Acquisition, Story};

/// For how long a position in a fair lock's queue is kept: a third of the watched lease.
const POSITION: u64 = nanos(LEASE) / 3;

/// For how long readers have their turn, whether they come or not.
const TURN: u64 = nanos(Duration::from_secs(1));

/// A round trip, on a machine that has other things to do as well; and far less than a watched lease, which
/// is what a wake-up that is lost costs.
const LIMIT: u64 = nanos(Duration::from_millis(750));

/// How long locks were free though there were waiters, in each time that they were.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// In order.
    waits: Vec<u64>,
    /// How long a waiter waited that no fault kept from being served, whether the lock was free or not.
    pub(crate) judged: u64,
}

impl Patience {
    pub(crate) fn longest(&self) -> u64 {
        self.waits.last().copied().unwrap_or(0)
    }

    pub(crate) fn percentile(&self, percent: usize) -> u64 {
        let place = (self.waits.len() * percent / 100).min(self.waits.len().saturating_sub(1));
        self.waits.get(place).copied().unwrap_or(0)
    }
}

pub(super) fn check(story: &Story, violations: &mut Vec<Violation>) -> Patience {
    let mut patience = Patience::default();
    let names: BTreeSet<u32> = story.acquisitions.iter().map(|acquisition| acquisition.name).collect();
    for name in names {
        let of_name: Vec<&Acquisition> =
            story.acquisitions.iter().filter(|acquisition| acquisition.name == name).collect();
        for reads in [false, true] {
            let mut waits: BTreeMap<usize, Vec<(u64, u64)>> = BTreeMap::new();
            for acquisition in of_name.iter().filter(|it| it.wish.reads == reads) {
                waits.entry(acquisition.worker).or_default().extend(acquisition.waited());
            }
            let waited = waits.into_iter().flat_map(|(worker, waits)| {
                let healthy = Spans::union(waits).without(&story.woes[worker].any);
                healthy.iter().collect::<Vec<_>>()
            });
            let waited = Spans::union(waited);
            patience.judged += waited.total();
            judge(
                name,
                &of_name,
                &waited.without(&kept_from(story, &of_name, reads)),
                &mut patience,
                violations,
            );
        }
    }
    patience.waits.sort_unstable();
    patience
}

/// When no reader, or no exclusive owner, could have the lock.
fn kept_from(story: &Story, of_name: &[&Acquisition], reads: bool) -> Spans {
    let held = of_name.iter().filter(|it| !reads || !it.wish.reads).filter_map(|it| story.may_be_held(it));
    // A lock may be granted to a waiter that does not take it, as it stands still or is cut off, and stays
    // with it for as long as a position is kept; and readers may be let in that do not come.
    let granted = of_name.iter().filter(|it| LockKind::of(it.name).queues()).flat_map(|acquisition| {
        let (waits, kept) = (acquisition.waited(), if acquisition.wish.reads { TURN } else { POSITION });
        let woes = &story.woes[acquisition.worker].any;
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

/// The lock was `free` for a waiter.
fn judge(
    name: u32,
    of_name: &[&Acquisition],
    free: &Spans,
    patience: &mut Patience,
    violations: &mut Vec<Violation>,
) {
    let mut acquired: Vec<u64> = of_name.iter().filter_map(|acquisition| acquisition.acquired).collect();
    acquired.sort_unstable();
    // What an abandoned acquisition may have held meanwhile does not begin the wait anew.
    let mut by_gap: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    for (from, to) in free.iter() {
        let gap = acquired.partition_point(|at| *at <= from);
        let (total, _) = by_gap.entry(gap).or_insert((0, from));
        *total += to - from;
    }
    for (wait, since) in by_gap.into_values() {
        patience.waits.push(wait);
        if wait > LIMIT {
            let what = format!(
                "lock {name} was free for {:.3} s, and a task waited that no fault kept from it",
                seconds(wait),
            );
            violations.push(Violation { at: since, what });
        }
    }
}
