//! The slowest release in ten thousand. A percentile, not a mean, so not for criterion.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use benches::each_peer;
use benches::peers::{Peer, Tokio};
use benches::wakers::{block_on, unparker};
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use hdrhistogram::Histogram;

/// The tail of a release: the time to drop a permit, beside waiting threads
#[derive(Debug, Parser)]
struct CommandLine {
    /// Threads that acquire and release permits, more than there are cores
    #[arg(long, default_value_t = 8)]
    threads: usize,
    /// Shared permits
    #[arg(long, default_value_t = 1)]
    permits: usize,
    /// Rounds; the peers take turns
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Milliseconds of each peer in a round
    #[arg(long, default_value_t = 300)]
    millis: u64,
    /// Passed by cargo bench; changes nothing
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let options = CommandLine::parse();
    let mut rows = each_peer!(row());
    for _ in 0..options.rounds {
        for row in &mut rows {
            let round = (row.round)(&options);
            row.nanos.add(round).expect("all histograms have the same range");
        }
    }
    print(&rows);
}

struct Row {
    peer: &'static str,
    round: fn(&CommandLine) -> Histogram<u64>,
    nanos: Histogram<u64>,
}

fn row<P: Peer>() -> Row {
    Row { peer: P::NAME, round: round::<P>, nanos: histogram() }
}

/// Nanoseconds up to ten seconds, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("sensible bounds")
}

fn round<P: Peer>(options: &CommandLine) -> Histogram<u64> {
    let semaphore = P::new(options.permits);
    let start = Barrier::new(options.threads + 1);
    let stop = AtomicBool::new(false);
    let mut nanos = histogram();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    releases(&semaphore, &stop)
                })
            })
            .collect();
        start.wait();
        thread::sleep(Duration::from_millis(options.millis));
        // Ordering: Relaxed, a hint to stop; the joins below order all else.
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            nanos.add(thread.join().expect("no thread panics")).expect("the same range");
        }
    });
    assert_eq!(semaphore.available(), options.permits);
    nanos
}

fn releases<P: Peer>(semaphore: &P, stop: &AtomicBool) -> Histogram<u64> {
    let mut nanos = histogram();
    let unparker = unparker();
    // Ordering: Relaxed, as above.
    while !stop.load(Ordering::Relaxed) {
        let permit = P::permit(block_on(semaphore.acquire(), &unparker));
        let start = Instant::now();
        drop(permit);
        let took = start.elapsed();
        nanos.saturating_record((took.as_nanos() as u64).max(1));
    }
    nanos
}

fn print(rows: &[Row]) {
    let tail = |row: &Row| row.nanos.value_at_quantile(0.9999);
    let tokio = rows.iter().find(|row| row.peer == Tokio::NAME).map(tail).expect("tokio is a peer");
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header([
        "peer",
        "releases",
        "p50 ns",
        "p99 ns",
        "p99.9 ns",
        "p99.99 ns",
        "max ns",
        "p99.99 / tokio",
    ]);
    for row in rows {
        let at = |quantile| row.nanos.value_at_quantile(quantile).to_string();
        table.add_row([
            row.peer.to_owned(),
            row.nanos.len().to_string(),
            at(0.5),
            at(0.99),
            at(0.999),
            at(0.9999),
            row.nanos.max().to_string(),
            format!("{:.2}", tail(row) as f64 / tokio as f64),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
}
