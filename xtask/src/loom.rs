//! `cargo xtask loom`.

use std::env::{self, VarError};

use anyhow::{Context, Result};
use xshell::cmd;

use crate::steps::Steps;
use crate::workspace::Workspace;

/// Enough for every bug the broken twins stand for; each one more multiplies the time.
const MAX_PREEMPTIONS: &str = "3";

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, args: &[String]) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    steps.run("loom models", || {
        let (flags_variable, flags) = rustflags_with_loom()?;
        let max_preemptions = env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| MAX_PREEMPTIONS.to_owned());
        // Of its own, because the flag concerns every crate: in the usual one, each switch between models and tests
        // would build everything anew.
        let target_dir = workspace.target_dir().join("loom");
        cmd!(shell, "{cargo} test --release --package loom-tests --target-dir {target_dir} -- {args...}")
            .env(flags_variable, flags)
            .env("LOOM_MAX_PREEMPTIONS", max_preemptions)
            // The models run for long, so they are optimised; what the code asserts is part of what they check.
            .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
            .run()?;
        Ok(())
    })
}

/// The compiler flags of our caller and the one that turns the models on, with the variable to pass them in.
///
/// Cargo reads only the first of the two variables that is set. The flag in the other one would not arrive, and without
/// it there are no models: the run would be green and empty.
fn rustflags_with_loom() -> Result<(&'static str, String)> {
    for (variable, separator) in [("CARGO_ENCODED_RUSTFLAGS", "\x1f"), ("RUSTFLAGS", " ")] {
        let flags = match env::var(variable) {
            Ok(flags) => flags,
            Err(VarError::NotPresent) => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot add to {variable}")),
        };
        let with_loom = [flags.as_str(), "--cfg", "latchwork_loom"].join(separator);
        return Ok((variable, with_loom.trim_start_matches(separator).to_owned()));
    }
    Ok(("RUSTFLAGS", "--cfg latchwork_loom".to_owned()))
}
