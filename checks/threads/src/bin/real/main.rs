//! Real threads at full speed until the time is over: for the sanitizers, which see each thread's accesses to
//! memory.
//!
//! The threads share only the semaphore: no lock, channel or parking of std, which ThreadSanitizer does not
//! understand, and which would order the accesses under test.

mod quitters;
mod turns;

use std::process::exit;
use std::time::{Duration, Instant};

use clap::Parser;
use threads::timed;

/// Plays with latchwork's semaphore by real threads
#[derive(Debug, Parser)]
struct CommandLine {
    /// Seconds to play
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Repeats the scripts of an earlier run, though not the timing
    #[arg(long)]
    seed: Option<u64>,
    /// Permits of the semaphore that protects plain memory: with more than one there is a data race to find
    #[arg(long, default_value_t = 1)]
    permits: usize,
}

/// As many threads as cores, and more: then the scheduler suspends threads anywhere.
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
