//! The whole lock in virtual time: programs that are drawn, over stores that do what a store may do.

mod faults;
mod store;
mod world;

use std::process::ExitCode;

use clap::Parser;

/// Plays random programs of the whole lock in virtual time.
#[derive(Debug, Parser)]
enum Simulation {
    Faults(faults::Faults),
}

fn main() -> ExitCode {
    match Simulation::parse() {
        Simulation::Faults(faults) => faults.run(),
    }
}
