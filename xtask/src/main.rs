//! `cargo xtask`: the one entry to all tasks of this repository. CI runs `cargo xtask ci`.

mod alone;
mod badges;
mod bench;
mod binaries;
mod canary;
mod ci;
mod features;
mod interop;
mod loom;
mod missing;
mod msrv;
mod nightly;
mod quickstart;
mod recipes;
mod redis_server;
mod rustflags;
mod seeded;
mod steps;
mod system_package;
mod test;
mod verify;
mod workspace;

use std::env;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::steps::Steps;
use crate::workspace::Workspace;

/// The tasks of this repository, for you and for CI alike
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct CommandLine {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run all tests: unit, integration and doc tests, the loom models, a part of the algorithm's model
    ///
    /// Installs a Redis server if there is none. Prints the time of each suite at the end.
    Test(test::Options),
    /// Run only the loom models
    ///
    /// LOOM_MAX_PREEMPTIONS bounds the search; the default is 3.
    Loom(HarnessArgs),
    /// Check more than loom can: larger models, sanitizers, real threads, hostile input, instruction counts
    ///
    /// Each part also seeds faults that it must find; a table at the end lists how many were found, and which
    /// checks were left out and why. Installs valgrind and gungraun-runner if they are missing.
    Verify(verify::Options),
    /// Run a command of the simulator, such as `run --store model`, in a build with all seedable faults
    Sim(SimArgs),
    /// Run our lock beside the real Redisson, newest 3.x and 4.x, over one server: fact by fact, then
    /// processes of both under fault injection
    ///
    /// Needs a JDK (17 or newer) and Maven; exits with 2 if either is missing.
    Interop(interop::Options),
    /// Measure the crate's costs beside its peers', and write docs/benchmarks-tables.md and its pictures
    ///
    /// Reports peers that cannot run here as left out.
    Bench(bench::Options),
    /// Check that no dependency declares a newer Rust than we do
    Msrv,
    /// Lint the library with each of its features alone, with none and with the default ones
    Features,
    /// Run the quickstart, in one process and then in three over a Redis server
    Quickstart,
    /// Run the recipes, including those that wait for leases to expire, and the example packages; check what
    /// readers copy alone in empty packages
    ///
    /// Installs a Redis server if there is none.
    Recipes,
    /// Run what CI runs: formatting, lints, docs, features, msrv, test, quickstart, recipes
    Ci,
}

#[derive(Debug, clap::Args)]
struct HarnessArgs {
    /// Names of tests to run (all that contain one of them), and options of the test harness such as
    /// --nocapture
    #[arg(value_name = "FILTER", trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct SimArgs {
    /// As `--help` lists them
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

fn main() -> ExitCode {
    forget_own_package();
    match run(&CommandLine::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            if error.is::<missing::Missing>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Removes cargo's variables about this package from the environment. The build script of ring reads some of
/// them: alternating between `cargo` and `cargo xtask` would rebuild ring and all its dependents each time.
fn forget_own_package() {
    let is_own = |name: &String| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    let own: Vec<_> = env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(is_own).collect();
    for name in own {
        // SAFETY: no other thread runs yet.
        unsafe { env::remove_var(name) };
    }
}

fn run(task: &Task) -> Result<()> {
    let workspace = Workspace::open()?;
    let mut steps = Steps::default();
    match task {
        Task::Test(options) => test::run(&workspace, &mut steps, options),
        Task::Loom(harness) => loom::run(&workspace, &mut steps, &harness.args),
        Task::Verify(options) => verify::run(&workspace, &mut steps, options),
        Task::Sim(sim) => verify::sim::run_command(&workspace, &sim.args),
        Task::Interop(options) => interop::run(&workspace, &mut steps, options),
        Task::Bench(options) => bench::run(&workspace, &mut steps, options),
        Task::Msrv => msrv::check(&workspace, &mut steps),
        Task::Features => features::check(&workspace, &mut steps),
        Task::Quickstart => quickstart::run(&workspace, &mut steps),
        Task::Recipes => recipes::run(&workspace, &mut steps),
        Task::Ci => ci::run(&workspace, &mut steps),
    }
}
