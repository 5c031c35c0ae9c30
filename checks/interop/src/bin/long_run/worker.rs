//! One of the processes that compete: its tasks, its journal, and its end.

use std::io::{self, BufRead};
use std::path::PathBuf;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use defects::twin::{OfThread, Twin, Twinned};
use latchwork::redis::Redis;
use latchwork::{LockClient, LockOptions};
use latchwork_conformance::Intercept;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::clock::{nanos, now};
use crate::history::{Event, Journal};
use crate::names::{ALL_CROWDED, LEASE, LockKind, NAMES};
use crate::task::{Place, Shared};

/// As short as the lease is, beside what users have.
const UNPOLLED_LIMIT: Duration = Duration::from_millis(150);
const TASKS: usize = 28;
/// How many more crowd before each of the crowded locks.
const CROWD: usize = 4;
/// How many of them have a lock of their own.
const REGULARS: usize = 4;
/// For a reply.
const PATIENCE: Duration = Duration::from_secs(1);
/// What the tasks may take to end when nothing is wrong any more; a wait for a dead process's lease, and all
/// queued behind it.
const TO_END: Duration = Duration::from_secs(30);
/// How often it looks whether it stands still, and what counts as that.
const PULSE: Duration = Duration::from_millis(50);
const STALL: Duration = Duration::from_millis(150);

/// The word that tells a worker to come to an end, and its answer.
pub(crate) const END: &str = "end";
pub(crate) const QUIET: &str = "quiet";

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Orders {
    #[arg(long)]
    pub(crate) worker: usize,
    #[arg(long)]
    pub(crate) url: String,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) journal: PathBuf,
    #[arg(long)]
    pub(crate) twin: Option<Twin>,
}

pub(crate) fn run(orders: &Orders) {
    die_with_parent();
    let end = Arc::new(Notify::new());
    obey(Arc::clone(&end));
    let journal = Arc::new(Journal::create(&orders.journal).expect("cannot make a journal"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("cannot start a runtime").block_on(work(orders, &journal, &end));
}

/// However it dies, and also while we are stopped.
fn die_with_parent() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        set_parent_process_death_signal(Some(Signal::KILL))
            .expect("cannot ask for the parent's death signal");
    }
}

/// Reads what the parent says. When it says nothing more, it is gone or has heard all that it wanted.
fn obey(end: Arc<Notify>) {
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            if line.is_ok_and(|line| line == END) {
                end.notify_one();
            }
        }
        exit(0);
    });
}

async fn work(orders: &Orders, journal: &Arc<Journal>, end: &Notify) {
    let redis = connect(&orders.url).await;
    let options = LockOptions::default().watchdog_timeout(LEASE).unpolled_limit(UNPOLLED_LIMIT);
    let options = Twin::options(orders.twin, options);
    let backend = Intercept::new(redis, Twinned::new(orders.twin, OfThread));
    let client = LockClient::with_options(backend, &options).expect("it can be a lease");
    let ending = Arc::new(AtomicBool::new(false));
    tokio::spawn(feel_the_pulse(Arc::clone(journal)));
    let mut tasks = JoinSet::new();
    let mut rng = fastrand::Rng::with_seed(orders.seed);
    let shared = Arc::new(Shared::new(client.clone(), Arc::clone(journal), Arc::clone(&ending)));
    let places: Vec<Arc<Place>> = (0..TASKS + ALL_CROWDED.len() * CROWD).map(|_| Arc::default()).collect();
    for (task, place) in places.iter().enumerate() {
        if task >= TASKS {
            let (number, name) = ((task - TASKS) / ALL_CROWDED.len(), ALL_CROWDED[task % ALL_CROWDED.len()]);
            // One of each process wants to write where the others read. A process that takes both by turns
            // would leave no reader before long.
            let reads = LockKind::of(name) == LockKind::ReadWrite && number > 0;
            tasks.spawn(Arc::clone(&shared).crowd(name, reads, Arc::clone(place), rng.fork()));
            continue;
        }
        let own = (task < REGULARS).then(|| NAMES + (orders.worker * REGULARS + task) as u32);
        tasks.spawn(Arc::clone(&shared).play(own, Arc::clone(place), rng.fork()));
    }
    end.notified().await;
    // Ordering: Relaxed; nothing else is told by it.
    ending.store(true, Ordering::Relaxed);
    let all = async { while tasks.join_next().await.is_some() {} };
    if timeout(TO_END, all).await.is_err() {
        for place in places.iter().filter(|place| place.is_taken()) {
            journal.tell(Event::Stuck { what: place.to_string() });
        }
        journal.tell(Event::Stuck { what: format!("{client:?}") });
    }
    // Drops and abandoned acquisitions are still on their way.
    let since = Instant::now();
    loop {
        let stats = client.registry().stats();
        let subscriptions =
            stats.subscriptions_begun - stats.subscriptions_ended - stats.subscriptions_failed;
        if (stats.entries, stats.interest, subscriptions) == (0, 0, 0) || since.elapsed() > PATIENCE * 5 {
            journal.tell(Event::Quiet { entries: stats.entries, interest: stats.interest, subscriptions });
            break;
        }
        sleep(Duration::from_millis(10)).await;
    }
    println!("{QUIET}");
    // The client lives until the stage has looked at the server.
    std::future::pending::<()>().await;
}

/// Starts anew until it is there: the one before was killed in the middle of other faults.
async fn connect(url: &str) -> Redis {
    loop {
        match Redis::builder().response_timeout(PATIENCE).connect(url).await {
            Ok(redis) => return redis,
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Notes when the runtime does not run, be it that the machine is busy or that this process was stopped.
async fn feel_the_pulse(journal: Arc<Journal>) {
    loop {
        let before = now();
        sleep(PULSE).await;
        if now() - before > nanos(PULSE + STALL) {
            journal.tell(Event::Stalled { since: before });
        }
    }
}
