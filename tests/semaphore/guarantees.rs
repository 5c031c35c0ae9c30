//! Guarantees documented at `AsyncSemaphore`, while wakers run. loom-tests have those beside other threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use latchwork::latch::Latch;
use latchwork::semaphore::{Acquire, AcquireOwned};
use latchwork::{AsyncSemaphore, TryAcquireError};

use latchwork_testkit::{Bell, waker};

use crate::wakers::{poll, poll_by};

/// Time limit for every step.
const SOON: Duration = Duration::from_secs(30);

/// Queue lengths around the size of a wake batch.
const ABOUT_A_BATCH: [usize; 7] = [1, 2, 31, 32, 33, 64, 100];

const MOST: usize = AsyncSemaphore::MAX_PERMITS;

fn queue<'a>(semaphore: &'a AsyncSemaphore, len: usize, special: usize, waker: &Waker) -> Vec<Acquire<'a>> {
    let mut queue: Vec<_> = (0..len).map(|_| semaphore.acquire()).collect();
    for (number, waiter) in queue.iter_mut().enumerate() {
        let waker = if number == special { waker } else { Waker::noop() };
        assert!(poll_by(waiter, waker).is_pending());
    }
    queue
}

// === Nothing in flight ===

/// Inside of a waker each permit is free or assigned.
#[test]
fn waker_can_take_or_await_free_permits() {
    type Uses = fn(&AsyncSemaphore, usize);
    let ways: [Uses; 3] = [
        |semaphore, len| assert_eq!(semaphore.available_permits(), 1000 - len),
        |semaphore, _| {
            assert!(semaphore.try_acquire_many(1000).is_err());
            drop(semaphore.try_acquire_many(900).expect("so many are left, and more"));
            assert!(poll(&mut semaphore.acquire_many(900)).is_ready());
        },
        |semaphore, _| drop(semaphore.blocking_acquire_timeout(900, SOON).expect("the permits are free")),
    ];
    for (uses, len) in ways.into_iter().flat_map(|uses| ABOUT_A_BATCH.map(|len| (uses, len))) {
        for special in [0, len / 2, len - 1] {
            let (semaphore, bell) = (Arc::new(AsyncSemaphore::new(0)), Bell::default());
            let waker = waker({
                let (semaphore, bell) = (Arc::clone(&semaphore), bell.clone());
                move || {
                    uses(&semaphore, len);
                    bell.ring();
                }
            });
            let mut waiters = queue(&semaphore, len, special, &waker);
            semaphore.add_permits(1000);
            assert_eq!(bell.rung(), 1, "expected no panic of the waker of {special} of {len}");
            assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_ready()));
            assert_eq!(semaphore.available_permits(), 1000);
        }
    }
}

/// A wake batch is called before later waiters are granted, as if the releasing thread stopped there.
#[test]
fn granted_waiters_poll_returns_while_the_granter_stalls() {
    for len in ABOUT_A_BATCH.into_iter().filter(|len| *len > 1) {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let ends: Arc<Mutex<Option<[AcquireOwned; 2]>>> = Arc::default();
        // Keep the permits, since dropping a permit settles, too.
        let held = Arc::new(Mutex::new(Vec::new()));
        let waker = {
            let (ends, held) = (Arc::clone(&ends), Arc::clone(&held));
            waker(move || {
                for waiter in ends.lock().unwrap().as_mut().unwrap() {
                    held.lock().unwrap().push(poll(waiter));
                }
            })
        };
        let mut waiters: Vec<_> = (0..len).map(|_| Arc::clone(&semaphore).acquire_owned()).collect();
        for (number, waiter) in waiters.iter_mut().enumerate() {
            let waker = if number == 0 { &waker } else { Waker::noop() };
            assert!(poll_by(waiter, waker).is_pending());
        }
        let last = waiters.pop().unwrap();
        *ends.lock().unwrap() = Some([waiters.swap_remove(0), last]);

        semaphore.add_permits(len);
        let ready = held.lock().unwrap().iter().filter(|poll| poll.is_ready()).count();
        assert_eq!(ready, 2, "expected grants for the first waiter and the last of {len}");
    }
}

#[test]
fn permits_added_inside_of_a_waker_are_free_inside_of_it() {
    for len in ABOUT_A_BATCH {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let adds = waker({
            let semaphore = Arc::clone(&semaphore);
            move || {
                semaphore.add_permits(5);
                assert_eq!(semaphore.available_permits(), 5);
                semaphore.try_acquire_many(5).expect("the permits were just added").forget();
            }
        });
        let mut waiters = queue(&semaphore, len, 0, &adds);
        semaphore.add_permits(len);
        assert_eq!(semaphore.available_permits(), 0);
        let mut served = Vec::new();
        for waiter in &mut waiters {
            let Poll::Ready(permit) = poll(waiter) else { panic!("expected the permit for each waiter") };
            served.push(permit);
        }
        drop(served);
        assert_eq!(semaphore.available_permits(), len);
    }
}

// === The latch's notifications ===

/// Nor do the largest numbers of notifications wrap.
#[test]
fn notifications_inside_of_a_waker_do_not_add_up() {
    for (len, released) in ABOUT_A_BATCH.into_iter().flat_map(|len| [(len, 1), (len, MOST)]) {
        let latch = Arc::new(Latch::new());
        let releases = waker({
            let latch = Arc::clone(&latch);
            move || (0..10).for_each(|_| latch.release(released))
        });
        let mut waits: Vec<_> = (0..len).map(|_| Box::pin(latch.wait())).collect();
        for (number, wait) in waits.iter_mut().enumerate() {
            let waker = if number == 0 { &releases } else { Waker::noop() };
            assert!(poll_by(wait, waker).is_pending());
        }
        latch.release(len);
        assert_eq!(latch.pending(), released, "expected the pending notifications beside {len} waiters");
        for wait in waits.iter_mut().filter(|_| released == 1) {
            let Poll::Ready(call) = poll_by(wait, Waker::noop()) else {
                panic!("expected the notification of each waiter")
            };
            call.consume();
        }
        drop(waits);
        assert_eq!(latch.pending(), released);
    }
}

// === Wakers inside of wakers ===

/// A waker blocks on a semaphore that a later waker closes; the queue exceeds a wake batch.
#[test]
fn waiter_blocking_inside_of_a_waker_is_woken_by_a_later_waker() {
    for len in ABOUT_A_BATCH {
        let (outer, closed) = (AsyncSemaphore::new(0), Arc::new(AsyncSemaphore::new(0)));
        let was_refused = Arc::new(AtomicBool::new(false));
        let blocks = waker({
            let (closed, was_refused) = (Arc::clone(&closed), Arc::clone(&was_refused));
            move || {
                let refused = closed.blocking_acquire_timeout(1, SOON).unwrap_err();
                assert_eq!(refused, TryAcquireError::Closed, "expected the waiter's end by `close`");
                // Ordering: Relaxed, one thread.
                was_refused.store(true, Ordering::Relaxed);
            }
        });
        let closes = waker({
            let closed = Arc::clone(&closed);
            move || closed.close()
        });
        let mut before = queue(&closed, len, usize::MAX, &blocks);
        let mut first = outer.acquire();
        assert!(poll_by(&mut first, &blocks).is_pending());
        let mut second = outer.acquire();
        assert!(poll_by(&mut second, &closes).is_pending());
        outer.add_permits(2);
        // Ordering: Relaxed, as above.
        assert!(was_refused.load(Ordering::Relaxed));
        assert!(before.iter_mut().all(|waiter| matches!(poll(waiter), Poll::Ready(Err(_)))));
    }
}

/// The blocked waker is woken by the last waiter of a long queue, which a later waker closes.
#[test]
fn blocked_waker_is_woken_through_another_semaphores_queue() {
    for len in ABOUT_A_BATCH {
        let (outer, closed) = (AsyncSemaphore::new(0), Arc::new(AsyncSemaphore::new(0)));
        let latch = Arc::new(Latch::new());
        let blocks = waker({
            let latch = Arc::clone(&latch);
            move || latch.blocking_wait_timeout(SOON).expect("the waiter is woken").consume()
        });
        let closes = waker({
            let closed = Arc::clone(&closed);
            move || closed.close()
        });
        let releases = waker(move || latch.release(1));
        let _waiters = queue(&closed, len, len - 1, &releases);
        let mut first = outer.acquire();
        assert!(poll_by(&mut first, &blocks).is_pending());
        let mut second = outer.acquire();
        assert!(poll_by(&mut second, &closes).is_pending());
        outer.add_permits(2);
    }
}

/// Two wakers of a batch block, the second within the first's sleep; the first's permit comes before the end.
#[test]
fn thread_does_not_sleep_past_a_permit_released_during_a_waker() {
    type Blocking = fn(&AsyncSemaphore);
    let ways: [Blocking; 2] = [
        |semaphore| drop(semaphore.blocking_acquire().expect("the semaphore is not closed")),
        |semaphore| drop(semaphore.blocking_acquire_timeout(1, 2 * SOON).expect("expected the grant")),
    ];
    for way in ways {
        let [trigger, first, second] = [(); 3].map(|()| Arc::new(AsyncSemaphore::new(0)));
        let (say, woken) = mpsc::channel();
        thread::spawn({
            let (trigger, blocked_on) = (Arc::clone(&trigger), [&first, &second].map(Arc::clone));
            move || {
                let mut waits = blocked_on.map(|on| {
                    let mut wait = trigger.acquire();
                    assert!(poll_by(&mut wait, &waker(move || way(&on))).is_pending());
                    wait
                });
                trigger.add_permits(2);
                assert!(waits.iter_mut().all(|wait| poll(wait).is_ready()));
                say.send(()).expect("the test waits");
            }
        });
        let start = Instant::now();
        while first.waiters() + second.waiters() < 2 {
            assert!(start.elapsed() < SOON, "expected both wakers to block");
            thread::yield_now();
        }
        first.add_permits(1);
        second.add_permits(1);
        woken.recv_timeout(SOON).expect("both permits are there, and the thread sleeps");
    }
}

/// The waker that could unblock the thread was not in the full batch, so its waiter is not granted yet.
#[test]
fn waker_that_blocks_is_woken_by_waiters_beyond_its_batch() {
    for len in ABOUT_A_BATCH.into_iter().filter(|len| *len > 1) {
        let (outer, latch) = (AsyncSemaphore::new(0), Arc::new(Latch::new()));
        let blocks = waker({
            let latch = Arc::clone(&latch);
            move || latch.blocking_wait_timeout(SOON).expect("the waiter is woken").consume()
        });
        let releases = waker(move || latch.release(1));
        let mut first = outer.acquire();
        assert!(poll_by(&mut first, &blocks).is_pending());
        let mut others = queue(&outer, len - 1, len - 2, &releases);
        outer.add_permits(len);
        assert!(poll(&mut first).is_ready());
        assert!(others.iter_mut().all(|waiter| poll(waiter).is_ready()));
    }
}

/// Waiters of each of ten thousand semaphores release the next.
#[test]
fn stack_does_not_grow_with_the_number_of_semaphores() {
    const SEMAPHORES: usize = 10_000;
    let chain = || {
        let semaphores: Arc<Vec<_>> = Arc::new((0..SEMAPHORES).map(|_| AsyncSemaphore::new(0)).collect());
        let reached = Arc::new(OnceLock::new());
        let mut waiters: Vec<_> = semaphores.iter().map(AsyncSemaphore::acquire).collect();
        for (number, waiter) in waiters.iter_mut().enumerate() {
            let (semaphores, reached) = (Arc::clone(&semaphores), Arc::clone(&reached));
            let releases = waker(move || match semaphores.get(number + 1) {
                Some(next) => next.add_permits(1),
                None => reached.set(()).expect("once"),
            });
            assert!(poll_by(waiter, &releases).is_pending());
        }
        semaphores[0].add_permits(1);
        assert!(reached.get().is_some(), "expected the wake-up of the last waiter");
        assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_ready()));
    };
    thread::Builder::new().stack_size(128 * 1024).spawn(chain).unwrap().join().unwrap();
}

// === Polling and blocking ===

#[test]
fn free_permit_is_had_by_the_first_poll_outside_of_a_tokio_task() {
    let semaphore = AsyncSemaphore::new(1);
    for _ in 0..1000 {
        assert!(poll(&mut semaphore.acquire()).is_ready());
    }
}

/// Without a second yield, an executor inside of the task would wait forever.
#[test]
fn acquisition_gives_way_once_when_tokios_budget_is_spent() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let semaphore = AsyncSemaphore::new(1);
    runtime.block_on(async {
        let mut free = (0..1000).filter(|_| poll(&mut semaphore.acquire()).is_ready()).count();
        assert!(
            (1..1000).contains(&free),
            "expected a budget spent in some of 1000 rounds, and {free} found it"
        );
        let calls = Bell::default();
        let counts = calls.waker();
        let (mut acquire, mut dropped) = (semaphore.acquire(), semaphore.acquire());
        assert!(poll_by(&mut dropped, &counts).is_pending());
        // The pending future has its permit, and so its position.
        assert_eq!((calls.rung(), semaphore.available_permits()), (1, 0));
        drop(dropped);
        assert_eq!(semaphore.available_permits(), 1);
        assert!(poll_by(&mut acquire, &counts).is_pending());
        let mut behind = semaphore.acquire();
        assert!(poll(&mut behind).is_pending());
        let Poll::Ready(permit) = poll_by(&mut acquire, &counts) else {
            panic!("expected the permit by the second poll")
        };
        assert!(poll(&mut behind).is_pending());
        drop(permit);
        assert!(poll(&mut behind).is_ready());
        tokio::task::yield_now().await;
        free = (0..100).filter(|_| poll(&mut semaphore.acquire()).is_ready()).count();
        assert_eq!(free, 100);
    });
}

/// An `unpark` during the blocking call must not be lost.
#[test]
fn blocking_call_leaves_the_park_token_of_its_thread() {
    let semaphore = AsyncSemaphore::new(0);
    let caller = thread::current();
    thread::scope(|scope| {
        scope.spawn(|| {
            while semaphore.waiters() == 0 {
                thread::yield_now();
            }
            caller.unpark();
            semaphore.add_permits(1);
        });
        drop(semaphore.blocking_acquire().unwrap());
        drop(semaphore.blocking_acquire_timeout(1, SOON).unwrap());
        let begun = Instant::now();
        thread::park_timeout(SOON);
        assert!(begun.elapsed() < SOON, "expected the thread's token kept");
    });
}
