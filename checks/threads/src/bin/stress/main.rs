//! Real threads: random rounds from a spinning start, and turns at one permit, until the time is over; then a
//! look at the heap.
//!
//! The shared path is the semaphore's and nothing else's: no lock, no channel and no parking of std's, which
//! ThreadSanitizer does not understand, and which would order what is to meet.

mod heap;
mod quitters;
mod rounds;
mod turns;

use std::process::exit;
use std::time::{Duration, Instant};

use clap::Parser;
use defects::seeded;
use fastrand::Rng;
use threads::{MIXES, timed};

/// Stresses latchwork's semaphore with real threads
#[derive(Debug, Parser)]
struct CommandLine {
    /// For how long
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Repeats the scripts of an earlier run, though not its timing
    #[arg(long)]
    seed: Option<u64>,
    /// Only those parts whose name contains this
    #[arg(default_value = "")]
    filter: String,
}

/// More than there are cores, so that threads are suspended anywhere.
const CROWD: usize = 8;

/// Does a batch of something, and says of how many.
type Batch = Box<dyn Fn(&mut Rng) -> Result<u64, String>>;

struct Part {
    name: String,
    batch: Batch,
    /// Its own, so that what it draws does not depend on how fast the others are.
    rng: Rng,
    done: u64,
    took: Duration,
}

fn main() {
    seeded::from_environment();
    let command_line = CommandLine::parse();
    let seed = command_line.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let mut parts: Vec<_> =
        parts(seed).into_iter().filter(|part| part.name.contains(&command_line.filter)).collect();
    assert!(!parts.is_empty(), "there is no part {}", command_line.filter);

    let start = Instant::now();
    let whole = Duration::from_secs_f64(command_line.seconds);
    // Once each before the first look at the heap, so that what is made only once is not taken for a leak.
    for part in &mut parts {
        part.one_batch(start);
    }
    let before = heap::settled();
    while start.elapsed() < whole {
        // The same time to each, and not the same number: a crowd's rounds take a hundred times as long as a
        // pair's.
        let next = parts.iter_mut().min_by_key(|part| part.took).expect("there are parts");
        next.one_batch(start);
    }
    for part in &parts {
        println!("{}: {} in {:.1} s", part.name, part.done, part.took.as_secs_f64());
    }
    let grown = heap::settled() - before;
    println!("the heap has grown by {grown} bytes");
    if grown > heap::SLACK {
        fail(&format!("the heap has grown by {grown} bytes: something is never freed"), start);
    }
}

impl Part {
    fn one_batch(&mut self, start: Instant) {
        let began = Instant::now();
        match (self.batch)(&mut self.rng) {
            Ok(done) => self.done += done,
            Err(wrong) => fail(&format!("{}, after {}: {wrong}", self.name, self.done), start),
        }
        self.took += began.elapsed();
    }
}

fn parts(seed: u64) -> Vec<Part> {
    let part = |name: &str, threads, batch| Part {
        name: format!("{name} × {threads}"),
        batch,
        rng: Rng::with_seed(seed),
        done: 0,
        took: Duration::ZERO,
    };
    let mut parts = Vec::new();
    for crowded in [false, true] {
        for mix in MIXES {
            let threads = if crowded { CROWD } else { mix.threads };
            let batch: Batch = Box::new(move |rng| rounds::batch(mix, threads, rng));
            parts.push(part(mix.name, threads, batch));
        }
        let threads = if crowded { CROWD } else { 2 };
        parts.push(part("turns", threads, Box::new(move |_| turns::batch(threads))));
        parts.push(part("quitters", threads, Box::new(move |_| quitters::batch(threads))));
    }
    parts.push(part("histories", timed::THREADS, Box::new(|rng| timed::batch(256, rng))));
    parts
}

fn fail(wrong: &str, start: Instant) -> ! {
    eprintln!("FOUND after {:.2} s: {wrong}", start.elapsed().as_secs_f64());
    exit(1);
}
