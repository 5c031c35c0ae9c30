//! The cost of the lock in memory, beside tokio's mutex and `lockable`: all rows in one run, in turns.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use benches::record::{Figure, Record, Value};
use clap::Parser;
use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use latchwork::LockClient;
use lockable::LockPool;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;
use tokio::task::{JoinSet, yield_now};

/// Measures latchwork's lock in memory beside its peers
#[derive(Debug, Parser)]
struct CommandLine {
    /// Slices of each row
    #[arg(long, default_value_t = 300)]
    slices: usize,
    /// Only scenarios with this in their name
    #[arg(long, default_value = "")]
    scenario: String,
    /// Only peers whose name begins with this; ratios are then relative to the first of them
    #[arg(long, default_value = "")]
    peer: String,
    /// Also writes a record for `report` into this directory
    #[arg(long, value_name = "DIRECTORY")]
    json: Option<PathBuf>,
}

/// Length of a slice: short compared with the gaps between disturbances.
const SLICE: Duration = Duration::from_millis(2);
const NAME: &str = "orders:42";

/// A lock to acquire and release, over and over.
trait Peer: Clone + Send + Sync + 'static {
    fn turn(&self, yields: bool) -> impl Future<Output = ()> + Send;
}

#[derive(Clone)]
struct Ours(latchwork::Lock);

impl Peer for Ours {
    async fn turn(&self, yields: bool) {
        let guard = self.0.lock().await.expect("in memory nothing fails");
        if yields {
            yield_now().await;
        }
        guard.unlock().await.expect("it was held");
    }
}

/// Releases by dropping the guard.
#[derive(Clone)]
struct OursDropped(latchwork::Lock);

impl Peer for OursDropped {
    async fn turn(&self, yields: bool) {
        let _guard = self.0.lock().await.expect("in memory nothing fails");
        if yields {
            yield_now().await;
        }
    }
}

#[derive(Clone)]
struct OursByName(LockClient);

impl Peer for OursByName {
    async fn turn(&self, yields: bool) {
        let lock = self.0.get_lock(black_box(NAME)).expect("a name");
        Ours(lock).turn(yields).await;
    }
}

#[derive(Clone)]
struct Tokio(Arc<Mutex<()>>);

impl Peer for Tokio {
    async fn turn(&self, yields: bool) {
        let _guard = self.0.lock().await;
        if yields {
            yield_now().await;
        }
    }
}

#[derive(Clone)]
struct ByKey(Arc<LockPool<String>>);

impl Peer for ByKey {
    async fn turn(&self, yields: bool) {
        let _guard = self.0.async_lock(black_box(NAME).to_owned()).await;
        if yields {
            yield_now().await;
        }
    }
}

type Run = Box<dyn Fn(&Runtime, usize, usize) -> Duration>;

struct Row {
    name: &'static str,
    run: Run,
    nanos: Vec<f64>,
}

fn row<P: Peer>(name: &'static str, peer: P) -> Row {
    let run = move |runtime: &Runtime, tasks: usize, turns: usize| {
        let peer = peer.clone();
        runtime.block_on(async move {
            let mut running = JoinSet::new();
            let begun = Instant::now();
            for _ in 0..tasks {
                let peer = peer.clone();
                running.spawn(async move {
                    for _ in 0..turns / tasks {
                        peer.turn(tasks > 1).await;
                    }
                });
            }
            running.join_all().await;
            begun.elapsed()
        })
    };
    Row { name, run: Box::new(run), nanos: Vec::new() }
}

fn rows() -> Vec<Row> {
    let client = LockClient::local();
    let lock = || client.get_lock(NAME).expect("a name");
    vec![
        row("tokio Mutex", Tokio(Arc::default())),
        row("lockable", ByKey(Arc::new(LockPool::new()))),
        row("latchwork", Ours(lock())),
        row("latchwork, dropped", OursDropped(lock())),
        row("latchwork, get_lock", OursByName(client.clone())),
    ]
}

fn main() {
    let options = CommandLine::parse();
    let one = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let two = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let scenarios = [
        ("no other task", &one, 1),
        ("2 tasks, 1 thread", &one, 2),
        ("64 tasks, 1 thread", &one, 64),
        ("2 tasks, 2 threads", &two, 2),
        ("64 tasks, 2 threads", &two, 64),
    ];
    let mut record = options.json.is_some().then(|| Record::new("local"));
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header(["ns per lock + unlock", "peer", "median", "best tenth", "of lockable", "of tokio"]);
    for (scenario, runtime, tasks) in scenarios {
        if !scenario.contains(&options.scenario) {
            continue;
        }
        let mut rows = rows();
        rows.retain(|row| row.name.starts_with(&options.peer));
        let turns: Vec<usize> = rows
            .iter()
            .map(|row| {
                const WARM_UP: usize = 6400;
                (row.run)(runtime, tasks, WARM_UP);
                let took = (row.run)(runtime, tasks, WARM_UP).as_secs_f64();
                ((WARM_UP as f64 * SLICE.as_secs_f64() / took) as usize).next_multiple_of(64)
            })
            .collect();
        for slice in 0..options.slices {
            let order: Vec<usize> =
                if slice % 2 == 0 { (0..rows.len()).collect() } else { (0..rows.len()).rev().collect() };
            for at in order {
                let took = (rows[at].run)(runtime, tasks, turns[at]);
                rows[at].nanos.push(took.as_nanos() as f64 / turns[at] as f64);
            }
        }
        rows.iter_mut().for_each(|row| row.nanos.sort_by(f64::total_cmp));
        let at = |row: &Row, part: f64| row.nanos[((row.nanos.len() - 1) as f64 * part) as usize];
        // Disturbances only lengthen slices: on a busy machine the best slices' ratios say more than medians.
        let best: Vec<f64> = rows.iter().map(|row| at(row, 0.1)).collect();
        if let Some(record) = &mut record {
            record.figures.push(Figure {
                name: format!("lock + unlock, {scenario}"),
                unit: "ns".to_owned(),
                digits: 0,
                more_is_better: false,
                values: rows.iter().map(|row| Value::of(row.name, row.nanos.clone())).collect(),
            });
        }
        for (row, nanos) in rows.iter().zip(&best) {
            let ratio = |to: f64| format!("{:.2}", nanos / to);
            table.add_row([
                scenario,
                row.name,
                &format!("{:.0}", at(row, 0.5)),
                &format!("{nanos:.0}"),
                &ratio(best[1 % best.len()]),
                &ratio(best[0]),
            ]);
        }
    }
    println!("{table}");
    if let (Some(record), Some(directory)) = (&record, &options.json) {
        record.write(directory);
    }
}
