//! Growth of the costs with the work: waiters, threads, names, clients, readers; and memory beside each.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use benches::lock::clients::{Client, LatchworkRead, LatchworkWrite};
use benches::lock::semaphores::{Polled, Semaphore, Tokens};
use benches::lock::server::{Server, Spent};
use benches::peers::{Peer, Queueing};
use benches::queue::Queue;
use benches::record::{Curve, Line, Record, Value};
use benches::wakers::Counting;
use benches::{each_client_beside, each_peer};
use clap::Parser;
use latchwork::{LockClient, NamedSemaphore};
use lockable::LockPool;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, yield_now};

/// Measures how latchwork's costs grow with the work, beside its peers
#[derive(Debug, Parser)]
struct CommandLine {
    /// Only curves with this in their name
    #[arg(long, default_value = "")]
    only: String,
    /// Measurements of each point; the figure is their median
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Omits points with more work than this
    #[arg(long, default_value_t = 100_000)]
    most: usize,
    /// Milliseconds of each measurement over Redis
    #[arg(long, default_value_t = 1000)]
    millis: u64,
    /// Also writes a record for `report` into this directory
    #[arg(long, value_name = "DIRECTORY")]
    json: Option<PathBuf>,
}

/// The system's allocator, with a count of the allocated bytes.
struct Counted;

static BYTES: AtomicI64 = AtomicI64::new(0);

#[global_allocator]
static ALLOCATOR: Counted = Counted;

// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Ordering: Relaxed, a count.
        BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // Ordering: Relaxed, a count.
        BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn bytes() -> i64 {
    // Ordering: Relaxed, a count.
    BYTES.load(Ordering::Relaxed)
}

/// A measurement of a row with some amount of work: a figure for each curve.
type Point<const N: usize> = (&'static str, [f64; N]);

fn curves<const N: usize>(
    options: &CommandLine,
    named: [(&str, &str); N],
    x: &str,
    work: &[usize],
    mut measure: impl FnMut(usize) -> Vec<Point<N>>,
) -> Vec<Curve> {
    if !named.iter().any(|(name, _)| name.contains(&options.only)) {
        return Vec::new();
    }
    let empty = |(name, unit): (&str, &str)| Curve {
        name: name.to_owned(),
        unit: unit.to_owned(),
        x: x.to_owned(),
        lines: Vec::new(),
    };
    let mut curves = named.map(empty);
    for work in work.iter().filter(|work| **work <= options.most) {
        eprintln!("{}, {work} {x} ...", named[0].0);
        let runs: Vec<_> = (0..options.repeat).map(|_| measure(*work)).collect();
        for (at, (row, _)) in runs[0].iter().enumerate() {
            for (figure, curve) in curves.iter_mut().enumerate() {
                let all = runs.iter().map(|run| run[at].1[figure]).collect();
                let point = (*work as f64, Value::of(row, all));
                match curve.lines.iter_mut().find(|line| line.row == *row) {
                    Some(line) => line.points.push(point),
                    None => curve.lines.push(Line { row: (*row).to_owned(), points: vec![point] }),
                }
            }
        }
    }
    curves.into()
}

const TENS: [usize; 6] = [1, 10, 100, 1000, 10_000, 100_000];

fn main() {
    let options = CommandLine::parse();
    let begun = Instant::now();
    let mut record = Record::new("scale");
    let all = [
        curves(
            &options,
            [
                ("semaphore: a hand-off in front of that many", "ns"),
                ("semaphore: a cancelled wait behind that many", "ns"),
                ("semaphore: heap of a waiter, its future included", "bytes"),
            ],
            "waiters",
            &TENS,
            |waiters| each_peer!(depth_on_new_thread(waiters)).into(),
        ),
        curves(
            &options,
            [("semaphore: 64 tasks on 8 permits, an acquisition", "ns")],
            "threads of the runtime (above the number of cores they take turns)",
            &[1, 2, 4, 8, 16],
            |threads| {
                let runtime = Builder::new_multi_thread().worker_threads(threads).build().expect("a runtime");
                each_peer!(threads_take_turns(&runtime)).into()
            },
        ),
        curves(
            &options,
            [("lock in memory: a hand-off, with that many", "ns"), ("heap of a waiting task", "bytes")],
            "waiting tasks of one name",
            &TENS,
            |tasks| {
                let runtime = Builder::new_current_thread().build().expect("a runtime");
                local_waiters(&runtime, tasks)
            },
        ),
        curves(
            &options,
            [("lock in memory: lock + unlock beside that many", "ns"), ("heap of a held name", "bytes")],
            "other names held",
            &TENS,
            |names| {
                let runtime = Builder::new_current_thread().build().expect("a runtime");
                local_names(&runtime, names)
            },
        ),
        over_redis(&options),
    ];
    record.curves = all.into_iter().flatten().collect();
    for curve in &record.curves {
        println!("\n{}, {}, by {}", curve.name, curve.unit, curve.x);
        for line in &curve.lines {
            let points: Vec<_> = line.points.iter().map(|(x, y)| format!("{x}: {:.1}", y.mid)).collect();
            println!("  {:12} {}", line.row, points.join("  "));
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    record.notes.push(format!("Medians of {} runs of each point; {seconds:.0} s in all.", options.repeat));
    if let Some(directory) = &options.json {
        record.write(directory);
    }
}

/// Long enough that the clock's resolution does not matter.
const ROUNDS: u64 = 2000;

/// Measures on a new thread, which has no memory of earlier waiters to reuse.
fn depth_on_new_thread<P: Queueing>(waiters: usize) -> Point<3> {
    std::thread::spawn(move || depth::<P>(waiters)).join().expect("nothing panics here")
}

fn depth<P: Queueing>(waiters: usize) -> Point<3> {
    let (semaphore, waker) = (P::new(1), Counting::new());
    let before = bytes();
    let mut queue = Queue::<P, _, _>::new(&semaphore, || semaphore.acquire(), &waker, waiters);
    // A place for each waiter, and one for the next waiter.
    let heap = (bytes() - before) as f64 / (waiters + 1) as f64;
    queue.hand_over(ROUNDS);
    let hand_over = queue.hand_over(ROUNDS).as_nanos() as f64 / ROUNDS as f64;
    let cancel = queue.cancel(ROUNDS).as_nanos() as f64 / ROUNDS as f64;
    queue.leave();
    (P::NAME, [hand_over, cancel, heap])
}

fn threads_take_turns<P: Peer>(runtime: &Runtime) -> Point<1> {
    const TASKS: u64 = 64;
    const TURNS: u64 = 200;
    let semaphore = Arc::new(P::new(8));
    let took = runtime.block_on(async {
        let mut tasks = JoinSet::new();
        let begun = Instant::now();
        for _ in 0..TASKS {
            let semaphore = Arc::clone(&semaphore);
            tasks.spawn(async move {
                for _ in 0..TURNS {
                    let permit = P::permit(semaphore.acquire().await);
                    yield_now().await;
                    drop(permit);
                }
            });
        }
        tasks.join_all().await;
        begun.elapsed()
    });
    (P::NAME, [took.as_nanos() as f64 / (TASKS * TURNS) as f64])
}

const NAME: &str = "orders:42";

/// A peer's lock of a name in memory.
trait InMemory: Clone + Send + Sync + 'static {
    const NAME: &'static str;
    type Guard: Send;
    fn new() -> Self;
    fn lock(&self, name: &str) -> impl Future<Output = Self::Guard> + Send;
}

#[derive(Clone)]
struct Ours(LockClient);

impl InMemory for Ours {
    const NAME: &'static str = "latchwork";
    type Guard = latchwork::Guard;

    fn new() -> Self {
        Self(LockClient::local())
    }

    async fn lock(&self, name: &str) -> Self::Guard {
        self.0.get_lock(name).expect("a name").lock().await.expect("in memory nothing fails")
    }
}

/// Lives as long as the program, because guards borrow it.
#[derive(Clone)]
struct Lockable(&'static LockPool<String>);

impl InMemory for Lockable {
    const NAME: &'static str = "lockable";
    type Guard = <LockPool<String> as lockable::Lockable<String, ()>>::Guard<'static>;

    fn new() -> Self {
        Self(Box::leak(Box::new(LockPool::new())))
    }

    async fn lock(&self, name: &str) -> Self::Guard {
        self.0.async_lock(name.to_owned()).await
    }
}

fn local_waiters(runtime: &Runtime, tasks: usize) -> Vec<Point<2>> {
    fn of<L: InMemory>(runtime: &Runtime, tasks: usize) -> Point<2> {
        runtime.block_on(async {
            let peer = L::new();
            let holder = peer.lock(NAME).await;
            let (mut waiting, before) = (JoinSet::new(), bytes());
            for _ in 0..tasks {
                let peer = peer.clone();
                waiting.spawn(async move { drop(peer.lock(NAME).await) });
            }
            // The runtime has a single thread, which polls all tasks before this one again.
            yield_now().await;
            yield_now().await;
            let heap = (bytes() - before) as f64 / tasks as f64;
            let begun = Instant::now();
            drop(holder);
            waiting.join_all().await;
            (L::NAME, [begun.elapsed().as_nanos() as f64 / tasks as f64, heap])
        })
    }
    vec![of::<Ours>(runtime, tasks), of::<Lockable>(runtime, tasks)]
}

fn local_names(runtime: &Runtime, names: usize) -> Vec<Point<2>> {
    fn of<L: InMemory>(runtime: &Runtime, names: usize) -> Point<2> {
        runtime.block_on(async {
            let (peer, before) = (L::new(), bytes());
            let mut held = Vec::with_capacity(names);
            for name in 0..names {
                held.push(peer.lock(&format!("held:{name}")).await);
            }
            let heap = (bytes() - before) as f64 / names as f64;
            let begun = Instant::now();
            for _ in 0..ROUNDS {
                drop(peer.lock(NAME).await);
            }
            (L::NAME, [begun.elapsed().as_nanos() as f64 / ROUNDS as f64, heap])
        })
    }
    vec![of::<Ours>(runtime, names), of::<Lockable>(runtime, names)]
}

// === Over Redis ===

fn over_redis(options: &CommandLine) -> Vec<Curve> {
    let mut server = Server::start();
    let time = Duration::from_millis(options.millis);
    let mut all = curves(
        options,
        [
            ("lock over Redis: a turn, when all want it always", "µs"),
            ("longest wait for one turn", "ms"),
            ("scripts (EVALSHA) for a turn", "scripts"),
            ("CPU time of the server for a turn", "µs"),
            ("Jain's index of the clients' turns: 1 if all have equally many", "index"),
            ("memory of the server per client", "bytes"),
        ],
        "clients, each with its connections (of the fair lock: the queue's length at the store)",
        &[1, 2, 8, 32, 128, 500],
        |clients| each_client_beside!(LatchworkFair, crowd(&mut server, clients, time)).into(),
    );
    all.extend(curves(
        options,
        [("read lock over Redis: from the writer's unlock to the last reader", "ms")],
        "readers, in 8 clients at most",
        &[1, 8, 64, 512],
        |readers| vec![("latchwork", [woken_readers(&server, readers)])],
    ));
    all.extend(curves(
        options,
        [
            ("semaphore over Redis: holds", "holds a second"),
            ("commands of a hold", "commands"),
            ("99th percentile of the waits", "ms"),
            ("longest wait for a permit", "ms"),
            ("CPU time of the server for a hold", "µs"),
        ],
        "tasks of 4 clients, for 10 permits that each holds for 2 ms",
        &[10, 100, 1000],
        |tasks| {
            vec![
                permits::<NamedSemaphore>(&mut server, tasks, time),
                permits::<Tokens>(&mut server, tasks, time),
                permits::<Polled>(&mut server, tasks, time),
            ]
        },
    ));
    all
}

/// Holds of a semaphore's permits, by tasks that come again at once.
fn permits<S: Semaphore>(server: &mut Server, tasks: usize, time: Duration) -> Point<5> {
    const CLIENTS: usize = 4;
    const HOLDS: Duration = Duration::from_millis(2);
    let (runtime, url) = (benches::lock::runtime(), server.url());
    let commands = |server: &mut Server| {
        let calls = server.calls();
        S::COMMANDS.iter().filter_map(|name| calls.get(*name)).sum::<u64>()
    };
    let (before, spent) = (commands(server), server.spent());
    let (took, mut waits) = runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(Arc::new(S::connect(&url, "permits", 10).await));
        }
        let begun = Instant::now();
        let mut holders = JoinSet::new();
        for task in 0..tasks {
            let client = Arc::clone(&clients[task % CLIENTS]);
            holders.spawn(async move {
                let mut waits = Vec::new();
                while begun.elapsed() < time {
                    let asked = Instant::now();
                    let permit = client.acquire().await;
                    waits.push(asked.elapsed().as_secs_f64() * 1e3);
                    tokio::time::sleep(HOLDS).await;
                    client.release(permit).await;
                }
                waits
            });
        }
        let waits = holders.join_all().await.concat();
        (begun.elapsed(), waits)
    });
    drop(runtime);
    let (after, used) = (commands(server), server.spent() - spent);
    let _: String = server.control(&["FLUSHALL"]);
    waits.sort_by(f64::total_cmp);
    let holds = waits.len() as f64;
    let [p99, longest] = [waits.len() * 99 / 100, waits.len() - 1].map(|at| waits[at]);
    let figures = [
        holds / took.as_secs_f64(),
        (after - before) as f64 / holds,
        p99,
        longest,
        used.cpu.as_secs_f64() * 1e6 / holds,
    ];
    (S::NAME, figures)
}

fn memory(server: &mut Server) -> f64 {
    let info: String = server.control(&["INFO", "memory"]);
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok());
    used.unwrap_or(0.0)
}

/// Many clients in this process, which the server cannot tell from many processes.
fn crowd<C: Client>(server: &mut Server, clients: usize, time: Duration) -> Point<6> {
    let runtime = benches::lock::runtime();
    let before = memory(server);
    let url = server.url();
    let mut spent = Spent::default();
    let (all, took, after) = runtime.block_on(async {
        let mut connected = Vec::new();
        for _ in 0..clients {
            connected.push(C::connect(&url, "scale").await);
        }
        spent = server.spent();
        let begun = Instant::now();
        let end = begun + time;
        let mut tasks = JoinSet::new();
        for client in connected {
            tasks.spawn(async move {
                let (mut turns, mut longest) = (0_u64, Duration::ZERO);
                while Instant::now() < end {
                    let begun = Instant::now();
                    let guard = client.lock().await;
                    longest = longest.max(begun.elapsed());
                    turns += 1;
                    client.unlock(guard).await;
                }
                (turns, longest, client)
            });
        }
        // All tasks wait by then, with open connections.
        tokio::time::sleep(time / 2).await;
        let after = memory(server);
        let all = tasks.join_all().await;
        // Tasks that wait when the time is over still get their turn.
        let took = begun.elapsed();
        spent = server.spent() - spent;
        let all: Vec<_> = all.into_iter().map(|(turns, longest, _)| (turns as f64, longest)).collect();
        (all, took, after)
    });
    drop(runtime);
    server.assert_empty(C::NAME);
    let turns = all.iter().map(|(turns, _)| turns).sum::<f64>().max(1.0);
    let squares = all.iter().map(|(turns, _)| turns * turns).sum::<f64>().max(1.0);
    let longest = all.iter().map(|(_, longest)| *longest).max().unwrap_or_default();
    let figures = [
        took.as_secs_f64() * 1e6 / turns,
        longest.as_secs_f64() * 1e3,
        spent.calls as f64 / turns,
        spent.cpu.as_secs_f64() * 1e6 / turns,
        turns * turns / (clients as f64 * squares),
        (after - before).max(0.0) / clients as f64,
    ];
    (C::NAME, figures)
}

fn woken_readers(server: &Server, readers: usize) -> f64 {
    let (runtime, url) = (benches::lock::runtime(), server.url());
    runtime.block_on(async {
        let writer = LatchworkWrite::connect(&url, "readers").await;
        let written = writer.lock().await;
        let clients = readers.min(8);
        let mut tasks = JoinSet::new();
        for client in 0..clients {
            let reader = Arc::new(LatchworkRead::connect(&url, "readers").await);
            for _ in (client..readers).step_by(clients) {
                let reader = Arc::clone(&reader);
                tasks.spawn(async move {
                    let guard = reader.lock().await;
                    let at = Instant::now();
                    reader.unlock(guard).await;
                    at
                });
            }
        }
        // Until each client's first reader has been refused, which takes a round trip or two.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let begun = Instant::now();
        writer.unlock(written).await;
        let last = tasks.join_all().await.into_iter().max().unwrap_or(begun);
        last.saturating_duration_since(begun).as_secs_f64() * 1e3
    })
}
