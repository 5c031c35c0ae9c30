//! `cargo xtask features`: checks each feature alone. All other builds enable all features, and so miss a
//! feature that needs another without declaring it, in code or in a link of its documentation.

use anyhow::Result;
use xshell::cmd;

use crate::steps::Steps;
use crate::workspace::{Workspace, library, public_features};

pub(crate) fn check(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    steps.run("features", || {
        let metadata = workspace.metadata()?;
        let (none, default) = ("", "default");
        for feature in [none, default].into_iter().chain(public_features(library(&metadata)?)) {
            // Only the library: its tests would enable the features of our dev-dependencies.
            let what = ["--package", "latchwork", "--lib", "--no-default-features", "--features", feature];
            cmd!(shell, "{cargo} clippy {what...} -- -D warnings").run()?;
            // Finds broken links to items that are not compiled. The dependencies were checked above.
            cmd!(shell, "{cargo} doc --no-deps {what...}").env("RUSTDOCFLAGS", "-D warnings").run()?;
        }
        Ok(())
    })
}
