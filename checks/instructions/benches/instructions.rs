//! Instruction counts of the hot paths, as valgrind counts them, against limits that a change must not
//! exceed.
//!
//! One thread runs each path [`ROUNDS`] times after a warm-up: one-time initialisation is not counted.
//!
//! A change that costs more on purpose raises the limit, and says why; a change that saves lowers it. The
//! count is the same on every machine, but not with every compiler.
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

const BURST: u64 = 1000;

/// Instructions of a check of tokio's budget.
const BUDGET: u64 = if cfg!(feature = "cooperative") { 65 } else { 0 };

/// Instruction limit of all rounds: the instructions, the checks of tokio's budget, and 2 % for the next
/// compiler. A canary gets half as many, a limit exceeded by every run.
fn at_most(instructions: u64, looks: u64) -> LibraryBenchmarkConfig {
    let instructions = instructions + looks * BUDGET;
    let canary = std::env::var_os("LATCHWORK_HALF_THE_LIMITS").is_some();
    let limit = instructions * 102 / if canary { 200 } else { 100 };
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

/// A semaphore with a history of many waiters: this thread has a record, and freed nodes to reuse.
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
    // Fills each epoch's buffer once.
    for _ in 0..BURST * u64::from(permits > 0) {
        let held = bench.semaphore.try_acquire_weight(permits).unwrap();
        assert!(bench.poll(&mut bench.semaphore.acquire()).is_none());
        drop(held);
    }
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

#[library_benchmark]
#[bench::one(args = (bench(1)), config = at_most(3_345, 0))]
fn try_acquire(bench: Bench) -> Bench {
    for _ in 0..ROUNDS {
        drop(black_box(black_box(&bench.semaphore).try_acquire()));
    }
    bench
}

// The same, by a future that is ready at once.
#[library_benchmark]
#[bench::one(args = (bench(1)), config = at_most(6_448, ROUNDS))]
fn acquire_ready(bench: Bench) -> Bench {
    for _ in 0..ROUNDS {
        drop(black_box(bench.poll(&mut black_box(&bench.semaphore).acquire())));
    }
    bench
}

#[library_benchmark]
#[bench::eight(args = (bench(8)), config = at_most(6_448, ROUNDS))]
fn acquire_many(bench: Bench) -> Bench {
    for _ in 0..ROUNDS {
        drop(black_box(bench.poll(&mut black_box(&bench.semaphore).acquire_many(8))));
    }
    bench
}

// The permit is held; a waiter comes; the permit is released to the waiter.
#[library_benchmark]
#[bench::one(args = (bench(1)), config = at_most(34_219, 2 * ROUNDS))]
fn hand_over(bench: Bench) -> Bench {
    let mut held = bench.semaphore.try_acquire().unwrap();
    for _ in 0..ROUNDS {
        let mut waiter = black_box(&bench.semaphore).acquire();
        assert!(bench.poll(&mut waiter).is_none());
        drop(held);
        held = bench.poll(&mut waiter).expect("the lock was handed off");
    }
    drop(held);
    bench
}

// From a free permit to a free permit: the permit is taken, handed over, and released.
#[library_benchmark]
#[bench::one(args = (bench(1)), config = at_most(44_584, 2 * ROUNDS))]
fn take_hand_over_free(bench: Bench) -> Bench {
    for _ in 0..ROUNDS {
        let held = black_box(&bench.semaphore).try_acquire().unwrap();
        let mut waiter = bench.semaphore.acquire();
        assert!(bench.poll(&mut waiter).is_none());
        drop(held);
        drop(black_box(bench.poll(&mut waiter).expect("the lock was handed off")));
    }
    bench
}

// The same where the waiter gives up.
#[library_benchmark]
#[bench::one(args = (bench(1)), config = at_most(33_595, ROUNDS))]
fn take_cancel_free(bench: Bench) -> Bench {
    for _ in 0..ROUNDS {
        let held = black_box(&bench.semaphore).try_acquire().unwrap();
        let mut waiter = bench.semaphore.acquire();
        assert!(bench.poll(&mut waiter).is_none());
        drop(black_box(waiter));
        drop(held);
    }
    bench
}

// Behind a patient waiter, others come and give up.
#[library_benchmark]
#[bench::one(args = (bench(0)), config = at_most(21_433, ROUNDS))]
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

#[library_benchmark]
#[bench::thousand(args = (bench(0)), config = at_most(402_805, BURST))]
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

/// A lock in memory with an earlier acquisition: one-time costs, such as a thread, are not counted.
struct LockBench {
    lock: Lock,
    waker: Waker,
}

fn lock_bench() -> LockBench {
    let lock = LockClient::local().get_lock("orders").expect("a name");
    let bench = LockBench { lock, waker: Waker::from(Arc::new(Counted)) };
    drop(bench.ready(bench.lock.lock()).expect("the lock is free"));
    let held = bench.ready(bench.lock.lock()).expect("the lock is free");
    drop(bench.hand_off(held));
    bench
}

impl LockBench {
    fn ready<F: Future>(&self, future: F) -> F::Output {
        match pin!(future).poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("expected a ready future"),
        }
    }

    fn hand_off(&self, held: Guard) -> Guard {
        let mut task = Context::from_waker(&self.waker);
        let mut waiter = pin!(black_box(&self.lock).lock());
        assert!(waiter.as_mut().poll(&mut task).is_pending());
        drop(held);
        match waiter.poll(&mut task) {
            Poll::Ready(guard) => guard.expect("in memory nothing fails"),
            Poll::Pending => panic!("the lock was handed off"),
        }
    }
}

// Seven instructions of a pair keep the start of a call that may become a waiter, and drop it. The
// acquisition and the release's command check tokio's budget.
#[library_benchmark]
#[bench::one(args = (lock_bench()), config = at_most(213_831, 2 * ROUNDS))]
fn lock_and_unlock(bench: LockBench) -> LockBench {
    for _ in 0..ROUNDS {
        let guard = bench.ready(black_box(&bench.lock).lock()).expect("the lock is free");
        bench.ready(black_box(guard).unlock()).expect("the lock was held");
    }
    bench
}

#[library_benchmark]
#[bench::one(args = (lock_bench()), config = at_most(200_631, 2 * ROUNDS))]
fn lock_and_drop(bench: LockBench) -> LockBench {
    for _ in 0..ROUNDS {
        drop(black_box(bench.ready(black_box(&bench.lock).lock()).expect("the lock is free")));
    }
    bench
}

// The lock is held; a waiter comes; dropping the guard hands the lock off to the waiter.
#[library_benchmark]
#[bench::one(args = (lock_bench()), config = at_most(251_739, 2 * ROUNDS))]
fn lock_hand_off(bench: LockBench) -> LockBench {
    let mut held = bench.ready(bench.lock.lock()).expect("the lock is free");
    for _ in 0..ROUNDS {
        held = bench.hand_off(held);
    }
    drop(held);
    bench
}

library_benchmark_group!(
    name = hot_paths;
    benchmarks = try_acquire, acquire_ready, acquire_many, hand_over, take_hand_over_free, take_cancel_free,
        cancel_waiting, burst, lock_and_unlock, lock_and_drop, lock_hand_off
);

main!(library_benchmark_groups = hot_paths);
