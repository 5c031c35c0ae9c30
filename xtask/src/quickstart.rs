//! `cargo xtask quickstart`: a newcomer's first program has to work.

use std::path::Path;

use anyhow::Result;
use latchwork_testkit::RedisServer;
use xshell::{Cmd, cmd};

use crate::redis_server;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Builds and runs the program as its page says.
pub(crate) fn run(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    let command = || cmd!(shell, "{cargo} run --release --package quickstart");
    run_both(workspace, steps, command(), command().args(["--features", "redis", "--"]))
}

pub(crate) fn run_built(workspace: &Workspace, steps: &mut Steps, program: &Path) -> Result<()> {
    let command = || cmd!(workspace.shell, "{program}");
    run_both(workspace, steps, command(), command())
}

fn run_both(workspace: &Workspace, steps: &mut Steps, local: Cmd<'_>, over_redis: Cmd<'_>) -> Result<()> {
    steps.run("quickstart", || Ok(local.run()?))?;
    steps.run("quickstart over Redis", || {
        redis_server::ensure(&workspace.shell)?;
        let server = RedisServer::try_start()?;
        Ok(over_redis.args(["--redis", &server.url(), "--processes", "3"]).run()?)
    })
}
