//! The semaphore's algorithm, explored through all states: every interleaving of small programs, sequentially
//! consistent, with any number of threads stopped for ever at any step.
//!
//! # What is modelled
//!
//! The model has the engine's shared words (S, E, `front`, `done`, and each node's state, `link` and `next`:
//! [`memory`]), and each shared access of each operation is one step ([`machine`], and [`settle`] for their
//! common part). The name of a place holds the thread's knowledge between two accesses ([`machine::At`],
//! [`settle::Settle`]), so a step reads: at this place, with this knowledge, the thread makes this access,
//! and continues there. To compare model and engine, take the engine's accesses in order: each is one arm of
//! a `match` here. Where the engine has two ways (taking permits in a settled queue either closes the session
//! or passes through), the search follows both ([`machine::ways`]).
//!
//! Each step checks the memory ([`memory::Memory::check_step`]), and each answer checks the operations: in
//! some order, a FIFO semaphore ([`spec`]) gives all threads the answers that they got, and leaves the
//! sleeping threads waiting. This must hold at once, and not only at rest, so no thread's progress depends on
//! another thread: a releaser may stop for ever in the middle of its release. The search finds cycles of
//! steps without an answer ([`explore`]), and each end counts the permits.
//!
//! # What is not
//!
//! * **Weak memory.** loom runs the engine itself.
//! * **Freed or reused memory**: each node has an index of its own. loom and the sanitizers cover memory.
//! * **Wakers.** A waiter is polled once its node is final. loom and `stress` check that the right waker is
//!   called, and cover spurious polls.
//! * **The width of words.** Numbers are small. Words of a few bits ([`memory::Words`]) model counters
//!   that wrap around: wide enough for the permits consumed within one step, and, in a mutant, too narrow.
//!
//! # The code against the model
//!
//! Both are written by hand. `cargo xtask verify suspension` also plays small programs on the code, in a
//! build where threads take turns at each access: the code's answers must be among the model's, and for some
//! programs must include all of the model's (`replay`).
//!
//! # Programs
//!
//! `w2 r | c1 x` is a program of two threads. `w` acquires and waits, `c` acquires and may cancel its wait at
//! any time; `t` tries, `r` releases the thread's permits, `a` adds, `l` lowers, `x` closes, `v` queries the
//! available permits, `n` notifies, as a latch does (correct only if each acquisition needs one permit and no
//! operation lowers). Digits are weights.
//!
//! ```sh
//! alias model="cargo run --release -p model --"
//! model program "w2 r | c1 x" --permits 1
//! model program "c2 | w1" --permits 1 --mutant no-look
//! model hunt tail-reads-e-once --threads 3 --operations 1
//! ```
//!
//! # Mutants
//!
//! Each mutant lacks a part of the algorithm, or has a wrong one: [`mutants`] lists all, each with a small
//! program that finds the mutant. `hunt` looks for programs that find other mutants, or a fault of the
//! algorithm if no mutant is named.
//!
//! # Reading a counterexample
//!
//! The output is a minimised program and then the shortest way to the violation, a step a line: the thread,
//! its operation, and the place with the thread's knowledge; below, the memory, if the step changed it.
//! `#2 Waiting(1, debt 2) @3 next #4` is a node of need 1, behind nodes that have consumed 3 permits;
//! `prev #1` stands for a link that is not an offset yet. Reads of constants belong to the step before.

mod explore;
mod machine;
mod memory;
mod mutants;
mod operation;
mod parts;
mod programs;
#[cfg(latchwork_suspend)]
mod replay;
mod seen;
mod settle;
mod spec;
mod violation;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::mutants::Mutant;
use crate::parts::Search;

/// Explores the algorithm of latchwork's semaphore
#[derive(Debug, Parser)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    /// Limit for each sample of larger programs
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// Draws other samples
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The mutants alone
    Mutants,
    /// Compares the code's answers with the model's, for the same programs
    #[cfg(latchwork_suspend)]
    Replay,
    /// One program
    Program {
        /// Such as "w2 r | c1 x"
        program: String,
        /// Initially free permits
        #[arg(long, default_value_t = 0)]
        permits: i8,
        /// Seeds these mutants
        #[arg(long)]
        mutant: Vec<Mutant>,
        /// Checks only the threads' answers, and no invariants of the memory
        #[arg(long)]
        black_box: bool,
    },
    /// Look for programs that find mutants, or a fault of the algorithm
    Hunt {
        /// All seeded at once
        mutants: Vec<Mutant>,
        /// Number of threads
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// Operations of each thread
        #[arg(long, default_value_t = 2)]
        operations: usize,
        /// Operations to choose from
        #[arg(long, default_value = "w1 w2 c1 c2 t1 t2 r a1 a2 l1 x v")]
        alphabet: String,
        /// Number of programs to draw, instead of all
        #[arg(long)]
        sample: Option<usize>,
    },
}

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    let CommandLine { command, seconds, seed } = command_line;
    let result = match command {
        None => parts::everything(seconds, seed),
        Some(Command::Mutants) => parts::mutants(),
        #[cfg(latchwork_suspend)]
        Some(Command::Replay) => replay::everything(seed),
        Some(Command::Program { program, permits, mutant, black_box }) => {
            parts::program(&program, permits, mutant.into_iter().collect(), !black_box)
        }
        Some(Command::Hunt { mutants, threads, operations, alphabet, sample }) => {
            let search = Search { alphabet: &alphabet, threads, operations, permits: 0..=2 };
            parts::hunt(mutants.into_iter().collect(), &search, sample, seconds, seed)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::FAILURE
        }
    }
}
