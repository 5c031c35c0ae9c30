//! `cargo xtask verify asan` and `… tsan`.

use anyhow::Result;
use xshell::Cmd;

use super::build::Build;
use super::{Options, suspension};
use crate::steps::Steps;
use crate::workspace::Workspace;

const SUSPENDED: Build =
    Build { cfg: "latchwork_suspend", sanitizer: Some("address"), target_dir: "asan-suspension" };
const ADDRESS: Build = Build { cfg: "latchwork_faults", sanitizer: Some("address"), target_dir: "asan" };
const THREAD: Build = Build { cfg: "latchwork_faults", sanitizer: Some("thread"), target_dir: "tsan" };

pub(crate) fn address(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    let use_after_free = "AddressSanitizer: heap-use-after-free";
    steps.run("suspended threads under asan", || Ok(suspension::command(SUSPENDED, workspace)?.run()?))?;
    steps.canaries("suspended threads under asan canaries", |canaries| {
        let programs = [
            ("FreedUnderWalkers", "swept"),
            ("HintOutlivesNode", "swept"),
            ("SweptUnderOwner", "used queue"),
        ];
        for (fault, program) in programs {
            let stopped = suspension::command(SUSPENDED, workspace)?.args(["--schedules", "64", program]);
            canaries.must_find(stopped, fault, use_after_free);
        }
        Ok(())
    })?;

    let seconds = options.seconds_of_threads();
    steps.run("real threads under asan", || Ok(threads(ADDRESS, workspace, &seconds)?.run()?))?;
    steps.canaries("real threads under asan canaries", |canaries| {
        let leaked = "LeakSanitizer: detected memory leaks";
        canaries.must_find(threads(ADDRESS, workspace, "3")?, "NeverFreed", leaked);
        Ok(())
    })
}

pub(crate) fn thread(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    let command = |seconds: &str| {
        // Stop at the first report.
        Ok::<_, anyhow::Error>(threads(THREAD, workspace, seconds)?.env("TSAN_OPTIONS", "halt_on_error=1"))
    };
    steps.run("real threads under tsan", || Ok(command(&options.seconds_of_threads())?.run()?))?;
    steps.canaries("real threads under tsan canaries", |canaries| {
        let two_permits = command("30")?.args(["--permits", "2"]);
        canaries.must_fail(two_permits, "two permits for plain memory", "WARNING: ThreadSanitizer: ");
        Ok(())
    })
}

fn threads<'a>(build: Build, workspace: &'a Workspace, seconds: &str) -> Result<Cmd<'a>> {
    let run = build.cargo(workspace, "run", "threads")?;
    Ok(run.args(["--quiet", "--bin", "real", "--", "--seconds", seconds]))
}
