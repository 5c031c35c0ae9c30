//! The whole lock in virtual time: programs that are drawn, over stores that do what a store may do.

mod care;
mod excuses;
mod faults;
mod judge;
mod leases;
mod program;
mod run;
mod stage;
mod store;
mod task;
mod world;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use latchwork::fault::{self, Fault};

/// Plays random programs of the whole lock in virtual time.
#[derive(Debug, Parser)]
enum Simulation {
    Faults(faults::Faults),
    Run(Scratch),
}

#[derive(Debug, clap::Args)]
struct Scratch {
    #[arg(long, default_value = "model")]
    store: String,
    #[arg(long)]
    fault: Option<String>,
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long)]
    programs: Option<u64>,
    #[arg(long)]
    stop_at_first: bool,
    #[arg(long)]
    json: bool,
    #[arg(long)]
    history: bool,
}

impl Scratch {
    fn run(&self) -> ExitCode {
        if let Some(name) = &self.fault {
            let fault = Fault::ALL.iter().find(|fault| format!("{fault:?}") == *name);
            fault::seed(*fault.unwrap_or_else(|| panic!("no fault {name}")));
        }
        let begun = Instant::now();
        let first = self.seed.unwrap_or(1);
        let mut finds = std::collections::BTreeMap::<String, u64>::new();
        let mut programs = 0;
        let mut said = None;
        for seed in first.. {
            if begun.elapsed().as_secs() >= self.seconds || self.programs.is_some_and(|most| programs >= most) {
                break;
            }
            programs += 1;
            let program = program::draw(seed);
            let play = |program: &program::Program| match &*self.store {
                "local" => run::run::<store::local::LocalStore>(program, self.history),
                _ => run::run::<store::Model>(program, self.history),
            };
            let report = play(&program);
            if let Some(finding) = report.finding {
                if self.history {
                    println!("{}", program.text());
                    report.history.iter().for_each(|line| println!("{line}"));
                }
                println!("{seed}: {}: {}", finding.judge, finding.text);
                *finds.entry(finding.judge.to_owned()).or_default() += 1;
                said = Some((finding.judge, seed));
                if self.stop_at_first {
                    break;
                }
            }
        }
        eprintln!("{programs} programs, {:.1} s, {finds:?}", begun.elapsed().as_secs_f64());
        let (found, seed) = said.map_or((None, None), |(judge, seed)| (Some(judge), Some(seed)));
        if self.json {
            println!(
                "{}",
                serde_json::json!({"found": found, "programs": programs, "seconds": begun.elapsed().as_secs_f64(), "operations": null, "seed": seed})
            );
        }
        if found.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

fn main() -> ExitCode {
    match Simulation::parse() {
        Simulation::Faults(faults) => faults.run(),
        Simulation::Run(run) => run.run(),
    }
}
