//! `cargo xtask verify stress`.

use anyhow::Result;
use xshell::Cmd;

use super::Options;
use super::build::Build;
use crate::steps::Steps;
use crate::workspace::Workspace;

const BUILD: Build = Build { cfg: "latchwork_faults", sanitizer: None, target_dir: "stress" };

/// One for each thing that is looked at in the end: which fault, the part in which nothing else is found of
/// it, and what that says.
const CANARIES: [(&str, &str, &str); 8] = [
    ("NoLook", "release_vs_acquire", "asleep"),
    ("GrantedNotWoken", "release_vs_acquire", "waker"),
    ("GrantDiesWithWaiter", "acquire_cancel_release", "permits are free"),
    ("OnlyFreeReduced", "set_capacity", "permits are free"),
    ("DeficitDiesWithWaiter", "set_capacity", "permits are free"),
    ("NoLook", "histories", "no order of the calls"),
    ("OnlyFreeReduced", "histories", "no order of the calls"),
    ("WakerOutlivesWait", "acquire_cancel_release", "copies of wakers were left behind"),
];

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    let seconds = options.stress_seconds();
    steps.run("stress", || Ok(command(BUILD, workspace, &seconds)?.run()?))?;
    steps.canaries("stress canaries", |canaries| {
        for (fault, part, expected) in CANARIES {
            canaries.must_find(command(BUILD, workspace, "30")?.arg(part), fault, expected);
        }
        // Found only at the end.
        canaries.must_find(command(BUILD, workspace, "10")?, "NeverFreed", "something is never freed");
        // A thread that sleeps for ever is waited for a while.
        let turns = command(BUILD, workspace, "30")?.arg("turns");
        canaries.must_find(turns, "NoLook", "asleep, nothing has happened");
        Ok(())
    })
}

/// Real threads, in some build.
pub(crate) fn command<'a>(build: Build, workspace: &'a Workspace, seconds: &str) -> Result<Cmd<'a>> {
    Ok(build.cargo(workspace, "run", "threads")?.args([
        "--quiet",
        "--bin",
        "stress",
        "--",
        "--seconds",
        seconds,
    ]))
}
