//! `cargo xtask msrv`: the Rust versions of our dependencies.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use xshell::cmd;

use crate::steps::Steps;
use crate::workspace::{Workspace, library, public_features};

pub(crate) fn check(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    steps.run("msrv", || {
        let metadata = workspace.metadata()?;
        let library = library(&metadata)?;
        let ours = library.rust_version.as_ref().context("the library declares no rust-version")?;

        let dependencies = dependencies(workspace, &public_features(library))?;
        let mut offenders = Vec::new();
        for (name, version) in &dependencies {
            let package = metadata
                .packages
                .iter()
                .find(|package| *package.name == *name && package.version.to_string() == *version)
                .with_context(|| format!("cargo metadata knows nothing of {name} {version}"))?;
            match &package.rust_version {
                Some(theirs) if theirs > ours => offenders.push(format!("{name} {version} needs {theirs}")),
                _ => {}
            }
        }

        if !offenders.is_empty() {
            bail!("we promise Rust {ours}, but {}", offenders.join(", "));
        }
        eprintln!("none of {} dependencies declares a newer Rust than {ours}", dependencies.len());
        Ok(())
    })
}

/// Names and versions of all packages in a user's build of the library.
///
/// From `cargo tree`, because the graph of `cargo metadata` includes the features that our dev-dependencies
/// and the other packages of the workspace enable, and with them dependencies that no user ever sees.
fn dependencies(workspace: &Workspace, features: &[&str]) -> Result<BTreeSet<(String, String)>> {
    let Workspace { shell, cargo, .. } = workspace;
    let features = features.join(",");
    let what =
        ["--package", "latchwork", "--features", &features, "--edges", "normal,build", "--target", "all"];
    let format = ["--prefix", "none", "--format", "{p}"];
    let tree = cmd!(shell, "{cargo} tree {what...} {format...}").read()?;
    // "name v1.2.3", perhaps with "(proc-macro)", a path, or "(*)" for a repetition. The library is first.
    tree.lines()
        .filter(|line| !line.is_empty())
        .skip(1)
        .map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next();
            let version = words.next().and_then(|word| word.strip_prefix('v'));
            let (name, version) =
                name.zip(version).with_context(|| format!("cargo tree printed `{line}`"))?;
            Ok((name.to_owned(), version.to_owned()))
        })
        .collect()
}
