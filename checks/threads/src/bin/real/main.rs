//! Real threads, as fast as they go, until the time is over: for the sanitizers, which see what a thread does
//! to memory beside others.
//!
//! The shared path is the semaphore's and nothing else's: no lock, no channel and no parking of std's, which
//! ThreadSanitizer does not understand, and which would order what is to meet.

mod quitters;
mod turns;

use std::process::exit;
use std::time::{Duration, Instant};

use clap::Parser;
use threads::timed;

/// Plays with latchwork's semaphore by real threads
#[derive(Debug, Parser)]
struct CommandLine {
    /// For how long
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Repeats the scripts of an earlier run, though not its timing
    #[arg(long)]
    seed: Option<u64>,
    /// Of the semaphore that protects plain memory: with more than one there is a data race to be found
    #[arg(long, default_value_t = 1)]
    permits: usize,
}

/// As many as there are cores, and more, so that threads are suspended anywhere.
const CROWDS: [usize; 2] = [2, 8];

fn main() {
    let command_line = CommandLine::parse();
    let mut rng = fastrand::Rng::with_seed(command_line.seed.unwrap_or_else(|| fastrand::u64(..)));
    println!("seed {}", rng.get_seed());
    let (start, whole) = (Instant::now(), Duration::from_secs_f64(command_line.seconds));
    let (mut histories, mut turns, mut quitters) = (0, 0, 0);
    while start.elapsed() < whole {
        histories += played(timed::batch(256, &mut rng), start);
        for threads in CROWDS {
            turns += played(turns::batch(threads, command_line.permits), start);
            quitters += played(quitters::batch(threads), start);
        }
    }
    println!("{histories} histories, {turns} turns, {quitters} waiters that have given up");
}

fn played(batch: Result<u64, String>, start: Instant) -> u64 {
    batch.unwrap_or_else(|wrong| {
        eprintln!("FOUND after {:.2} s: {wrong}", start.elapsed().as_secs_f64());
        exit(1);
    })
}
