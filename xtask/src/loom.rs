//! `cargo xtask loom`.

use std::env;

use anyhow::Result;
use xshell::{Cmd, cmd};

use crate::rustflags;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Preemptions of an execution at most. Each one more multiplies the time.
const MAX_PREEMPTIONS: &str = "3";

/// Enough for each fault that is seeded: in the tests.
pub(crate) const FEW: &str = "2";

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, args: &[String]) -> Result<()> {
    steps.run("loom models", || Ok(bounded(workspace, MAX_PREEMPTIONS)?.arg("--").args(args).run()?))
}

/// `cargo test` on the models, with the bound that is asked for, or else this one.
pub(crate) fn bounded<'a>(workspace: &'a Workspace, preemptions: &str) -> Result<Cmd<'a>> {
    let max_preemptions = env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| preemptions.to_owned());
    Ok(command(workspace)?.env("LOOM_MAX_PREEMPTIONS", max_preemptions))
}

/// `cargo test` on the models.
pub(crate) fn command(workspace: &Workspace) -> Result<Cmd<'_>> {
    let Workspace { shell, cargo, .. } = workspace;
    let (flags_variable, flags) = rustflags::with(&["--cfg", "latchwork_loom"])?;
    // Of its own, because the flag concerns every crate: in the usual one, each switch between models and
    // tests would build everything anew.
    let target_dir = workspace.target_dir().join("loom");
    let command = cmd!(shell, "{cargo} test --release --package loom-tests --target-dir {target_dir}")
        .env(flags_variable, flags)
        // The models run for long, so they are optimised; what the code asserts is part of what they check.
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
    Ok(command)
}
