//! This crate's lock and the real Redisson over one server: each check by itself, then a fleet of both under
//! faults, then the pace of both.
//!
//! [`player`] is a process of either side at the end of a pipe; `Player.java` plays Redisson, [`ours`] this
//! crate. [`scenes`] says what they have to show to each other, one after the other in both roles, [`fleet`]
//! lets them count together under faults, and [`pace`] measures both. `cargo xtask interop` builds the other
//! side and calls this.

mod checks;
mod fleet;
mod ours;
mod pace;
mod player;
mod scenes;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use self::checks::Checks;
use self::player::Sides;
use self::stage::Stage;

/// Lets this crate's lock and the real Redisson share a server
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct CommandLine {
    /// A directory with the classes of the Java side, and in `classpath` what they stand on; once for each
    /// version of Redisson
    #[arg(long, required = true)]
    redisson: Vec<PathBuf>,
    /// Only the checks with this in their name
    #[arg(long, default_value = "")]
    only: String,
    /// For how long the fleet counts, with each version
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Repeats the fleet's faults
    #[arg(long)]
    seed: Option<u64>,
    /// With a side of ours that is broken: the checks must find out
    #[arg(long)]
    twin: Option<ours::Twin>,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// This crate's side of the pipe
    #[command(hide = true)]
    Ours(ours::Orders),
}

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    if let Some(Part::Ours(orders)) = &command_line.part {
        ours::run(orders);
        return ExitCode::SUCCESS;
    }
    let seed = command_line.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let mut checks = Checks::new(&command_line.only);
    for directory in &command_line.redisson {
        let sides = Sides::new(directory, command_line.twin);
        let stage = Stage::set(sides.clone());
        println!("\nRedisson {}", stage.version());
        scenes::play(&stage, &mut checks);
        fleet::sail(&sides, &mut checks, Duration::from_secs(command_line.seconds), seed);
        if command_line.only.is_empty() {
            pace::print(&sides);
        }
    }
    println!("\n{checks}");
    if checks.all_passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
