//! The cost of the lock on Redis, beside its peers: every scenario of the lock in a single table.
//!
//! Starts a Redis server of its own, and processes of this program for scenarios with several. The compared
//! clients take turns, forwards and backwards, to meet the machine's disturbances alike.

use std::path::PathBuf;
use std::time::Instant;

use benches::lock::children;
use benches::lock::figure::{Measurement, Report, records};
use benches::lock::scenarios::{SCENARIOS, others};
use benches::lock::server::Server;
use benches::record::Record;
use clap::Parser;

/// Measures latchwork's lock on Redis beside its peers, against its goals
#[derive(Debug, Parser)]
struct CommandLine {
    /// Only these scenarios; all by default
    #[arg(value_parser = names())]
    scenarios: Vec<String>,
    /// Runs everything so many times, and shows the medians
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    repeat: u16,
    /// Rounds in which the peers take turns, for each scenario
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Also writes a record for `report` into this directory
    #[arg(long, value_name = "DIRECTORY")]
    json: Option<PathBuf>,
    /// Directory of the classes of `interop` and their class path: adds the real Redisson to `others`
    #[arg(long, value_name = "DIRECTORY")]
    redisson: Option<PathBuf>,
    /// Directory of python-redis-lock, for `others`
    #[arg(long, value_name = "DIRECTORY")]
    python: Option<PathBuf>,
    /// Runs as a process of `others`: this client, with this server
    #[arg(long, hide = true, num_args = 2)]
    player: Option<Vec<String>>,
    /// Runs as one of several processes, with this assignment
    #[arg(long, hide = true)]
    child: Option<String>,
}

fn names() -> Vec<&'static str> {
    SCENARIOS.iter().map(|scenario| scenario.name).chain(others::SCENARIOS.map(|(name, _)| name)).collect()
}

fn main() {
    let options = CommandLine::parse();
    if let Some(assignment) = options.child {
        return children::be_child(&assignment);
    }
    if let Some([client, url]) = options.player.as_deref() {
        return others::be_player(client, url);
    }
    let start = Instant::now();
    let mut server = Server::start();
    let mut measurements = Vec::new();
    for _ in 0..options.repeat {
        let mut all = Measurement::default();
        let is_wanted = |scenario: &str| {
            let named = &options.scenarios;
            let is_wanted = named.is_empty() || named.iter().any(|name| name == scenario);
            if is_wanted {
                eprintln!("{scenario} ...");
            }
            is_wanted
        };
        for scenario in SCENARIOS.iter().filter(|scenario| is_wanted(scenario.name)) {
            all = all.and((scenario.measure)(&mut server, options.rounds.into()));
        }
        for (name, kind) in others::SCENARIOS.into_iter().filter(|(name, _)| is_wanted(name)) {
            let peers = others::peers(kind, options.redisson.as_deref(), options.python.as_deref());
            all = all.and(others::measure((name, kind), &mut server, options.rounds.into(), peers));
        }
        measurements.push(all);
    }
    println!("{}\n", Report(&measurements));
    for note in measurements.last().into_iter().flat_map(|measurement| &measurement.notes) {
        println!("{note}");
    }
    if let Some(directory) = &options.json {
        let mut record = Record::new("redis");
        record.facts.push(format!("Redis {} on loopback", server.version()));
        record.facts.push(format!("medians and quartiles of {} runs", options.repeat));
        record.figures = records(&measurements);
        record.notes = measurements.last().map(|last| last.notes.clone()).unwrap_or_default();
        record.write(directory);
    }
    println!(
        "\nMedians of {} runs over Redis {} on loopback; {:.0} s.",
        options.repeat,
        server.version(),
        start.elapsed().as_secs_f64()
    );
}
