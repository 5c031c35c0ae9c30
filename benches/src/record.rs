//! What a run has measured, as JSON: the one form that all tools write, and that `report` makes pages of.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use serde::{Deserialize, Serialize};

/// What one tool has measured in one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// The section of `docs/benchmarks.md`.
    pub group: String,
    /// The machine, the versions, and how long it took: a sentence each.
    pub facts: Vec<String>,
    /// Bars.
    pub figures: Vec<Figure>,
    /// Lines.
    pub curves: Vec<Curve>,
    /// What stands below the tables.
    pub notes: Vec<String>,
}

/// One number of each row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// What is measured.
    pub name: String,
    /// Of the values.
    pub unit: String,
    /// Digits behind the point.
    pub digits: usize,
    /// A rate, say; of times and costs less is better.
    pub more_is_better: bool,
    /// Each row's.
    pub values: Vec<Value>,
}

/// A row's number, with the quartiles of the runs or slices that it is the median of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Value {
    /// The client's or the semaphore's name.
    pub row: String,
    /// A quarter is below.
    pub low: f64,
    /// The median.
    pub mid: f64,
    /// A quarter is above.
    pub high: f64,
}

/// How a cost grows with the work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Curve {
    /// What is measured, in words.
    pub name: String,
    /// Of the values.
    pub unit: String,
    /// What grows.
    pub x: String,
    /// The rows.
    pub lines: Vec<Line>,
}

/// A row of a [`Curve`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Its name.
    pub row: String,
    /// How much work, and what it cost.
    pub points: Vec<(f64, Value)>,
}

impl Value {
    /// The median and the quartiles of `all`.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn of(row: &str, mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        let at = |quarters: usize| all[(all.len() - 1) * quarters / 4];
        Self { row: row.to_owned(), low: at(1), mid: at(2), high: at(3) }
    }
}

impl Record {
    /// Of this machine, and of so much time.
    pub fn new(group: &str) -> Self {
        Self { group: group.to_owned(), facts: facts(), ..Self::default() }
    }

    /// Writes it to `<group>.json` in a directory that is made if it is missing.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn write(&self, directory: &Path) {
        fs::create_dir_all(directory).expect("a directory for records can be made");
        let file = directory.join(format!("{}.json", self.group));
        let text = serde_json::to_string_pretty(self).expect("nothing that JSON has not");
        fs::write(&file, text).expect("a record can be written");
    }
}

/// Versions of what is compared.
fn versions() -> String {
    const COMPARED: [&str; 9] = [
        "tokio",
        "asyncband",
        "async-lock",
        "futures-intrusive",
        "crossbeam-queue",
        "lockable",
        "redis",
        "rlock",
        "rslock",
    ];
    let lock = include_str!("../../Cargo.lock");
    let version = |name: &&str| {
        let package =
            lock.split("[[package]]").find(|text| text.contains(&format!("name = \"{name}\"\n")))?;
        Some(format!("{name} {}", package.split("version = \"").nth(1)?.split('"').next()?))
    };
    COMPARED.iter().filter_map(version).collect::<Vec<_>>().join(", ")
}

fn facts() -> Vec<String> {
    let said = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()).filter(|said| !said.is_empty())
    };
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("an unnamed processor", |(_, model)| model.trim()).to_owned();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or("unknown");
    let unknown = || "unknown".to_owned();
    vec![
        format!("{cores} cores of {model}, {}", said("uname", &["-srm"]).unwrap_or_else(unknown)),
        format!("load average at the beginning: {load}"),
        said("rustc", &["--version"]).unwrap_or_else(unknown),
        versions(),
        said("date", &["-u", "+%-d %B %Y"]).unwrap_or_else(unknown),
    ]
}
