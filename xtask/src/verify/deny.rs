//! `cargo xtask verify deny`: licenses, duplicates, sources and advisories of what we stand on, by
//! `deny.toml`.

use anyhow::Result;
use xshell::cmd;

use crate::missing::Missing;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// # Errors
///
/// [`Missing`] if there is no cargo-deny: it is as large as all that we build, so it is not installed for us.
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
