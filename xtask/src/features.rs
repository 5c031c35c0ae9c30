//! `cargo xtask features`: everywhere else all features are on, and one that needs another without saying so,
//! in code or in a link of its documentation, goes unnoticed.

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
            // Only the library: its tests would turn on what our dev-dependencies ask for.
            let what = ["--package", "latchwork", "--lib", "--no-default-features", "--features", feature];
            cmd!(shell, "{cargo} clippy {what...} -- -D warnings").run()?;
            // A link to what is not built in is broken. The dependencies were checked just now.
            cmd!(shell, "{cargo} doc --no-deps {what...}").env("RUSTDOCFLAGS", "-D warnings").run()?;
        }
        Ok(())
    })
}
