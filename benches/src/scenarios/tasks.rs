//! Tasks on a runtime: the cost of an acquisition in a semaphore's usual place.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

use crate::cores;
use crate::each_peer;
use crate::event::{Event, Row};
use crate::peers::Peer;

const WORKERS: usize = 2;
/// Turns of each task in a round: enough that the cost of spawning does not matter.
const TURNS: u32 = 20;

/// Tasks on two pinned threads acquire a permit, yield while holding it and drop it. Per acquisition.
pub fn tasks() -> Vec<Event> {
    let runtime = Arc::new(runtime());
    [("tasks/64_on_1", 64, 1), ("tasks/64_on_8", 64, 8), ("tasks/1000_on_10", 1000, 10)]
        .into_iter()
        .map(|(name, tasks, permits)| Event {
            name,
            per_round: tasks * TURNS,
            rows: Vec::from(each_peer!(row(&runtime, tasks, permits))),
        })
        .collect()
}

fn runtime() -> Runtime {
    let started = AtomicUsize::new(0);
    Builder::new_multi_thread()
        .worker_threads(WORKERS)
        // Ordering: Relaxed, only the uniqueness of the number matters.
        .on_thread_start(move || cores::pin(started.fetch_add(1, Ordering::Relaxed) % WORKERS))
        .build()
        .expect("a runtime can be made")
}

fn row<P: Peer>(runtime: &Arc<Runtime>, tasks: u32, permits: usize) -> Row {
    let runtime = Arc::clone(runtime);
    Row::new::<P>(move |rounds| {
        let semaphore = Arc::new(P::new(permits));
        let took = runtime.block_on(all_take_turns(&semaphore, tasks, rounds * u64::from(TURNS)));
        assert_eq!(semaphore.available(), permits);
        took
    })
}

async fn all_take_turns<P: Peer>(semaphore: &Arc<P>, tasks: u32, turns: u64) -> Duration {
    let start = Instant::now();
    let tasks: Vec<_> = (0..tasks).map(|_| tokio::spawn(take_turns(Arc::clone(semaphore), turns))).collect();
    for task in tasks {
        task.await.expect("no task panics");
    }
    start.elapsed()
}

async fn take_turns<P: Peer>(semaphore: Arc<P>, turns: u64) {
    for _ in 0..turns {
        let permit = P::permit(semaphore.acquire().await);
        yield_now().await;
        drop(permit);
    }
}
