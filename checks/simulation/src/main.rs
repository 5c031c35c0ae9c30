//! Simulates the whole lock in virtual time: drawn programs over stores with every liberty of their contract.
//!
//! `sim run` plays programs of fresh seeds; `sim replay` and `sim shrink` play one of them; `sim same` checks
//! that a seed always gives the same history; `sim fixed` replays programs that once exposed a fault; and
//! `sim faults` checks that the simulator finds each seeded fault.

mod care;
mod commands;
mod excuses;
mod faults;
mod handle;
mod judge;
mod leases;
mod player;
mod program;
mod run;
mod shrink;
mod stage;
mod store;
mod task;
mod time;
mod watchdog;
mod world;

use std::panic;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::world::WakerPanic;

#[derive(Parser)]
#[command(about = "The whole lock in virtual time")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Plays drawn programs, and shrinks the first that fails
    Run(commands::Run),
    /// Prints the history of a seed
    Replay(commands::One),
    /// Prints the smallest failing program shrunk from that of a seed, and its history
    Shrink(commands::One),
    /// Prints a hash of the history of each seed
    Same(commands::Same),
    /// Plays the kept programs
    Fixed(commands::Fixed),
    /// Seeds one fault after the other, and checks that each is found
    Faults(faults::Faults),
    /// Compares the small Redis with a real server
    CheckRedis(store::redis::check::CommandLine),
}

fn main() -> ExitCode {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        // Panics of wakers are part of the programs.
        if !panic.payload().is::<WakerPanic>() {
            tell(panic);
        }
    }));
    match Arguments::parse().what {
        What::Run(run) => run.run(),
        What::Replay(one) => one.replay(),
        What::Shrink(one) => one.shrink(),
        What::Same(same) => same.run(),
        What::Fixed(fixed) => fixed.run(),
        What::Faults(faults) => faults.run(),
        What::CheckRedis(command_line) => match store::redis::check::run(&command_line) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                eprintln!("{failure}");
                ExitCode::FAILURE
            }
        },
    }
}
