//! `cargo xtask interop`: this crate's lock beside the real Redisson, of each generation, over one server.

use std::path::PathBuf;

use anyhow::Result;
use xshell::{Cmd, Shell, cmd};

use crate::missing::Missing;
use crate::redis_server;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// The profiles of `checks/interop/pom.xml`: the newest Redisson of each generation.
const PROFILES: [&str; 2] = ["redisson-3", "redisson-4"];
/// A defect of our side, the command that must fail with it, and a part of the failure's text.
const TWINS: [(&str, &str, &str); 4] = [
    ("no-mode", "scenes --only=freed", "got, and not held"),
    ("no-read-lease", "scenes --only=cuts", "are left of the lock, and None"),
    ("takes-what-is-held", "stage --seconds=8 --seed=1", ", ours and Redisson's:"),
    ("reads-beside-a-writer", "stage --seconds=30 --seed=1", ", ours and Redisson's:"),
];
const OLDEST_JDK: u32 = 17;
const SECONDS: u64 = 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only the scenes with this in their name; or `stage`, for no scene
    #[arg(long, default_value = "")]
    only: String,
    /// Seconds with faults, for each version of Redisson
    #[arg(long, default_value_t = SECONDS)]
    seconds: u64,
    /// Repeats the faults
    #[arg(long)]
    seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { only: String::new(), seconds: SECONDS, seed: None }
    }
}

/// Fails with [`Missing`] if there is no JDK or no Maven.
pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    let shell = &workspace.shell;
    look_for_tools(shell)?;
    steps.run("Redis server", || redis_server::ensure(shell))?;
    let Options { only, seconds, seed } = options;
    for profile in PROFILES {
        let target = build(workspace, steps, profile)?;
        let command = |of: &str| command(workspace).arg(of).arg("--redisson").arg(&target);
        if only != "stage" {
            steps.run("interop scenes", || Ok(command("scenes").args(["--only", only]).run()?))?;
        }
        if only.is_empty() || only == "stage" {
            let seed = seed.map(|seed| format!("--seed={seed}"));
            let seconds = format!("--seconds={seconds}");
            steps.run("interop stage", || Ok(command("stage").arg(seconds).args(seed).run()?))?;
        }
    }
    Ok(())
}

/// Builds the newest Redisson; returns the directory with its classes. Fails with [`Missing`].
pub(crate) fn java_side(workspace: &Workspace, steps: &mut Steps) -> Result<PathBuf> {
    look_for_tools(&workspace.shell)?;
    build(workspace, steps, PROFILES[1])
}

fn build(workspace: &Workspace, steps: &mut Steps, profile: &str) -> Result<PathBuf> {
    let shell = &workspace.shell;
    let target = target(workspace, profile);
    steps.run(profile, || {
        let classpath = target.join("classpath");
        let goals = ["compile", "dependency:build-classpath"];
        cmd!(shell, "mvn --quiet --batch-mode --file checks/interop/pom.xml --activate-profiles {profile}")
            .arg(format!("-Dinterop.target={}", target.display()))
            .arg(format!("-Dmdep.outputFile={}", classpath.display()))
            .args(goals)
            .run()?;
        Ok(())
    })?;
    Ok(target)
}

/// Runs that must fail, with the builds of [`run`].
pub(crate) fn canaries(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    steps.canaries("interop canaries", |canaries| {
        for (twin, said, expected) in TWINS {
            let command = command(workspace).args(said.split(' ')).args(["--twin", twin]);
            let target = target(workspace, PROFILES[0]);
            canaries.must_fail(command.arg("--redisson").arg(target), twin, expected);
        }
        Ok(())
    })
}

/// With the profile of the long run, whose checks include debug assertions.
fn command(workspace: &Workspace) -> Cmd<'_> {
    let Workspace { shell, cargo, .. } = workspace;
    cmd!(shell, "{cargo} run --quiet --package interop --")
}

fn target(workspace: &Workspace, profile: &str) -> PathBuf {
    workspace.target_dir().join("interop").join(profile)
}

fn look_for_tools(shell: &Shell) -> Result<()> {
    let version = |program: &str| cmd!(shell, "{program} --version").quiet().ignore_stderr().read().ok();
    // `javac 17.0.15`
    let javac = version("javac").unwrap_or_default();
    let major = javac.split([' ', '.']).nth(1).and_then(|major| major.parse().ok()).unwrap_or(0);
    if major < OLDEST_JDK || version("java").is_none() {
        return Err(Missing("Redisson cannot be run: install a JDK, 17 or newer").into());
    }
    if version("mvn").is_none() {
        return Err(Missing("Redisson cannot be run: install Maven (`mvn`)").into());
    }
    Ok(())
}
