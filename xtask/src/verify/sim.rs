//! `cargo xtask verify sim`.

use std::path::PathBuf;

use anyhow::Result;
use xshell::Cmd;

use super::build::Build;
use super::{Options, tee};
use crate::canary::Tally;
use crate::steps::Steps;
use crate::workspace::Workspace;

const BUILD: Build = Build { cfg: "latchwork_simulation", sanitizer: None, target_dir: "simulation" };

/// Ten minutes of fresh seeds, if nothing else is asked for.
const SECONDS: u32 = 600;

/// Programs of fixed seeds, in two processes whose histories must be the same: in the tests, where they take
/// some 5 s, and in `verify`.
const FIXED_PROGRAMS: [&str; 2] = ["240", "720"];

/// Of the suite for every backend: models with habits and a network of their own.
const SUITE_SEEDS: [&str; 2] = ["10", "40"];

/// Of the suite once more, where of a thousand commands so many may overtake others of their client.
const REORDERED: &str = "300";

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    for (name, command) in fixed(workspace, 1)? {
        steps.run(name, || Ok(command.run()?))?;
    }
    steps.run("small Redis beside a real one", || {
        Ok(command(workspace)?.args(["check-redis", "--seconds", "20"]).run()?)
    })?;
    let said = steps.run("simulation of broken twins", || tee::run(command(workspace)?.arg("twins")))?;
    // A line for each: its name, and how many programs it took; or that it was not found.
    let second = |line: &'_ String| line.split_whitespace().nth(1).map(str::to_owned);
    let second: Vec<String> = said.lines.iter().filter_map(second).collect();
    let killed = second.iter().filter(|word| word.parse::<u64>().is_ok()).count();
    let seeded = killed + second.iter().filter(|word| *word == "not").count();
    steps.count(Tally { seeded, killed });
    said.result()?;
    let seconds = options.seconds.unwrap_or(SECONDS).to_string();
    steps.run("simulation", || {
        let mut command = command(workspace)?.args(["run", "--seconds", &seconds]);
        if let Some(seed) = options.sim_seed {
            command = command.args(["--seed", &seed.to_string()]);
        }
        Ok(command.run()?)
    })
}

/// What belongs to the tests: programs that have found something once, and fixed seeds.
pub(crate) fn quick(workspace: &Workspace) -> Result<[(&'static str, Cmd<'_>); 4]> {
    fixed(workspace, 0)
}

/// `size`: 0 as in the tests, 1 as in `verify`.
fn fixed(workspace: &Workspace, size: usize) -> Result<[(&'static str, Cmd<'_>); 4]> {
    let suite = ["conformance", "--seeds", SUITE_SEEDS[size]];
    let same = ["same", "--programs", FIXED_PROGRAMS[size], "--twice"];
    Ok([
        ("simulation of fixed programs", command(workspace)?.arg("fixed")),
        ("suite for every backend over the model", command(workspace)?.args(suite)),
        ("the same, reordered", command(workspace)?.args(suite).args(["--reordered", REORDERED])),
        ("simulation of fixed seeds, twice", command(workspace)?.args(same)),
    ])
}

/// Builds it, and says where it is.
pub(super) fn build(workspace: &Workspace) -> Result<PathBuf> {
    BUILD
        .cargo(workspace, "build", "simulation")?
        .args(["--features", "simulation", "--bin", "sim"])
        .run()?;
    Ok(workspace.target_dir().join(BUILD.target_dir).join("release/sim"))
}

fn command(workspace: &Workspace) -> Result<Cmd<'_>> {
    let run = ["--quiet", "--features", "simulation", "--bin", "sim", "--"];
    Ok(BUILD.cargo(workspace, "run", "simulation")?.args(run))
}
