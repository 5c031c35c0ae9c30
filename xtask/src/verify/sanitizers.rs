//! `cargo xtask verify asan` and `… tsan`.

use anyhow::Result;

use super::build::Build;
use super::{Options, shuttle, stress};
use crate::canary::must_find;
use crate::steps::Steps;
use crate::workspace::Workspace;

const SHUTTLE: Build =
    Build { cfg: "latchwork_shuttle", sanitizer: Some("address"), target_dir: "asan-shuttle" };
const ADDRESS: Build = Build { cfg: "latchwork_faults", sanitizer: Some("address"), target_dir: "asan" };
const THREAD: Build = Build { cfg: "latchwork_faults", sanitizer: Some("thread"), target_dir: "tsan" };

pub(crate) fn address(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    let use_after_free = "AddressSanitizer: heap-use-after-free";
    let models = |iterations, filter: &str| {
        Ok::<_, anyhow::Error>(shuttle::command(SHUTTLE, workspace, iterations)?.args(["--", filter]))
    };
    // Ten times as slow.
    steps.run("shuttle under asan", || Ok(models(options.iterations / 10, "::holds")?.run()?))?;
    steps.run("shuttle under asan canaries", || {
        ["FreedUnderWalkers", "HintOutlivesNode", "SweptUnderOwner"]
            .iter()
            .try_for_each(|fault| must_find(models(100_000, "many_give_up::holds")?, fault, use_after_free))
    })?;

    let seconds = options.stress_seconds();
    steps.run("stress under asan", || Ok(stress::command(ADDRESS, workspace, &seconds)?.run()?))?;
    steps.run("stress under asan canaries", || {
        // Here nodes are used again: the other two lead to another waiter's node, and not to freed memory.
        let fault = "FreedUnderWalkers";
        must_find(stress::command(ADDRESS, workspace, "30")?.arg("quitters"), fault, use_after_free)?;
        let leaked = "LeakSanitizer: detected memory leaks";
        must_find(stress::command(ADDRESS, workspace, "3")?, "NeverFreed", leaked)
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
    steps.run("stress under tsan canaries", || {
        // A race with the free, or a use after it: whichever is met first. (With `SweptUnderOwner` the counts
        // are wrong before that.)
        must_find(command("30")?, "FreedUnderWalkers", "WARNING: ThreadSanitizer: ")
    })
}
