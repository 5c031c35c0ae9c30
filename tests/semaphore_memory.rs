//! Memory of waiting. One test to a process, as the allocator counts all threads.

mod heap;

use std::cell::Cell;
use std::pin::Pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use heap::{allocations, in_use};
use latchwork::AsyncSemaphore;
use latchwork::latch::Latch;
use latchwork::semaphore::{Acquire, AcquireOwned};

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn is_ready<F: Future + Unpin>(future: &mut F) -> bool {
    poll(future).is_ready()
}

fn main() {
    futures_are_small();
    nothing_is_allocated_until_a_future_waits();
    // First, since spare memory of the other tests would hide theirs.
    an_unpolled_grant_keeps_only_its_own_memory();
    takes_beside_an_unpolled_grant_keep_nothing();
    cancelled_waiters_leave_nothing();
    a_waiter_costs_40_bytes_at_most();
    memory_of_a_burst_is_given_back();
    memory_of_a_burst_with_deficits_is_given_back();
    a_thread_keeps_memory_for_1024_waiters();
    a_thread_that_ends_keeps_nothing();
    a_thread_that_has_never_waited_keeps_nothing();
    a_thread_keeps_nothing_at_its_very_end();
    releases_allocate_and_free_nothing();
    releases_allocate_and_free_nothing_on_a_fresh_thread();
    closing_allocates_nothing();
    threads_starting_at_once_add_no_more_records_than_needed();
    threads_that_have_ended_are_not_remembered_by_a_semaphore();
}

fn futures_are_small() {
    assert!(size_of::<Acquire<'_>>() <= 64, "{}", size_of::<Acquire<'_>>());
    assert!(size_of::<AcquireOwned>() <= 64, "{}", size_of::<AcquireOwned>());
}

fn nothing_is_allocated_until_a_future_waits() {
    let before = allocations();
    let semaphore = AsyncSemaphore::new(3);
    let permit = semaphore.try_acquire().unwrap();
    assert!(is_ready(&mut semaphore.acquire_many(2)));
    drop(permit);
    semaphore.add_permits(1);
    semaphore.set_capacity(2);
    semaphore.close();
    drop(semaphore);
    assert_eq!(allocations(), before);
}

fn a_waiter_costs_40_bytes_at_most() {
    const WAITERS: usize = 100_000;
    let semaphore = AsyncSemaphore::new(0);
    let mut queue: Vec<_> = (0..WAITERS).map(|_| semaphore.acquire()).collect();
    let before = in_use();
    for waiter in &mut queue {
        assert!(!is_ready(waiter));
    }
    let each = (in_use() - before) as f64 / WAITERS as f64;
    assert!(each <= 40.0, "{each} bytes");
    println!("bytes of heap a waiter: {each:.1}");
    drop(queue);
    semaphore.add_permits(1);
    assert_eq!(semaphore.available_permits(), 1);
}

/// tokio (#2237), linkerd: timed-out waiters behind a patient waiter were kept forever.
fn cancelled_waiters_leave_nothing() {
    const WAITS: usize = 2_000_000;
    let semaphore = AsyncSemaphore::new(0);
    let mut patient = semaphore.acquire();
    assert!(!is_ready(&mut patient));
    let before = in_use();
    let mut most = 0;
    for _ in 0..WAITS {
        assert!(!is_ready(&mut semaphore.acquire()));
        most = most.max(in_use() - before);
    }
    println!("most bytes kept over {WAITS} cancelled waits: {most}");
    assert!(most < 28 * 1024, "{most} bytes");

    // Releases must not step over the cancelled waiters; one permit goes to the newcomer.
    let mut newcomer = semaphore.acquire();
    assert!(!is_ready(&mut newcomer));
    let start = Instant::now();
    semaphore.add_permits(1);
    semaphore.add_permits(1);
    let took = start.elapsed();
    assert!(is_ready(&mut patient) && is_ready(&mut newcomer));
    assert!(took < Duration::from_millis(1), "{took:?}");
}

/// Memory behind an unpolled waiter must not add up.
fn an_unpolled_grant_keeps_only_its_own_memory() {
    let semaphore = AsyncSemaphore::new(0);
    let mut unpolled = semaphore.acquire();
    assert!(!is_ready(&mut unpolled));
    semaphore.add_permits(1);
    let before = in_use();
    let mut most = 0;
    for _ in 0..100_000 {
        let mut passing = semaphore.acquire();
        assert!(!is_ready(&mut passing));
        semaphore.add_permits(1);
        match poll(&mut passing) {
            Poll::Ready(permit) => permit.unwrap().forget(),
            Poll::Pending => panic!("not served"),
        }
        most = most.max(in_use() - before);
    }
    println!("most bytes kept behind an unpolled grant: {most}");
    assert!(most < 28 * 1024, "{most} bytes");
}

/// Other callers take permits without waiting.
fn takes_beside_an_unpolled_grant_keep_nothing() {
    let semaphore = AsyncSemaphore::new(0);
    let mut unpolled = semaphore.acquire();
    assert!(!is_ready(&mut unpolled));
    semaphore.add_permits(2);
    let ways: [(&str, &dyn Fn()); 3] = [
        ("try_acquire", &|| drop(semaphore.try_acquire().unwrap())),
        ("forget_permits", &|| {
            assert_eq!(semaphore.forget_permits(1), 1);
            semaphore.add_permits(1);
        }),
        ("set_capacity", &|| {
            semaphore.set_capacity(1);
            semaphore.set_capacity(2);
        }),
    ];
    for (way, take) in ways {
        let before = in_use();
        (0..100_000).for_each(|_| take());
        let kept = in_use() - before;
        println!("bytes kept behind an unpolled grant by {way}: {kept}");
        assert!(kept < 28 * 1024, "{kept} bytes, {way}");
    }
}

fn memory_of_a_burst_is_given_back() {
    const BURST: usize = 1_000_000;
    for ending in ["granted", "cancelled", "cancelled from the end", "closed"] {
        let semaphore = AsyncSemaphore::new(0);
        let mut queue: Vec<_> = (0..BURST).map(|_| semaphore.acquire()).collect();
        let before = in_use();
        assert!(queue.iter_mut().all(|waiter| !is_ready(waiter)));
        match ending {
            "granted" => {
                semaphore.add_permits(BURST);
                queue.iter_mut().for_each(|waiter| match poll(waiter) {
                    Poll::Ready(permit) => permit.unwrap().forget(),
                    Poll::Pending => panic!("not served"),
                });
            }
            "cancelled" => queue.iter_mut().for_each(|waiter| *waiter = semaphore.acquire()),
            "cancelled from the end" => {
                queue.iter_mut().rev().for_each(|waiter| *waiter = semaphore.acquire())
            }
            _ => {
                semaphore.close();
                assert!(queue.iter_mut().all(is_ready));
            }
        }
        // Remaining garbage is freed by later operations.
        if ending != "closed" {
            for _ in 0..1000 {
                assert!(!is_ready(&mut semaphore.acquire()));
            }
        }
        let kept = in_use() - before;
        println!("bytes kept of a million waiters, {ending}: {kept}");
        assert!(kept < 256 * 1024, "{kept} bytes, {ending}");
    }
}

/// Each waiter was first in the queue when the capacity was lowered.
fn memory_of_a_burst_with_deficits_is_given_back() {
    let semaphore = AsyncSemaphore::new(0);
    let mut queue: Vec<_> = (0..100_000).map(|_| semaphore.acquire_many(2)).collect();
    let before = in_use();
    assert!(queue.iter_mut().all(|waiter| !is_ready(waiter)));
    for waiter in &mut queue {
        semaphore.set_capacity(1);
        semaphore.set_capacity(0);
        *waiter = semaphore.acquire();
    }
    for _ in 0..1000 {
        assert!(!is_ready(&mut semaphore.acquire()));
    }
    let kept = in_use() - before;
    println!("bytes kept of 100 000 waiters with a deficit: {kept}");
    assert!(kept < 64 * 1024, "{kept} bytes");
}

fn a_thread_keeps_memory_for_1024_waiters() {
    let burst = || {
        let before = in_use();
        for _ in 0..100 {
            let semaphore = AsyncSemaphore::new(0);
            let mut queue: Vec<_> = (0..5000).map(|_| semaphore.acquire()).collect();
            assert!(queue.iter_mut().all(|waiter| !is_ready(waiter)));
            queue.clear();
            for _ in 0..1000 {
                assert!(!is_ready(&mut semaphore.acquire()));
            }
        }
        in_use() - before
    };
    // The first thread's record stays and is reused.
    thread::spawn(burst).join().unwrap();
    let kept = thread::spawn(burst).join().unwrap();
    println!("bytes that a thread keeps without a semaphore: {kept}");
    assert!(kept <= 41 * 1024, "{kept} bytes");
}

fn a_thread_that_ends_keeps_nothing() {
    let wait = || {
        let semaphore = AsyncSemaphore::new(0);
        let mut queue: Vec<_> = (0..1000).map(|_| semaphore.acquire()).collect();
        assert!(queue.iter_mut().all(|waiter| !is_ready(waiter)));
    };
    thread::spawn(wait).join().unwrap();
    let before = in_use();
    for _ in 0..100 {
        thread::spawn(wait).join().unwrap();
    }
    let kept = in_use() - before;
    assert!(kept <= 0, "{kept} bytes");
}

/// Releases in every way, with waiters and without.
fn release_in_every_way(semaphore: &AsyncSemaphore, latch: &Latch) {
    let nothing = |release: &mut dyn FnMut()| {
        let before = (allocations(), in_use());
        release();
        assert_eq!((allocations(), in_use()), before, "expected no allocation in a release");
    };
    nothing(&mut || {
        for _ in 0..500 {
            semaphore.add_permits(1);
        }
        semaphore.add_permits(1500);
        semaphore.add_permits(200);
        latch.release(1);
        latch.release_all();
        latch.release(500);
    });
    // Taking permits while the queue is in use may allocate.
    let mut permits: Vec<_> = (0..200).map(|_| semaphore.try_acquire().unwrap()).collect();
    nothing(&mut || permits.clear());
}

/// Returns the memory kept for 100 000 waiters that enqueue on this thread and are given up on others.
fn kept_if_given_up(end: impl Fn(Vec<AcquireOwned>) + Send + Copy + 'static) -> isize {
    let wait = || {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut queue: Vec<_> = (0..1000).map(|_| Arc::clone(&semaphore).acquire_owned()).collect();
        assert!(queue.iter_mut().all(|waiter| !is_ready(waiter)));
        thread::spawn(move || end(queue)).join().unwrap();
    };
    wait();
    let before = in_use();
    (0..100).for_each(|_| wait());
    in_use() - before
}

/// Such a thread has no exit hook.
fn a_thread_that_has_never_waited_keeps_nothing() {
    let kept = kept_if_given_up(drop);
    assert!(kept < 64 * 1024, "{kept} bytes");
}

/// Thread-local cleanup has already returned spare memory and epoch record.
fn a_thread_keeps_nothing_at_its_very_end() {
    struct Late(Cell<Vec<AcquireOwned>>);
    impl Drop for Late {
        fn drop(&mut self) {
            drop(self.0.take());
        }
    }
    thread_local!(static LATE: Late = const { Late(Cell::new(Vec::new())) });

    let kept = kept_if_given_up(|queue| {
        // Initialized before this thread's first wait, and so dropped after the semaphore's thread-locals.
        LATE.with(|late| late.0.set(queue));
        assert!(!is_ready(&mut AsyncSemaphore::new(0).acquire()));
    });
    assert!(kept < 64 * 1024, "{kept} bytes");
}

fn with_waiters(body: impl FnOnce(&AsyncSemaphore, &Latch)) {
    let (semaphore, latch) = (AsyncSemaphore::new(0), Latch::new());
    let mut queue: Vec<_> = (0..1000).map(|_| semaphore.acquire_many(2)).collect();
    let mut waits: Vec<_> = (0..500).map(|_| Box::pin(latch.wait())).collect();
    assert!(queue.iter_mut().all(|waiter| !is_ready(waiter)));
    assert!(waits.iter_mut().all(|wait| !is_ready(wait)));
    body(&semaphore, &latch);
    assert!(queue.iter_mut().all(is_ready));
    assert!(waits.iter_mut().all(is_ready));
}

fn releases_allocate_and_free_nothing() {
    with_waiters(release_in_every_way);
}

/// The thread's first walk must not allocate either.
fn releases_allocate_and_free_nothing_on_a_fresh_thread() {
    with_waiters(|semaphore, latch| {
        thread::scope(|scope| scope.spawn(|| release_in_every_way(semaphore, latch)).join().unwrap());
    });
    // Drop a permit acquired by another thread, with a waiter waiting.
    let semaphore = AsyncSemaphore::new(1);
    let held = semaphore.try_acquire().unwrap();
    let mut waiter = semaphore.acquire();
    assert!(!is_ready(&mut waiter));
    thread::scope(|scope| {
        let dropping = scope.spawn(|| {
            let before = (allocations(), in_use());
            drop(held);
            assert_eq!((allocations(), in_use()), before, "expected no allocation in a drop");
        });
        dropping.join().unwrap();
    });
    assert!(is_ready(&mut waiter));
}

/// For queues of any length, on a thread new to semaphores.
fn closing_allocates_nothing() {
    for len in [1, 31, 32, 33, 64, 100, 1000] {
        let semaphore = AsyncSemaphore::new(0);
        let mut queue: Vec<_> = (0..len).map(|_| semaphore.acquire()).collect();
        assert!(queue.iter_mut().all(|waiter| !is_ready(waiter)));
        thread::scope(|scope| {
            let closing = scope.spawn(|| {
                let before = allocations();
                semaphore.close();
                assert_eq!(allocations(), before, "expected no allocation in a close of {len} waiters");
            });
            closing.join().unwrap();
        });
        assert!(queue.iter_mut().all(|waiter| matches!(poll(waiter), Poll::Ready(Err(_)))));
    }
}

fn crowd_waits(semaphore: &AsyncSemaphore, threads: usize) {
    let all = Barrier::new(threads);
    thread::scope(|scope| {
        let begin = |_| {
            let waits = || {
                all.wait();
                assert!(!is_ready(&mut semaphore.acquire()));
                all.wait();
            };
            thread::Builder::new().stack_size(64 * 1024).spawn_scoped(scope, waits).unwrap()
        };
        let crowd: Vec<_> = (0..threads).map(begin).collect();
        // A scope does not wait for destructors of thread-locals, but a join does.
        crowd.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Records come in permanent blocks; threads that race to add a block keep one.
fn threads_starting_at_once_add_no_more_records_than_needed() {
    // More threads than records left by other tests.
    const CROWD: usize = 512;
    // A block has 32 records of 128 bytes; one extra block covers records in use before.
    const NEEDED: isize = (CROWD as isize / 32 + 1) * (33 * 128);
    let before = in_use();
    crowd_waits(&AsyncSemaphore::new(0), CROWD);
    let kept = in_use() - before;
    println!("bytes kept for {CROWD} threads that began at once: {kept}");
    assert!(kept <= NEEDED, "{kept} bytes");
}

fn threads_that_have_ended_are_not_remembered_by_a_semaphore() {
    const CROWD: usize = 5000;
    // Memory of a semaphore for any number of threads.
    const KEPT: isize = 8 * 1024;
    crowd_waits(&AsyncSemaphore::new(0), CROWD);
    // Measure on a thread that takes its spare memory along when ending.
    let kept_by_one = || {
        let semaphore = AsyncSemaphore::new(0);
        let before = in_use();
        thread::scope(|scope| {
            let come_and_go = || (0..5 * CROWD).for_each(|_| assert!(!is_ready(&mut semaphore.acquire())));
            scope.spawn(come_and_go).join().unwrap();
        });
        in_use() - before
    };
    kept_by_one();
    let kept = kept_by_one();
    println!("bytes kept by a semaphore without waiters after {CROWD} threads: {kept}");
    assert!(kept <= KEPT, "{kept} bytes");
}
