//! [`Checks`]: the checks that may kill a mutant, from cheap to expensive.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use xshell::cmd;

use super::Outcome;
use super::process::{self, Ended};
use crate::binaries::{self, Binary};
use crate::verify::sim;
use crate::workspace::Workspace;

/// Variables for the mutant, and for the file of the mutant numbers that a check reaches: see `switch.rs`.
const MUTATION: &str = "LATCHWORK_MUTATION";
const REACHED: &str = "LATCHWORK_REACHED";

/// Added to the time limit, which is five times the check's unmutated duration.
const SLACK: Duration = Duration::from_secs(10);

/// Time limit of an unmutated check.
const PATIENCE: Duration = Duration::from_secs(600);

/// Slower checks are expensive: most mutants die in cheap checks, of whichever stage.
const DEAR: Duration = Duration::from_millis(600);

/// Checks of a binary: tests that run in one process per mutant, or a run of the simulator.
struct Stage {
    /// Path prefixes of the mutants that this stage covers.
    of: &'static [&'static str],
    binary: &'static str,
    tests: Tests,
    /// Number of tests that run at a time, as some wait.
    at_a_time: usize,
}

enum Tests {
    /// Tests whose names contain the word, or do not.
    With(&'static str),
    Without(&'static str),
    /// No tests, but a run with these arguments.
    Run(&'static str),
}

/// From cheap to expensive, once for the cheap checks of all stages and once for the rest. A script has tests
/// of its own; otherwise virtual time comes before real time, because it shows at once that a task waits for
/// ever. Code above the Redis adapter is the same over all stores, of which Redis is the most expensive.
const STAGES: [Stage; 27] = [
    tests(SCRIPTS, "redis", Tests::With("scripts::fair"), 4),
    tests(SCRIPTS, "redis", Tests::With("scripts::plain"), 4),
    tests(SCRIPTS, "redis", Tests::With("scripts::differential"), 4),
    tests(SCRIPTS, "redis", Tests::With("scripts::endless"), 4),
    tests(SCRIPTS, "redis", Tests::With("scripts::queue"), 4),
    tests(SCRIPTS, "redis", Tests::With("scripts::read_write"), 4),
    tests(SCRIPTS, "redis", Tests::With("scripts::refusals"), 4),
    tests(ALL, UNIT, Tests::Without(MODEL), 2),
    run(ALL, "run --stop-at-first --brief --store model --seed 1 --programs 30"),
    run(ALL, "run --stop-at-first --brief --store local --seed 1 --programs 30"),
    tests(ALL, "registry", Tests::With(""), 2),
    tests(ALL, "fork", Tests::With(""), 2),
    tests(ALL, "tracing", Tests::With(""), 2),
    tests(ALL, "lock_memory", Tests::With(""), 2),
    tests(ALL, "registry_memory", Tests::With(""), 2),
    tests(ALL, "hostile", Tests::With(""), 2),
    tests(ALL, UNIT, Tests::With(MODEL), 2),
    tests(ALL, "local", Tests::With(""), 12),
    run(ALL, "run --stop-at-first --brief --store model --seed 100 --programs 300"),
    run(ALL, "run --stop-at-first --brief --store local --seed 100 --programs 300"),
    tests(ALL, "lock", Tests::With(""), 12),
    run(REDIS, "run --stop-at-first --brief --store redis --seed 1 --programs 10"),
    tests(REDIS, "redis", Tests::Without("scripts::"), 8),
    run(REDIS, "run --stop-at-first --brief --store redis --seed 100 --programs 60"),
    tests(SCRIPTS, "redis", Tests::With("scripts::bounds"), 4),
    tests(TOPOLOGY, "cluster", Tests::With(""), 6),
    tests(LINKS, "redis_faults", Tests::With(""), 8),
];

const UNIT: &str = "unit tests of latchwork";
const MODEL: &str = "ownership::model";
const SIM: &str = "sim";
const ALL: &[&str] = &[""];
const REDIS: &[&str] = &["src/redis"];
const SCRIPTS: &[&str] = &["src/redis/scripts"];
/// Code about the number of servers.
const TOPOLOGY: &[&str] = &["src/redis/topology", "src/redis/pubsub", "src/redis/queue", "src/redis/backend"];
/// Code about the state of a link.
const LINKS: &[&str] = &[
    "src/redis/connection",
    "src/redis/pubsub",
    "src/redis/passed_on",
    "src/redis/late",
    "src/redis/backend",
    "src/redis/queue",
    "src/redis/read_write",
    "src/redis/topology/router",
    "src/redis/topology/single",
];

const fn tests(of: &'static [&'static str], binary: &'static str, tests: Tests, at_a_time: usize) -> Stage {
    Stage { of, binary, tests, at_a_time }
}

const fn run(of: &'static [&'static str], arguments: &'static str) -> Stage {
    Stage { of, binary: SIM, tests: Tests::Run(arguments), at_a_time: 1 }
}

struct Check {
    name: Option<String>,
    took: Duration,
    reached: BTreeSet<u32>,
}

pub(super) struct Checks {
    binaries: Vec<Binary>,
    scratch: PathBuf,
    /// The checks of each stage, once a mutant has reached the stage.
    recorded: [Mutex<Option<Arc<Vec<Check>>>>; STAGES.len()],
}

impl Checks {
    /// Builds the checks in the copy. `scratch`: directory of the records of reached mutants.
    pub(super) fn build(copy: &Workspace, scratch: &Path) -> Result<Self> {
        let Workspace { shell, cargo, .. } = copy;
        let tests: BTreeSet<_> = STAGES.iter().map(|stage| stage.binary).collect();
        let tests = tests.into_iter().filter(|name| ![UNIT, SIM].contains(name));
        let build = cmd!(shell, "{cargo} test --no-run --package latchwork --lib")
            .args(tests.flat_map(|name| ["--test", name]))
            // The model is computation only.
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "false");
        let mut binaries = binaries::build(build.into(), copy.root())?;
        binaries.push(Binary::new(SIM, sim::build(copy)?, copy.root()));
        Ok(Self { binaries, scratch: scratch.to_owned(), recorded: Default::default() })
    }

    /// The checks of a stage, with the mutants that each reaches.
    fn of(&self, stage: usize) -> Result<Arc<Vec<Check>>> {
        let mut recorded = self.recorded[stage].lock().expect("not poisoned");
        if let Some(recorded) = &*recorded {
            return Ok(recorded.clone());
        }
        Ok(recorded.insert(Arc::new(self.record(stage)?)).clone())
    }

    /// Runs each check unmutated; records its duration and the mutants it reaches, until the next build.
    fn record(&self, stage: usize) -> Result<Vec<Check>> {
        let path = self.scratch.join(format!("reached-{}.tsv", self.label(stage)));
        let before = fs::read_to_string(&path).unwrap_or_default();
        let before: HashMap<_, _> = before.lines().filter_map(|line| line.split_once('\t')).collect();
        let hash = hash(&self.binary(stage).path)?;
        let file = fs::OpenOptions::new().create(true).append(true).open(&path)?;
        let (mut known, mut open) = (Vec::new(), Vec::new());
        for name in self.names(stage)? {
            let mut check = Check { name, took: Duration::ZERO, reached: BTreeSet::new() };
            let key = format!("{hash:016x} {:?}", check.arguments(stage));
            match before.get(&*key).and_then(|line| line.split_once('\t')) {
                Some((millis, numbers)) => {
                    check.took = Duration::from_millis(millis.parse()?);
                    check.reached = numbers.split(',').filter_map(|number| number.parse().ok()).collect();
                    known.push(check);
                }
                None => open.push((key, check)),
            }
        }
        eprintln!(
            "{}: what {} checks come by, {} of them new",
            self.name(stage),
            known.len() + open.len(),
            open.len()
        );
        let (queue, done) = (Mutex::new(open), Mutex::new((file, known)));
        let work = |lane: usize| -> Result<()> {
            let reached = self.scratch.join(format!("reached-{lane}-of-{}", self.label(stage)));
            loop {
                let Some((key, mut check)) = queue.lock().expect("not poisoned").pop() else { return Ok(()) };
                fs::write(&reached, "")?;
                let run = || {
                    let mut command = self.command(stage, check.arguments(stage));
                    process::run(command.env(REACHED, &reached), PATIENCE)
                };
                let start = Instant::now();
                // The first failure may be due to the checks beside it.
                if run()? != Ended::Passed && run()? != Ended::Passed {
                    eprintln!("left out, as it fails as it is: {:?}", check.arguments(stage));
                    continue;
                }
                check.took = start.elapsed();
                let numbers: Vec<_> = fs::read_to_string(&reached)?.lines().map(str::to_owned).collect();
                check.reached = numbers.iter().filter_map(|number| number.parse().ok()).collect();
                let (file, done) = &mut *done.lock().expect("not poisoned");
                writeln!(file, "{key}\t{}\t{}", check.took.as_millis(), numbers.join(","))?;
                done.push(check);
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> =
                (0..STAGES[stage].at_a_time).map(|lane| scope.spawn(move || work(lane))).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
        })?;
        Ok(done.into_inner().context("a worker has panicked")?.1)
    }

    /// The tests of a stage, or a single run.
    fn names(&self, stage: usize) -> Result<Vec<Option<String>>> {
        let (word, with) = match STAGES[stage].tests {
            Tests::With(word) => (word, true),
            Tests::Without(word) => (word, false),
            Tests::Run(_) => return Ok(vec![None]),
        };
        let list = String::from_utf8(Command::new(&self.binary(stage).path).arg("--list").output()?.stdout)?;
        let names: Vec<_> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
        if names.is_empty() {
            // A binary without a harness is a single test without a name.
            return Ok(vec![None]);
        }
        let names = names.into_iter().filter(|name| name.contains(word) == with);
        Ok(names.map(|name| Some(name.to_owned())).collect())
    }

    fn binary(&self, stage: usize) -> &Binary {
        self.binaries.iter().find(|it| it.name == STAGES[stage].binary).expect("it was built")
    }

    /// Runs a mutant in the checks that reach it, stage by stage: first in the cheap checks of all stages,
    /// and then, unless `cheaply`, in the others.
    pub(super) fn judge(&self, mutant: u32, name: &str, cheaply: bool) -> Result<Outcome> {
        let mut outcome = Outcome::NotReached;
        let stages =
            || STAGES.iter().enumerate().filter(|(_, stage)| stage.of.iter().any(|of| name.starts_with(of)));
        let passes = [false, true].into_iter().take(if cheaply { 1 } else { 2 });
        for (dear, (stage, Stage { at_a_time, .. })) in
            passes.flat_map(|dear| stages().map(move |stage| (dear, stage)))
        {
            let checks = self.of(stage)?;
            let mut checks: Vec<_> = checks
                .iter()
                .filter(|check| (check.took > DEAR) == dear && check.reached.contains(&mutant))
                .collect();
            while !checks.is_empty() {
                outcome = Outcome::Survived;
                let took: Duration = checks.iter().map(|check| check.took).sum();
                let longest = checks.iter().map(|check| check.took).max().unwrap_or_default();
                let limit = SLACK + 5 * longest.max(took / u32::try_from(*at_a_time)?);
                let arguments: Vec<_> = checks.iter().flat_map(|check| check.arguments(stage)).collect();
                match process::run(&mut self.mutant(mutant, stage, &arguments), limit)? {
                    Ended::Passed => break,
                    // Beside others on a busy machine, the test may fail unmutated, too.
                    Ended::Failed(Some(name)) => {
                        let alone = process::run(&mut self.mutant(mutant, stage, &[&name]), limit)?;
                        if alone != Ended::Passed {
                            return Ok(Outcome::KilledBy(name));
                        }
                        checks.retain(|check| check.name.as_ref() != Some(&name));
                    }
                    Ended::Failed(None) => return Ok(Outcome::KilledBy(self.name(stage))),
                    Ended::TooLate => {
                        if process::run(&mut self.command(stage, arguments), limit)? == Ended::Passed {
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

    /// The stage's name, with the words that select its tests: a binary may have several stages.
    fn name(&self, stage: usize) -> String {
        let Stage { binary, tests, .. } = &STAGES[stage];
        match tests {
            Tests::With("") => (*binary).to_owned(),
            Tests::With(words) | Tests::Run(words) => format!("{binary} {words}"),
            Tests::Without(word) => format!("{binary} but {word}"),
        }
    }

    /// The name as a file name.
    fn label(&self, stage: usize) -> String {
        self.name(stage).replace(|it: char| !it.is_alphanumeric(), "-")
    }

    fn mutant(&self, mutant: u32, stage: usize, arguments: &[&str]) -> Command {
        let mut command = self.command(stage, arguments.to_vec());
        command.env(MUTATION, mutant.to_string());
        command
    }

    fn command(&self, stage: usize, arguments: Vec<&str>) -> Command {
        let Stage { tests, at_a_time, .. } = &STAGES[stage];
        let mut arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        if !arguments.is_empty() && !matches!(tests, Tests::Run(_)) {
            arguments.extend(["--exact".to_owned(), format!("--test-threads={}", at_a_time)]);
        }
        let mut command = self.binary(stage).command(&arguments);
        // Timing tests would fail beside others.
        command.env("LATCHWORK_UNTIMED", "1").env("LATCHWORK_DEEP", "1");
        command
    }
}

impl Check {
    /// The binary's arguments for this check alone.
    fn arguments(&self, stage: usize) -> Vec<&str> {
        match (&self.name, &STAGES[stage].tests) {
            (Some(name), _) => vec![name],
            (None, Tests::Run(words)) => words.split(' ').collect(),
            (None, _) => Vec::new(),
        }
    }
}

fn hash(path: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    fs::read(path)?.hash(&mut hasher);
    Ok(hasher.finish())
}
