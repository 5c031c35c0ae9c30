//! `cargo xtask test`.

use anyhow::Result;
use xshell::cmd;

use crate::steps::Steps;
use crate::workspace::Workspace;
use crate::{loom, redis_server, verify};

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, args: &[String]) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    steps.run("Redis server", || redis_server::ensure(shell))?;
    steps.run("tests", || {
        // Loom models need a build of their own (below); benches measure and do not test.
        let packages = ["--workspace", "--exclude", "loom-tests", "--exclude", "benches"];
        let targets = ["--lib", "--bins", "--tests"];
        Ok(cmd!(shell, "{cargo} test {packages...} {targets...} -- {args...}").run()?)
    })?;
    // It waits for times that nobody would shorten, and costs minutes one by one.
    steps.run("faults of read-write locks", || {
        let faults = ["--test", "redis_read_write_faults", "--", "--test-threads", "5"];
        Ok(cmd!(shell, "{cargo} test {faults...} {args...}").run()?)
    })?;
    steps.run("doc tests", || Ok(cmd!(shell, "{cargo} test --doc -- {args...}").run()?))?;
    loom::run(workspace, steps, args)?;
    // Not tests with a name: a filter does not mean them.
    if args.is_empty() {
        verify::quick_model(workspace, steps)?;
        verify::quick_sim(workspace, steps)?;
    }
    Ok(())
}
