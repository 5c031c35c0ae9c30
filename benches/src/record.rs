//! Measurements of a run as JSON: the common output of all tools, and the input of `report`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use serde::{Deserialize, Serialize};

/// The measurements of one tool in one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// The group that the page's marks name.
    pub group: String,
    /// The machine, the versions, and the duration: a sentence each.
    pub facts: Vec<String>,
    /// Bar charts.
    pub figures: Vec<Figure>,
    /// Line charts.
    pub curves: Vec<Curve>,
    /// Lines below the tables.
    pub notes: Vec<String>,
}

/// One number of each row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// The measured quantity.
    pub name: String,
    /// Unit of the values.
    pub unit: String,
    /// Digits after the point.
    pub digits: usize,
    /// True for a rate; for times and costs less is better.
    pub more_is_better: bool,
    /// The value of each row.
    pub values: Vec<Value>,
}

/// A row's median, with the quartiles of its runs or slices.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Value {
    /// The name of the client or the semaphore.
    pub row: String,
    /// The lower quartile.
    pub low: f64,
    /// The median.
    pub mid: f64,
    /// The upper quartile.
    pub high: f64,
}

/// The growth of a cost with the work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Curve {
    /// The measured quantity, in words.
    pub name: String,
    /// Unit of the values.
    pub unit: String,
    /// The quantity on the horizontal axis.
    pub x: String,
    /// The rows.
    pub lines: Vec<Line>,
}

/// A row of a [`Curve`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// The name.
    pub row: String,
    /// Amount of work, and its cost.
    pub points: Vec<(f64, Value)>,
}

impl Value {
    /// The median and the quartiles of `all`. Panics if `all` is empty.
    pub fn of(row: &str, mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        let at = |quarters: usize| all[(all.len() - 1) * quarters / 4];
        Self { row: row.to_owned(), low: at(1), mid: at(2), high: at(3) }
    }
}

impl Record {
    /// An empty record of this machine.
    pub fn new(group: &str) -> Self {
        Self { group: group.to_owned(), facts: facts(), ..Self::default() }
    }

    /// Writes the record to `<group>.json` in a directory, which is created if it is missing.
    pub fn write(&self, directory: &Path) {
        fs::create_dir_all(directory).expect("a directory for records can be made");
        let file = directory.join(format!("{}.json", self.group));
        let text = serde_json::to_string_pretty(self).expect("nothing that JSON has not");
        fs::write(&file, text).expect("a record can be written");
    }
}

fn versions() -> String {
    const COMPARED: [&str; 10] = [
        "tokio",
        "asyncband",
        "async-lock",
        "futures-intrusive",
        "maitake-sync",
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
