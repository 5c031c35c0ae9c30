//! `cargo xtask verify instructions`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use xshell::{Cmd, cmd};

use crate::steps::Steps;
use crate::system_package::{SystemPackage, succeeds};
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let runner = steps.run("valgrind and gungraun-runner", || {
        valgrind(workspace)?;
        gungraun_runner(workspace)
    })?;
    for feature in ["instructions", "cooperative"] {
        steps.run(feature, || Ok(command(workspace, &runner, feature).run()?))?;
    }
    steps.canaries("instructions canary", |canaries| {
        let halved = command(workspace, &runner, "instructions").env("LATCHWORK_HALF_THE_LIMITS", "1");
        canaries.must_fail(halved, "half the limits", "Regressed. 0 without regressions");
        Ok(())
    })
}

fn command<'a>(workspace: &'a Workspace, runner: &PathBuf, feature: &str) -> Cmd<'a> {
    let Workspace { shell, cargo, .. } = workspace;
    cmd!(shell, "{cargo} bench --package instructions --features {feature} --bench instructions")
        .env("GUNGRAUN_RUNNER", runner)
        // The runner finds a function by its symbol.
        .env("CARGO_PROFILE_BENCH_DEBUG", "true")
}

fn valgrind(workspace: &Workspace) -> Result<()> {
    let is_there = || succeeds(&workspace.shell, "valgrind");
    if is_there() {
        return Ok(());
    }
    let otherwise = "leave this part out".to_owned();
    SystemPackage { apt: "valgrind", brew: None, otherwise }.install(&workspace.shell, is_there)
}

/// Installs the runner below cargo's directory, in the library's version: their protocol is private.
fn gungraun_runner(workspace: &Workspace) -> Result<PathBuf> {
    let Workspace { shell, cargo, .. } = workspace;
    let library = cmd!(shell, "{cargo} pkgid gungraun").read()?;
    let (_, version) = library.rsplit_once('@').with_context(|| format!("no version in {library}"))?;
    let root = workspace.target_dir().join("tools");
    // Does nothing if this version is installed.
    cmd!(shell, "{cargo} install --locked gungraun-runner --version ={version} --root {root}").run()?;
    Ok(root.join("bin").join("gungraun-runner"))
}
