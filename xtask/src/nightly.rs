//! Tests that `cargo xtask test` leaves out, and parts of `cargo xtask verify` run.

use anyhow::{Result, bail};
use defects::faults;
use xshell::cmd;

use crate::steps::Steps;
use crate::workspace::Workspace;
use crate::{binaries, redis_server, seeded};

/// Tests of the suite `redis` for `verify scripts`: refused commands, and the scripts' time on the server.
/// Their outcome changes only with a script, and they take longer than all other tests together.
pub(crate) const SCRIPTS: [&str; 2] = ["scripts::refusals", "scripts::bounds"];

/// Compares random calls of the scripts with a reference.
const DIFFERENTIAL: &str = "scripts::differential";

/// The exhaustive model of the ownership.
const MODEL: &str = "lock_entry::ownership::model";
/// With optimizations the model takes a tenth of the time, which is worth rebuilding the library.
const OPTIMIZED: &str = "profile.dev.package.latchwork.opt-level=1";

/// Runs the model in its full depth, and with the faults to find.
pub(crate) fn ownership(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let copy = seeded::copy(workspace)?;
    let Workspace { shell, cargo, .. } = &copy;
    let build = cmd!(shell, "{cargo} test --no-run --package latchwork --lib --config {OPTIMIZED}");
    let binaries = steps.run("build of the model", || binaries::build(build.into(), copy.root()))?;
    let [binary] = &binaries[..] else { bail!("the library has one binary of unit tests") };
    let run = |test: &str| {
        let path = &binary.path;
        cmd!(shell, "{path} {MODEL}{test}").env("LATCHWORK_DEEP", "1")
    };
    steps.run("ownership", || Ok(run("").run()?))?;
    steps.canaries("ownership canaries", |canaries| {
        for fault in faults::all() {
            if let Some((test, expected)) = fault.model {
                canaries.must_find(run(&format!("::{test}")).arg("--exact"), fault.name, expected);
            }
        }
        Ok(())
    })
}

pub(crate) fn scripts(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    steps.run("Redis server", || redis_server::ensure(shell))?;
    for tests in SCRIPTS {
        let threads = if tests == "scripts::bounds" { "1" } else { "6" };
        let run =
            cmd!(shell, "{cargo} test --package latchwork --test redis -- {tests} --test-threads {threads}");
        steps.run(tests, || Ok(run.run()?))?;
    }
    // The usual tests run some of these programs; this runs sixty times as many.
    let deep = cmd!(shell, "{cargo} test --package latchwork --test redis -- {DIFFERENTIAL}");
    steps.run(DIFFERENTIAL, || Ok(deep.env("LATCHWORK_DEEP", "1").run()?))
}
