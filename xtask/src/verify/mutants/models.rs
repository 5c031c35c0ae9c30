//! The loom models, one process each.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cargo_metadata::Message;
use xshell::cmd;

use super::scratch;
use super::sites::Executed;
use crate::loom;
use crate::workspace::Workspace;

/// Test targets with models of the semaphore.
const TESTS: [&str; 2] = ["semaphore", "memory"];

/// Limit of the excess over the unmutated time; beyond it a model has no verdict.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) struct Model {
    pub(super) name: String,
    executable: PathBuf,
}

pub(super) struct Models {
    models: Vec<Model>,
    sites: PathBuf,
    root: PathBuf,
}

impl Models {
    pub(super) fn build(workspace: &Workspace) -> Result<Self> {
        let messages = loom::command(workspace)?
            .args(["--no-run", "--message-format=json-render-diagnostics"])
            .read()?;
        let mut models = Vec::new();
        for message in Message::parse_stream(messages.as_bytes()) {
            let Message::CompilerArtifact(artifact) = message? else { continue };
            let Some(executable) = artifact.executable.filter(|_| TESTS.contains(&&*artifact.target.name))
            else {
                continue;
            };
            let list = cmd!(workspace.shell, "{executable} --list").quiet().read()?;
            let names = list
                .lines()
                .filter_map(|line| line.strip_suffix(": test"))
                .filter(|name| name.ends_with("::holds"));
            models.extend(
                names.map(|name| Model { name: name.to_owned(), executable: executable.clone().into() }),
            );
        }
        if models.is_empty() {
            bail!("no models were built");
        }
        Ok(Self { models, sites: scratch(workspace, "sites"), root: workspace.root().to_owned() })
    }

    /// Runs all models unmutated, and returns the places of the sources run by each.
    pub(super) fn record(&self, bound: &str) -> Result<Executed> {
        let mut executed = Executed::default();
        for (number, model) in self.models.iter().enumerate() {
            if self.sites.exists() {
                fs::remove_file(&self.sites)?;
            }
            let start = Instant::now();
            let path = self.sites.to_str().context("a path that is no text")?;
            if !self.run(model, bound, ("LATCHWORK_SITES", path))?.unwrap_or(false) {
                bail!("{} fails without a mutant", model.name);
            }
            executed.add(number, start.elapsed(), &fs::read_to_string(&self.sites).unwrap_or_default())?;
        }
        Ok(executed)
    }

    pub(super) fn fastest_first(&self, by: &BTreeMap<usize, Duration>) -> Vec<(&Model, Duration)> {
        let mut by: Vec<_> = by.iter().collect();
        by.sort_by_key(|(_, took)| **took);
        by.into_iter().map(|(number, took)| (&self.models[*number], *took)).collect()
    }

    /// True if `model` passes with the ordering weakened.
    pub(super) fn holds(&self, model: &Model, bound: &str, weaken: &str) -> Result<bool> {
        let holds = self.run(model, bound, ("LATCHWORK_WEAKEN", weaken))?;
        if holds.is_none() {
            eprintln!("{}: no verdict in {LIMIT:?} with {weaken}", model.name);
        }
        Ok(holds.unwrap_or(true))
    }

    /// `None` if the model exceeds the limit.
    fn run(&self, model: &Model, bound: &str, (variable, value): (&str, &str)) -> Result<Option<bool>> {
        let mut child = Command::new(&model.executable)
            .args([&model.name, "--exact"])
            .current_dir(&self.root)
            .env(variable, value)
            .env("LOOM_MAX_PREEMPTIONS", bound)
            .env("RUST_BACKTRACE", "0")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let start = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status.success()));
            }
            if start.elapsed() > LIMIT {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(20));
        }
    }
}
