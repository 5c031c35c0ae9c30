//! `cargo xtask verify lock-mutants`: the lock's code with one change at a time, for every possible change. A
//! check has to fail each time: otherwise a line could be lost unnoticed.
//!
//! All mutants are in one build (`checks/mutants`), selected by an environment variable. First each check
//! runs unmutated, and records the mutants it reaches; then each mutant runs in the checks that reach it,
//! from cheap to expensive, up to the first failure. A survivor needs a reason in
//! `checks/mutants/survivors.txt`.
//!
//! Killed mutants are recorded below cargo's directory, and not run again until their file changes. Survivors
//! are recorded as well, for `--again`.

mod checks;
mod process;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use xshell::cmd;

use self::checks::Checks;
use super::Options;
use super::survivors::Survivors;
use crate::canary::Tally;
use crate::redis_server;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Mutants at a time, on two cores: the expensive checks mostly wait.
const AT_A_TIME: usize = 4;

/// Default size of the sample.
const SAMPLE: usize = 200;

/// The names of the survivors, beside the copy.
const SURVIVED: &str = "survived.txt";

struct Mutant {
    number: u32,
    /// Hash of the mutant's file.
    hash: String,
    name: String,
}

enum Outcome {
    KilledBy(String),
    NotReached,
    Survived,
}

pub(crate) fn run(workspace: &Workspace, steps: &mut Steps, options: &Options) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    steps.run("Redis server", || redis_server::ensure(shell))?;
    steps.run("tests of the mutants' maker", || {
        Ok(cmd!(shell, "{cargo} test --quiet --release --package lock-mutants").run()?)
    })?;
    let scratch = workspace.target_dir().join("lock-mutants");
    let root = scratch.join("workspace");
    steps.run("mutants of the lock, in a copy", || {
        Ok(cmd!(shell, "{cargo} run --quiet --release --package lock-mutants -- . {root}").run()?)
    })?;
    let mutants = chosen(&scratch, options)?;
    let copy = Workspace::at(root)?;
    let checks = steps.run("checks, built with them", || Checks::build(&copy, &scratch))?;
    let (tally, result) =
        steps.run("mutants of the lock", || judge_all(workspace, &scratch, &checks, mutants, options))?;
    steps.count(tally);
    result
}

/// The mutants of the list that the options select.
fn chosen(scratch: &Path, options: &Options) -> Result<Vec<Mutant>> {
    let list = scratch.join("mutants.tsv");
    let list = fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let mut mutants = Vec::new();
    for line in list.lines() {
        let [number, hash, name] = line.splitn(3, '\t').collect::<Vec<_>>()[..] else {
            return Err(anyhow!("no mutant: {line}"));
        };
        mutants.push(Mutant { number: number.parse()?, hash: hash.to_owned(), name: name.to_owned() });
    }
    ensure!(!mutants.is_empty(), "there are no mutants");
    if let Some(only) = &options.only {
        mutants.retain(|mutant| mutant.name.contains(only));
    }
    if options.again {
        let survived = fs::read_to_string(scratch.join(SURVIVED)).unwrap_or_default();
        let survived: HashSet<_> = survived.lines().collect();
        mutants.retain(|mutant| survived.contains(&*mutant.name));
    }
    let sample = options.sample.unwrap_or(SAMPLE);
    if sample > 0 && sample < mutants.len() {
        let mut state = options.sample_seed.unwrap_or_else(|| std::process::id().into());
        eprintln!("{sample} of {} mutants, drawn from seed {state}", mutants.len());
        // Random order: sorted by splitmix64 keys.
        mutants.sort_by_cached_key(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        });
        mutants.truncate(sample);
    }
    Ok(mutants)
}

/// Runs all mutants; returns the number of killed ones, and an error if a survivor has no reason.
fn judge_all(
    workspace: &Workspace,
    scratch: &Path,
    checks: &Checks,
    mutants: Vec<Mutant>,
    options: &Options,
) -> Result<(Tally, Result<()>)> {
    let mut survivors = Survivors::read(&workspace.root().join("checks/mutants/survivors.txt"))?;
    let total = mutants.len();
    let kept = scratch.join("killed.tsv");
    let killed_before = fs::read_to_string(&kept).unwrap_or_default();
    let killed_before: BTreeMap<_, _> = killed_before
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(hash, name)| (name, hash))
        .collect();
    let is_open = |mutant: &Mutant| killed_before.get(&*mutant.name) != Some(&&*mutant.hash);
    let queue: VecDeque<_> = mutants.into_iter().filter(is_open).collect();
    eprintln!("{total} mutants, {} of which were killed before", total - queue.len());
    let left = queue.len();
    let (queue, survived, done) = (Mutex::new(queue), Mutex::new(Vec::new()), Mutex::new(0));
    let append = |path: &Path| OpenOptions::new().create(true).append(true).open(path);
    let (kept, lived) = (Mutex::new(append(&kept)?), Mutex::new(append(&scratch.join(SURVIVED))?));
    thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let Some(mutant) = queue.lock().expect("not poisoned").pop_front() else { return Ok(()) };
                let said = match checks.judge(mutant.number, &mutant.name, options.cheaply)? {
                    Outcome::KilledBy(check) => {
                        writeln!(kept.lock().expect("not poisoned"), "{}\t{}", mutant.hash, mutant.name)?;
                        format!("killed by {check}")
                    }
                    outcome => {
                        writeln!(lived.lock().expect("not poisoned"), "{}", mutant.name)?;
                        survived.lock().expect("not poisoned").push(mutant.name.clone());
                        if matches!(outcome, Outcome::Survived) { "SURVIVED" } else { "NOT REACHED" }
                            .to_owned()
                    }
                };
                let mut done = done.lock().expect("not poisoned");
                *done += 1;
                eprintln!("{done}/{left} #{} {}: {said}", mutant.number, mutant.name);
            }
        };
        let workers: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    let survived = survived.into_inner().context("a worker has panicked")?;
    let killed = total - survived.len();
    let mut unexplained: Vec<_> = survived.iter().filter(|name| !survivors.explain(name)).cloned().collect();
    eprintln!("{total} mutants, {killed} killed, {} unexplained", unexplained.len());
    if options.only.is_none() && options.sample == Some(0) {
        for name in survivors.unused() {
            eprintln!("in the list of survivors, but none: {name}");
        }
    }
    unexplained.sort();
    let result = match unexplained[..] {
        [] => Ok(()),
        _ => Err(anyhow!("without a reason in checks/mutants/survivors.txt:\n{}", unexplained.join("\n"))),
    };
    Ok((Tally { seeded: total, killed }, result))
}
