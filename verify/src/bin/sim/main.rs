//! The whole lock in virtual time: programs that are drawn, over stores that do what a store may do.

mod store;
mod world;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Simulates latchwork's locks
#[derive(Debug, Parser)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    CheckRedis(store::redis::check::CommandLine),
}

fn main() -> ExitCode {
    let done = match CommandLine::parse().command {
        Command::CheckRedis(command_line) => store::redis::check::run(&command_line),
    };
    if let Err(failure) = &done {
        eprintln!("{failure}");
    }
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
