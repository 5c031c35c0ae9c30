//! `cargo xtask verify long-run`.

use anyhow::Result;
use xshell::{Cmd, cmd};

use super::Options;
use crate::redis_server;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// A broken twin of the store, the seconds to run, and a part of the failure's text.
const TWINS: [(&str, u32, &str); 14] = [
    ("takes-what-is-held", 3, "two holders of lock"),
    ("renews-nothing", 8, "two holders of lock"),
    ("listens-elsewhere", 6, "was free for"),
    ("keeps-what-is-released", 6, "was free for"),
    ("acquires-in-name", 6, "it was not taken away"),
    ("tokens-fall", 3, "do not rise"),
    ("forgets-the-wait", 8, "was overtaken before lock"),
    ("grants-in-silence", 8, "was kept waiting for"),
    ("reads-beside-a-writer", 3, "reads it, and"),
    ("readers-come-first", 8, "reads before it out of its turn"),
    ("forgets-the-readers", 6, "writers had it meanwhile"),
    ("keeps-the-lease", 8, "was kept waiting for"),
    ("keeps-the-lease", 8, "reads before it out of its turn"),
    ("waits-for-unpolled", 8, "was free for"),
];

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    steps.run("Redis server", || redis_server::ensure(&workspace.shell))?;
    let seconds = options.seconds.unwrap_or(30);
    steps.run("long run", || Ok(command(workspace, seconds, options.seed).run()?))?;
    steps.canaries("long run canaries", |canaries| {
        for (twin, seconds, expected) in TWINS {
            canaries.must_fail(command(workspace, seconds, 1).args(["--twin", twin]), twin, expected);
        }
        Ok(())
    })
}

/// With the profile of the tests: the run mostly waits, and debug assertions are checks, too.
fn command(workspace: &Workspace, seconds: u32, seed: u64) -> Cmd<'_> {
    let Workspace { shell, cargo, .. } = workspace;
    let (seconds, seed) = (seconds.to_string(), seed.to_string());
    cmd!(shell, "{cargo} run --quiet --package interop -- stage --seconds {seconds} --seed {seed}")
}
