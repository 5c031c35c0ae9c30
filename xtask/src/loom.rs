//! `cargo xtask loom`.

use std::env;

use anyhow::Result;
use xshell::{Cmd, cmd};

use crate::rustflags;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Most preemptions in an execution. Another one multiplies the time.
const MAX_PREEMPTIONS: &str = "3";

/// Enough to find each seeded fault: for the tests.
pub(crate) const FEW: &str = "2";

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, args: &[String]) -> Result<()> {
    steps.run("loom models", || Ok(bounded(workspace, MAX_PREEMPTIONS)?.arg("--").args(args).run()?))
}

/// `cargo test` on the models, bounded by LOOM_MAX_PREEMPTIONS or by `preemptions`.
pub(crate) fn bounded<'a>(workspace: &'a Workspace, preemptions: &str) -> Result<Cmd<'a>> {
    let max_preemptions = env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| preemptions.to_owned());
    Ok(command(workspace)?.env("LOOM_MAX_PREEMPTIONS", max_preemptions))
}

pub(crate) fn command(workspace: &Workspace) -> Result<Cmd<'_>> {
    let Workspace { shell, cargo, .. } = workspace;
    let (flags_variable, flags) = rustflags::with(&["--cfg", "latchwork_loom"])?;
    // A directory of its own, because the flag applies to every crate: in the usual one, each switch between
    // models and tests would rebuild everything.
    let target_dir = workspace.target_dir().join("loom");
    let command = cmd!(shell, "{cargo} test --release --package loom-tests --target-dir {target_dir}")
        .env(flags_variable, flags)
        // Optimised, for long models; with debug assertions, as further checks.
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
    Ok(command)
}
