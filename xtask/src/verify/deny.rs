//! `cargo xtask verify deny`: our dependencies' licenses, duplicates, sources and advisories.

use anyhow::Result;
use xshell::cmd;

use crate::missing::Missing;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Fails with [`Missing`] without cargo-deny: its build is as large as ours, so xtask does not install it.
pub(crate) fn run(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    let is_there =
        cmd!(shell, "{cargo} deny --version").quiet().ignore_stdout().ignore_stderr().run().is_ok();
    if !is_there {
        return Err(Missing("cargo-deny is missing: `cargo install --locked cargo-deny`").into());
    }
    steps.run("licenses, bans, sources", || {
        Ok(cmd!(shell, "{cargo} deny --workspace check licenses bans sources").run()?)
    })?;
    let fetched = steps.run("database of advisories", || {
        Ok(cmd!(shell, "{cargo} deny fetch db").ignore_status().output()?.status.success())
    })?;
    if !fetched {
        steps.leave_out("advisories: their database cannot be fetched here".to_owned());
        return Ok(());
    }
    steps.run("advisories", || {
        Ok(cmd!(shell, "{cargo} deny --workspace check --disable-fetch advisories").run()?)
    })
}
