//! `cargo xtask verify fuzz`: parsers of outside input (names, ids, URLs, replies, messages) against random
//! input, and the semaphore against its sequential model.

use anyhow::Result;
use xshell::{Cmd, cmd};

use super::{Options, build, tee};
use crate::canary::Tally;
use crate::rustflags;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Default time for each target.
const SECONDS: u32 = 30;

/// Edge coverage, which leads libFuzzer, on a stable compiler; and seedable faults.
const FLAGS: [&str; 9] = [
    "--cfg",
    "fuzzing",
    "--cfg",
    "latchwork_faults",
    "-Cdebug-assertions",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
];

/// Faults of the semaphore that a single-threaded script shows.
const CANARIES: [&str; 3] = ["OnlyFreeReduced", "GrantDiesWithWaiter", "GrantedNotWoken"];

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    let seconds = options.seconds.unwrap_or(SECONDS).to_string();
    let said = steps.run("hostile input", || {
        // Their output contains the seeds.
        let args = ["--lib", "--test", "hostile", "--", "hostile", "twin_that", "--show-output"];
        let command = cmd!(shell, "{cargo} test --package latchwork {args...}");
        let command = match options.fuzz_seed {
            Some(seed) => command.env("LATCHWORK_FUZZ_SEED", seed.to_string()),
            None => command,
        };
        tee::run(command.env("LATCHWORK_FUZZ_SECONDS", &seconds))
    })?;
    let twins = || {
        let tests = said.lines.iter().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
        tests.filter(|(name, _)| name.contains("twin_that"))
    };
    let killed = twins().filter(|(_, result)| *result == "ok").count();
    steps.count(Tally { seeded: twins().count(), killed });
    said.result()?;
    steps.run("scripts for the semaphore", || Ok(scripts(workspace, &seconds)?.run()?))?;
    steps.canaries("scripts for the semaphore canaries", |canaries| {
        for fault in CANARIES {
            canaries.must_find(scripts(workspace, "30")?, fault, "panicked");
        }
        Ok(())
    })
}

/// The fuzz target, without cargo-fuzz: naming the target keeps the coverage out of build scripts and macros.
fn scripts<'a>(workspace: &'a Workspace, seconds: &str) -> Result<Cmd<'a>> {
    let Workspace { shell, cargo, .. } = workspace;
    let (host, target_dir) = (build::host(workspace)?, workspace.target_dir().join("fuzz"));
    let (variable, flags) = rustflags::with(&FLAGS)?;
    let manifest = workspace.root().join("fuzz/Cargo.toml");
    let run =
        cmd!(shell, "{cargo} run --quiet --release --locked --manifest-path {manifest} --target {host}");
    let scratch = workspace.target_dir().join("fuzz/artifacts");
    shell.create_dir(&scratch)?;
    Ok(run
        .arg("--target-dir")
        .arg(target_dir)
        .args(["--bin", "semaphore", "--", "-max_len=600", "-len_control=0"])
        .args([format!("-max_total_time={seconds}"), format!("-artifact_prefix={}/", scratch.display())])
        .env(variable, flags))
}
