//! How many instructions the hot paths take, by valgrind's count, against limits that a change must not
//! exceed.
//!
//! Each path is gone [`ROUNDS`] times, by one thread and after a first time: what is made only once is not
//! counted.
//!
//! A change that costs more on purpose raises the limit, and says why; one that saves lowers it. The count is
//! the same on every machine, but not under every compiler.
#![expect(missing_docs, reason = "what gungraun's macros make has no docs")]

use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use gungraun::{
    Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use latchwork::semaphore::Acquire;
use latchwork::{AsyncSemaphore, Guard, Lock, LockClient, SemaphorePermit};

const ROUNDS: u64 = 100;

/// Waiters in a burst.
const BURST: u64 = 1000;

/// Instructions of one look at tokio's budget.
const BUDGET: u64 = if cfg!(feature = "cooperative") { 55 } else { 0 };

/// What all rounds together may take: so many instructions, those of their looks at tokio's budget, and 3 %
/// for the next compiler. For a canary, half as many, which every run must exceed.
fn at_most(instructions: u64, looks: u64) -> LibraryBenchmarkConfig {
    let instructions = instructions + looks * BUDGET;
    let canary = std::env::var_os("LATCHWORK_HALF_THE_LIMITS").is_some();
    let limit = instructions * 103 / if canary { 200 } else { 100 };
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::default().hard_limits([(EventKind::Ir, limit)]));
    config
}

/// A waker that counts references, as every runtime's does.
struct Counted;

impl Wake for Counted {
    fn wake(self: Arc<Self>) {}
}

struct Bench {
    semaphore: AsyncSemaphore,
    waker: Waker,
}

/// A semaphore that many have waited for, so that this thread has a record, and memory of nodes that are gone
/// for those that come.
fn bench(permits: usize) -> Bench {
    let bench = Bench { semaphore: AsyncSemaphore::new(permits), waker: Waker::from(Arc::new(Counted)) };
    for _ in 0..2 {
        let all = bench.semaphore.try_acquire_weight(permits).unwrap();
        let mut queue: Vec<_> = (0..BURST).map(|_| bench.semaphore.acquire()).collect();
        for waiter in &mut queue {
            assert!(bench.poll(waiter).is_none());
        }
        drop(queue);
        drop(all);
    }
    assert_eq!(bench.semaphore.available_permits(), permits);
    bench
}

impl Bench {
    fn poll<'a>(&self, acquire: &mut Acquire<'a>) -> Option<SemaphorePermit<'a>> {
        match Pin::new(acquire).poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(permit) => Some(permit.expect("never closed")),
            Poll::Pending => None,
        }
    }
}

// A free permit is taken and given back.
#[library_benchmark]
#[bench::one(args = (bench(1)), config = at_most(4_326, 0))]
fn try_acquire(bench: Bench) -> Bench {
    for _ in 0..ROUNDS {
        drop(black_box(black_box(&bench.semaphore).try_acquire()));
    }
    bench
}

// The same by a future that is ready at once.
#[library_benchmark]
#[bench::one(args = (bench(1)), config = at_most(7_575, ROUNDS))]
fn acquire_ready(bench: Bench) -> Bench {
    for _ in 0..ROUNDS {
        drop(black_box(bench.poll(&mut black_box(&bench.semaphore).acquire())));
    }
    bench
}

// The same for eight at once.
#[library_benchmark]
#[bench::eight(args = (bench(8)), config = at_most(7_575, ROUNDS))]
fn acquire_many(bench: Bench) -> Bench {
    for _ in 0..ROUNDS {
        drop(black_box(bench.poll(&mut black_box(&bench.semaphore).acquire_many(8))));
    }
    bench
}

// The permit is held; a waiter comes; the permit is given back; the waiter has it.
#[library_benchmark]
#[bench::one(args = (bench(1)), config = at_most(56_509, 2 * ROUNDS))]
fn hand_over(bench: Bench) -> Bench {
    let mut held = bench.semaphore.try_acquire().unwrap();
    for _ in 0..ROUNDS {
        let mut waiter = black_box(&bench.semaphore).acquire();
        assert!(bench.poll(&mut waiter).is_none());
        drop(held);
        held = bench.poll(&mut waiter).expect("it was handed over");
    }
    drop(held);
    bench
}

// Behind a patient waiter, others come and give up.
#[library_benchmark]
#[bench::one(args = (bench(0)), config = at_most(27_314, ROUNDS))]
fn cancel_waiting(bench: Bench) -> Bench {
    let mut patient = bench.semaphore.acquire();
    assert!(bench.poll(&mut patient).is_none());
    for _ in 0..ROUNDS {
        let mut waiter = black_box(&bench.semaphore).acquire();
        assert!(bench.poll(&mut waiter).is_none());
        drop(black_box(waiter));
    }
    drop(patient);
    bench
}

// A thousand wait, and a thousand permits come at once.
#[library_benchmark]
#[bench::thousand(args = (bench(0)), config = at_most(459_701, BURST))]
fn burst(bench: Bench) -> Bench {
    let mut queue: Vec<_> = (0..BURST).map(|_| bench.semaphore.acquire()).collect();
    for waiter in &mut queue {
        assert!(bench.poll(waiter).is_none());
    }
    bench.semaphore.add_permits(BURST as usize);
    for waiter in &mut queue {
        drop(bench.poll(waiter).expect("there is one for each"));
    }
    drop(queue);
    bench
}

/// A lock in memory that was taken before: what only the first time costs, such as the watchdog's thread, is
/// not counted.
struct LockBench {
    lock: Lock,
    waker: Waker,
}

fn lock_bench() -> LockBench {
    let lock = LockClient::local().get_lock("orders").expect("a name");
    let bench = LockBench { lock, waker: Waker::from(Arc::new(Counted)) };
    drop(bench.ready(bench.lock.lock()).expect("it is free"));
    let held = bench.ready(bench.lock.lock()).expect("it is free");
    drop(bench.hand_off(held));
    bench
}

impl LockBench {
    fn ready<F: Future>(&self, future: F) -> F::Output {
        match pin!(future).poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("it waits"),
        }
    }

    fn hand_off(&self, held: Guard) -> Guard {
        let mut task = Context::from_waker(&self.waker);
        let mut waiter = pin!(black_box(&self.lock).lock());
        assert!(waiter.as_mut().poll(&mut task).is_pending());
        drop(held);
        match waiter.poll(&mut task) {
            Poll::Ready(guard) => guard.expect("in memory nothing fails"),
            Poll::Pending => panic!("it was handed off"),
        }
    }
}

// The lock is taken and unlocked.
#[library_benchmark]
#[bench::one(args = (lock_bench()), config = at_most(208_632, ROUNDS))]
fn lock_and_unlock(bench: LockBench) -> LockBench {
    for _ in 0..ROUNDS {
        let guard = bench.ready(black_box(&bench.lock).lock()).expect("it is free");
        bench.ready(black_box(guard).unlock()).expect("it was held");
    }
    bench
}

// The lock is taken, and its guard dropped.
#[library_benchmark]
#[bench::one(args = (lock_bench()), config = at_most(195_932, ROUNDS))]
fn lock_and_drop(bench: LockBench) -> LockBench {
    for _ in 0..ROUNDS {
        drop(black_box(bench.ready(black_box(&bench.lock).lock()).expect("it is free")));
    }
    bench
}

// The lock is held; a waiter comes; the guard is dropped; the waiter has the lock.
#[library_benchmark]
#[bench::one(args = (lock_bench()), config = at_most(253_691, 2 * ROUNDS))]
fn lock_hand_off(bench: LockBench) -> LockBench {
    let mut held = bench.ready(bench.lock.lock()).expect("it is free");
    for _ in 0..ROUNDS {
        held = bench.hand_off(held);
    }
    drop(held);
    bench
}

library_benchmark_group!(
    name = hot_paths;
    benchmarks = try_acquire, acquire_ready, acquire_many, hand_over, cancel_waiting, burst, lock_and_unlock,
        lock_and_drop, lock_hand_off
);

main!(library_benchmark_groups = hot_paths);
