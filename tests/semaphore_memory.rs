//! What waiting costs in memory, by an allocator that counts. One test to a process: the count is for all threads.

mod heap;

use std::pin::Pin;
use std::task::{Context, Waker};

use heap::{allocations, in_use};
use latchwork::{Acquire, AcquireOwned, AsyncSemaphore};

fn is_ready<F: Future + Unpin>(future: &mut F) -> bool {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

fn main() {
    futures_are_small();
    nothing_is_allocated_until_somebody_waits();
    // These two first, while nothing waits to be freed that would hide what they keep.
    an_unpolled_grant_keeps_only_its_own_block();
    cancelled_waiters_leave_nothing();
    a_waiter_costs_40_bytes_at_most();
    releasing_allocates_nothing();
}

fn futures_are_small() {
    assert!(size_of::<Acquire<'_>>() <= 64, "{}", size_of::<Acquire<'_>>());
    assert!(size_of::<AcquireOwned>() <= 64, "{}", size_of::<AcquireOwned>());
}

fn nothing_is_allocated_until_somebody_waits() {
    let before = allocations();
    let semaphore = AsyncSemaphore::new(3);
    let permit = semaphore.try_acquire().unwrap();
    assert!(is_ready(&mut semaphore.acquire_many(2)));
    drop(permit);
    semaphore.add_permits(1);
    drop(semaphore);
    assert_eq!(allocations(), before);
}

fn a_waiter_costs_40_bytes_at_most() {
    const WAITERS: usize = 100_000;
    let semaphore = AsyncSemaphore::new(0);
    let mut line: Vec<_> = (0..WAITERS).map(|_| semaphore.acquire()).collect();
    let before = in_use();
    for waiter in &mut line {
        assert!(!is_ready(waiter));
    }
    let each = (in_use() - before) as f64 / WAITERS as f64;
    assert!(each <= 40.0, "{each} bytes");
    println!("bytes of heap per waiter: {each:.1}");
    drop(line);
    semaphore.add_permits(1);
    assert_eq!(semaphore.available_permits(), 1);
}

/// tokio (#2237), linkerd: waiters that timed out behind a patient one were kept for ever.
fn cancelled_waiters_leave_nothing() {
    let semaphore = AsyncSemaphore::new(0);
    let mut patient = semaphore.acquire();
    assert!(!is_ready(&mut patient));
    let before = in_use();
    let mut most = 0;
    for _ in 0..10_000_000_u32 {
        assert!(!is_ready(&mut semaphore.acquire()));
        most = most.max(in_use() - before);
    }
    println!("most bytes kept over 10 million cancelled waits: {most}");
    assert!(most < 64 * 1024, "{most} bytes");

    // The next two releases do not have to step over ten million dead: one serves the patient waiter, one a newcomer.
    let mut newcomer = semaphore.acquire();
    assert!(!is_ready(&mut newcomer));
    let start = std::time::Instant::now();
    semaphore.add_permits(1);
    semaphore.add_permits(1);
    let took = start.elapsed();
    assert!(is_ready(&mut patient) && is_ready(&mut newcomer));
    assert!(took < std::time::Duration::from_millis(1), "{took:?}");
}

fn releasing_allocates_nothing() {
    let semaphore = AsyncSemaphore::new(0);
    let mut line: Vec<_> = (0..1000).map(|_| semaphore.acquire_many(2)).collect();
    for waiter in &mut line {
        assert!(!is_ready(waiter));
    }
    let before = allocations();
    for _ in 0..500 {
        semaphore.add_permits(1);
    }
    semaphore.add_permits(1500);
    assert_eq!(allocations(), before);
    assert!(line.iter_mut().all(is_ready));
}

/// Were the blocks behind one that is still in use kept alive by it, they would add up for as long as nobody polls that waiter.
fn an_unpolled_grant_keeps_only_its_own_block() {
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
        match Pin::new(&mut passing).poll(&mut Context::from_waker(Waker::noop())) {
            std::task::Poll::Ready(permit) => permit.unwrap().forget(),
            std::task::Poll::Pending => panic!("not served"),
        }
        most = most.max(in_use() - before);
    }
    println!("most bytes kept behind an unpolled grant: {most}");
    assert!(most < 64 * 1024, "{most} bytes");
}
