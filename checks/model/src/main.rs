//! The algorithm of the semaphore, explored through all its states: every interleaving of small programs,
//! sequentially consistent, with any number of threads stopped for ever at any step.
//!
//! # What is modelled
//!
//! The engine's shared words (S, E, `front`, `done`, and of each node its state, `link` and `next`:
//! [`memory`]) and each shared access of each operation as one step ([`machine`], and [`settle`] for the part
//! that they share). What a thread knows between two accesses is written in the name of the place where it is
//! ([`machine::At`], [`settle::Settle`]), so a step reads: at this place, knowing this, the thread makes that
//! access, and goes on there. To hold the model beside the engine, take the engine's accesses in their order:
//! each is one arm of a `match` here. Where the engine may do the same in two ways (to take permits in a
//! settled queue either closes the session or passes through), the search follows both ([`machine::ways`]).
//!
//! After each step the memory is checked ([`memory::Memory::check_step`]), and at each answer the operations:
//! that there is an order in which a FIFO semaphore ([`spec`]) gives all threads the answers that they got,
//! and leaves waiting all those that sleep. As that has to be so at once, and not only when all is quiet, no
//! thread's progress depends on another's: a releaser may stop for ever in the middle of its release. Cycles
//! of steps without an answer are found by the search ([`explore`]), and permits are counted at each end.
//!
//! # What is not
//!
//! * **Weak memory.** loom has the engine itself for that.
//! * **Memory that is freed or used again**: each node has an index of its own. loom and the sanitizers look
//!   after it.
//! * **Wakers.** A waiter is polled once its node is final. That the waker is called, and that it is the
//!   right one, is the matter of loom and `stress`; so are polls without a reason.
//! * **The width of words.** Numbers are small. That the words in which permits are counted go round is
//!   modelled with words of a few bits ([`memory::Words`]): wide enough for what is consumed within one step,
//!   and, as a mutant, not.
//!
//! # The code against the model
//!
//! Both are written by hand. `cargo xtask verify suspension` plays small programs on the code as well, in a
//! build where threads take turns at each access: what it answers must be what the model says that it can,
//! and of some programs all of that (`replay`).
//!
//! # Programs
//!
//! `w2 r | c1 x` is a program of two threads. `w` acquires and waits, `c` acquires and cancels if it has to
//! wait, at any time; `t` tries, `r` releases what the thread has, `a` adds, `l` lowers, `x` closes, `v` asks
//! for the available permits, `n` notifies, as a latch does (right only where each acquisition is of one
//! permit and nothing is lowered). Digits are weights.
//!
//! ```sh
//! alias model="cargo run --release -p verify --no-default-features --bin model --"
//! model program "w2 r | c1 x" --permits 1
//! model program "c2 | w1" --permits 1 --mutant no-look
//! model hunt tail-reads-e-once --threads 3 --operations 1
//! ```
//!
//! # Mutants
//!
//! A part of the algorithm that is left out or wrong: [`mutants`] has them all, each with a small program
//! that finds it out. `hunt` looks for programs that find others out, or the algorithm itself if none is
//! named.
//!
//! # Reading a counterexample
//!
//! The program is made as small as it gets, and then the shortest way to the violation is printed, a step a
//! line: the thread, its operation, and the place with what the thread knows; below it the memory, if the
//! step has changed it. `#2 Waiting(1, debt 2) @3 next #4` is a node of need 1 before which 3 permits have
//! been consumed; `prev #1` stands for a link that is not an offset yet. Reads of what cannot change any more
//! are no steps of their own: they belong to the step before.

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
    /// For each sample of larger programs, at most
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// Draws other samples
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// All 2 × 2 programs of few operations, and the mutants
    Quick,
    /// The mutants alone
    Mutants,
    /// The code against this model: the same programs, the same answers
    #[cfg(latchwork_suspend)]
    Replay,
    /// One program
    Program {
        /// Such as "w2 r | c1 x"
        program: String,
        /// Free at the beginning
        #[arg(long, default_value_t = 0)]
        permits: i8,
        /// With these missing or wrong
        #[arg(long)]
        mutant: Vec<Mutant>,
        /// Let only what the threads see count, and not what must be true of the memory
        #[arg(long)]
        black_box: bool,
    },
    /// Look for programs that find mutants out, or the algorithm
    Hunt {
        /// All at once
        mutants: Vec<Mutant>,
        /// All programs of so many threads
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// With so many operations each
        #[arg(long, default_value_t = 2)]
        operations: usize,
        /// Of these
        #[arg(long, default_value = "w1 w2 c1 c2 t1 t2 r a1 a2 l1 x v")]
        alphabet: String,
        /// Only so many programs, drawn
        #[arg(long)]
        sample: Option<usize>,
    },
}

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    let CommandLine { command, seconds, seed } = command_line;
    let result = match command {
        None => parts::everything(seconds, seed),
        Some(Command::Quick) => parts::quick(),
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
