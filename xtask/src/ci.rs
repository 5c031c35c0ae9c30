//! `cargo xtask ci`.

use anyhow::Result;
use xshell::cmd;

use crate::steps::Steps;
use crate::workspace::{Workspace, library, public_features};
use crate::{features, msrv, quickstart, recipes, test};

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let result = run_all(workspace, steps);
    eprintln!("\n{steps}");
    result
}

/// Quick checks first, to find the most common mistakes soonest.
fn run_all(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    steps.run("fmt", || Ok(cmd!(shell, "{cargo} fmt --all --check").run()?))?;
    steps.run("clippy", || {
        // The quickstart's default features exclude Redis.
        let what = ["--workspace", "--all-targets", "--features", "quickstart/redis"];
        Ok(cmd!(shell, "{cargo} clippy {what...} -- -D warnings").run()?)
    })?;
    steps.run("rustdoc", || rustdoc(workspace))?;
    features::check(workspace, steps)?;
    msrv::check(workspace, steps)?;
    test::run_all(workspace, steps, &test::Options::all())?;
    examples(workspace, steps)
}

/// Runs the programs that the tests' step has built.
fn examples(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let built = workspace.target_dir().join("debug");
    quickstart::run_built(workspace, steps, &built.join("quickstart"))?;
    steps.run("examples that are packages", || {
        for example in recipes::PACKAGES {
            cmd!(workspace.shell, "{built}/{example}").run()?;
        }
        Ok(())
    })
}

/// Documents the packages for users.
fn rustdoc(workspace: &Workspace) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    let metadata = workspace.metadata()?;
    // All public pages: rustdoc neither documents nor checks items of a disabled feature.
    let features = public_features(library(&metadata)?).into_iter();
    // The library's own features, whatever features other packages have.
    let features = features.map(|feature| format!("latchwork/{feature}")).collect::<Vec<_>>().join(",");
    let packages = ["-p", "latchwork", "-p", "latchwork-conformance", "-p", "latchwork-testkit"];
    cmd!(shell, "{cargo} doc --no-deps {packages...} --features {features}")
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()?;
    Ok(())
}
