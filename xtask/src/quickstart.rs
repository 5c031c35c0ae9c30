//! `cargo xtask quickstart`: a newcomer's first program has to work.

use anyhow::Result;
use latchwork_testkit::RedisServer;
use xshell::cmd;

use crate::redis_server;
use crate::steps::Steps;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    let example = ["--release", "--package", "quickstart"];
    steps.run("quickstart", || Ok(cmd!(shell, "{cargo} run {example...}").run()?))?;
    steps.run("quickstart over Redis", || {
        redis_server::ensure(shell)?;
        let server = RedisServer::try_start()?;
        let url = server.url();
        cmd!(shell, "{cargo} run {example...} --features redis -- --redis {url} --processes 3").run()?;
        Ok(())
    })
}
