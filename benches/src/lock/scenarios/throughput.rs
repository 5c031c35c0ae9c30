//! Tasks of a process, each with a lock of its own, acquire and release over one shared connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet::clock;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::super::clients::{Bare, Client, Latchwork, Many, Raw};
use super::super::figure::{Figure, Goal, Measurement};
use super::super::runtime;
use super::super::server::{Server, Spent};
use super::there_and_back;

pub(super) const NAME: &str = "throughput";

/// Slices of each row in a round, and their least length.
const SLICES: usize = 10;
const SLICE: Duration = Duration::from_millis(20);
/// Least number of pairs of each task in a slice, so that all tasks run for most of the slice.
const FEWEST: u64 = 6;

const LINES: [(usize, [&str; 3]); 4] = [
    (1, ["1 task: lock + unlock, us", "1 task: CPU of the client, us", "1 task: CPU of the server, us"]),
    (8, ["8 tasks: lock + unlock, us", "8 tasks: CPU of the client, us", "8 tasks: CPU of the server, us"]),
    (
        64,
        ["64 tasks: lock + unlock, us", "64 tasks: CPU of the client, us", "64 tasks: CPU of the server, us"],
    ),
    (
        512,
        [
            "512 tasks: lock + unlock, us",
            "512 tasks: CPU of the client, us",
            "512 tasks: CPU of the server, us",
        ],
    ),
];

pub(super) fn measure(server: &mut Server, rounds: usize) -> Measurement {
    let mut measurement = Measurement::default();
    for (tasks, [time, client, of_server]) in LINES {
        let mut rows =
            [row::<Latchwork>(server, tasks), row::<Raw>(server, tasks), row::<Bare>(server, tasks)];
        for turn in 0..rounds * SLICES {
            there_and_back(turn, &mut rows, |row| row.take_slice(server));
        }
        let mut push = |what, digits, goal, of: fn(&mut Row) -> f64| {
            let values = rows.iter_mut().map(|row| (row.client, of(row))).collect();
            measurement.figures.push(Figure { scenario: NAME, what, digits, goal, values });
        };
        push(time, 1, Some(Goal::RateOfRaw(0.95)), Row::median);
        push(client, 1, None, |row| row.per_pair(row.client_cpu));
        push(of_server, 1, None, |row| row.per_pair(row.spent.cpu));
        measurement.notes.extend(rows.iter().map(|row| row.note(tasks)));
    }
    server.assert_empty(NAME);
    measurement
}

struct Row {
    client: &'static str,
    /// Runs all tasks, with a number of pairs each.
    slice: Box<dyn Fn(u64) -> Duration>,
    tasks: u64,
    /// Pairs of each task in a slice.
    pairs: u64,
    micros: Vec<f64>,
    client_cpu: Duration,
    spent: Spent,
}

fn row<C: Many>(server: &Server, tasks: usize) -> Row {
    let runtime = runtime();
    let names: Vec<String> = (0..tasks).map(|task| format!("{NAME}:{task}:{}", C::NAME)).collect();
    let clients = runtime.block_on(C::connect_all(&server.url(), &names));
    let clients: Vec<Arc<C>> = clients.into_iter().map(Arc::new).collect();
    let slice = move |pairs| run(&runtime, &clients, pairs);
    let (micros, tasks) = (Vec::new(), tasks as u64);
    let (client_cpu, spent) = (Duration::ZERO, Spent::default());
    let mut row =
        Row { client: C::NAME, slice: Box::new(slice), tasks, pairs: FEWEST, micros, client_cpu, spent };
    // Now the server knows the scripts.
    (row.slice)(FEWEST);
    let took = (row.slice)(FEWEST);
    row.pairs = FEWEST.max((FEWEST as f64 * SLICE.as_secs_f64() / took.as_secs_f64()) as u64);
    row
}

fn run<C: Client>(runtime: &Runtime, clients: &[Arc<C>], pairs: u64) -> Duration {
    runtime.block_on(async {
        let (start, mut running) = (Instant::now(), JoinSet::new());
        for client in clients {
            let client = Arc::clone(client);
            running.spawn(async move {
                for _ in 0..pairs {
                    let guard = client.lock().await;
                    client.unlock(guard).await;
                }
            });
        }
        running.join_all().await;
        start.elapsed()
    })
}

impl Row {
    fn take_slice(&mut self, server: &mut Server) {
        let (server_before, client_before) = (server.spent(), clock::of_process());
        let took = (self.slice)(self.pairs);
        self.client_cpu += clock::of_process() - client_before;
        self.spent += server.spent() - server_before;
        self.micros.push(took.as_secs_f64() * 1e6 / (self.tasks * self.pairs) as f64);
    }

    fn median(&mut self) -> f64 {
        self.micros.sort_by(f64::total_cmp);
        self.micros[(self.micros.len() - 1) / 2]
    }

    fn per_pair(&self, time: Duration) -> f64 {
        let pairs = self.tasks * self.pairs * self.micros.len() as u64;
        time.as_secs_f64() * 1e6 / pairs as f64
    }

    fn note(&self, tasks: usize) -> String {
        let Spent { evalsha, calls, .. } = self.spent;
        let each = evalsha.as_secs_f64() * 1e6 / calls as f64;
        format!("{NAME}, {tasks} tasks: {}'s scripts take {each:.2} us of the server each", self.client)
    }
}
