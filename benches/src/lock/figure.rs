//! [`Figure`]: a number of each row, with the goal of ours; and the table of figures.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};

use super::clients::{Client, Latchwork, Raw};
use crate::record;

/// A number of each row.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The scenario's name.
    pub scenario: &'static str,
    /// The quantity and its unit.
    pub what: &'static str,
    /// Printed digits after the point; [`Goal`]s are judged by the printed number.
    pub digits: usize,
    /// The goal of ours.
    pub goal: Option<Goal>,
    /// The number of each row.
    pub values: Vec<(&'static str, f64)>,
}

/// The goal of our figure.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// At most this multiple of the best peer's figure; less is better.
    OfBestPeer(f64),
    /// For another row than ours: at most a multiple of a peer's figure.
    OfRow {
        /// The row.
        row: &'static str,
        /// The peer's row.
        peer: &'static str,
        /// The factor.
        times: f64,
    },
    /// For another row than ours: at most this.
    AtMostBy {
        /// The row.
        row: &'static str,
        /// The limit.
        most: f64,
    },
    /// For another row than ours: at least this.
    AtLeastBy {
        /// The row.
        row: &'static str,
        /// The limit.
        least: f64,
    },
    /// At least this multiple of the raw row's rate; the figures are times.
    RateOfRaw(f64),
}

/// The result of a scenario.
#[derive(Debug, Default)]
pub struct Measurement {
    /// The rows of the table.
    pub figures: Vec<Figure>,
    /// Lines below the table.
    pub notes: Vec<String>,
}

impl Measurement {
    /// Appends the figures and notes of another measurement.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.figures.extend(other.figures);
        self.notes.extend(other.notes);
        self
    }
}

/// A client's results in a scenario.
pub trait Row {
    /// The client's name.
    fn client(&self) -> &'static str;
}

/// The rows of a scenario, and the measurement made of them.
#[derive(Debug)]
pub struct Rows<R> {
    scenario: &'static str,
    rows: Vec<R>,
    /// The figures and notes so far.
    pub measurement: Measurement,
}

impl<R: Row> Rows<R> {
    /// Begins with a note on each row.
    pub fn new(scenario: &'static str, rows: Vec<R>, note: impl Fn(&R) -> String) -> Self {
        let notes = rows.iter().map(note).collect();
        Self { scenario, rows, measurement: Measurement { figures: Vec::new(), notes } }
    }

    /// Adds a number of each row.
    pub fn push(&mut self, what: &'static str, digits: usize, goal: Option<Goal>, of: fn(&R) -> f64) {
        let values = self.rows.iter().map(|row| (row.client(), of(row))).collect();
        self.measurement.figures.push(Figure { scenario: self.scenario, what, digits, goal, values });
    }
}

impl Figure {
    fn of(&self, row: &str) -> Option<f64> {
        self.values.iter().find(|(name, _)| *name == row).map(|(_, value)| *value)
    }

    fn show(&self, value: f64) -> String {
        format!("{value:.*}", self.digits)
    }

    fn shown(&self, value: f64) -> f64 {
        self.show(value).parse().expect("a number")
    }

    fn best_peer(&self) -> Option<(&'static str, f64)> {
        let peers = self.values.iter().filter(|(name, _)| ![Latchwork::NAME, Raw::NAME].contains(name));
        peers.copied().min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The comparison with the goal as text, and true if the goal is reached.
    fn verdict(&self) -> Option<(String, bool)> {
        let ours = self.of(Latchwork::NAME);
        Some(match self.goal? {
            Goal::AtMost(most) => (format!("<= {most}"), self.shown(ours?) <= most),
            Goal::AtLeast(least) => (format!(">= {least}"), self.shown(ours?) >= least),
            Goal::OfBestPeer(times) => {
                let (name, best) = self.best_peer()?;
                let ratio = ours? / best;
                (format!("<= {times} of {name}: {ratio:.2}"), ratio <= times)
            }
            Goal::OfRow { row, peer, times } => {
                let ratio = self.of(row)? / self.of(peer)?;
                (format!("{row} <= {times} of {peer}: {ratio:.2}"), ratio <= times)
            }
            Goal::AtMostBy { row, most } => (format!("{row} <= {most}"), self.shown(self.of(row)?) <= most),
            Goal::AtLeastBy { row, least } => {
                (format!("{row} >= {least}"), self.shown(self.of(row)?) >= least)
            }
            Goal::RateOfRaw(times) => {
                let rate = self.of(Raw::NAME)? / ours?;
                (format!(">= {times} of raw's rate: {rate:.2}"), rate >= times)
            }
        })
    }

    fn median(runs: &[Figure]) -> (Figure, (f64, f64)) {
        let mut median = runs[0].clone();
        let mut spread = (f64::NAN, f64::NAN);
        for (name, value) in &mut median.values {
            let mut all: Vec<f64> = runs.iter().filter_map(|run| run.of(name)).collect();
            all.sort_by(f64::total_cmp);
            *value = all[(all.len() - 1) / 2];
            if *name == Latchwork::NAME {
                spread = (all[0], all[all.len() - 1]);
            }
        }
        (median, spread)
    }
}

/// Each figure of several runs of the same scenarios, with quartiles over the runs.
pub fn records(runs: &[Measurement]) -> Vec<record::Figure> {
    let Some(first) = runs.first() else { return Vec::new() };
    // For all other figures here less is better.
    let is_rate = |what: &str| ["a second", "Jain", "served least"].iter().any(|word| what.contains(word));
    let record = |(at, figure): (usize, &Figure)| {
        let (what, unit) = figure.what.rsplit_once(", ").unwrap_or((figure.what, ""));
        record::Figure {
            name: format!("{}: {what}", in_words(figure.scenario)),
            unit: unit.replace("us", "µs"),
            digits: figure.digits,
            more_is_better: is_rate(figure.what),
            values: figure
                .values
                .iter()
                .map(|(row, _)| {
                    let all = runs.iter().filter_map(|run| run.figures.get(at)?.of(row));
                    record::Value::of(row, all.collect())
                })
                .collect(),
        }
    };
    first.figures.iter().enumerate().map(record).collect()
}

fn in_words(scenario: &str) -> &str {
    match scenario {
        "commands" | "uncontended" => "no contention",
        "throughput" => "one client, a name for each task",
        "hand_off" => "hand-off to another process",
        "inside" => "hand-off inside of a process",
        "convoy" => "4 processes of 8 tasks, with pauses",
        "crowd" => "4 processes of 8 tasks, without pauses",
        "reentry" => "re-entry",
        "fair" => "fair lock",
        "read_write" => "read-write lock",
        "watched" => "10 000 renewed locks",
        "others" => "2 processes of 4 threads, without pauses",
        "others_permits" => "2 processes of 4 threads, a semaphore of 2 permits",
        "others_names" => "2 processes of 4 threads, two names at once",
        other => other,
    }
}

/// The table of several runs of the same scenarios.
#[derive(Debug)]
pub struct Report<'a>(pub &'a [Measurement]);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.0.first() else { return Ok(()) };
        let mut rows: Vec<&str> = Vec::new();
        for (row, _) in first.figures.iter().flat_map(|figure| &figure.values) {
            if !rows.contains(row) {
                rows.push(row);
            }
        }
        rows.sort_by_key(|row| (*row != Latchwork::NAME, *row != Raw::NAME));
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        let ends = ["ours, least-greatest", "to reach", ""];
        table.set_header(["scenario", "figure"].iter().chain(&rows).chain(&ends));
        for (at, figure) in first.figures.iter().enumerate() {
            let runs: Vec<Figure> =
                self.0.iter().map(|measurement| measurement.figures[at].clone()).collect();
            let (median, (least, greatest)) = Figure::median(&runs);
            let mut cells = vec![figure.scenario.to_owned(), figure.what.to_owned()];
            cells.extend(
                rows.iter().map(|row| median.of(row).map_or("-".to_owned(), |value| median.show(value))),
            );
            cells.push(match least.is_nan() {
                true => "-".to_owned(),
                false => format!("{}-{}", median.show(least), median.show(greatest)),
            });
            let (goal, verdict) = match median.verdict() {
                Some((goal, true)) => (goal, "reached"),
                Some((goal, false)) => (goal, "MISSED"),
                None => (String::new(), ""),
            };
            cells.extend([goal, verdict.to_owned()]);
            table.add_row(cells);
        }
        for column in table.column_iter_mut().skip(2).take(rows.len() + 1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::{Figure, Goal};

    fn figure(goal: Goal, ours: f64) -> Figure {
        let values = vec![("latchwork", ours), ("raw", 90.0), ("slow", 300.0), ("quick", 200.0)];
        Figure { scenario: "q", what: "w", digits: 1, goal: Some(goal), values }
    }

    fn reached(goal: Goal, ours: f64) -> bool {
        figure(goal, ours).verdict().unwrap().1
    }

    #[test]
    fn goals() {
        assert!(reached(Goal::AtMost(3.0), 3.04) && !reached(Goal::AtMost(3.0), 3.06));
        assert!(reached(Goal::AtLeast(3.0), 2.96) && !reached(Goal::AtLeast(3.0), 2.94));
        assert!(reached(Goal::OfBestPeer(0.5), 100.0) && !reached(Goal::OfBestPeer(0.5), 101.0));
        assert!(reached(Goal::RateOfRaw(0.9), 100.0) && !reached(Goal::RateOfRaw(0.9), 101.0));
    }

    #[test]
    fn median_of_runs() {
        let runs = [5.0, 1.0, 2.0].map(|ours| figure(Goal::AtMost(3.0), ours));
        let (median, spread) = Figure::median(&runs);
        assert_eq!(
            (median.of("latchwork"), median.of("quick"), spread),
            (Some(2.0), Some(200.0), (1.0, 5.0))
        );
    }
}
