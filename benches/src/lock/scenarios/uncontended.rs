//! One task acquires and releases a free lock, over and over.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use super::super::clients::{Client, Raw};
use super::super::figure::{Figure, Goal, Measurement};
use super::super::runtime;
use super::super::server::Server;
use super::there_and_back;
use crate::each_client;

pub(super) const NAME: &str = "uncontended";

/// Slices of each row in a round, and their length: shorter than the gaps between disturbances.
const SLICES: usize = 100;
const SLICE: Duration = Duration::from_millis(2);
const WARM_UP: u64 = 100;

pub(super) fn measure(server: &mut Server, rounds: usize) -> Measurement {
    let two = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let goal = Some(Goal::RateOfRaw(0.9));
    let figures = [
        ("lock + unlock, runtime of 1 thread, us", runtime(), goal),
        ("lock + unlock, runtime of 2 threads, us", two, None),
    ]
    .map(|(what, runtime, goal)| {
        let values = times(&runtime, server, rounds * SLICES);
        Figure { scenario: NAME, what, digits: 1, goal, values }
    });
    server.assert_empty(NAME);
    Measurement { figures: figures.into(), notes: Vec::new() }
}

/// The median slice of each row, in microseconds per pair.
fn times(runtime: &Runtime, server: &Server, slices: usize) -> Vec<(&'static str, f64)> {
    let mut rows = Vec::from(each_client!(row(runtime, server)));
    rows.push(row::<Raw>(runtime, server));
    for turn in 0..slices {
        there_and_back(turn, &mut rows, |row| row.take_slice(runtime));
    }
    rows.iter_mut().map(|row| (row.client, median(&mut row.micros))).collect()
}

fn median(taken: &mut [f64]) -> f64 {
    taken.sort_by(f64::total_cmp);
    taken[(taken.len() - 1) / 2]
}

type Slice = Pin<Box<dyn Future<Output = Duration> + Send>>;

struct Row {
    client: &'static str,
    /// Runs a number of pairs.
    slice: Box<dyn Fn(u64) -> Slice>,
    pairs: u64,
    micros: Vec<f64>,
}

fn row<C: Client>(runtime: &Runtime, server: &Server) -> Row {
    let name = format!("{NAME}:{}", C::NAME);
    let client = Arc::new(runtime.block_on(C::connect(&server.url(), &name)));
    let slice = move |pairs| {
        let client = Arc::clone(&client);
        Box::pin(async move {
            let start = Instant::now();
            for _ in 0..pairs {
                let guard = client.lock().await;
                client.unlock(guard).await;
            }
            start.elapsed()
        }) as Slice
    };
    let mut row = Row { client: C::NAME, slice: Box::new(slice), pairs: WARM_UP, micros: Vec::new() };
    row.run(runtime);
    let took = row.run(runtime);
    row.pairs = ((WARM_UP as f64 * SLICE.as_secs_f64() / took.as_secs_f64()) as u64).max(1);
    row
}

impl Row {
    fn run(&self, runtime: &Runtime) -> Duration {
        // As a task, not in `block_on`: most code of users runs in tasks.
        let slice = runtime.spawn((self.slice)(self.pairs));
        runtime.block_on(slice).expect("no task failed")
    }

    fn take_slice(&mut self, runtime: &Runtime) {
        let took = self.run(runtime);
        self.micros.push(took.as_secs_f64() * 1e6 / self.pairs as f64);
    }
}
