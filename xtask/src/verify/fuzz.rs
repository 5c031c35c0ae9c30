//! `cargo xtask verify fuzz`: what is read from outside (names, ids, URLs, replies, messages) against input
//! that is drawn, and the semaphore against its sequential model.

use anyhow::Result;
use xshell::cmd;

use super::{Options, tee};
use crate::canary::Tally;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// For each target, if nothing else is asked for.
const SECONDS: u32 = 30;

/// Scripts for the semaphore; in every run of the tests it is a few hundred.
const SCRIPTS: &str = "5000";

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    let seconds = options.seconds.unwrap_or(SECONDS).to_string();
    let said = steps.run("hostile input", || {
        // Their seeds are in what they print.
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
    steps.run("scripts for the semaphore", || {
        let command = cmd!(shell, "{cargo} test --package latchwork --test semaphore random");
        Ok(command.env("PROPTEST_CASES", SCRIPTS).run()?)
    })
}
