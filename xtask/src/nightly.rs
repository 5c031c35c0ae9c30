//! Tests that `cargo xtask test` leaves out, and parts of `cargo xtask verify` run.

use anyhow::Result;
use xshell::cmd;

use crate::redis_server;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Tests of the suite `redis` for `verify scripts`: scripts that are refused at each of their commands, and
/// scripts whose time on the server is measured. Their outcome changes when a script does, and they take
/// longer than all others together.
pub(crate) const SCRIPTS: [&str; 2] = ["scripts::refusals", "scripts::bounds"];

/// Random calls of the scripts beside a reference.
const DIFFERENTIAL: &str = "scripts::differential";

/// Tests of the library for `verify ownership`: faults that are seeded into the engine.
pub(crate) const MUTANTS: &str = "ownership::model::mutant_";

/// The model of the ownership.
const MODEL: &str = "ownership::model";
/// With optimizations the model takes a tenth of the time, which is worth a build of the library.
const OPTIMIZED: &str = "profile.dev.package.latchwork.opt-level=1";

/// The model in its full depth, and the faults that the model must find.
pub(crate) fn ownership(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    let model = cmd!(
        shell,
        "{cargo} test --package latchwork --lib --config {OPTIMIZED} -- {MODEL} --include-ignored"
    );
    steps.run("ownership", || Ok(model.env("LATCHWORK_DEEP", "1").run()?))
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
    // The tests have some of its programs; here are twenty times as many.
    let deep = cmd!(shell, "{cargo} test --package latchwork --test redis -- {DIFFERENTIAL}");
    steps.run(DIFFERENTIAL, || Ok(deep.env("LATCHWORK_DEEP", "1").run()?))
}
