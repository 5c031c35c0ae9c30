//! `cargo xtask verify shuttle`.

use anyhow::Result;
use xshell::Cmd;

use super::Options;
use super::build::Build;
use crate::steps::Steps;
use crate::workspace::Workspace;

const BUILD: Build = Build { cfg: "latchwork_shuttle", sanitizer: None, target_dir: "shuttle" };

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    // The canaries are among the tests, as broken twins.
    steps.run("shuttle", || Ok(command(BUILD, workspace, options.iterations)?.run()?))
}

/// The models, in some build.
pub(crate) fn command(build: Build, workspace: &Workspace, iterations: u32) -> Result<Cmd<'_>> {
    let command = build.cargo(workspace, "test")?.args(["--test", "shuttle"]);
    Ok(command.env("SHUTTLE_ITERATIONS", iterations.to_string()))
}
