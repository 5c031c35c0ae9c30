//! The whole lock in virtual time: programs that are drawn, over stores that do what a store may do.
//!
//! `sim run` plays programs of fresh seeds, `sim replay` and `sim shrink` one of them, `sim same` shows that
//! the same seed gives the same history, and `sim fixed` plays programs that have found something once.
//! `sim faults` shows what it finds.

mod care;
mod commands;
mod excuses;
mod faults;
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
    /// Plays programs that are drawn, and shrinks the first in which something is found
    Run(commands::Run),
    /// Prints the history of a seed
    Replay(commands::One),
    /// Prints the smallest program that is found from that of a seed, and its history
    Shrink(commands::One),
    /// Prints a number for the history of each seed
    Same(commands::Same),
    /// Plays the programs that are kept
    Fixed(commands::Fixed),
    /// Makes one thing wrong after the other, each of which is to be found
    Faults(faults::Faults),
    /// Compares the small Redis with a real one
    CheckRedis(store::redis::check::CommandLine),
}

fn main() -> ExitCode {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        // Those of wakers are part of the programs.
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
