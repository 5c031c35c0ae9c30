//! `cargo xtask recipes`: what readers copy from must build, run, and do what it says.

use anyhow::Result;
use xshell::cmd;

use crate::redis_server;
use crate::steps::Steps;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    steps.run("recipes", || {
        redis_server::ensure(shell)?;
        // Those that wait for leases to end as well.
        cmd!(shell, "{cargo} test --package recipes -- --include-ignored").run()?;
        Ok(())
    })?;
    steps.run("recipes that are packages", || {
        for example in ["own_backend", "own_lock_client"] {
            cmd!(shell, "{cargo} run --package {example}").run()?;
        }
        Ok(())
    })
}
