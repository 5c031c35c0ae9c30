//! Tasks on a runtime: what does an acquisition cost where a semaphore usually lives?

use std::sync::Arc;
use std::time::{Duration, Instant};

use benches::each_peer;
use benches::peers::Peer;
use criterion::{BenchmarkId, Criterion, SamplingMode};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

const WORKERS: usize = 2;

fn main() {
    let runtime = Builder::new_multi_thread().worker_threads(WORKERS).build().expect("a runtime can be made");
    let mut criterion = benches::criterion::criterion();
    for (tasks, permits) in [(64, 1), (64, 8), (1000, 10)] {
        each_peer!(measure(&mut criterion, &runtime, tasks, permits));
    }
    criterion.final_summary();
}

fn measure<P: Peer>(criterion: &mut Criterion, runtime: &Runtime, tasks: u64, permits: usize) {
    let mut group = criterion.benchmark_group(format!("tasks/{tasks}_on_{permits}"));
    group.sampling_mode(SamplingMode::Flat);
    group.bench_function(BenchmarkId::from_parameter(P::NAME), |bencher| {
        bencher.iter_custom(|acquisitions| run::<P>(runtime, tasks, permits, acquisitions));
    });
    group.finish();
}

/// The tasks share the acquisitions equally; what is too much by rounding up is taken off the time in proportion.
fn run<P: Peer>(runtime: &Runtime, tasks: u64, permits: usize, acquisitions: u64) -> Duration {
    let semaphore = Arc::new(P::new(permits));
    let turns = acquisitions.div_ceil(tasks);
    let took = runtime.block_on(async {
        let start = Instant::now();
        let tasks: Vec<_> =
            (0..tasks).map(|_| tokio::spawn(take_turns(Arc::clone(&semaphore), turns))).collect();
        for task in tasks {
            task.await.expect("no task panics");
        }
        start.elapsed()
    });
    assert_eq!(semaphore.available(), permits);
    took.mul_f64(acquisitions as f64 / (turns * tasks) as f64)
}

async fn take_turns<P: Peer>(semaphore: Arc<P>, turns: u64) {
    for _ in 0..turns {
        let permit = P::permit(semaphore.acquire().await);
        yield_now().await;
        drop(permit);
    }
}
