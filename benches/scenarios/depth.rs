//! The cost of joining, being served and giving up behind a long queue.

use std::time::Duration;

use benches::each_peer;
use benches::peers::Queueing;
use benches::queue::Queue;
use benches::wakers::Counting;
use criterion::{BenchmarkId, Criterion};

fn main() {
    let mut criterion = benches::criterion::criterion();
    for depth in [1, 1_000, 1_000_000] {
        each_peer!(measure(&mut criterion, depth));
    }
    criterion.final_summary();
}

/// Both scenarios for one peer, at one depth. The queue is built once, because building takes longer.
fn measure<P: Queueing>(criterion: &mut Criterion, depth: usize) {
    let semaphore = P::new(1);
    let waker = Counting::new();
    let mut queue = Queue::<P, _, _>::new(&semaphore, || semaphore.acquire(), &waker, depth);

    let mut group = criterion.benchmark_group("depth");
    if depth == 1_000_000 {
        group.sample_size(10);
        group.warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(500));
    }
    let id = |event| BenchmarkId::new(format!("{event}/{}", P::NAME), depth);
    group.bench_function(id("hand_over"), |bencher| {
        bencher.iter_custom(|rounds| queue.hand_over(rounds));
    });
    group.bench_function(id("cancel"), |bencher| bencher.iter_custom(|rounds| queue.cancel(rounds)));
    group.finish();

    queue.leave();
    assert_eq!(semaphore.available(), 1);
    waker.assert_no_copies();
}
