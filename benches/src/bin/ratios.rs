//! The short scenarios in a single table, in half a minute: the tool to optimise with.
//!
//! Each row runs in many slices of a millisecond or two, and the peers take turns slice by slice, to meet the
//! machine's disturbances alike. The figure is the median slice, which is stable until half of the slices are
//! disturbed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use benches::event::{Event, Row};
use benches::peers::{Latchwork, Peer, Raw, Tokio};
use benches::record::{self, Record};
use benches::scenarios;
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};

/// Measures latchwork's semaphore beside its peers, in nanoseconds and in ratios
#[derive(Debug, Parser)]
struct CommandLine {
    /// Only events whose name contains this
    filter: Option<String>,
    /// Slices of each row
    #[arg(long, default_value_t = 201)]
    slices: usize,
    /// Approximate microseconds of a slice
    #[arg(long, default_value_t = 1500)]
    slice_micros: u64,
    /// Also writes a record for `report` into this directory
    #[arg(long, value_name = "DIRECTORY")]
    json: Option<PathBuf>,
}

fn main() {
    let options = CommandLine::parse();
    let wanted = |event: &Event| options.filter.as_deref().is_none_or(|filter| event.name.contains(filter));
    let start = Instant::now();
    let slice = Duration::from_micros(options.slice_micros);
    let measurements: Vec<Measurement> = scenarios::short()
        .into_iter()
        .filter(wanted)
        .map(|mut event| measurement(&mut event, options.slices.max(1), slice))
        .collect();
    print(&measurements);
    if let Some(directory) = &options.json {
        let mut record = Record::new("semaphore");
        record.figures = measurements.iter().map(Measurement::figure).collect();
        record
            .notes
            .push(format!("Medians of {} slices of {slice:?} for each row, in turns.", options.slices));
        record.write(directory);
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "\nMedians of {} slices of {slice:?} for each row, taken in turns; {seconds:.1} s.",
        options.slices
    );
}

struct Measurement {
    event: &'static str,
    nanos: Vec<(&'static str, Spread)>,
}

#[derive(Clone, Copy)]
struct Spread {
    median: f64,
    quartiles: (f64, f64),
}

impl Measurement {
    fn figure(&self) -> record::Figure {
        let values = self.nanos.iter().map(|(peer, Spread { median, quartiles: (low, high) })| {
            record::Value { row: (*peer).to_owned(), low: *low, mid: *median, high: *high }
        });
        record::Figure {
            name: words(self.event).to_owned(),
            unit: "ns".to_owned(),
            digits: 1,
            more_is_better: false,
            values: values.collect(),
        }
    }

    fn of(&self, peer: &str) -> Option<Spread> {
        self.nanos.iter().find(|(name, _)| *name == peer).map(|(_, spread)| *spread)
    }

    fn fastest_peer(&self) -> Option<(&'static str, f64)> {
        self.nanos
            .iter()
            .filter(|(name, _)| ![Latchwork::NAME, Raw::NAME].contains(name))
            .map(|(name, spread)| (*name, spread.median))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// The title above an event's bars in a picture.
fn words(event: &'static str) -> &'static str {
    match event {
        "burst_1000/at_once" => "1000 wait, 1000 are served at once",
        "burst_1000/one_by_one" => "1000 wait, 1000 are served one by one",
        "cancel_waiting" => "wait, cancel behind a patient waiter",
        "first_wait/cancel" => "take, wait, cancel, free",
        "first_wait/cancel_held" => "wait, cancel behind a holder",
        "first_wait/hand_over" => "take, wait, hand over, free",
        "hand_over" => "hand-over: wait, release, wake, poll, drop",
        "tasks/1000_on_10" => "1000 tasks take turns on 10 permits, two threads",
        "tasks/64_on_1" => "64 tasks take turns on 1 permit, two threads",
        "tasks/64_on_8" => "64 tasks take turns on 8 permits, two threads",
        "threads_2/try_acquire" => "try_acquire and drop, two threads, permits to spare",
        "uncontended/acquire" => "acquire and drop, a permit is free",
        "uncontended/acquire_many_8" => "acquire 8 and drop, permits are free",
        "uncontended/try_acquire" => "try_acquire and drop, a permit is free",
        other => other,
    }
}

/// A row with this many failed slices, on a machine that is too busy, has no figure.
const MOST_FAILURES: usize = 5;

struct Slices<'a> {
    row: &'a mut Row,
    rounds: u64,
    nanos: Vec<f64>,
    failures: usize,
}

impl<'a> Slices<'a> {
    /// Finds the number of rounds that fill a slice, by doubling, which warms the row up as well. A run that
    /// the machine interrupts looks full: the number is tried once more.
    fn new(row: &'a mut Row, slice: Duration) -> Self {
        let mut slices = Self { row, rounds: 1, nanos: Vec::new(), failures: 0 };
        let mut has_filled = false;
        while let Some(took) = slices.run() {
            if took * 2 < slice {
                slices.rounds *= 2;
            } else if std::mem::replace(&mut has_filled, true) {
                break;
            } else {
                let fit = slices.rounds as f64 * slice.as_secs_f64() / took.as_secs_f64();
                slices.rounds = (fit as u64).max(1);
            }
        }
        slices
    }

    fn run(&mut self) -> Option<Duration> {
        while self.failures < MOST_FAILURES {
            match self.row.run(self.rounds) {
                None => self.failures += 1,
                took => return took,
            }
        }
        None
    }

    fn take_one(&mut self, per_round: u32) {
        if let Some(took) = self.run() {
            self.nanos.push(took.as_nanos() as f64 / (self.rounds as f64 * f64::from(per_round)));
        }
    }
}

fn measurement(event: &mut Event, slices: usize, slice: Duration) -> Measurement {
    let mut peers: Vec<Slices<'_>> = event.rows.iter_mut().map(|row| Slices::new(row, slice)).collect();
    for turn in 0..slices {
        // Forwards and backwards: no peer always follows the same one.
        if turn % 2 == 0 {
            peers.iter_mut().for_each(|peer| peer.take_one(event.per_round));
        } else {
            peers.iter_mut().rev().for_each(|peer| peer.take_one(event.per_round));
        }
    }
    let told = peers.iter_mut().filter(|peer| peer.failures < MOST_FAILURES);
    let nanos = told.map(|peer| (peer.row.peer, spread(&mut peer.nanos))).collect();
    Measurement { event: event.name, nanos }
}

fn spread(taken: &mut [f64]) -> Spread {
    taken.sort_by(f64::total_cmp);
    let at = |quarters: usize| taken[(taken.len() - 1) * quarters / 4];
    Spread { median: at(2), quartiles: (at(1), at(3)) }
}

fn print(measurements: &[Measurement]) {
    let mut peers: Vec<&str> = Vec::new();
    for (peer, _) in measurements.iter().flat_map(|measurement| &measurement.nanos) {
        if !peers.contains(peer) {
            peers.push(peer);
        }
    }
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let ends = ["ours/raw", "ours/tokio", "ours/fastest peer", "our quartiles"];
    table.set_header(["event, ns"].iter().chain(&peers).chain(&ends));
    for measurement in measurements {
        let ours = measurement.of(Latchwork::NAME);
        let ratio = |other: Option<f64>| match (ours, other) {
            (Some(ours), Some(other)) => format!("{:.2}", ours.median / other),
            _ => "-".to_owned(),
        };
        let mut cells = vec![measurement.event.to_owned()];
        for peer in &peers {
            cells.push(measurement.of(peer).map_or("-".to_owned(), |spread| format!("{:.1}", spread.median)));
        }
        cells.push(ratio(measurement.of(Raw::NAME).map(|spread| spread.median)));
        cells.push(ratio(measurement.of(Tokio::NAME).map(|spread| spread.median)));
        cells.push(match (ours, measurement.fastest_peer()) {
            (Some(_), Some((peer, nanos))) => format!("{} {peer}", ratio(Some(nanos))),
            _ => "-".to_owned(),
        });
        cells.push(ours.map_or("-".to_owned(), |ours| {
            let (low, high) = ours.quartiles;
            format!("{low:.1}-{high:.1}")
        }));
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
}
