//! `cargo xtask verify suspension`: threads stopped for ever; and the code against the model.

use anyhow::Result;
use xshell::Cmd;

use super::build::Build;
use crate::steps::Steps;
use crate::workspace::Workspace;

const BUILD: Build = Build { cfg: "latchwork_suspend", sanitizer: None, target_dir: "suspension" };

/// A fault, the program to find it, and a part of the failure's text.
const CANARIES: [(&str, &str, &str); 13] = [
    ("SettlesUnderLock", "released to waiters", "does not finish"),
    ("LinkNotCompleted", "released to waiters", "does not finish"),
    ("CreditsAfterGrants", "released to waiters", "sleep"),
    ("WakesAsItGoes", "served at once", "sleep"),
    ("ClosedNotSettled", "closed", "sleep"),
    ("ClosedPollDoesNotSettle", "closed, more than a batch", "sleep"),
    ("NoLookAtClosed", "closed beside a release", "no order"),
    ("NoLook", "cancelled first", "FOUND"),
    ("GrantedNotWoken", "released to waiters", "a waiter was not woken"),
    ("GrantDiesWithWaiter", "cancelled while granted", "no order"),
    ("DeficitDiesWithWaiter", "lowered in a queue", "no order"),
    ("PendingCountsAsGiven", "notified at once", "no order"),
    ("WakerOutlivesWait", "wakers change", "copies of wakers are left"),
];

/// Faults that make the code's answers differ from the model's.
const REPLAY_CANARIES: [&str; 4] = ["NoLook", "FreeReadOnce", "GrantDiesWithWaiter", "TryWithoutSettle"];

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    steps.run("suspended threads", || Ok(command(BUILD, workspace)?.run()?))?;
    steps.run("accesses counted", || Ok(command(BUILD, workspace)?.arg("--count").run()?))?;
    steps.run("code against the model", || Ok(replay(workspace)?.run()?))?;
    steps.canaries("code against the model canaries", |canaries| {
        for fault in REPLAY_CANARIES {
            canaries.must_find(replay(workspace)?, fault, "which the model does not");
        }
        Ok(())
    })?;
    steps.canaries("suspended threads canaries", |canaries| {
        // A release under a lock, which writes another word.
        let counted = command(BUILD, workspace)?.arg("--count");
        canaries.must_find(counted, "SettlesUnderLock", "not what docs/benchmarks.md says");
        for (fault, program, expected) in CANARIES {
            let command = command(BUILD, workspace)?.args(["--schedules", "64", program]);
            canaries.must_find(command, fault, expected);
        }
        Ok(())
    })
}

/// The model's programs, played by the code.
fn replay(workspace: &Workspace) -> Result<Cmd<'_>> {
    Ok(BUILD.cargo(workspace, "run", "model")?.args(["--quiet", "--bin", "model", "--", "replay"]))
}

pub(crate) fn command(build: Build, workspace: &Workspace) -> Result<Cmd<'_>> {
    Ok(build.cargo(workspace, "run", "threads")?.args(["--quiet", "--bin", "suspension", "--"]))
}
