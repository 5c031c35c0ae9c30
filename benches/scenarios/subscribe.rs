//! The cost of a waiter's subscription in the registry.
//!
//! The transport does nothing, so this measures the registry alone.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::BenchmarkId;
use latchwork::subscription::{Inbox, Registry, Transport};

const NAME: &str = "redisson_lock__channel:{orders:42}";
/// Number of other subscribed names: too many for the first-level cache.
const OTHERS: usize = 10_000;

struct Nowhere;

impl Transport for Nowhere {
    fn subscribe(&self, _channel: &Arc<str>, inbox: Inbox) {
        inbox.ready();
    }

    fn unsubscribe(&self, _channel: &Arc<str>) {}
}

fn main() {
    let registry = Registry::new(Nowhere);
    let others: Vec<_> = (0..OTHERS).map(|number| registry.subscribe(&format!("orders:{number}"))).collect();
    let mut criterion = benches::criterion::criterion();
    let mut group = criterion.benchmark_group("subscribe");

    group.bench_function("first_and_last", |bencher| {
        bencher.iter(|| drop(black_box(registry.subscribe(black_box(NAME)))));
    });
    let first = registry.subscribe(NAME);
    group.bench_function("joined", |bencher| {
        bencher.iter(|| drop(black_box(registry.subscribe(black_box(NAME)))));
    });
    group.bench_function(BenchmarkId::new("joined", "two_threads"), |bencher| {
        bencher.iter_custom(|rounds| on_two_threads(&registry, rounds));
    });
    group.bench_function("cloned", |bencher| bencher.iter(|| drop(black_box(first.clone()))));
    group.finish();

    assert_eq!(registry.stats().interest, OTHERS as u64 + 1);
    drop(others);
    criterion.final_summary();
}

fn on_two_threads(registry: &Registry<Nowhere>, rounds: u64) -> Duration {
    let come_and_go = |name: &str| {
        let start = Instant::now();
        for _ in 0..rounds {
            drop(black_box(registry.subscribe(black_box(name))));
        }
        start.elapsed()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| come_and_go("orders:1"));
        come_and_go(NAME).max(other.join().expect("nothing panics here"))
    })
}
