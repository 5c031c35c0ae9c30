//! Processes that compete for locks over a Redis server: of this crate alone or beside the real Redisson,
//! under faults at random; and both side by side, fact by fact.
//!
//! [`member`] is a process of this crate, `Player.java` one of Redisson; both are told what to do in the same
//! words. [`stage`] lets some of them play [`tasks`] while [`faults`] does harm to them; they write a
//! [`history`], which [`story`] puts together and [`judge`] judges. [`scenes`] is a list of facts on the
//! wire, and [`stream`] measures for how long readers keep a writer out.

mod checks;
mod faults;
mod history;
mod judge;
mod member;
mod names;
mod probe;
mod scenes;
mod server;
mod spans;
mod stage;
mod story;
mod stream;
mod tasks;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use defects::twin::Twin;

use self::checks::{Checked, Checks};
use self::stage::Stage;

/// Lets processes compete for locks over a Redis server
#[derive(Debug, Parser)]
enum CommandLine {
    /// Tasks of four processes, under fault injection, and a judgement of what they have written down
    Stage(StageOptions),
    /// What this crate and the real Redisson have to show to each other
    Scenes {
        /// Where the classes of the Java side are, and its `classpath`; once for each version of Redisson
        #[arg(long, required = true)]
        redisson: Vec<PathBuf>,
        /// Only those with this in their name
        #[arg(long, default_value = "")]
        only: String,
        /// With a side of ours that is broken: the scenes must find out
        #[arg(long)]
        twin: Option<scenes::Twin>,
    },
    /// One of the processes
    #[command(hide = true)]
    Member(member::Orders),
}

#[derive(Debug, clap::Args)]
struct StageOptions {
    /// With every other process one of Redisson: where its classes are, and its `classpath`
    #[arg(long)]
    redisson: Option<PathBuf>,
    /// For how long there are faults
    #[arg(long, default_value_t = 180.0)]
    seconds: f64,
    /// Repeats the faults and the tasks of an earlier run, though not their timing
    #[arg(long)]
    seed: Option<u64>,
    /// Over a store that is broken: the run must find out
    #[arg(long)]
    twin: Option<Twin>,
    /// Keeps the journals, whatever they say
    #[arg(long)]
    keep: bool,
}

/// As many as one wants to read.
const SHOWN: usize = 50;

fn main() -> ExitCode {
    let result = match CommandLine::parse() {
        CommandLine::Member(orders) => {
            member::run(&orders);
            return ExitCode::SUCCESS;
        }
        CommandLine::Scenes { redisson, only, twin } => {
            let mut checks = Checks::new(&only);
            for directory in &redisson {
                scenes::play(directory, twin, &mut checks);
                if only.is_empty() {
                    stream::measure(directory);
                }
            }
            checks.result()
        }
        CommandLine::Stage(options) => stage_and_judge(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("FOUND {wrong}");
            ExitCode::FAILURE
        }
    }
}

fn stage_and_judge(options: &StageOptions) -> Checked {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let mut directory = tempfile::Builder::new()
        .prefix("latchwork-stage-")
        .tempdir()
        .map_err(|error| format!("no directory for the journals: {error}"))?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut stage = Stage::set(directory.path().to_owned(), options.redisson.clone(), options.twin, &mut rng);
    // A process that died is in the history, too.
    let raged = faults::rage(&mut stage, rng, Duration::from_secs_f64(options.seconds));
    let (summary, violations) = judge::judge(&stage.end()?);
    println!("{summary}");
    directory.disable_cleanup(options.keep || !violations.is_empty());
    let journals = format!("journals: {}", directory.path().display());
    if options.keep {
        println!("{journals}");
    }
    if violations.is_empty() {
        return raged;
    }
    let shown: Vec<_> = violations.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = violations.len() - shown.len();
    Err(format!("{}\n  and {more} more\n{journals}", shown.join("\n  and ")))
}
