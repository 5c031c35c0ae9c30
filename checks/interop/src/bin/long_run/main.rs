//! The long run: processes that compete for locks over a real server, faults at random, and a judgement of
//! the history that they have written.
//!
//! [`stage`] sets up what there is, [`faults`] does harm to it, [`worker`] and [`task`] are what it is done
//! to; they write a [`history`], which [`story`] puts together and [`check`] judges.

mod check;
mod clock;
mod faults;
mod history;
mod names;
mod probe;
mod spans;
mod stage;
mod story;
mod summary;
mod task;
mod trouble;
mod worker;

use std::panic;
use std::process::{ExitCode, abort};
use std::time::Duration;

use clap::{Parser, Subcommand};
use defects::twin::Twin;

use self::stage::Stage;
use self::summary::Summary;
use self::worker::Orders;

/// Lets processes compete for locks over a Redis server, under fault injection
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct CommandLine {
    /// For how long there are faults
    #[arg(long, default_value_t = 180.0)]
    seconds: f64,
    /// Repeats the faults and the tasks of an earlier run, though not their timing
    #[arg(long)]
    seed: Option<u64>,
    /// Over a store that is broken: the run must find out
    #[arg(long)]
    twin: Option<Twin>,
    /// Keeps the journals, whatever they say
    #[arg(long)]
    keep: bool,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// One of the processes
    #[command(hide = true)]
    Worker(Orders),
}

/// As many as one wants to read.
const SHOWN: usize = 20;

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    if let Some(Part::Worker(orders)) = &command_line.part {
        // Or else a runtime would keep it to itself.
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            hook(what);
            abort();
        }));
        worker::run(orders);
        return ExitCode::SUCCESS;
    }
    let seed = command_line.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    match stage_and_judge(&command_line, seed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("FOUND {wrong}");
            ExitCode::FAILURE
        }
    }
}

fn stage_and_judge(command_line: &CommandLine, seed: u64) -> Result<(), String> {
    let mut directory = tempfile::Builder::new()
        .prefix("latchwork-long-run-")
        .tempdir()
        .map_err(|error| format!("no directory for the journals: {error}"))?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut stage = Stage::set(directory.path().to_owned(), command_line.twin, &mut rng);
    // A process that died is in the history, too.
    let raged = faults::rage(&mut stage, rng, Duration::from_secs_f64(command_line.seconds));
    let history = stage.end()?;
    let verdict = check::check(&history);
    println!("{}", Summary(&history, &verdict));
    directory.disable_cleanup(command_line.keep || !verdict.violations.is_empty());
    if command_line.keep {
        println!("journals: {}", directory.path().display());
    }
    let Some((first, rest)) = verdict.violations.split_first() else { return raged };
    let mut wrong = first.to_string();
    for violation in rest.iter().take(SHOWN) {
        wrong += &format!("\n  and {violation}");
    }
    if rest.len() > SHOWN {
        wrong += &format!("\n  and {} more", rest.len() - SHOWN);
    }
    Err(format!("{wrong}\njournals: {}", directory.path().display()))
}
