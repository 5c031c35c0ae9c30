//! `sim twins`: how long it takes until each broken twin of the model is found.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use crate::judge::Finding;
use crate::program::draw;
use crate::run::run;
use crate::store::Model;
use crate::store::twin::{Broken, TwinOf};

#[derive(Debug, Args)]
pub(crate) struct Twins {
    /// Of the first program
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Real seconds for each
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// These alone
    #[arg(long, value_parser = Broken::of_name)]
    only: Vec<Broken>,
}

/// What found a twin.
struct Found {
    finding: Finding,
    programs: u64,
    took: Duration,
}

impl Twins {
    pub(crate) fn run(self) -> ExitCode {
        let all = if self.only.is_empty() { Broken::all().collect() } else { self.only.clone() };
        let mut survivors = 0;
        println!("{:<24} {:>9} {:>9}  by", "twin", "programs", "seconds");
        for twin in all {
            let name = twin.name();
            match self.find(twin) {
                Some(Found { finding, programs, took }) => {
                    let (judge, seconds) = (finding.judge, took.as_secs_f64());
                    println!("{name:<24} {programs:>9} {seconds:>9.3}  {judge}: {}", finding.text);
                }
                None => {
                    survivors += 1;
                    println!("{name:<24} not within {} s", self.seconds);
                }
            }
        }
        if survivors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Plays programs over a twin, those left out in which the sound store is found fault with.
    fn find(&self, twin: Broken) -> Option<Found> {
        let (start, mut programs) = (Instant::now(), 0);
        while start.elapsed().as_secs() < self.seconds {
            let program = draw(self.seed + programs);
            programs += 1;
            Broken::set(Some(twin));
            let report = run::<TwinOf<Model>>(&program, false);
            Broken::set(None);
            let Some(finding) = report.finding else { continue };
            if run::<TwinOf<Model>>(&program, false).finding.is_none() {
                return Some(Found { finding, programs, took: start.elapsed() });
            }
        }
        None
    }
}
