//! Guarantees documented at `AsyncSemaphore`, while wakers and other threads run.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock, mpsc};
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

const A_WHILE: Duration = Duration::from_millis(300);

/// Queue lengths around the size of a wake batch.
const ABOUT_A_BATCH: [usize; 7] = [1, 2, 31, 32, 33, 64, 100];

fn queue<'a>(semaphore: &'a AsyncSemaphore, len: usize, special: usize, waker: &Waker) -> Vec<Acquire<'a>> {
    let mut queue: Vec<_> = (0..len).map(|_| semaphore.acquire()).collect();
    for (number, waiter) in queue.iter_mut().enumerate() {
        let waker = if number == special { waker } else { Waker::noop() };
        assert!(poll_by(waiter, waker).is_pending());
    }
    queue
}

/// Runs each body repeatedly on a thread of its own.
fn against_each_other(bodies: &[&(dyn Fn() + Sync)]) {
    let start = Instant::now();
    thread::scope(|scope| {
        for body in bodies {
            scope.spawn(|| {
                while start.elapsed() < A_WHILE {
                    (0..100).for_each(|_| body());
                }
            });
        }
    });
}

/// Runs `one` and `other` at the same time for `rounds` rounds, each on a fresh value of `make`.
fn meet<T: Send + Sync>(
    rounds: usize,
    make: impl Fn() -> T,
    one: impl Fn(&T) + Sync,
    other: impl Fn(&T) + Sync,
) {
    let made: Vec<T> = (0..rounds).map(|_| make()).collect();
    let round = AtomicUsize::new(0);
    thread::scope(|scope| {
        for body in [&one as &(dyn Fn(&T) + Sync), &other] {
            let (made, round) = (&made, &round);
            scope.spawn(move || {
                // Even after a panic, so that the other thread does not wait.
                let _gone = AddsWhenDropped(round, 2 * rounds);
                for (number, made) in made.iter().enumerate() {
                    // Spin to this round, as sleeping threads would start at different times.
                    // Ordering: Relaxed, so that the start orders nothing under test.
                    round.fetch_add(1, Ordering::Relaxed);
                    // Ordering: Relaxed, as above.
                    while round.load(Ordering::Relaxed) < 2 * (number + 1) {
                        std::hint::spin_loop();
                    }
                    body(made);
                }
            });
        }
    });
}

struct AddsWhenDropped<'a>(&'a AtomicUsize, usize);

impl Drop for AddsWhenDropped<'_> {
    fn drop(&mut self) {
        // Ordering: Relaxed, only a counter.
        self.0.fetch_add(self.1, Ordering::Relaxed);
    }
}

// === No more permits than there should be ===

#[test]
fn lowering_and_raising_the_capacity_at_once_admits_no_one_more() {
    let semaphore = AsyncSemaphore::new(1);
    let held = semaphore.try_acquire().unwrap();
    let resize = || {
        semaphore.set_capacity(0);
        semaphore.set_capacity(1);
    };
    against_each_other(&[&resize, &resize, &|| {
        assert!(semaphore.try_acquire().is_err(), "expected no second permit of one");
        // The deficit has priority over a waiter, too.
        assert!(poll(&mut semaphore.acquire()).is_pending(), "expected no second permit of one");
    }]);
    semaphore.set_capacity(1);
    assert_eq!((semaphore.capacity(), semaphore.held(), semaphore.available_permits()), (1, 1, 0));
    drop(held);
    assert_eq!(semaphore.available_permits(), 1);
}

#[test]
fn capacity_lowered_beside_added_permits_admits_no_one_extra() {
    let semaphore = AsyncSemaphore::new(1);
    let held = semaphore.try_acquire().unwrap();
    // Each permit beyond the held one is removed again.
    against_each_other(&[
        &|| {
            semaphore.set_capacity(0);
            semaphore.add_permits(1);
        },
        &|| assert!(semaphore.try_acquire().is_err(), "expected no second permit of one"),
    ]);
    drop(held);
    assert_eq!(semaphore.available_permits(), semaphore.capacity());
}

// === Nothing in flight ===

/// Two threads share two permits, so each finds a free permit, even while the queue is in use.
#[test]
fn permit_that_no_one_else_wants_is_never_missed() {
    let semaphore = AsyncSemaphore::new(2);
    let barrier = Barrier::new(2);
    let rounds = 2000;
    let take = |take: &dyn Fn()| {
        for round in 0..rounds {
            if barrier.wait().is_leader() {
                let both = semaphore.try_acquire_many(2).unwrap();
                let mut waiter = semaphore.acquire_many(1 + round % 2);
                assert!(poll(&mut waiter).is_pending());
                drop(both);
                assert!(poll(&mut waiter).is_ready());
            }
            barrier.wait();
            (0..20).for_each(|_| take());
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            take(&|| assert!(poll(&mut semaphore.acquire()).is_ready(), "expected the free permit"))
        });
        scope.spawn(|| take(&|| drop(semaphore.try_acquire().expect("one permit is free"))));
    });
    assert_eq!(semaphore.available_permits(), 2);
}

#[test]
fn all_permits_are_free_or_assigned_when_a_waker_looks() {
    for len in ABOUT_A_BATCH {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let seen = Arc::new(AtomicUsize::new(usize::MAX));
        let looks = waker({
            let (semaphore, seen) = (Arc::clone(&semaphore), Arc::clone(&seen));
            // Ordering: Relaxed, one thread.
            move || seen.store(semaphore.available_permits(), Ordering::Relaxed)
        });
        let waiters = queue(&semaphore, len, 0, &looks);
        semaphore.add_permits(1000);
        // Ordering: Relaxed, as above.
        assert_eq!(seen.load(Ordering::Relaxed), 1000 - len);
        drop(waiters);
        assert_eq!(semaphore.available_permits(), 1000);
    }
}

#[test]
fn free_permits_can_be_taken_inside_of_a_waker() {
    for len in ABOUT_A_BATCH {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let taken = Arc::new(AtomicBool::new(false));
        let tries = waker({
            let (semaphore, taken) = (Arc::clone(&semaphore), Arc::clone(&taken));
            move || {
                assert!(semaphore.try_acquire_many(1000).is_err());
                drop(semaphore.try_acquire_many(900).expect("so many are left, and more"));
                assert!(poll(&mut semaphore.acquire_many(900)).is_ready());
                // Ordering: Relaxed, one thread.
                taken.store(true, Ordering::Relaxed);
            }
        });
        let waiters = queue(&semaphore, len, 0, &tries);
        semaphore.add_permits(1000);
        // Ordering: Relaxed, as above.
        assert!(taken.load(Ordering::Relaxed));
        drop(waiters);
    }
}

#[test]
fn waker_can_wait_for_a_free_permit() {
    for len in ABOUT_A_BATCH {
        for special in [0, len / 2, len - 1] {
            let semaphore = Arc::new(AsyncSemaphore::new(0));
            let blocks = waker({
                let semaphore = Arc::clone(&semaphore);
                move || drop(semaphore.blocking_acquire_timeout(900, SOON).expect("the permits are free"))
            });
            let mut waiters = queue(&semaphore, len, special, &blocks);
            semaphore.add_permits(1000);
            assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_ready()));
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

#[test]
fn notifications_inside_of_a_waker_do_not_add_up() {
    for len in ABOUT_A_BATCH {
        let latch = Arc::new(Latch::new());
        let releases = waker({
            let latch = Arc::clone(&latch);
            move || (0..10).for_each(|_| latch.release(1))
        });
        let mut waits: Vec<_> = (0..len).map(|_| Box::pin(latch.wait())).collect();
        for (number, wait) in waits.iter_mut().enumerate() {
            let waker = if number == 0 { &releases } else { Waker::noop() };
            assert!(poll_by(wait, waker).is_pending());
        }
        latch.release(len);
        for wait in &mut waits {
            let Poll::Ready(call) = poll_by(wait, Waker::noop()) else {
                panic!("expected the notification of each waiter")
            };
            call.consume();
        }
        assert_eq!(latch.pending(), 1, "expected one pending notification of {len} waiters");
    }
}

#[test]
fn notifications_inside_of_a_waker_do_not_wrap() {
    for len in ABOUT_A_BATCH {
        let latch = Arc::new(Latch::new());
        let releases = waker({
            let latch = Arc::clone(&latch);
            move || (0..5).for_each(|_| latch.release(AsyncSemaphore::MAX_PERMITS))
        });
        let mut waits: Vec<_> = (0..len).map(|_| Box::pin(latch.wait())).collect();
        for (number, wait) in waits.iter_mut().enumerate() {
            let waker = if number == 0 { &releases } else { Waker::noop() };
            assert!(poll_by(wait, waker).is_pending());
        }
        latch.release(len);
        assert_eq!(latch.pending(), AsyncSemaphore::MAX_PERMITS);
        drop(waits);
        assert_eq!(latch.pending(), AsyncSemaphore::MAX_PERMITS);
    }
}

#[test]
fn notifications_of_several_threads_never_exceed_the_largest() {
    let latch = Latch::new();
    let most = |n| {
        let kept = latch.pending();
        assert!(kept <= n, "expected {n} pending notifications at most, and found {kept}");
    };
    let wait = || {
        most(2);
        // Takes more notifications than exist: some waits stay pending and pass theirs on.
        drop((latch.try_wait(), poll(&mut Box::pin(latch.wait())), poll(&mut Box::pin(latch.wait()))));
    };
    against_each_other(&[&wait, &wait, &|| latch.release(1), &|| latch.release(2)]);
    most(2);
    latch.release(2);
    assert_eq!(latch.pending(), 2);
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

// === Closing ===

#[test]
fn permits_released_after_close_are_not_acquired() {
    meet(
        20_000,
        || AsyncSemaphore::new(0),
        |semaphore| {
            semaphore.close();
            semaphore.add_permits(1);
        },
        |semaphore| {
            let mut waiter = semaphore.acquire();
            for _ in 0..3 {
                assert!(semaphore.try_acquire().is_err(), "expected no permit after `close`");
                match poll(&mut waiter) {
                    Poll::Ready(granted) => {
                        return assert!(granted.is_err(), "expected no grant after `close`");
                    }
                    Poll::Pending => {}
                }
            }
        },
    );
}

#[test]
fn failure_for_want_of_permits_comes_before_close() {
    // A permit is free, so only `close` can cause a failure, and a success must precede `close`.
    let closed = || (AsyncSemaphore::new(1), AtomicBool::new(false));
    meet(
        20_000,
        closed,
        |(semaphore, is_closed)| {
            semaphore.close();
            // Ordering: Release, after `close`.
            is_closed.store(true, Ordering::Release);
        },
        |(semaphore, is_closed)| {
            // Ordering: Acquire, as above.
            let was_closed = is_closed.load(Ordering::Acquire);
            match semaphore.try_acquire() {
                Ok(_) => assert!(!was_closed, "expected no permit after `close`"),
                Err(error) => {
                    assert_eq!(error, TryAcquireError::Closed, "expected `Closed`, as a permit is free")
                }
            }
        },
    );
}

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
