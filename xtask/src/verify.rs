//! `cargo xtask verify`: checks beyond loom's reach. Each part ends with canaries: faults seeded into the
//! real code, to prove that the same tool can fail.
//!
//! A failed part does not stop the others. At the end a table lists for each part its coverage, the number of
//! seeded faults found, its duration, and the checks left out with the reasons.

mod build;
mod deny;
mod fuzz;
mod instructions;
mod lock_mutants;
mod long_run;
mod model;
mod mutants;
mod sanitizers;
pub(crate) mod sim;
mod survivors;
mod suspension;
mod table;
mod tee;

use std::time::Instant;

use anyhow::{Error, Result, bail};
use clap::ValueEnum;

use self::table::{Outcome, Row, Table};
use crate::badges;
use crate::features;
use crate::interop;
use crate::missing::Missing;
use crate::nightly;
use crate::steps::Steps;
use crate::workspace::Workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The parts to run; all but lock-mutants by default
    parts: Vec<Part>,
    /// Seconds of each run with real threads, by default 10; of the long run, of each sample of the model and
    /// of each target of hostile input, by default 30; of the simulation, by default 600
    #[arg(long)]
    seconds: Option<u32>,
    /// Seed of the long run's faults and tasks
    #[arg(long, default_value_t = 6)]
    seed: u64,
    /// Seed of the first simulated program; random by default
    #[arg(long)]
    sim_seed: Option<u64>,
    /// Seed of the hostile input; random by default
    #[arg(long)]
    fuzz_seed: Option<u64>,
    /// Number of random mutants of the lock, by default 200; 0: all
    #[arg(long)]
    sample: Option<usize>,
    /// Seed of the sample
    #[arg(long)]
    sample_seed: Option<u64>,
    /// Only the lock's mutants with this in their names, which begin with the file
    #[arg(long)]
    only: Option<String>,
    /// Only the lock's mutants that survived an earlier run: a test may exist by now
    #[arg(long)]
    again: bool,
    /// Runs the lock's mutants without the slow checks, which may kill some of the survivors: see `--again`
    #[arg(long)]
    cheaply: bool,
}

impl Options {
    /// Seconds of a run with real threads.
    fn seconds_of_threads(&self) -> String {
        self.seconds.unwrap_or(10).to_string()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The loom models, with one preemption more than in the tests
    Loom,
    /// Faults seeded into the ownership's engine, which its exhaustive model must find
    Ownership,
    /// The scripts: each command refused, and the time on the server
    Scripts,
    /// The semaphore's algorithm through all states of small programs
    Model,
    /// Any thread stopped for ever before any access to shared memory
    Suspension,
    /// Stopped threads, and real threads, under AddressSanitizer
    Asan,
    /// Real threads under ThreadSanitizer
    Tsan,
    /// The whole lock in virtual time: random programs, over stores with all behaviours of the contract
    Sim,
    /// Processes that compete for locks over a Redis server, under fault injection, with a judgement
    LongRun,
    /// This crate's lock beside the real Redisson; left out without a JDK or Maven, unless named
    Interop,
    /// Each ordering of the semaphore one step weaker under the loom models, which must fail
    Mutants,
    /// The lock's code with one change, which a test, a model or the simulation must find
    LockMutants,
    /// Instructions of the hot paths against limits, by valgrind
    Instructions,
    /// Names, ids, URLs, replies and messages that no client of ours writes; scripts for the semaphore
    Fuzz,
    /// Dependencies' licenses, duplicates, sources and advisories; left out without cargo-deny, unless named
    Deny,
    /// Links of each feature's documentation, and the feature that each item names as on docs.rs
    Docs,
}

impl Part {
    fn covers(self) -> &'static str {
        match self {
            Self::Loom => "semaphore, latch, entry, registry: all executions with three preemptions",
            Self::Ownership => "the ownership's exhaustive model: what it finds",
            Self::Scripts => "scripts: all or nothing, and bounded",
            Self::Model => "the semaphore's algorithm, through all states of small programs",
            Self::Suspension => "the semaphore with any thread stopped for ever",
            Self::Asan => "the semaphore's memory: used after it was freed, or never freed",
            Self::Tsan => "the semaphore's data races",
            Self::Sim => "the whole lock in virtual time: belief, exclusion, leaks, order, …",
            Self::LongRun => "the lock over Redis, by processes, on bad days",
            Self::Interop => "the lock beside the real Redisson",
            Self::Mutants => "the semaphore's orderings: what each is needed for",
            Self::LockMutants => "the lock's tests: what each line is needed for",
            Self::Instructions => "hot paths: no more than 3 % above what was measured",
            Self::Fuzz => "what is read from outside: names, ids, URLs, replies, messages",
            Self::Deny => "dependencies: licenses, duplicates, sources, advisories",
            Self::Docs => "documentation of each feature: links, and badges as on docs.rs",
        }
    }

    fn run(self, workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
        match self {
            Self::Loom => crate::loom::run(workspace, steps, &[]),
            Self::Ownership => nightly::ownership(workspace, steps),
            Self::Scripts => nightly::scripts(workspace, steps),
            Self::Model => model::run(workspace, steps, options),
            Self::Suspension => suspension::run(workspace, steps),
            Self::Asan => sanitizers::address(workspace, steps, options),
            Self::Tsan => sanitizers::thread(workspace, steps, options),
            Self::Sim => sim::run(workspace, steps, options),
            Self::LongRun => long_run::run(workspace, steps, options),
            Self::Interop => beside_redisson(workspace, steps),
            Self::Mutants => mutants::run(workspace, steps),
            Self::LockMutants => lock_mutants::run(workspace, steps, options),
            Self::Instructions => instructions::run(workspace, steps),
            Self::Fuzz => fuzz::run(workspace, steps, options),
            Self::Deny => deny::run(workspace, steps),
            Self::Docs => {
                features::document(workspace, steps)?;
                badges::check(workspace, steps)
            }
        }
    }
}

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    // Running all mutants of the lock takes hours.
    let is_quick = |part: &Part| *part != Part::LockMutants;
    let all = || Part::value_variants().iter().copied().filter(is_quick).collect();
    let parts = if options.parts.is_empty() { all() } else { options.parts.clone() };
    let (mut table, mut errors) = (Table::default(), Vec::new());
    for part in &parts {
        let check = part.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let start = Instant::now();
        let result = part.run(workspace, steps, options);
        let (tally, left_out) = steps.take_report();
        let is_named = options.parts.contains(part);
        let (covers, time, result) =
            (part.covers(), start.elapsed(), judged(result, is_named, &check, &mut errors));
        table.0.push(Row { check, covers, tally, time, result, left_out });
    }
    eprintln!("\n{steps}\n\n{table}");
    table.summarise()?;
    match errors.len() {
        0 => Ok(()),
        // Unchanged: the exit code depends on its type.
        1 => Err(errors.remove(0)),
        _ => bail!("{}", errors.iter().map(|error| format!("{error:#}")).collect::<Vec<_>>().join("\n")),
    }
}

/// The outcome of a part. A missing tool is an error only if the part was named.
fn judged(result: Result<()>, is_named: bool, check: &str, errors: &mut Vec<Error>) -> Outcome {
    let Err(error) = result else { return Outcome::Held };
    let is_missing = error.is::<Missing>();
    let outcome = if is_missing { Outcome::Skipped(format!("{error:#}")) } else { Outcome::Failed };
    if is_missing && !is_named {
        eprintln!("\n{check} is left out: {error:#}");
    } else {
        eprintln!("\n{check}: {error:#}");
        errors.push(error.context(format!("`verify {check}`")));
    }
    outcome
}

fn beside_redisson(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    interop::run(workspace, steps, &interop::Options::default())?;
    interop::canaries(workspace, steps)
}
