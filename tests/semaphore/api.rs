//! `AsyncSemaphore` beyond its specification (`scripts`): largest numbers, drains, threads, other faces.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use futures_util::StreamExt;
use latchwork::{AsyncSemaphore, PollSemaphore, SemaphorePermit, TryAcquireError};

use crate::wakers::poll;

fn permit<'a, F>(future: &mut F) -> SemaphorePermit<'a>
where
    F: Future<Output = Result<SemaphorePermit<'a>, latchwork::AcquireError>> + Unpin,
{
    match poll(future) {
        Poll::Ready(permit) => permit.unwrap(),
        Poll::Pending => panic!("no permit came"),
    }
}

/// Need and deficit add up to more than `usize` holds.
#[test]
fn deficit_of_all_permits_beside_a_large_need_cannot_overflow() {
    const MAX: usize = AsyncSemaphore::MAX_PERMITS;
    let semaphore = AsyncSemaphore::new(MAX);
    let mut held = semaphore.try_acquire_weight(MAX).unwrap();
    let mut waiter = semaphore.acquire_weight(MAX);
    assert!(poll(&mut waiter).is_pending());
    for _ in 0..3 {
        semaphore.set_capacity(0);
        assert_eq!((semaphore.capacity(), semaphore.held()), (0, MAX));
        semaphore.set_capacity(MAX);
    }
    drop(held.split(MAX - 1));
    assert!(poll(&mut waiter).is_pending());
    drop(held);
    assert_eq!(permit(&mut waiter).num_permits(), MAX);
    assert_eq!(semaphore.available_permits(), MAX);

    let mut held = semaphore.try_acquire_weight(MAX).unwrap();
    let mut waiter = semaphore.acquire_many(2);
    assert!(poll(&mut waiter).is_pending());
    semaphore.set_capacity(2);
    drop(held.split(MAX - 1));
    assert!(poll(&mut waiter).is_pending(), "expected the waiter to wait for more than the free permit");
    semaphore.add_permits(MAX - 2);
    permit(&mut waiter).forget();
}

#[test]
fn drain_ends_with_the_last_held_permit() {
    type GiveBack = fn(&AsyncSemaphore, SemaphorePermit<'_>);
    let ways: [(&str, GiveBack); 5] = [
        ("released", |_, permit| drop(permit)),
        ("forgotten", |_, permit| permit.forget()),
        ("released under a lower capacity", |semaphore, permit| {
            semaphore.set_capacity(0);
            drop(permit);
        }),
        ("forgotten, and others added", |semaphore, permit| {
            semaphore.add_permits(2);
            permit.forget();
        }),
        ("released, and free ones forgotten", |semaphore, permit| {
            semaphore.forget_permits(1);
            drop(permit);
        }),
    ];
    for (way, give_back) in ways {
        for queued in [false, true] {
            let semaphore = AsyncSemaphore::new(2);
            // A waiter granted before the close holds a permit, polled or not.
            let both = queued.then(|| semaphore.try_acquire_many(2).unwrap());
            let mut first = semaphore.acquire();
            assert_eq!(poll(&mut first).is_pending(), queued);
            drop(both);
            let held = semaphore.try_acquire().ok();
            let (mut early, mut late) = (Box::pin(semaphore.drain()), Box::pin(semaphore.drain()));
            assert!(poll(&mut early).is_pending(), "{way}: expected a drain that waits");
            assert!(semaphore.try_acquire().is_err() && semaphore.is_closed());
            drop(first);
            if let Some(permit) = held {
                assert!(poll(&mut late).is_pending(), "{way}: expected a drain that waits");
                give_back(&semaphore, permit);
            }
            assert!(poll(&mut late).is_ready(), "{way}: expected the end of the drain");
            assert!(poll(&mut early).is_ready(), "{way}: expected the end of each drain");
            assert!(semaphore.blocking_drain_timeout(Duration::ZERO), "{way}: expected nothing held");
        }
    }
}

#[test]
fn dropped_drain_leaves_the_semaphore_closed_and_others_waiting() {
    let semaphore = AsyncSemaphore::new(1);
    let held = semaphore.try_acquire().unwrap();
    let (mut dropped, mut kept) = (Box::pin(semaphore.drain()), Box::pin(semaphore.drain()));
    assert!(poll(&mut dropped).is_pending() && poll(&mut kept).is_pending());
    drop(dropped);
    assert!(!semaphore.blocking_drain_timeout(Duration::from_millis(1)));
    drop(held);
    assert!(poll(&mut kept).is_ready());
    assert!(semaphore.is_closed());
}

#[test]
fn overflow_is_refused_before_anything_changes() {
    let semaphore = AsyncSemaphore::new(AsyncSemaphore::MAX_PERMITS);
    for n in [1, usize::MAX] {
        assert!(catch_unwind(AssertUnwindSafe(|| semaphore.add_permits(n))).is_err());
        assert_eq!(semaphore.available_permits(), AsyncSemaphore::MAX_PERMITS);
    }
    for n in [AsyncSemaphore::MAX_PERMITS + 1, usize::MAX] {
        let panic = catch_unwind(|| AsyncSemaphore::new(n)).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert_eq!(text.trim_start(), format!("{n} permits are more than MAX_PERMITS"));
    }
    assert!(catch_unwind(AssertUnwindSafe(|| drop(semaphore.acquire_weight(usize::MAX)))).is_err());
}

/// Real threads, to test the code replaced under loom.
#[test]
fn threads_and_tasks_wait_in_one_queue() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 2_000;
    let semaphore = Arc::new(AsyncSemaphore::new(3));
    let inside = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..THREADS)
        .map(|worker| {
            let (semaphore, inside) = (Arc::clone(&semaphore), Arc::clone(&inside));
            let round = move |_permit: SemaphorePermit<'_>| {
                // Ordering: Relaxed, only a count; the permits are under test.
                assert!(
                    inside.fetch_add(1, Ordering::Relaxed) < 3,
                    "expected no more tasks inside than permits"
                );
                thread::yield_now();
                // Ordering: Relaxed, as above.
                inside.fetch_sub(1, Ordering::Relaxed);
            };
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                for turn in 0..ROUNDS {
                    if (worker + turn) % 7 == 0 {
                        let mut impatient = semaphore.acquire();
                        let _ = poll(&mut impatient);
                    }
                    if worker % 2 == 0 {
                        round(semaphore.blocking_acquire().unwrap());
                    } else {
                        round(runtime.block_on(semaphore.acquire()).unwrap());
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(semaphore.available_permits(), 3);
}

// === Other faces ===

#[test]
fn poll_semaphore_keeps_its_position_until_its_weight_changes() {
    let semaphore = Arc::new(AsyncSemaphore::new(0));
    let mut context = Context::from_waker(Waker::noop());
    let mut polled = PollSemaphore::new(Arc::clone(&semaphore));
    assert!(polled.poll_acquire_many(&mut context, 2).is_pending());
    let mut behind = semaphore.acquire();
    assert!(poll(&mut behind).is_pending());
    polled.add_permits(1);
    assert!(polled.poll_acquire_many(&mut context, 2).is_pending());
    assert!(poll(&mut behind).is_pending(), "expected the waiter behind to wait");
    assert!(polled.poll_acquire_weight(&mut context, 3).is_pending());
    drop(permit(&mut behind));
    polled.add_permits(2);
    assert_eq!(semaphore.available_permits(), 0);
    let Poll::Ready(Some(three)) = polled.poll_acquire_weight(&mut context, 3) else { panic!("not served") };
    assert_eq!(three.num_permits(), 3);
    drop(three);
    assert_eq!(polled.available_permits(), 3);
    assert!(polled.clone().poll_acquire(&mut context).is_ready());
    assert!(Arc::ptr_eq(&polled.clone_inner(), &semaphore));
    assert!(std::ptr::eq::<AsyncSemaphore>(polled.as_ref(), &*semaphore));
    assert!(Arc::ptr_eq(&polled.into_inner(), &semaphore));
}

#[test]
fn stream_of_permits_ends_when_the_semaphore_is_closed() {
    let mut context = Context::from_waker(Waker::noop());
    let mut permits = PollSemaphore::new(Arc::new(AsyncSemaphore::new(1)));
    let Poll::Ready(Some(one)) = permits.poll_next_unpin(&mut context) else {
        panic!("expected the free permit")
    };
    assert!(permits.poll_next_unpin(&mut context).is_pending());
    drop(one);
    assert!(matches!(permits.poll_next_unpin(&mut context), Poll::Ready(Some(_))));
    permits.close();
    assert!(matches!(permits.poll_next_unpin(&mut context), Poll::Ready(None)));
}

#[test]
fn timed_acquire_returns_an_owned_permit() {
    let semaphore = Arc::new(AsyncSemaphore::new(2));
    let both = semaphore.clone().blocking_acquire_timeout_owned(2, Duration::from_secs(30)).unwrap();
    let late = semaphore.clone().blocking_acquire_timeout_owned(1, Duration::from_millis(1));
    assert_eq!(late.unwrap_err(), TryAcquireError::NoPermits);
    semaphore.close();
    let refused = semaphore.clone().blocking_acquire_timeout_owned(1, Duration::from_secs(30));
    assert_eq!(refused.unwrap_err(), TryAcquireError::Closed);
    drop(both);
    assert_eq!(semaphore.available_permits(), 2);
}
