//! `cargo xtask loom`.

use std::env;

use anyhow::Result;
use xshell::{Cmd, cmd};

use crate::rustflags;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Enough for every bug the broken twins stand for; each one more multiplies the time.
const MAX_PREEMPTIONS: &str = "3";

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, args: &[String]) -> Result<()> {
    steps.run("loom models", || Ok(bounded(workspace)?.arg("--").args(args).run()?))
}

/// `cargo test` on the models, with the bound that is asked for.
pub(crate) fn bounded(workspace: &Workspace) -> Result<Cmd<'_>> {
    let max_preemptions = env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| MAX_PREEMPTIONS.to_owned());
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
