//! `cargo xtask test`: builds all tests at once, and runs waiting tests beside computing tests.

mod lanes;

use std::process::Command;

use anyhow::{Result, ensure};
use xshell::cmd;

use self::lanes::{Job, Outcome, Queue};
use crate::binaries::{self, Binary};
use crate::nightly::SCRIPTS;
use crate::steps::Steps;
use crate::verify::sim;
use crate::workspace::Workspace;
use crate::{loom, redis_server, seeded};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only tests of the library without a server or a model checker: for each save of a file
    #[arg(long)]
    quick: bool,
    /// Names of tests to run (all that contain one of them), and options of the test harness such as
    /// --nocapture
    #[arg(value_name = "FILTER", trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
    /// Also builds the examples' programs, and tests the recipes: a build of their own would rebuild their
    /// dependencies with other features
    #[arg(skip)]
    examples: bool,
}

impl Options {
    /// Those of CI.
    pub(crate) fn all() -> Options {
        Options { quick: false, args: Vec::new(), examples: true }
    }
}

/// Suites that mostly wait, the longest first, with the number of their tests at a time.
const WAITING: [(&str, usize); 7] = [
    ("redis_faults", 24),
    ("redis", 8),
    ("cluster", 6),
    ("lock", 6),
    ("mutants of conformance", 6),
    ("recipes of recipes", 6),
    ("local", 12),
];

/// Number of suites at a time.
const WAITING_AT_A_TIME: usize = 2;

/// Suites to run alone, with the tests' filter: the leftovers of 2000 threads depend on how many start at the
/// same moment, and crowds of thousands of commands take both cores of a small machine.
const ALONE: [(&str, &str); 2] = [("semaphore_memory", ""), ("redis_faults", "crowd::")];

/// Packages built elsewhere: loom models need a build of their own (below), and benches measure.
const ELSEWHERE: [&str; 3] = ["loom-tests", "benches", "lock-mutants"];

/// Packages with many dependencies that no test needs.
const EXAMPLES: [&str; 2] = [RECIPES, "quickstart"];

const RECIPES: &str = "recipes";

/// The library's tests for `--quick`.
const QUICK: [&str; 9] = [
    "fork",
    "local",
    "lock",
    "lock_memory",
    "registry",
    "registry_memory",
    "semaphore",
    "semaphore_memory",
    "tidy",
];

/// Tests left out by `--quick`: tests with a server, and the model of the ownership.
const SLOW: [&str; 3] = ["needs_a_server", "on_a_server", "ownership::model"];

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    let result = run_all(workspace, steps, options);
    eprintln!("\n{steps}");
    result
}

/// Runs the tests without printing times: `ci` prints its own.
pub(crate) fn run_all(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    let Options { quick, args, examples } = options;
    let mut args = args.clone();
    let left_out = ELSEWHERE.into_iter().chain(EXAMPLES.into_iter().filter(|_| !examples));
    // Of all steps: other packages would enable other features of the dependencies, to be built once more.
    let packages: Vec<_> =
        ["--workspace"].into_iter().chain(left_out.flat_map(|package| ["--exclude", package])).collect();
    let build = if *quick {
        args.extend(SLOW.iter().flat_map(|name| ["--skip".to_owned(), (*name).to_owned()]));
        let targets = QUICK.iter().flat_map(|name| ["--test", name]);
        cmd!(shell, "{cargo} test --no-run --lib").args(targets)
    } else {
        steps.run("Redis server", || redis_server::ensure(shell))?;
        match examples {
            false => cmd!(shell, "{cargo} test --no-run --lib --bins --tests"),
            true => cmd!(shell, "{cargo} build --tests --bins --features quickstart/redis"),
        }
    };
    let build = build.args(&packages);
    let binaries = steps.run("build of the tests", || binaries::build(build.into(), workspace.root()))?;
    let Plan { waiting, mut computing, alone } = Plan::of(&binaries, &args);
    if !quick {
        computing
            .push(job("doc tests", cmd!(shell, "{cargo} test --doc").args(packages).arg("--").args(&args)));
        computing.push(job("loom models", loom::bounded(workspace, loom::FEW)?.arg("--").args(&args)));
        // Unnamed tests, excluded by any filter.
        if args.is_empty() {
            let seeded = seeded::copy(workspace)?;
            computing.extend(sim::quick(&seeded)?.map(|(name, command)| job(name, command)));
        }
    }
    let beside = vec![Queue { jobs: waiting, lanes: WAITING_AT_A_TIME }, Queue { jobs: computing, lanes: 1 }];
    eprintln!("\n==> tests, side by side; the output of each comes with its end if it fails");
    let loud = !options.args.is_empty();
    let outcome = lanes::run(steps, beside, loud);
    // Runs even after failures.
    let alone = lanes::run(steps, vec![Queue { jobs: alone, lanes: 1 }], loud);
    let Outcome { totals, failed } = [outcome, alone].into_iter().sum();
    println!("{} passed, {} failed", totals.passed, totals.failed);
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    ensure!(!options.args.is_empty() || totals.passed > 0, "no test was run");
    Ok(())
}

/// The binaries that run side by side, and alone.
#[derive(Default)]
struct Plan {
    /// The longest first.
    waiting: Vec<Job>,
    computing: Vec<Job>,
    alone: Vec<Job>,
}

impl Plan {
    /// `args` are the harness's.
    fn of(binaries: &[Binary], args: &[String]) -> Self {
        let mut plan = Plan::default();
        let place = |binary: &&Binary| WAITING.iter().position(|(name, _)| *name == binary.name);
        let mut binaries: Vec<&Binary> = binaries.iter().collect();
        binaries.sort_by_key(place);
        for binary in binaries {
            let mut own = args.to_vec();
            let mut skip = |tests: &str| own.extend(["--skip".to_owned(), tests.to_owned()]);
            match ALONE.iter().find(|(name, _)| *name == binary.name) {
                Some((_, "")) => {
                    plan.alone.push(job_of(binary, args));
                    continue;
                }
                // A caller's filter leaves no test out.
                Some((name, tests)) if args.is_empty() => {
                    let alone = binary.command(&[(*tests).to_owned()]);
                    plan.alone.push(job(&format!("{name} {tests}"), alone));
                    skip(tests);
                }
                _ if args.is_empty() && binary.name == "redis" => SCRIPTS.iter().copied().for_each(skip),
                _ => {}
            }
            if binary.name == format!("{RECIPES} of {RECIPES}") {
                // Those that wait for leases to end.
                own.push("--include-ignored".to_owned());
            }
            let Some(at) = place(&binary) else {
                plan.computing.push(job_of(binary, &own));
                continue;
            };
            // The caller's option takes precedence.
            if !args.iter().any(|arg| arg.starts_with("--test-threads")) {
                own.extend(["--test-threads".to_owned(), WAITING[at].1.to_string()]);
            }
            plan.waiting.push(job_of(binary, &own));
        }
        plan
    }
}

fn job_of(binary: &Binary, args: &[String]) -> Job {
    job(&binary.name, binary.command(args))
}

fn job(name: &str, command: impl Into<Command>) -> Job {
    Job { name: name.to_owned(), command: command.into() }
}
