//! `sim twins`: how long it takes until each broken twin of the model is found.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::judge::Finding;
use crate::program::draw;
use crate::run::run;
use crate::store::Model;
use crate::store::twin::{Twin, TwinOf};

#[derive(Debug, Args)]
pub(crate) struct Twins {
    /// Of the first program
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Real seconds for each
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// These alone
    #[arg(long, value_enum)]
    only: Vec<Twin>,
}

/// What found a twin.
struct Found {
    finding: Finding,
    programs: u64,
    took: Duration,
}

impl Twins {
    pub(crate) fn run(self) -> ExitCode {
        let all = if self.only.is_empty() { Twin::value_variants() } else { &self.only };
        let mut survivors = 0;
        println!("{:<24} {:>9} {:>9}  by", "twin", "programs", "seconds");
        for twin in all {
            let name = twin.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
            match self.find(*twin) {
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
    fn find(&self, twin: Twin) -> Option<Found> {
        let (start, mut programs) = (Instant::now(), 0);
        while start.elapsed().as_secs() < self.seconds {
            let program = draw(self.seed + programs);
            programs += 1;
            Twin::set(Some(twin));
            let report = run::<TwinOf<Model>>(&program, false);
            Twin::set(None);
            let Some(finding) = report.finding else { continue };
            if run::<TwinOf<Model>>(&program, false).finding.is_none() {
                return Some(Found { finding, programs, took: start.elapsed() });
            }
        }
        None
    }
}
