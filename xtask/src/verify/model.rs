//! `cargo xtask verify model`.

use anyhow::Result;
use xshell::{Cmd, cmd};

use super::{Options, tee};
use crate::canary::Tally;
use crate::steps::Steps;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    let seconds = options.seconds.unwrap_or(30).to_string();
    // The run begins with the mutants, and ends with the first survivor.
    let said = steps.run("model", || tee::run(command(workspace).args(["--seconds", &seconds])))?;
    let seeded = said.number_before("mutants are found out").unwrap_or_default();
    steps.count(Tally { seeded, killed: seeded });
    said.result()
}

/// The model contains nothing of the library, and so needs no build of its own.
fn command(workspace: &Workspace) -> Cmd<'_> {
    let Workspace { shell, cargo, .. } = workspace;
    cmd!(shell, "{cargo} run --quiet --release --package model --")
}
