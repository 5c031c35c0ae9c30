//! `cargo xtask verify sim`.

use std::path::PathBuf;

use anyhow::Result;
use xshell::Cmd;

use super::Options;
use super::build::Build;
use crate::seeded;
use crate::steps::Steps;
use crate::workspace::Workspace;

const BUILD: Build = Build { cfg: "latchwork_simulation", sanitizer: None, target_dir: "simulation" };

/// Arguments of cargo's `run`, up to the program's own.
const RUN: [&str; 5] = ["--quiet", "--features", "simulation", "--bin", "sim"];

/// Default time: ten minutes of fresh seeds.
const SECONDS: u32 = 600;

/// Numbers of programs with fixed seeds, in two processes whose histories must be equal: in the tests, and in
/// `verify`.
const FEW_PROGRAMS: &str = "40";
const MANY_PROGRAMS: &str = "720";

/// Twins of the model that seconds of programs find. (`sim faults` looks for all, and for all faults.)
const TWINS: [&str; 27] = [
    "takes-what-is-held",
    "acquires-in-name",
    "renews-nothing",
    "renews-for-strangers",
    "keeps-what-is-released",
    "releases-for-strangers",
    "rolls-nothing-back",
    "forces-nothing",
    "says-it-is-free",
    "leases-for-ever",
    "ends-leases-early",
    "shortens-leases",
    "listens-elsewhere",
    "grants-in-silence",
    "tokens-fall",
    "falls-behind-its-tokens",
    "mixes-kinds",
    "forgets-the-wait",
    "reads-beside-a-writer",
    "writes-beside-readers",
    "forgets-the-readers",
    "forgets-what-is-read-under-a-writer",
    "allows-one-more",
    "takes-one-permit",
    "rolls-back-too-soon",
    "runs-after-its-answer",
    "waits-for-unpolled",
];

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    let workspace = &seeded::copy(workspace)?;
    for (name, command) in fixed(|| command(workspace), MANY_PROGRAMS)? {
        steps.run(name, || Ok(command.run()?))?;
    }
    steps.run("tests of the simulator", || {
        let test = ["--features", "simulation", "--bin", "sim"];
        Ok(BUILD.cargo(workspace, "test", "simulation")?.args(test).run()?)
    })?;
    steps.run("small Redis beside a real one", || {
        Ok(command(workspace)?.args(["check-redis", "--seconds", "20"]).run()?)
    })?;
    steps.canaries("simulation canaries", |canaries| {
        for twin in TWINS {
            let run =
                ["run", "--stop-at-first", "--brief", "--store", "model", "--seed", "1", "--fault", twin];
            canaries.must_fail(command(workspace)?.args(run), twin, " over model: ");
        }
        Ok(())
    })?;
    let seconds = options.seconds.unwrap_or(SECONDS).to_string();
    steps.run("simulation", || {
        let mut command = command(workspace)?.args(["run", "--seconds", &seconds]);
        if let Some(seed) = options.sim_seed {
            command = command.args(["--seed", &seed.to_string()]);
        }
        Ok(command.run()?)
    })
}

pub(crate) fn run_command(workspace: &Workspace, args: &[String]) -> Result<()> {
    Ok(command(&seeded::copy(workspace)?)?.args(args).run()?)
}

/// The part for the tests: programs that once found a fault, and fixed seeds. In a copy with seedable faults,
/// since each program stands for one; unoptimised, since that build takes longer than the programs save.
pub(crate) fn quick(workspace: &Workspace) -> Result<[(&'static str, Cmd<'_>); 2]> {
    let command = || Ok(BUILD.unoptimised(workspace, "run", "simulation")?.args(RUN).arg("--"));
    fixed(command, FEW_PROGRAMS)
}

fn fixed<'a>(command: impl Fn() -> Result<Cmd<'a>>, programs: &str) -> Result<[(&'static str, Cmd<'a>); 2]> {
    let same = ["same", "--programs", programs, "--twice"];
    Ok([
        ("simulation of fixed programs", command()?.arg("fixed")),
        ("simulation of fixed seeds, twice", command()?.args(same)),
    ])
}

pub(super) fn build(workspace: &Workspace) -> Result<PathBuf> {
    BUILD
        .cargo(workspace, "build", "simulation")?
        .args(["--features", "simulation", "--bin", "sim"])
        .run()?;
    Ok(workspace.target_dir().join(BUILD.target_dir).join("release/sim"))
}

fn command(workspace: &Workspace) -> Result<Cmd<'_>> {
    Ok(BUILD.cargo(workspace, "run", "simulation")?.args(RUN).arg("--"))
}
