//! `sim faults`: seeds one fault after the other, in the real code or in the model, and requires the
//! simulator to find each.
//!
//! A judge that has never found anything proves nothing, and neither does a generator whose programs no fault
//! can disturb. So the simulator has to find each fault of the crate above the semaphore, and each twin of
//! the model, in a run of its own: a survivor is a hole in the generator or in a judge. As a control, a run
//! without a fault has to find nothing.

use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;

use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use defects::faults::{self, Fault};
use defects::twin::Twin;
use latchwork::fault::Fault as Seeded;
use serde::Deserialize;

/// A store, as spelled in `sim run --store`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Over {
    Model,
    Local,
    Redis,
}

impl Over {
    /// All stores, the fastest first.
    const ALL: [Self; 3] = [Self::Model, Self::Local, Self::Redis];

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// A part of the table of faults, and the stores over which that part of the crate runs.
const PARTS: [(&str, &[Over]); 4] =
    [("entry", &Over::ALL), ("client", &Over::ALL), ("local", &[Over::Local]), ("redis", &[Over::Redis])];

/// Returns the table's faults, and the library's faults for loom, that lie above the semaphore.
fn faults_of_the_lock() -> Vec<(Fault, &'static [Over])> {
    let over = |part: &str| PARTS.iter().find(|(of, _)| *of == part).map(|(_, stores)| *stores);
    let all = faults::all().into_iter();
    all.filter_map(|fault| over(fault.part).map(|stores| (fault, stores))).collect()
}

#[derive(Args, Debug)]
pub(crate) struct Faults {
    /// Time limit per fault and store
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Duration of the control run over each store, without a fault
    #[arg(long, default_value_t = 10)]
    control: u64,
    /// Number of runs at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Only the faults of these names
    #[arg(long = "fault", value_name = "NAME")]
    names: Vec<String>,
    /// Does not shrink programs that fail
    #[arg(long)]
    brief: bool,
    /// Only these stores. Skips faults that live over none of these stores
    #[arg(long = "store", value_enum)]
    stores: Vec<Over>,
}

/// Last line of the output of `sim run --json`.
#[derive(Debug, Deserialize)]
struct Answer {
    /// The judge that found a failure.
    found: Option<String>,
    programs: u64,
    seconds: f64,
    /// Operations of the shrunk program.
    operations: Option<u64>,
    seed: Option<u64>,
}

#[derive(Debug)]
struct FaultOutcome {
    fault: String,
    found: Option<(Over, Answer)>,
    /// Programs and seconds of the runs that found nothing.
    in_vain: (u64, f64),
    /// Errors of runs that failed to complete.
    broken: Vec<String>,
}

impl Faults {
    pub(crate) fn run(&self) -> ExitCode {
        let faults = match self.chosen() {
            Ok(faults) => faults,
            Err(unknown) => {
                eprintln!("there is no fault {unknown} above the semaphore");
                return ExitCode::FAILURE;
            }
        };
        if !self.nothing_is_found_without(&faults) {
            return ExitCode::FAILURE;
        }
        let verdicts = self.judge_all(&faults);
        println!("{}", table(&verdicts));
        let survivors: Vec<_> = verdicts.iter().filter(|verdict| verdict.found.is_none()).collect();
        println!("{} of {} faults found", verdicts.len() - survivors.len(), verdicts.len());
        for survivor in &survivors {
            println!("{} survives", survivor.fault);
        }
        for fault in faults::all() {
            if let Some(why) = fault.not_by_programs {
                println!("{} is found elsewhere: {why}", fault.name);
            }
        }
        if survivors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Returns the names of the chosen faults, with their stores; or an unknown name.
    fn chosen(&self) -> Result<Vec<(String, Vec<Over>)>, &str> {
        // A fault that other checks find is included only if named.
        let is_looked_for = |fault: &Fault| !self.names.is_empty() || fault.not_by_programs.is_none();
        let faults = faults_of_the_lock().into_iter().filter(|(fault, _)| is_looked_for(fault));
        let faults = faults.map(|(fault, stores)| (fault.name.to_owned(), stores));
        let shared = [Seeded::CHANNELS, Seeded::ENTRY].concat();
        let shared = shared.into_iter().map(|fault| (format!("{fault:?}"), Over::ALL.as_slice()));
        let twins = Twin::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let twins = twins.map(|twin| (twin.get_name().to_owned(), [Over::Model].as_slice()));
        let all: Vec<_> = shared.chain(faults).chain(twins).collect();
        if let Some(unknown) = self.names.iter().find(|name| !all.iter().any(|(of, _)| of == *name)) {
            return Err(unknown);
        }
        let is_wanted = |name: &String| self.names.is_empty() || self.names.contains(name);
        let over = |store: &&Over| self.stores.is_empty() || self.stores.contains(store);
        let chosen = all.into_iter().filter(|(name, _)| is_wanted(name));
        let chosen =
            chosen.map(|(name, stores)| (name, stores.iter().filter(over).copied().collect::<Vec<_>>()));
        Ok(chosen.filter(|(_, stores)| !stores.is_empty()).collect())
    }

    fn nothing_is_found_without(&self, faults: &[(String, Vec<Over>)]) -> bool {
        let is_used = |store: &Over| faults.iter().any(|(_, stores)| stores.contains(store));
        let mut is_clean = true;
        for store in Over::ALL.into_iter().filter(is_used) {
            match ask(store, &["--seconds", &self.control.to_string()]) {
                Ok(Answer { found: None, programs, .. }) => {
                    eprintln!("without a fault: nothing in {programs} programs over {}", store.name());
                }
                Ok(Answer { found: Some(judge), seed, .. }) => {
                    eprintln!("without a fault: {judge} over {}, seed {seed:?}", store.name());
                    is_clean = false;
                }
                Err(error) => {
                    eprintln!("without a fault: {error}, over {}", store.name());
                    is_clean = false;
                }
            }
        }
        is_clean
    }

    fn judge_all(&self, faults: &[(String, Vec<Over>)]) -> Vec<FaultOutcome> {
        let next = Mutex::new(faults.iter().enumerate());
        let verdicts = Mutex::new(Vec::new());
        // Threads only wait for child processes, so threads need no simulation.
        thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    loop {
                        let Some((at, (fault, stores))) = next.lock().expect("no job panics").next() else {
                            return;
                        };
                        let verdict = self.judge(fault, stores);
                        eprintln!("{}", line(&verdict));
                        verdicts.lock().expect("no job panics").push((at, verdict));
                    }
                });
            }
        });
        let mut verdicts = verdicts.into_inner().expect("no job panics");
        verdicts.sort_by_key(|(at, _)| *at);
        verdicts.into_iter().map(|(_, verdict)| verdict).collect()
    }

    fn judge(&self, fault: &str, stores: &[Over]) -> FaultOutcome {
        let mut verdict =
            FaultOutcome { fault: fault.to_owned(), found: None, in_vain: (0, 0.0), broken: Vec::new() };
        for store in stores {
            match self.find(fault, *store, &mut verdict.in_vain) {
                Ok(Some(answer)) => {
                    verdict.found = Some((*store, answer));
                    break;
                }
                Ok(None) => {}
                Err(error) => verdict.broken.push(format!("{}: {error}", store.name())),
            }
        }
        verdict
    }

    /// Looks for a fault over one store. Discards a finding that the same program has without the fault.
    fn find(&self, fault: &str, store: Over, in_vain: &mut (u64, f64)) -> Result<Option<Answer>, String> {
        let mut left = self.seconds as f64;
        let mut from = fastrand::u64(..u64::MAX / 2);
        let (mut programs, mut seconds) = (0, 0.0);
        while left >= 1.0 {
            let (from_text, limit) = (from.to_string(), format!("{left:.0}"));
            let mut run = vec!["--fault", fault, "--seed", &*from_text, "--seconds", &*limit];
            run.extend(self.brief.then_some("--brief"));
            let mut answer = ask(store, &run)?;
            programs += answer.programs;
            seconds += answer.seconds;
            left -= answer.seconds;
            let Some(seed) = answer.seed.filter(|_| answer.found.is_some()) else { break };
            let control = ask(store, &["--seed", &seed.to_string(), "--programs", "1", "--brief"])?;
            if control.found.is_none() {
                (answer.programs, answer.seconds) = (programs, seconds);
                return Ok(Some(answer));
            }
            from = seed + 1;
        }
        in_vain.0 += programs;
        in_vain.1 += seconds;
        Ok(None)
    }
}

/// Runs in a child process, since a seeded fault cannot be removed.
fn ask(store: Over, options: &[&str]) -> Result<Answer, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut run = Command::new(program);
    run.args(["run", "--stop-at-first", "--json", "--store", &store.name()]);
    run.args(options);
    let output = run.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().last().unwrap_or_default();
    serde_json::from_str(last).map_err(|_| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        format!("{}, {}", output.status, complaint.lines().last().unwrap_or("and nothing said"))
    })
}

fn line(verdict: &FaultOutcome) -> String {
    let FaultOutcome { fault, found, in_vain: (programs, seconds), broken } = verdict;
    match found {
        Some((store, answer)) => {
            let judge = answer.found.as_deref().unwrap_or_default();
            format!("{fault}: by {judge} over {}, {:.2} s", store.name(), answer.seconds)
        }
        None if broken.is_empty() => format!("{fault}: survives {programs} programs, {seconds:.0} s"),
        None => format!("{fault}: survives {programs} programs, and {}", broken.join("; ")),
    }
}

fn table(verdicts: &[FaultOutcome]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["fault", "found by", "over", "programs", "seconds", "operations", "seed"]);
    for FaultOutcome { fault, found, in_vain: (programs, seconds), .. } in verdicts {
        let name = fault.clone();
        let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
        table.add_row(match found {
            Some((store, answer)) => [
                name,
                answer.found.clone().unwrap_or_default(),
                store.name(),
                answer.programs.to_string(),
                format!("{:.2}", answer.seconds),
                number(answer.operations),
                number(answer.seed),
            ],
            None => {
                let in_vain = [programs.to_string(), format!("{seconds:.2}")];
                let [programs, seconds] = in_vain;
                [name, "none".to_owned(), String::new(), programs, seconds, String::new(), String::new()]
            }
        });
    }
    table
}
