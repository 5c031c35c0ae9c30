//! The outcome: per lock, added up, and as a table.

use std::fmt;
use std::time::Duration;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use hdrhistogram::Histogram;
use latchwork::lock::LockStats;
#[cfg(feature = "redis")]
use serde::{Deserialize, Serialize};

pub(crate) struct EnterOutcome {
    pub(crate) alone: bool,
    /// Time at which the previous holder left, by [`clock::now`](crate::clock::now); 0 before the first.
    pub(crate) last_left: u64,
    /// True if the previous holder was of this process.
    pub(crate) last_here: bool,
}

#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "redis", derive(Serialize, Deserialize))]
pub(crate) struct Tally {
    /// Number of times that a holder found another one inside.
    overlaps: u64,
    /// From a holder of the same process.
    within: HandOffs,
    /// From a holder of another process.
    between: HandOffs,
}

impl Tally {
    pub(crate) fn add_turn(&mut self, waiting_since: u64, acquired: u64, entered: &EnterOutcome) {
        self.overlaps += u64::from(!entered.alone);
        // A later task found the lock free, without a hand-off.
        if waiting_since < entered.last_left {
            let hand_offs = if entered.last_here { &mut self.within } else { &mut self.between };
            hand_offs.record(acquired.saturating_sub(entered.last_left), 1);
        }
    }
}

#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "redis", derive(Serialize, Deserialize))]
pub(crate) struct LockOutcome {
    acquisitions: u64,
    wakes_useful: u64,
    wakes_spurious: u64,
    tally: Tally,
}

impl LockOutcome {
    pub(crate) fn new(stats: LockStats, tally: Tally) -> Self {
        let LockStats { acquisitions, wakes_useful, wakes_spurious, .. } = stats;
        Self { acquisitions, wakes_useful, wakes_spurious, tally }
    }

    /// Adds another process's outcome of the same lock, or the outcome of another lock.
    pub(crate) fn add(&mut self, other: &Self) {
        self.acquisitions += other.acquisitions;
        self.wakes_useful += other.wakes_useful;
        self.wakes_spurious += other.wakes_spurious;
        self.tally.overlaps += other.tally.overlaps;
        self.tally.within.0 += &other.tally.within.0;
        self.tally.between.0 += &other.tally.between.0;
    }

    fn row(&self, name: String) -> [String; 6] {
        [
            name,
            self.acquisitions.to_string(),
            self.tally.within.both(),
            self.tally.between.both(),
            self.wakes_useful.to_string(),
            self.wakes_spurious.to_string(),
        ]
    }
}

/// Nanoseconds, to three digits.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "redis",
    derive(Serialize, Deserialize),
    serde(into = "Vec<(u64, u64)>", from = "Vec<(u64, u64)>")
)]
struct HandOffs(Histogram<u64>);

impl HandOffs {
    fn record(&mut self, nanos: u64, count: u64) {
        self.0.record_n(nanos, count).expect("the histogram grows as it has to");
    }

    /// The median and the 99th percentile.
    fn both(&self) -> String {
        if self.0.is_empty() {
            return "–".to_owned();
        }
        let at = |quantile| human(Duration::from_nanos(self.0.value_at_quantile(quantile)));
        format!("{} / {}", at(0.50), at(0.99))
    }
}

impl Default for HandOffs {
    fn default() -> Self {
        Self(Histogram::new(3).expect("three digits are allowed"))
    }
}

/// The form sent between processes: each recorded value, with its count.
#[cfg(feature = "redis")]
impl From<HandOffs> for Vec<(u64, u64)> {
    fn from(hand_offs: HandOffs) -> Self {
        let values = hand_offs.0.iter_recorded();
        values.map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
    }
}

#[cfg(feature = "redis")]
impl From<Vec<(u64, u64)>> for HandOffs {
    fn from(values: Vec<(u64, u64)>) -> Self {
        let mut hand_offs = Self::default();
        for (value, count) in values {
            hand_offs.record(value, count);
        }
        hand_offs
    }
}

/// The outcome of the whole job. Displayed, it ends with a line of success or failure.
pub(crate) struct Outcome {
    pub(crate) expected: u64,
    pub(crate) counted: u64,
    pub(crate) took: Duration,
    pub(crate) locks: Vec<LockOutcome>,
}

impl Outcome {
    pub(crate) fn is_right(&self) -> bool {
        self.expected == self.counted && self.total().tally.overlaps == 0
    }

    fn total(&self) -> LockOutcome {
        let mut total = LockOutcome::default();
        for lock in &self.locks {
            total.add(lock);
        }
        total
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED).set_header([
            "lock",
            "acquisitions",
            "hand-off within\na process\np50 / p99",
            "hand-off between\nprocesses\np50 / p99",
            "wakes\nuseful",
            "wakes\nspurious",
        ]);
        for (number, lock) in self.locks.iter().enumerate() {
            table.add_row(lock.row(number.to_string()));
        }
        table.add_row(self.total().row("total".to_owned()));
        for numeric in table.column_iter_mut().skip(1) {
            numeric.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.table())?;
        writeln!(
            f,
            "A hand-off takes from the release until a task that waited has the lock. After a spurious wake"
        )?;
        writeln!(f, "another task was faster: the woken task waits on.")?;
        writeln!(f, "took {}", human(self.took))?;
        let overlaps = self.total().tally.overlaps;
        write!(f, "expected {}, counted {}, overlaps {overlaps}", self.expected, self.counted)
    }
}

fn human(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match duration.as_micros() {
        0..1_000 => format!("{:.1} µs", seconds * 1e6),
        1_000..1_000_000 => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}
