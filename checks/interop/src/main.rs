//! Processes that compete for locks over a Redis server under random faults: of this crate alone, or beside
//! the real Redisson; and both compared fact by fact.
//!
//! [`member`] is a process of this crate, `Player.java` one of Redisson; both understand the same orders.
//! [`stage`] runs some of them with [`tasks`] while [`faults`] disturbs them; the processes write a
//! [`history`], which [`story`] assembles and [`judge`] judges. [`scenes`] is a list of facts on the wire,
//! and [`stream`] measures how long readers keep a writer out.

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
    /// Runs tasks of four processes under fault injection, and judges their journals
    Stage(StageOptions),
    /// Compares this crate with the real Redisson, scene by scene
    Scenes {
        /// Directory of the Java side's classes and its `classpath`; once for each version of Redisson
        #[arg(long, required = true)]
        redisson: Vec<PathBuf>,
        /// Only the scenes with this in their name
        #[arg(long, default_value = "")]
        only: String,
        /// Breaks our side: the scenes must find out
        #[arg(long)]
        twin: Option<scenes::Twin>,
    },
    /// Runs one of the processes
    #[command(hide = true)]
    Member(member::Orders),
}

#[derive(Debug, clap::Args)]
struct StageOptions {
    /// Makes every other process one of Redisson: directory of the classes and the `classpath`
    #[arg(long)]
    redisson: Option<PathBuf>,
    /// Seconds with faults
    #[arg(long, default_value_t = 180.0)]
    seconds: f64,
    /// Repeats the faults and the tasks of an earlier run, though not their timing
    #[arg(long)]
    seed: Option<u64>,
    /// Breaks the store: the run must find out
    #[arg(long)]
    twin: Option<Twin>,
    /// Keeps the journals of a run without violations, too
    #[arg(long)]
    keep: bool,
}

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
    // A dead process is in the history, too.
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
