//! [`Checks`]: what may kill a mutant, from cheap to dear.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use xshell::cmd;

use super::Outcome;
use super::process::{self, Ended};
use crate::test::binaries::{self, Binary};
use crate::verify::sim;
use crate::workspace::Workspace;

/// Names the mutant, and the file for the numbers of those that a check comes by: see `switch.rs`.
const MUTATION: &str = "LATCHWORK_MUTATION";
const REACHED: &str = "LATCHWORK_REACHED";

/// A check is given three times what it took as it was, and this.
const SLACK: Duration = Duration::from_secs(5);

/// Of one binary: tests that run in one process for a mutant, or a run of the simulator.
struct Stage {
    binary: &'static str,
    tests: Tests,
    /// So many of its tests at a time, as some wait.
    at_a_time: usize,
}

enum Tests {
    /// Those whose names have this, or have it not.
    With(&'static str),
    Without(&'static str),
    /// None: these arguments.
    Run(&'static [&'static str]),
}

const UNIT: &str = "unit tests of latchwork";
const SIM: &str = "sim";
const MODEL: &str = "ownership::model";

/// Virtual time comes before real time: there it shows at once that a task waits for ever.
const STAGES: [Stage; 12] = [
    Stage { binary: UNIT, tests: Tests::Without(MODEL), at_a_time: 2 },
    run(&["run", "--store", "model", "--seed", "1", "--programs", "200", "--stop-at-first", "--brief"]),
    run(&["run", "--store", "local", "--seed", "1", "--programs", "200", "--stop-at-first", "--brief"]),
    Stage { binary: UNIT, tests: Tests::With(MODEL), at_a_time: 2 },
    Stage { binary: "registry", tests: Tests::With(""), at_a_time: 2 },
    Stage { binary: "local", tests: Tests::With(""), at_a_time: 12 },
    Stage { binary: "lock", tests: Tests::With(""), at_a_time: 12 },
    run(&["conformance", "--seeds", "3"]),
    run(&["run", "--store", "redis", "--seed", "1", "--programs", "60", "--stop-at-first", "--brief"]),
    run(&["fixed"]),
    run(&["run", "--store", "model", "--seed", "1001", "--programs", "1500", "--stop-at-first", "--brief"]),
    Stage { binary: "redis", tests: Tests::Without("scripts::bounds"), at_a_time: 8 },
];

const fn run(arguments: &'static [&'static str]) -> Stage {
    Stage { binary: SIM, tests: Tests::Run(arguments), at_a_time: 1 }
}

/// One test, or one run of the simulator.
struct Check {
    stage: usize,
    /// Of a test.
    name: Option<String>,
    took: Duration,
    reached: BTreeSet<u32>,
}

pub(super) struct Checks {
    binaries: Vec<Binary>,
    checks: Vec<Check>,
}

impl Checks {
    /// Builds them in the copy.
    pub(super) fn build(copy: &Workspace) -> Result<Self> {
        let Workspace { shell, cargo, .. } = copy;
        let tests: BTreeSet<_> = STAGES.iter().map(|stage| stage.binary).collect();
        let tests = tests.into_iter().filter(|name| ![UNIT, SIM].contains(name));
        let build = cmd!(shell, "{cargo} test --package latchwork --lib")
            .args(tests.flat_map(|name| ["--test", name]))
            // Its model takes all its time to its states.
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "false");
        let mut binaries = binaries::build(build.into(), copy.root())?;
        binaries.push(Binary::new(SIM, sim::build(copy)?, copy.root()));
        let mut checks = Vec::new();
        for (stage, Stage { binary, tests, .. }) in STAGES.iter().enumerate() {
            let check = |name| Check { stage, name, took: Duration::ZERO, reached: BTreeSet::new() };
            let is_chosen = |name: &&str| match tests {
                Tests::With(word) => name.contains(word),
                Tests::Without(word) => !name.contains(word),
                Tests::Run(_) => false,
            };
            if let Tests::Run(_) = tests {
                checks.push(check(None));
                continue;
            }
            let binary = binaries.iter().find(|it| it.name == *binary).context("a test was not built")?;
            let list = Command::new(&binary.path).arg("--list").output()?;
            let list = String::from_utf8(list.stdout)?;
            let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
            // Tests that seed a fault are not about the code as it is.
            let names = names.filter(is_chosen).filter(|name| !name.contains("::mutant_"));
            checks.extend(names.map(|name| check(Some(name.to_owned()))));
        }
        Ok(Self { binaries, checks })
    }

    /// Runs each as it is, and notes how long that takes, and which mutants it comes by. What a binary has
    /// noted is kept until it is built anew.
    pub(super) fn record(&mut self, scratch: &Path) -> Result<()> {
        let path = scratch.join("reached.tsv");
        let before = fs::read_to_string(&path).unwrap_or_default();
        let before: HashMap<_, _> = before.lines().filter_map(|line| line.split_once('\t')).collect();
        let hashes: HashMap<_, _> =
            self.binaries.iter().map(|it| (it.name.clone(), hash(&it.path))).collect();
        let (mut known, mut open) = (Vec::new(), Vec::new());
        for mut check in std::mem::take(&mut self.checks) {
            let key = format!("{:?} {:016x}", check.arguments(), hashes[STAGES[check.stage].binary]);
            match before.get(&*key).and_then(|line| line.split_once('\t')) {
                Some((millis, numbers)) => {
                    check.took = Duration::from_millis(millis.parse()?);
                    check.reached = numbers.split(',').filter_map(|number| number.parse().ok()).collect();
                    known.push((key, check));
                }
                None => open.push((key, check)),
            }
        }
        eprintln!("{} checks, {} of which are recorded", known.len() + open.len(), known.len());
        // Those that wait for most of their time, beside each other.
        let (queue, done) = (Mutex::new(open), Mutex::new(known));
        thread::scope(|scope| {
            let work = |lane: usize| -> Result<()> {
                loop {
                    let Some((key, mut check)) = queue.lock().expect("not poisoned").pop() else {
                        return Ok(());
                    };
                    let file = scratch.join(format!("reached-{lane}"));
                    fs::write(&file, "")?;
                    let mut command = self.command(check.stage, check.arguments());
                    command.env(REACHED, &file);
                    let start = Instant::now();
                    let mut ended = process::run(command, Duration::from_secs(600))?;
                    if ended != Ended::Passed {
                        // Beside others it may have been late.
                        ended = process::run(
                            self.command(check.stage, check.arguments()),
                            Duration::from_secs(600),
                        )?;
                    }
                    if ended != Ended::Passed {
                        bail!("{:?} fails as it is: {ended:?}", check.arguments());
                    }
                    check.took = start.elapsed();
                    let numbers = fs::read_to_string(&file)?;
                    check.reached = numbers.lines().filter_map(|number| number.parse().ok()).collect();
                    done.lock().expect("not poisoned").push((key, check));
                }
            };
            let workers: Vec<_> = (0..4).map(|lane| scope.spawn(move || work(lane))).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
        })?;
        let done = done.into_inner().context("a worker has panicked")?;
        let line = |(key, check): &(String, Check)| {
            let numbers: Vec<_> = check.reached.iter().map(u32::to_string).collect();
            format!("{key}\t{}\t{}\n", check.took.as_millis(), numbers.join(","))
        };
        fs::write(path, done.iter().map(line).collect::<String>())?;
        self.checks = done.into_iter().map(|(_, check)| check).collect();
        Ok(())
    }

    /// Runs a mutant by those that come by it, stage by stage.
    pub(super) fn judge(&self, mutant: u32) -> Result<Outcome> {
        let mut outcome = Outcome::NotReached;
        for (stage, Stage { at_a_time, .. }) in STAGES.iter().enumerate() {
            let is_due = |check: &&Check| check.stage == stage && check.reached.contains(&mutant);
            let mut checks: Vec<_> = self.checks.iter().filter(is_due).collect();
            while !checks.is_empty() {
                outcome = Outcome::Survived;
                let took: Duration = checks.iter().map(|check| check.took).sum();
                let longest = checks.iter().map(|check| check.took).max().unwrap_or_default();
                let limit = SLACK + 3 * longest.max(took / u32::try_from(*at_a_time)?);
                let arguments: Vec<_> = checks.iter().flat_map(|check| check.arguments()).collect();
                match process::run(self.mutant(mutant, stage, &arguments), limit)? {
                    Ended::Passed => break,
                    // Beside others, and on a busy machine, it may have failed as it is.
                    Ended::Failed(Some(name)) => {
                        let alone = process::run(self.mutant(mutant, stage, &[&name]), limit)?;
                        if alone != Ended::Passed {
                            return Ok(Outcome::KilledBy(name));
                        }
                        checks.retain(|check| check.name.as_ref() != Some(&name));
                    }
                    Ended::Failed(None) => return Ok(Outcome::KilledBy(self.name(stage))),
                    Ended::TooLate => {
                        if process::run(self.command(stage, arguments), limit)? == Ended::Passed {
                            return Ok(Outcome::KilledBy(format!("{}: no end", self.name(stage))));
                        }
                        eprintln!("#{mutant}: {} has no verdict in {limit:?}", self.name(stage));
                        break;
                    }
                }
            }
        }
        Ok(outcome)
    }

    fn name(&self, stage: usize) -> String {
        match STAGES[stage].tests {
            Tests::Run(arguments) => format!("{SIM} {}", arguments.join(" ")),
            _ => STAGES[stage].binary.to_owned(),
        }
    }

    fn mutant(&self, mutant: u32, stage: usize, arguments: &[&str]) -> Command {
        let mut command = self.command(stage, arguments.to_vec());
        command.env(MUTATION, mutant.to_string());
        command
    }

    fn command(&self, stage: usize, arguments: Vec<&str>) -> Command {
        let Stage { binary, tests, at_a_time } = &STAGES[stage];
        let mut arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        if !matches!(tests, Tests::Run(_)) {
            arguments.extend(["--exact".to_owned(), format!("--test-threads={}", at_a_time)]);
        }
        let binary = self.binaries.iter().find(|it| it.name == *binary).expect("it was built");
        binary.job(&arguments).command
    }
}

impl Check {
    /// What its binary is told, for a test to run only that.
    fn arguments(&self) -> Vec<&str> {
        match (&self.name, &STAGES[self.stage].tests) {
            (Some(name), _) => vec![name],
            (None, Tests::Run(arguments)) => arguments.to_vec(),
            (None, _) => Vec::new(),
        }
    }
}

fn hash(path: &PathBuf) -> u64 {
    let mut hasher = DefaultHasher::new();
    fs::read(path).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}
