//! The commands of the command line.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use defects::twin::Twin;
use latchwork::fault::{self, Fault};
use serde::{Deserialize, Serialize};

use crate::judge::Finding;
use crate::player::Player;
use crate::program::Program;
use crate::run::Report;
use crate::shrink::shrink;
use crate::store::twin;
use crate::task::operation_words;
use crate::watchdog;
use crate::world::SECOND;

/// Limit on the time to shrink a failure.
const SHRUNK_FOR: Duration = Duration::from_secs(30);

const KEPT: &str = "checks/simulation/kept";

/// Number of schedules under which a kept program is played.
const KEPT_SCHEDULES: u64 = 100;

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[arg(long, value_enum, default_value_t = Player::All)]
    store: Player,
    /// Of the first program; later programs have the following seeds. Random by default
    #[arg(long)]
    seed: Option<u64>,
    /// Real seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Number of programs, instead of a time limit
    #[arg(long)]
    programs: Option<u64>,
    /// A fault of the library, or a twin of the model, that the run has to find
    #[arg(long)]
    fault: Option<String>,
    /// Ends with the first failure
    #[arg(long)]
    stop_at_first: bool,
    /// Ends with a line of JSON
    #[arg(long)]
    json: bool,
    /// Prints only the seed of a failure
    #[arg(long)]
    brief: bool,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    seed: u64,
    #[arg(long, value_enum, default_value_t = Player::Model)]
    store: Player,
    #[arg(long)]
    fault: Option<String>,
    /// Plays the program in this file, instead of that of the seed
    #[arg(long)]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Same {
    #[arg(long, value_enum, default_value_t = Player::All)]
    store: Player,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[arg(long, default_value_t = 200)]
    programs: u64,
    /// Plays in a second process as well, and requires the same histories
    #[arg(long)]
    twice: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Fixed {
    /// Directory of the programs
    #[arg(long, default_value = KEPT)]
    directory: PathBuf,
    /// Plays only the program of this name
    #[arg(long)]
    only: Option<String>,
    /// A fault of the library that the run has to find
    #[arg(long)]
    fault: Option<String>,
}

/// A shrunk program that once exposed a fault.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    store: String,
    judge: String,
    says: String,
    /// Fault that the program has to expose when the fault is seeded.
    fault: String,
    program: Program,
}

#[derive(Default)]
struct Figures {
    programs: u64,
    operations: u64,
    commands: u64,
    polls: u64,
    /// Simulated time in nanoseconds.
    time: u128,
    found: BTreeMap<(String, &'static str), (u64, u64)>,
}

struct First {
    seed: u64,
    store: Player,
    finding: Finding,
    seconds: f64,
    programs: u64,
}

impl Run {
    pub(crate) fn run(self) -> ExitCode {
        seed_fault(self.fault.as_deref());
        let from = self.seed.unwrap_or_else(|| fastrand::u64(..u64::MAX / 2));
        let (start, mut figures) = (Instant::now(), Figures::default());
        let mut first = None;
        let mut seed = from;
        while self.programs.map_or(start.elapsed().as_secs() < self.seconds, |count| seed - from < count) {
            for store in self.store.each(seed) {
                let program = store.draw(seed);
                let (seconds, programs) = (start.elapsed().as_secs_f64(), figures.programs + 1);
                let mut lines = does_not_come_back(format!("seed {seed}"), store);
                if self.json {
                    lines = format!("{lines}\n{}", json(Some(("spins", seed)), programs, seconds, None));
                }
                watchdog::name(lines);
                let report = store.play(&program, false);
                figures.count(store, seed, &report);
                let Some(finding) = report.finding else { continue };
                println!("seed {seed} over {}: {}: {}", store.name(), finding.judge, finding.text);
                first.get_or_insert(First { seed, store, finding, seconds, programs });
            }
            if first.is_some() && self.stop_at_first {
                break;
            }
            seed += 1;
        }
        figures.print(start.elapsed(), from);
        self.end(first, start.elapsed().as_secs_f64(), figures.programs)
    }

    fn end(&self, first: Option<First>, seconds: f64, programs: u64) -> ExitCode {
        let Some(first) = first else {
            if self.json {
                println!("{}", json(None, programs, seconds, None));
            }
            return ExitCode::SUCCESS;
        };
        let operations = (!self.brief).then(|| {
            let shrunk = shrunk(first.store, &first.store.draw(first.seed), &first.finding);
            show(first.store, &shrunk);
            shrunk.operations()
        });
        if self.json {
            let found = Some((first.finding.judge, first.seed));
            println!("{}", json(found, first.programs, first.seconds, operations));
        }
        ExitCode::FAILURE
    }
}

fn json(
    found: Option<(&str, u64)>,
    programs: u64,
    seconds: f64,
    operations: Option<usize>,
) -> serde_json::Value {
    let (judge, seed) = found.unzip();
    serde_json::json!({
        "found": judge, "programs": programs, "seconds": seconds, "operations": operations, "seed": seed,
    })
}

fn does_not_come_back(program: impl Display, store: Player) -> String {
    format!("{program} over {}: spins: the program does not come back", store.name())
}

fn seed_fault(name: Option<&str>) {
    let Some(name) = name else { return };
    match Twin::from_str(name, false) {
        Ok(twin) => twin::seed(twin),
        Err(_) => {
            let fault = Fault::named(name);
            fault::seed(fault.unwrap_or_else(|| panic!("this build has no fault {name}")));
        }
    }
}

impl Figures {
    fn count(&mut self, store: Player, seed: u64, report: &Report) {
        self.programs += 1;
        self.operations += report.operations;
        self.commands += report.commands;
        self.polls += report.polls;
        self.time += u128::from(report.ended);
        if let Some(finding) = &report.finding {
            let (count, _) = self.found.entry((store.name(), finding.judge)).or_insert((0, seed));
            *count += 1;
        }
    }

    fn print(&self, took: Duration, from: u64) {
        let seconds = took.as_secs_f64().max(1e-9);
        let virtually = self.time as f64 / SECOND as f64;
        println!(
            "{} programs from seed {from}, {} operations, {} commands, {} polls, {virtually:.0} virtual seconds in {seconds:.1} s",
            self.programs, self.operations, self.commands, self.polls
        );
        println!(
            "a second: {:.0} virtual seconds, {:.0} programs, {:.0} operations, {:.0} commands",
            virtually / seconds,
            self.programs as f64 / seconds,
            self.operations as f64 / seconds,
            self.commands as f64 / seconds
        );
        for ((store, judge), (count, seed)) in &self.found {
            println!("{judge} over {store}: {count} programs, the first of seed {seed}");
        }
    }
}

fn shrunk(store: Player, program: &Program, finding: &Finding) -> Program {
    let start = Instant::now();
    let (shrunk, runs) = shrink(program, finding.judge, SHRUNK_FOR, &|program| store.play(program, false));
    let (operations, before) = (shrunk.operations(), program.operations());
    println!("shrunk from {before} operations to {operations} by {runs} runs in {:.1?}", start.elapsed());
    shrunk
}

fn show(store: Player, program: &Program) {
    print_table(program);
    let report = store.play(program, true);
    report.history.iter().for_each(|line| println!("{line}"));
    match &report.finding {
        Some(finding) => println!("{}: {}", finding.judge, finding.text),
        None => println!("nothing is found; hash {:016x}", report.hash),
    }
    if let Some(finding) = report.finding {
        let (store, judge) = (store.name(), finding.judge.to_owned());
        let fault = "the fault of `checks/defects/faults.txt` that it stands for".to_owned();
        let kept = Kept { store, judge, says: finding.text, fault, program: program.clone() };
        println!("\nTo be kept in {KEPT}:\n{}", kept.text());
    }
}

fn print_table(program: &Program) {
    println!("names {:?}, schedule {}", program.names, program.schedule);
    println!("network {:?}", program.network);
    for incident in &program.incidents {
        println!("at {:>12.6}  {:?}", incident.at as f64 / SECOND as f64, incident.what);
    }
    for (process, plan) in program.processes.iter().enumerate() {
        if plan.tasks.iter().any(|task| !task.is_empty()) {
            println!("p{process}: clock {} ppm, {:?}", plan.clock_ppm, plan.options);
        }
        for (task, operations) in plan.tasks.iter().enumerate() {
            for operation in operations {
                println!("  p{process}t{task}  {}", operation_words(program, operation));
            }
        }
    }
    println!("end {:.3} s\n", program.end as f64 / SECOND as f64);
}

impl One {
    fn program(&self) -> Program {
        seed_fault(self.fault.as_deref());
        watchdog::name(does_not_come_back(format!("seed {}", self.seed), self.store));
        match &self.file {
            None => self.store.draw(self.seed),
            Some(file) => {
                let text = fs::read_to_string(file).expect("the file can be read");
                Kept::parse(&text)
                    .map(|kept| kept.program)
                    .or_else(|_| Program::parse(&text))
                    .expect("a program")
            }
        }
    }

    pub(crate) fn replay(self) -> ExitCode {
        show(self.store, &self.program());
        ExitCode::SUCCESS
    }

    pub(crate) fn shrink(self) -> ExitCode {
        let program = self.program();
        let Some(finding) = self.store.play(&program, false).finding else {
            println!("nothing is found");
            return ExitCode::SUCCESS;
        };
        println!("{}: {}", finding.judge, finding.text);
        show(self.store, &shrunk(self.store, &program, &finding));
        ExitCode::FAILURE
    }
}

impl Same {
    pub(crate) fn run(self) -> ExitCode {
        let other = self.twice.then(|| self.begin_other());
        let mut hashes = String::new();
        let mut found = false;
        for seed in self.seed..self.seed + self.programs {
            for store in self.store.each(seed) {
                let program = store.draw(seed);
                watchdog::name(does_not_come_back(format!("seed {seed}"), store));
                let report = store.play(&program, false);
                hashes += &format!("{seed} {} {:016x}\n", store.name(), report.hash);
                if let Some(finding) = report.finding {
                    found = true;
                    eprintln!("seed {seed} over {}: {}: {}", store.name(), finding.judge, finding.text);
                }
            }
        }
        let Some(other) = other else {
            print!("{hashes}");
            return ExitCode::SUCCESS;
        };
        let other = other.wait_with_output().expect("the other process ends");
        let other = String::from_utf8_lossy(&other.stdout).into_owned();
        let mut differ = hashes.lines().zip(other.lines()).filter(|(one, other)| one != other).peekable();
        let is_same = differ.peek().is_none() && hashes.len() == other.len();
        differ
            .for_each(|(one, other)| eprintln!("histories differ: {one}, and in the other process {other}"));
        println!("{} programs, {} histories, twice", self.programs, hashes.lines().count());
        if is_same && !found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Starts the same command in another process, with other random keys in hash maps.
    fn begin_other(&self) -> std::process::Child {
        let program = std::env::current_exe().expect("this program has a file");
        let mut command = Command::new(program);
        command.args(["same", "--store", &self.store.name()]);
        command.args(["--seed", &self.seed.to_string(), "--programs", &self.programs.to_string()]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
        command.spawn().expect("this program can be started")
    }
}

impl Kept {
    fn text(&self) -> String {
        ron::Options::default()
            .with_default_extension(ron::extensions::Extensions::IMPLICIT_SOME)
            .to_string_pretty(self, ron::ser::PrettyConfig::new().depth_limit(6))
            .expect("programs are plain data")
    }

    fn parse(text: &str) -> Result<Self, String> {
        let options =
            ron::Options::default().with_default_extension(ron::extensions::Extensions::IMPLICIT_SOME);
        options.from_str(text).map_err(|error| error.to_string())
    }
}

impl Fixed {
    /// Plays all kept programs under many schedules, and checks that each exposes its fault.
    pub(crate) fn run(self) -> ExitCode {
        seed_fault(self.fault.as_deref());
        let files = files(&self.directory);
        let mut failed = false;
        for file in &files {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if self.only.as_ref().is_some_and(|only| *only != name) {
                continue;
            }
            let text = fs::read_to_string(file).expect("the file can be read");
            let kept = Kept::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            let found = kept.found(&name);
            let sees_fault = self.fault.is_some() || self.finds_fault(&name, &kept.fault);
            if !sees_fault {
                println!("{name} does not find {}", kept.fault);
            }
            found.iter().for_each(|found| println!("{name}, {found}"));
            failed |= found.is_some() || !sees_fault;
        }
        println!("{} programs of {KEPT_SCHEDULES} schedules each", files.len());
        if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    /// Runs in another process, since a seeded fault cannot be removed.
    fn finds_fault(&self, name: &str, fault: &str) -> bool {
        let program = std::env::current_exe().expect("this program has a file");
        let mut command = Command::new(program);
        command.arg("fixed").arg("--directory").arg(&self.directory);
        command.args(["--only", name, "--fault", fault]).stderr(std::process::Stdio::null());
        let said = command.output().expect("this program can be started");
        // A process that ends otherwise has found no fault.
        !said.status.success() && String::from_utf8_lossy(&said.stdout).contains(&format!("{name}, schedule"))
    }
}

impl Kept {
    fn found(&self, name: &str) -> Option<String> {
        let store = Player::named(&self.store).unwrap_or_else(|| panic!("{name}: no store {}", self.store));
        watchdog::name(does_not_come_back(name, store));
        (0..KEPT_SCHEDULES).find_map(|later| {
            let schedule = self.program.schedule.wrapping_add(later);
            let program = Program { schedule, ..self.program.clone() };
            let Finding { judge, text } = store.play(&program, false).finding?;
            Some(format!("schedule {schedule}: {judge}: {text}"))
        })
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let is_program = |path: &PathBuf| path.extension().is_some_and(|end| end == "ron");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_program).collect();
    files.sort();
    files
}
