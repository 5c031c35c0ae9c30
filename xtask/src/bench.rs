//! `cargo xtask bench`: the costs beside the peers', in the tables and pictures of the benchmark pages.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum;
use xshell::{Cmd, cmd};

use crate::interop;
use crate::redis_server;
use crate::steps::Steps;
use crate::system_package::succeeds;
use crate::workspace::Workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// What to measure
    #[arg(value_enum)]
    groups: Vec<Group>,
    /// Measures for seconds only, to show that everything runs, with meaningless figures: leaves the pages as
    /// they are, and writes copies below cargo's target directory
    #[arg(long)]
    try_out: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    /// The semaphore beside six others
    Semaphore,
    /// The lock in memory beside tokio's mutex and lockable
    Local,
    /// The lock over Redis beside other clients, including other languages if they can run
    Redis,
    /// The growth of costs with waiters, threads, names, clients and readers
    Scale,
    /// All groups, in three quarters of an hour
    All,
}

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    let shell = &workspace.shell;
    let records = workspace.target_dir().join("benchmarks");
    let (records, docs) = match options.try_out {
        true => (records.join("tried"), records.join("tried").join("docs")),
        false => (records, workspace.root().join("docs")),
    };
    shell.create_dir(&docs)?;
    if options.try_out {
        for page in ["benchmarks.md", "benchmarks-tables.md"] {
            shell.copy_file(workspace.root().join("docs").join(page), docs.join(page))?;
        }
    }
    let all = options.groups.is_empty() || options.groups.contains(&Group::All);
    let tool = |name: &str, long: &str, short: &str| {
        let Workspace { shell, cargo, .. } = workspace;
        let args = if options.try_out { short } else { long };
        // The semaphore alone: with feature `redis` it also checks tokio's budget.
        let features = if name == "ratios" { "" } else { "redis" };
        cmd!(
            shell,
            "{cargo} run --quiet --release --package benches --no-default-features --features {features}"
        )
        .args(["--bin", name, "--"])
        .args(args.split_whitespace())
        .arg("--json")
        .arg(&records)
    };
    for group in [Group::Semaphore, Group::Local, Group::Redis, Group::Scale] {
        if !all && !options.groups.contains(&group) {
            continue;
        }
        let command = match group {
            Group::Semaphore => tool("ratios", "--slices 401", "--slices 5 --slice-micros 500"),
            Group::Local => tool("local", "--slices 600", "--slices 5"),
            Group::Redis => {
                steps.run("Redis server", || redis_server::ensure(shell))?;
                let command = tool("lock", "--repeat 5 --rounds 1", "--rounds 1 others hand_off");
                with_other_languages(workspace, steps, command)?
            }
            Group::Scale | Group::All => {
                steps.run("Redis server", || redis_server::ensure(shell))?;
                tool("scale", "--repeat 5", "--repeat 1 --most 100 --millis 200")
            }
        };
        steps.run(&format!("bench {group:?}").to_lowercase(), || Ok(command.run()?))?;
    }
    steps.run("report", || {
        let Workspace { shell, cargo, .. } = workspace;
        Ok(cmd!(shell, "{cargo} run --quiet --release --package benches --bin report -- {records} {docs}")
            .run()?)
    })?;
    eprintln!("\n{}\n\n{steps}", docs.join("benchmarks-tables.md").display());
    Ok(())
}

/// Adds the peers in Java and Python that can run here to the command, and reports the others as left out.
fn with_other_languages<'a>(workspace: &Workspace, steps: &mut Steps, command: Cmd<'a>) -> Result<Cmd<'a>> {
    let mut command = command;
    match interop::java_side(workspace, steps) {
        Ok(directory) => command = command.arg("--redisson").arg(directory),
        Err(why) => eprintln!("redisson is left out: {why:#}"),
    }
    match steps.run("python-redis-lock", || python_side(workspace)) {
        Ok(modules) => command = command.arg("--python").arg(modules),
        Err(why) => eprintln!("python-redis-lock is left out: {why:#}"),
    }
    Ok(command)
}

/// The directory of the Python modules.
fn python_side(workspace: &Workspace) -> Result<PathBuf> {
    let shell = &workspace.shell;
    anyhow::ensure!(succeeds(shell, "python3"), "install Python 3 with pip");
    let modules = workspace.target_dir().join("benchmarks").join("python");
    let is_there = |modules: &Path| modules.join("redis_lock").exists();
    if !is_there(&modules) {
        cmd!(shell, "python3 -m pip install --quiet --target {modules} python-redis-lock").run()?;
    }
    Ok(modules)
}
