//! `cargo xtask ci`.

use anyhow::Result;
use xshell::cmd;

use crate::steps::Steps;
use crate::workspace::{Workspace, library, public_features};
use crate::{badges, features, msrv, quickstart, recipes, test};

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let result = run_all(workspace, steps);
    eprintln!("\n{steps}");
    result
}

/// The quick checks first: what they find is the most common, and then known soonest.
fn run_all(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    steps.run("fmt", || Ok(cmd!(shell, "{cargo} fmt --all --check").run()?))?;
    steps.run("clippy", || {
        // The example builds without Redis unless it is told.
        let what = ["--workspace", "--all-targets", "--features", "quickstart/redis"];
        Ok(cmd!(shell, "{cargo} clippy {what...} -- -D warnings").run()?)
    })?;
    steps.run("rustdoc", || rustdoc(workspace))?;
    badges::check(workspace, steps)?;
    features::check(workspace, steps)?;
    msrv::check(workspace, steps)?;
    test::run_all(workspace, steps, &test::Options::all())?;
    quickstart::run(workspace, steps)?;
    recipes::run(workspace, steps)
}

fn rustdoc(workspace: &Workspace) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    let metadata = workspace.metadata()?;
    // All pages that users will see: items of a feature that is off are not documented, and not checked.
    let features = public_features(library(&metadata)?).into_iter();
    // The library's, whatever other packages call their own.
    let features = features.map(|feature| format!("latchwork/{feature}")).collect::<Vec<_>>().join(",");
    cmd!(shell, "{cargo} doc --workspace --no-deps --features {features}")
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()?;
    Ok(())
}
