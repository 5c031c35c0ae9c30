//! `AsyncSemaphore` by its public API. loom-tests cover interleavings.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures_util::StreamExt;
use latchwork::{AsyncSemaphore, PollSemaphore, SemaphorePermit, TryAcquireError};

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // Ordering: Relaxed, read by the waking thread.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bell {
    fn rung(&self) -> usize {
        // Ordering: Relaxed, as above.
        self.0.load(Ordering::Relaxed)
    }
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_with(future, Waker::noop())
}

fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

fn permit<'a, F>(future: &mut F) -> SemaphorePermit<'a>
where
    F: Future<Output = Result<SemaphorePermit<'a>, latchwork::AcquireError>> + Unpin,
{
    match poll(future) {
        Poll::Ready(permit) => permit.unwrap(),
        Poll::Pending => panic!("no permit came"),
    }
}

#[test]
fn permits_are_counted() {
    let semaphore = AsyncSemaphore::new(2);
    let one = semaphore.try_acquire().unwrap();
    let two = semaphore.try_acquire().unwrap();
    assert_eq!(semaphore.try_acquire().unwrap_err(), TryAcquireError::NoPermits);
    drop(one);
    assert_eq!(semaphore.available_permits(), 1);
    two.forget();
    assert_eq!(semaphore.available_permits(), 1);
    semaphore.add_permits(3);
    assert_eq!(semaphore.available_permits(), 4);
}

#[test]
fn waiters_are_served_in_order() {
    let semaphore = AsyncSemaphore::new(0);
    let mut waiters: Vec<_> = (0..5).map(|_| semaphore.acquire()).collect();
    for waiter in &mut waiters {
        assert!(poll(waiter).is_pending());
    }
    for next in 0..5 {
        semaphore.add_permits(1);
        for later in &mut waiters[next + 1..] {
            assert!(poll(later).is_pending());
        }
        permit(&mut waiters[next]).forget();
    }
}

#[test]
fn newcomer_waits_behind_those_that_wait() {
    let semaphore = AsyncSemaphore::new(0);
    let mut first = semaphore.acquire();
    assert!(poll(&mut first).is_pending());
    let mut second = semaphore.acquire();
    assert!(poll(&mut second).is_pending());
    semaphore.add_permits(1);
    assert!(poll(&mut second).is_pending());
    drop(permit(&mut first));
    drop(permit(&mut second));
}

#[test]
fn two_releases_wake_two_waiters() {
    let semaphore = AsyncSemaphore::new(0);
    let bells = [Arc::new(Bell::default()), Arc::new(Bell::default())];
    let mut waiters = [semaphore.acquire(), semaphore.acquire()];
    for (waiter, bell) in waiters.iter_mut().zip(&bells) {
        assert!(poll_with(waiter, &Waker::from(Arc::clone(bell))).is_pending());
    }
    semaphore.add_permits(1);
    semaphore.add_permits(1);
    assert_eq!([bells[0].rung(), bells[1].rung()], [1, 1]);
}

#[test]
fn cancelled_waiter_takes_no_permit() {
    let semaphore = AsyncSemaphore::new(0);
    let mut gone = semaphore.acquire();
    let mut stays = semaphore.acquire();
    assert!(poll(&mut gone).is_pending());
    assert!(poll(&mut stays).is_pending());
    drop(gone);
    semaphore.add_permits(1);
    drop(permit(&mut stays));
    assert_eq!(semaphore.available_permits(), 1);
}

#[test]
fn grant_of_a_dropped_waiter_goes_to_the_next() {
    let semaphore = AsyncSemaphore::new(0);
    let mut gone = semaphore.acquire();
    let mut stays = semaphore.acquire();
    assert!(poll(&mut gone).is_pending());
    assert!(poll(&mut stays).is_pending());
    semaphore.add_permits(1);
    drop(gone);
    drop(permit(&mut stays));
    assert_eq!(semaphore.available_permits(), 1);
}

#[test]
fn permits_too_few_for_the_head_are_free_once_it_is_cancelled() {
    let semaphore = AsyncSemaphore::new(3);
    let mut large = semaphore.acquire_many(5);
    assert!(poll(&mut large).is_pending());
    assert_eq!(semaphore.available_permits(), 0);
    assert_eq!(semaphore.try_acquire().unwrap_err(), TryAcquireError::NoPermits);
    drop(large);
    assert_eq!(semaphore.available_permits(), 3);
    assert!(semaphore.try_acquire_many(3).is_ok());
}

#[test]
fn cancelled_head_passes_all_free_permits_on() {
    let semaphore = AsyncSemaphore::new(3);
    let mut large = semaphore.acquire_many(5);
    assert!(poll(&mut large).is_pending());
    let mut behind = [semaphore.acquire_many(2), semaphore.acquire_many(2)];
    assert!(behind.iter_mut().all(|waiter| poll(waiter).is_pending()));
    drop(large);
    let two = permit(&mut behind[0]);
    assert!(poll(&mut behind[1]).is_pending());
    drop(two);
    drop(permit(&mut behind[1]));
    assert_eq!(semaphore.available_permits(), 3);
}

// === The capacity ===

#[test]
fn lowered_capacity_takes_effect_at_once() {
    let semaphore = AsyncSemaphore::new(3);
    let mut held = semaphore.try_acquire_many(3).unwrap();
    let mut waiter = semaphore.acquire();
    assert!(poll(&mut waiter).is_pending());
    semaphore.set_capacity(1);
    assert_eq!((semaphore.capacity(), semaphore.held(), semaphore.available_permits()), (1, 3, 0));
    for _ in 0..2 {
        drop(held.split(1));
        assert!(
            poll(&mut waiter).is_pending(),
            "expected the waiter to wait while released permits repay the deficit"
        );
    }
    drop(held);
    drop(permit(&mut waiter));
    assert_eq!((semaphore.capacity(), semaphore.held(), semaphore.available_permits()), (1, 0, 1));
}

#[test]
fn deficit_outlives_the_waiter_that_it_came_before() {
    let semaphore = AsyncSemaphore::new(2);
    let held = semaphore.try_acquire_many(2).unwrap();
    let mut waiters = [semaphore.acquire(), semaphore.acquire()];
    assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_pending()));
    semaphore.set_capacity(1);
    let [gone, mut stays] = waiters;
    drop(gone);
    drop(held);
    drop(permit(&mut stays));
    assert_eq!((semaphore.capacity(), semaphore.held(), semaphore.available_permits()), (1, 0, 1));
}

#[test]
fn added_permits_make_up_for_a_deficit_first() {
    let semaphore = AsyncSemaphore::new(2);
    let held = semaphore.try_acquire_many(2).unwrap();
    semaphore.set_capacity(0);
    semaphore.add_permits(2);
    assert_eq!((semaphore.capacity(), semaphore.held(), semaphore.available_permits()), (2, 2, 0));
    assert_eq!(semaphore.try_acquire().unwrap_err(), TryAcquireError::NoPermits);
    assert!(semaphore.try_acquire_many(0).is_ok());
    drop(held);
    assert_eq!(semaphore.available_permits(), 2);
}

#[test]
fn permits_too_few_for_the_head_are_removed_with_the_capacity() {
    let semaphore = AsyncSemaphore::new(3);
    let mut waiter = semaphore.acquire_many(4);
    assert!(poll(&mut waiter).is_pending());
    semaphore.set_capacity(1);
    semaphore.set_capacity(2);
    drop(waiter);
    assert_eq!((semaphore.capacity(), semaphore.held(), semaphore.available_permits()), (2, 0, 2));
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
fn cancelled_waiter_lets_go_of_its_waker() {
    let semaphore = AsyncSemaphore::new(0);
    let bell = Arc::new(Bell::default());
    let mut waiter = semaphore.acquire();
    assert!(poll_with(&mut waiter, &Waker::from(Arc::clone(&bell))).is_pending());
    assert_eq!(Arc::strong_count(&bell), 2);
    drop(waiter);
    assert_eq!(Arc::strong_count(&bell), 1);
}

#[test]
fn only_the_last_waker_is_called() {
    let semaphore = AsyncSemaphore::new(0);
    let (old, new) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
    let mut waiter = semaphore.acquire();
    assert!(poll_with(&mut waiter, &Waker::from(Arc::clone(&old))).is_pending());
    assert!(poll_with(&mut waiter, &Waker::from(Arc::clone(&new))).is_pending());
    assert_eq!(Arc::strong_count(&old), 1, "expected the drop of the replaced waker");
    semaphore.add_permits(1);
    assert_eq!((old.rung(), new.rung()), (0, 1));
}

#[test]
fn close_refuses_all_waiters() {
    let semaphore = AsyncSemaphore::new(0);
    let bell = Arc::new(Bell::default());
    let mut waiter = semaphore.acquire();
    assert!(poll_with(&mut waiter, &Waker::from(Arc::clone(&bell))).is_pending());
    semaphore.close();
    assert!(semaphore.is_closed());
    assert_eq!(bell.rung(), 1);
    assert!(matches!(poll(&mut waiter), Poll::Ready(Err(_))));
    assert!(matches!(poll(&mut semaphore.acquire()), Poll::Ready(Err(_))));
    semaphore.add_permits(1);
    assert_eq!(semaphore.try_acquire().unwrap_err(), TryAcquireError::Closed);
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
fn permit_returned_after_close_is_harmless() {
    let semaphore = AsyncSemaphore::new(1);
    let held = semaphore.try_acquire().unwrap();
    semaphore.close();
    drop(held);
    assert_eq!(semaphore.available_permits(), 1);
    assert!(semaphore.is_closed());
}

#[test]
#[should_panic(expected = "polled after it had returned ready")]
fn polling_after_ready_takes_no_second_permit() {
    let semaphore = AsyncSemaphore::new(2);
    let mut acquire = semaphore.acquire();
    permit(&mut acquire).forget();
    let _ = poll(&mut acquire);
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
}

#[test]
fn owned_permit_has_no_lifetime() {
    let semaphore = Arc::new(AsyncSemaphore::new(1));
    let owned = Arc::clone(&semaphore).try_acquire_owned().unwrap();
    let mut waiter = Arc::clone(&semaphore).acquire_owned();
    assert!(poll(&mut waiter).is_pending());
    thread::spawn(move || drop(owned)).join().unwrap();
    match poll(&mut waiter) {
        Poll::Ready(permit) => permit.unwrap().forget(),
        Poll::Pending => panic!("no permit came"),
    }
    drop(waiter);
    assert_eq!(Arc::strong_count(&semaphore), 1, "expected no reference from a forgotten permit");
    assert_eq!(semaphore.available_permits(), 0);
}

#[test]
fn debug_shows_the_queue() {
    let semaphore = AsyncSemaphore::new(0);
    let mut waiter = semaphore.acquire();
    assert!(poll(&mut waiter).is_pending());
    let shown = format!("{semaphore:?}");
    assert!(
        shown.contains("available_permits: 0") && shown.contains("queue: [Waiting { need: 1 }]"),
        "{shown}"
    );
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
