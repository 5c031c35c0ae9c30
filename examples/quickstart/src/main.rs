//! Many tasks, a few named locks, and behind each lock one plain number that only the lock keeps right.
//!
//! ```text
//! cargo run --release -p quickstart
//! cargo run --release -p quickstart -- --help
//! cargo run --release -p quickstart --features redis -- --redis redis://127.0.0.1:6379 --processes 3
//! ```
//!
//! Start reading at [`job`]: creating, acquiring and releasing a lock. [`in_process`] runs the job in this
//! process alone; `parent` and `child` run it in several processes at once, over `redis_numbers`, with the
//! feature `redis`.

mod args;
#[cfg(feature = "redis")]
mod child;
mod clock;
mod in_process;
mod job;
mod outcome;
#[cfg(feature = "redis")]
mod parent;
mod plan;
mod progress;
#[cfg(feature = "redis")]
mod redis_numbers;

use std::process::ExitCode;

use self::args::{Args, OVER_REDIS};

type Error = Box<dyn std::error::Error + Send + Sync>;

const WRONG_COUNT_OR_FAILURE: u8 = 1;
/// The exit code of clap for invalid arguments.
#[cfg(feature = "redis")]
const WRONG_USAGE: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse_and_check();
    let plan = args.plan();
    if !args.child {
        let (tasks, locks) = (plan.tasks, plan.locks);
        let place = if args.redis.is_some() { "over Redis" } else { "in memory" };
        println!("{tasks} tasks on {locks} locks {place}; processes: {}", args.processes);
    }
    #[cfg(feature = "redis")]
    if args.child {
        return child::run().await;
    } else if let Some(url) = &args.redis {
        // Before any process starts: a wrong URL is the most common mistake.
        if let Err(error) = latchwork::redis::Redis::connect(url).await {
            return fail(WRONG_USAGE, &error);
        }
        return report(&args, parent::run(url, &plan, args.processes).await);
    }
    report(&args, in_process::run(&plan).await)
}

fn report(args: &Args, outcome: Result<outcome::Outcome, Error>) -> ExitCode {
    match outcome {
        Ok(outcome) => {
            println!("{outcome}");
            match &args.redis {
                Some(_) => println!("next: a recipe for your job, in examples/README.md"),
                None => println!("next: {OVER_REDIS}"),
            }
            if outcome.is_right() { ExitCode::SUCCESS } else { ExitCode::from(WRONG_COUNT_OR_FAILURE) }
        }
        Err(error) => fail(WRONG_COUNT_OR_FAILURE, &*error),
    }
}

fn fail(code: u8, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: {}", with_causes(error));
    ExitCode::from(code)
}

/// The error and its causes, on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut line = String::new();
    for cause in std::iter::successors(Some(error), |error| error.source()) {
        let text = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        // Some errors include their cause in their text.
        if line.ends_with(&text) {
            continue;
        }
        if !line.is_empty() {
            line += ": ";
        }
        line += &text;
    }
    line
}
