//! `cargo xtask verify`: what loom cannot reach. Each part ends with canaries: faults seeded into the real
//! code, which this very tool must find, or else its silence means nothing.

mod build;
mod instructions;
mod long_run;
mod model;
mod mutants;
mod sanitizers;
mod shuttle;
mod sim;
mod stress;
mod suspension;

use anyhow::Result;
use clap::ValueEnum;
use xshell::Cmd;

use crate::interop;
use crate::steps::Steps;
use crate::workspace::Workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Which parts; all if none is named
    parts: Vec<Part>,
    /// Schedules of each model under shuttle, by either scheduler; a tenth of them under AddressSanitizer
    #[arg(long, default_value_t = 20_000)]
    iterations: u32,
    /// Seconds of each run with real threads, by default 10; of the long run and of each sample of the model,
    /// 30; of the simulation, 600
    #[arg(long)]
    seconds: Option<u32>,
    /// The long run's faults and tasks
    #[arg(long, default_value_t = 6)]
    seed: u64,
    /// Of the first program that is simulated; drawn by default
    #[arg(long)]
    sim_seed: Option<u64>,
}

impl Options {
    /// Of a run with real threads.
    fn stress_seconds(&self) -> String {
        self.seconds.unwrap_or(10).to_string()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The semaphore's algorithm through all states of small programs
    Model,
    /// Real threads from a spinning start, with a count of everything at the end
    Stress,
    /// Any thread stopped for ever before any access to what threads share
    Suspension,
    /// Random schedules of larger models
    Shuttle,
    /// Both of these under AddressSanitizer
    Asan,
    /// Real threads under ThreadSanitizer
    Tsan,
    /// The whole lock in virtual time: programs that are drawn, over stores that do what a store may do
    Sim,
    /// Processes that compete for locks over a Redis server, on bad days, with a judgement of their history
    LongRun,
    /// This crate's lock beside the real Redisson; left out where there is no JDK or no Maven, unless it is
    /// named
    Interop,
    /// Each ordering of the semaphore one step weaker under the loom models, which must fail
    Mutants,
    /// Instructions of the hot paths against limits, by valgrind
    Instructions,
}

/// What belongs to the tests, with names.
pub(crate) fn quick_parts(workspace: &Workspace) -> Result<impl Iterator<Item = (&'static str, Cmd<'_>)>> {
    Ok([("model", model::quick(workspace))].into_iter().chain(sim::quick(workspace)?))
}

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    let parts = if options.parts.is_empty() { Part::value_variants() } else { &options.parts };
    let result = parts.iter().try_for_each(|part| match part {
        Part::Model => model::run(workspace, steps, options),
        Part::Stress => stress::run(workspace, steps, options),
        Part::Suspension => suspension::run(workspace, steps),
        Part::Shuttle => shuttle::run(workspace, steps, options),
        Part::Asan => sanitizers::address(workspace, steps, options),
        Part::Tsan => sanitizers::thread(workspace, steps, options),
        Part::Sim => sim::run(workspace, steps, options),
        Part::LongRun => long_run::run(workspace, steps, options),
        Part::Interop => beside_redisson(workspace, steps, options),
        Part::Mutants => mutants::run(workspace, steps),
        Part::Instructions => instructions::run(workspace, steps),
    });
    eprintln!("\n{steps}");
    result
}

fn beside_redisson(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    let checked = interop::run(workspace, steps, &interop::Options::default());
    match checked.and_then(|()| interop::canaries(workspace, steps)) {
        Err(error) if options.parts.is_empty() && error.is::<interop::Missing>() => {
            eprintln!("\ninterop is left out: {error}");
            Ok(())
        }
        result => result,
    }
}
