//! Each feature alone. All other builds enable all features, and so miss a feature that needs another without
//! declaring it, in code or in a link of its documentation.

use anyhow::Result;
use xshell::cmd;

use crate::steps::Steps;
use crate::workspace::{Workspace, library, public_features};

/// `cargo xtask features`.
pub(crate) fn check(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    steps.run("features", || {
        each(workspace, |what| Ok(cmd!(shell, "{cargo} clippy {what...} -- -D warnings").run()?))
    })
}

/// Finds broken links to items that are not compiled.
pub(crate) fn document(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    steps.run("documentation of each feature", || {
        each(workspace, |what| {
            Ok(cmd!(shell, "{cargo} doc --no-deps {what...}").env("RUSTDOCFLAGS", "-D warnings").run()?)
        })
    })
}

/// Runs cargo with the arguments for each feature alone, for none, and for the default features.
fn each(workspace: &Workspace, run: impl Fn(&[&str]) -> Result<()>) -> Result<()> {
    let metadata = workspace.metadata()?;
    let (none, default) = ("", "default");
    for feature in [none, default].into_iter().chain(public_features(library(&metadata)?)) {
        // Only the library: its tests would enable the features of our dev-dependencies.
        run(&["--package", "latchwork", "--lib", "--no-default-features", "--features", feature])?;
    }
    Ok(())
}
