//! Nobody waits beside a free lock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Violation;
use crate::clock::{nanos, seconds};
use crate::spans::Spans;
use crate::story::Story;

/// A round trip, on a machine that has other things to do as well; and far less than a watched lease, which is what a wake-up
/// that is lost costs.
const LIMIT: u64 = nanos(Duration::from_millis(750));

/// How long locks were free though somebody waited, in each time that they were.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// In order.
    waits: Vec<u64>,
    /// How long somebody waited whom no fault kept from being served, whether the lock was free or not.
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
    let names: BTreeSet<u32> = story.attempts.iter().map(|attempt| attempt.name).collect();
    for name in names {
        let of_name = || story.attempts.iter().filter(move |attempt| attempt.name == name);
        let held = Spans::union(of_name().filter_map(|attempt| story.may_be_held(attempt)));
        let mut waits: BTreeMap<usize, Vec<(u64, u64)>> = BTreeMap::new();
        for attempt in of_name() {
            waits.entry(attempt.worker).or_default().extend(attempt.waited());
        }
        let waited = waits.into_iter().flat_map(|(worker, waits)| {
            let healthy = Spans::union(waits).without(&story.woes[worker].any);
            healthy.iter().collect::<Vec<_>>()
        });
        let waited = Spans::union(waited);
        patience.judged += waited.total();

        let mut acquired: Vec<u64> = of_name().filter_map(|attempt| attempt.acquired).collect();
        acquired.sort_unstable();
        // What an abandoned attempt may have held meanwhile does not begin the wait anew.
        let mut by_gap: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for (from, to) in waited.without(&held).iter() {
            let gap = acquired.partition_point(|at| *at <= from);
            let (total, _) = by_gap.entry(gap).or_insert((0, from));
            *total += to - from;
        }
        for (wait, since) in by_gap.into_values() {
            patience.waits.push(wait);
            if wait > LIMIT {
                let what = format!(
                    "lock {name} was free for {:.3} s, and somebody waited whom no fault kept from it",
                    seconds(wait),
                );
                violations.push(Violation { at: since, what });
            }
        }
    }
    patience.waits.sort_unstable();
    patience
}
