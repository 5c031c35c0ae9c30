//! `cargo xtask verify asan` and `… tsan`.

use anyhow::Result;

use super::build::Build;
use super::{Options, stress, suspension};
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

    let seconds = options.stress_seconds();
    steps.run("stress under asan", || Ok(stress::command(ADDRESS, workspace, &seconds)?.run()?))?;
    steps.canaries("stress under asan canaries", |canaries| {
        // Here nodes are used again: the other two faults lead to another waiter's node, and not to freed
        // memory.
        let fault = "FreedUnderWalkers";
        canaries.must_find(stress::command(ADDRESS, workspace, "30")?.arg("quitters"), fault, use_after_free);
        let leaked = "LeakSanitizer: detected memory leaks";
        canaries.must_find(stress::command(ADDRESS, workspace, "3")?, "NeverFreed", leaked);
        Ok(())
    })
}

pub(crate) fn thread(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    let command = |seconds: &str| {
        // The first report is enough.
        Ok::<_, anyhow::Error>(
            stress::command(THREAD, workspace, seconds)?.env("TSAN_OPTIONS", "halt_on_error=1"),
        )
    };
    steps.run("stress under tsan", || Ok(command(&options.stress_seconds())?.run()?))?;
    steps.canaries("stress under tsan canaries", |canaries| {
        // A race with the free, or a use after it: whichever is met first. (With `SweptUnderOwner` the counts
        // are wrong before that.)
        canaries.must_find(command("30")?, "FreedUnderWalkers", "WARNING: ThreadSanitizer: ");
        Ok(())
    })
}
