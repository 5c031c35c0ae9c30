//! Many tasks, a few named locks, and one plain number behind each lock that only the lock keeps right.
//!
//! ```text
//! cargo run --release --example quickstart
//! cargo run --release --example quickstart -- --redis redis://127.0.0.1:6379 --processes 3
//! cargo run --release --example quickstart -- --help
//! ```
//!
//! Start reading at [`job`]: how a lock is made, taken and given back. [`in_process`] runs the job in this process alone;
//! [`parent`] and [`child`] run it in several processes at once, over [`redis_numbers`].

mod args;
mod child;
mod clock;
mod in_process;
mod job;
mod outcome;
mod parent;
mod plan;
mod progress;
mod redis_numbers;

use std::process::ExitCode;

use latchwork::redis::Redis;

use self::args::Args;

type Error = Box<dyn std::error::Error + Send + Sync>;

const WRONG_COUNT_OR_FAILURE: u8 = 1;
/// As clap does for flags that make no sense.
const WRONG_USAGE: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse_and_check();
    if args.child {
        return child::run().await;
    }
    let plan = args.plan();
    let outcome = match &args.redis {
        None => in_process::run(&plan).await,
        Some(url) => {
            // Before any process is started: this is the mistake that everybody makes first.
            if let Err(error) = Redis::connect(url).await {
                return fail(WRONG_USAGE, &error);
            }
            parent::run(url, &plan, args.processes).await
        }
    };
    match outcome {
        Ok(outcome) => {
            println!("{outcome}");
            if outcome.is_right() { ExitCode::SUCCESS } else { ExitCode::from(WRONG_COUNT_OR_FAILURE) }
        }
        Err(error) => fail(WRONG_COUNT_OR_FAILURE, &*error),
    }
}

fn fail(code: u8, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: {}", with_causes(error));
    ExitCode::from(code)
}

/// The error and what it came from, on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut line = String::new();
    for cause in std::iter::successors(Some(error), |error| error.source()) {
        let text = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        // Some errors say themselves what they came from.
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
