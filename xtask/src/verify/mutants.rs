//! `cargo xtask verify mutants`: each ordering of the semaphore one step weaker; a loom model has to fail.
//!
//! One build serves all: `src/support/sync/loom` weakens the ordering at the place named by the environment.
//! A mutant that no model kills, and a place that no model runs, must be in `loom-tests/survivors.txt` with a
//! reason.

mod models;
mod sites;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use self::models::{Model, Models};
use self::sites::{Executed, Site};
use super::survivors::Survivors;
use crate::canary::Tally;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Models at a time.
const AT_A_TIME: usize = 2;

/// Preemption bounds. A bound after the first is for survivors of the bound before, and for models that take
/// no longer than this under the first bound.
const BOUNDS: [(&str, Duration); 3] =
    [("2", Duration::MAX), ("3", Duration::from_secs(2)), ("4", Duration::from_millis(50))];

#[derive(Debug)]
struct Mutant {
    site: Site,
    part: &'static str,
    from: String,
    to: &'static str,
}

impl Mutant {
    /// The mutant's name in the list of survivors.
    fn name(&self) -> String {
        format!("{}: {} {} -> {}", self.site.name, self.part, self.from, self.to)
    }
}

enum MutantOutcome {
    KilledBy(String),
    /// loom treats both orderings alike.
    NotSeen,
    Survived,
}

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let models = steps.run("loom models, built", || Models::build(workspace))?;
    let executed = steps.run("places that they run", || models.record(BOUNDS[0].0))?;
    let (tally, result) = steps.run("weakened orderings", || weaken(workspace, &models, &executed))?;
    steps.count(tally);
    result
}

/// Runs all mutants; returns the number of killed ones, and an error if a survivor has no reason.
fn weaken(workspace: &Workspace, models: &Models, executed: &Executed) -> Result<(Tally, Result<()>)> {
    let mut survivors = Survivors::read(&workspace.root().join("loom-tests/survivors.txt"))?;
    let sites = sites::in_sources(workspace.root(), "src/semaphore")?;
    let mut unexplained = Vec::new();
    let mut queue = VecDeque::new();
    for site in sites {
        let Some((orderings, by)) = executed.at(&site.location) else {
            let name = format!("{}: not run", site.name);
            if !survivors.explain(&name) {
                unexplained.push(name);
            }
            continue;
        };
        let by = models.fastest_first(by);
        queue.extend(mutants(&site, orderings).map(|mutant| (mutant, by.clone())));
    }
    let total = queue.len();
    let queue = Mutex::new(queue);
    let verdicts = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_A_TIME)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    loop {
                        let Some((mutant, by)) = queue.lock().expect("not poisoned").pop_front() else {
                            return Ok(());
                        };
                        let verdict = judge(models, &mutant, &by)?;
                        let said = match &verdict {
                            MutantOutcome::KilledBy(model) => format!("killed by {model}"),
                            MutantOutcome::NotSeen => "not seen by loom".to_owned(),
                            MutantOutcome::Survived => format!("survived {} models", by.len()),
                        };
                        eprintln!("{} ({}): {said}", mutant.name(), mutant.site.location);
                        verdicts.lock().expect("not poisoned").push((mutant.name(), verdict));
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    let mut killed = 0;
    for (name, verdict) in verdicts.into_inner().context("a worker has panicked")? {
        match verdict {
            MutantOutcome::KilledBy(_) => killed += 1,
            MutantOutcome::NotSeen | MutantOutcome::Survived if survivors.explain(&name) => {}
            MutantOutcome::NotSeen | MutantOutcome::Survived => unexplained.push(name),
        }
    }
    eprintln!("{total} mutants, {killed} killed, {} unexplained", unexplained.len());
    for name in survivors.unused() {
        eprintln!("in the list of survivors, but none: {name}");
    }
    unexplained.sort();
    let result = match unexplained[..] {
        [] => Ok(()),
        _ => Err(anyhow!("without a reason in loom-tests/survivors.txt:\n{}", unexplained.join("\n"))),
    };
    Ok((Tally { seeded: total, killed }, result))
}

/// Runs the models of the place, until one fails.
fn judge(models: &Models, mutant: &Mutant, by: &[(&Model, Duration)]) -> Result<MutantOutcome> {
    if mutant.from == "SeqCst"
        && ["Acquire", "Release", "AcqRel"].contains(&mutant.to)
        && mutant.is_the_same_to_loom()
    {
        return Ok(MutantOutcome::NotSeen);
    }
    let weaken = format!("{}:{}={}", mutant.site.location, mutant.part, mutant.to);
    for (bound, longest) in BOUNDS {
        for (model, _) in by.iter().filter(|(_, took)| *took <= longest) {
            if !models.holds(model, bound, &weaken)? {
                return Ok(MutantOutcome::KilledBy(model.name.clone()));
            }
        }
    }
    Ok(MutantOutcome::Survived)
}

impl Mutant {
    fn is_the_same_to_loom(&self) -> bool {
        match (self.site.kind(), self.part) {
            (sites::AccessKind::Load, _) | (_, "failure") => self.to == "Acquire",
            (sites::AccessKind::Store, _) => self.to == "Release",
            (sites::AccessKind::ReadModifyWrite, _) => self.to == "AcqRel",
        }
    }
}

/// Each ordering of a place, in all its next weaker forms; of `SeqCst`, which loom may treat like its next
/// form, also in the forms after next.
fn mutants<'a>(site: &'a Site, orderings: &'a [String]) -> impl Iterator<Item = Mutant> + 'a {
    ["success", "failure"].into_iter().zip(orderings).flat_map(move |(part, from)| {
        let kind = if part == "failure" { sites::AccessKind::Load } else { site.kind() };
        let weaker: &[&str] = match (kind, from.as_str()) {
            (_, "Relaxed") => &[],
            (sites::AccessKind::Load, "SeqCst") => &["Acquire", "Relaxed"],
            (sites::AccessKind::Store, "SeqCst") => &["Release", "Relaxed"],
            (sites::AccessKind::ReadModifyWrite, "SeqCst") => &["AcqRel", "Acquire", "Release"],
            (_, "AcqRel") => &["Acquire", "Release"],
            _ => &["Relaxed"],
        };
        weaker.iter().map(move |to| Mutant { site: site.clone(), part, from: from.clone(), to })
    })
}

fn scratch(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.target_dir().join("loom").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renaming a function requires renaming it in the list. The run would find stale lines, but is slow.
    #[test]
    fn survivors_are_of_places_that_there_are() {
        let workspace = Workspace::open().unwrap();
        let sites = sites::in_sources(workspace.root(), "src/semaphore").unwrap();
        let is_there = |name: &str| {
            sites.iter().any(|site| name.strip_prefix(&site.name).is_some_and(|rest| rest.starts_with(": ")))
        };
        let survivors = Survivors::read(&workspace.root().join("loom-tests/survivors.txt")).unwrap();
        let gone: Vec<&str> = survivors.unused().filter(|name| !is_there(name)).collect();
        assert!(gone.is_empty(), "no such place: {gone:?}");
    }
}
