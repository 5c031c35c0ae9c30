//! `cargo xtask recipes`: code that readers copy has to build, run, and work as described.

use anyhow::Result;
use xshell::cmd;

use crate::alone;
use crate::redis_server;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Recipes of several files.
pub(crate) const PACKAGES: [&str; 2] = ["own_backend", "own_lock_client"];

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    steps.run("recipes", || {
        redis_server::ensure(shell)?;
        // Including the recipes that wait for leases to expire.
        cmd!(shell, "{cargo} test --package recipes -- --include-ignored").run()?;
        Ok(())
    })?;
    alone::run(workspace, steps)?;
    steps.run("recipes that are packages", || {
        for example in PACKAGES {
            cmd!(shell, "{cargo} run --package {example}").run()?;
        }
        Ok(())
    })
}
