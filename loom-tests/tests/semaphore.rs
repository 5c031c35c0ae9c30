//! Models of `AsyncSemaphore`, the real code: permits, order, wakers. The name of each says the property. The
//! models of its memory are in `memory.rs`.
#![cfg(latchwork_loom)]

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use latchwork::latch::Latch;
use latchwork::semaphore::AcquireOwned;
use latchwork::{AsyncSemaphore, SemaphorePermit, TryAcquireError};
use loom::future::block_on;
use loom_tests::{is_ready, model, poll_once, spawn, start};

// === Release and enqueue ===

model! {
    /// The holder releases while a waiter enqueues: the waiter gets the permit, and is woken if it sleeps.
    release_wakes_waiter_that_enqueues {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let held = semaphore.try_acquire().unwrap();
        let waiter = spawn(&semaphore, |semaphore| {
            drop(block_on(semaphore.acquire()).unwrap());
        });
        drop(held);
        waiter.join().unwrap();
        assert_eq!(semaphore.available_permits(), 1);
    }
    fails_without_the_look: NoLook, "deadlock";
    // The sleeping thread's waker stays in the node.
    fails_if_the_waiter_is_not_woken: GrantedNotWoken, "Arc leaked";
}

model! {
    /// The same without sleeping: in the end, no waiter is pending beside a free permit.
    no_waiter_beside_free_permit {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        let mut waiter = semaphore.acquire();
        let early = is_ready(&mut waiter);
        releaser.join().unwrap();
        assert!(early || is_ready(&mut waiter), "pending beside a free permit");
        drop(waiter);
        assert_eq!(semaphore.available_permits(), 1);
    }
    fails_without_the_look: NoLook, "pending beside a free permit";
}

model! {
    /// The same behind a waiter: both released permits are granted, whichever of the two threads settles. If
    /// the waiter's thread is stopped between its CAS and its link, the releaser completes the link.
    release_reaches_waiter_that_enqueues_behind {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut first = semaphore.acquire();
        assert!(!is_ready(&mut first));
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(2));
        let mut second = semaphore.acquire();
        let early = poll_once(&mut second);
        releaser.join().unwrap();
        // The second waiter first: a granted waiter settles when it is polled.
        let second = if early.is_ready() { early } else { poll_once(&mut second) };
        assert!(matches!(&second, Poll::Ready(Ok(_))), "pending beside a free permit");
        let first = poll_once(&mut first);
        assert!(matches!(&first, Poll::Ready(Ok(_))), "the first waiter has no permit");
        drop((first, second));
        assert_eq!(semaphore.available_permits(), 2);
    }
    fails_without_the_look: NoLook, "pending beside a free permit";
    fails_if_links_are_not_completed: LinkNotCompleted, "exceeded maximum number of branches";
}

model! {
    /// Two waiters enqueue at once: both are in the queue, and each is granted its need.
    two_waiters_enqueue_at_once {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut theirs = Arc::clone(&semaphore).acquire_many_owned(2);
        let other = start(move || {
            assert!(!is_ready(&mut theirs));
            theirs
        });
        let mut mine = semaphore.acquire();
        assert!(!is_ready(&mut mine));
        let mut theirs = other.join().unwrap();
        assert_eq!(semaphore.waiters(), 2);
        semaphore.add_permits(3);
        let polled = (poll_once(&mut theirs), poll_once(&mut mine));
        let (Poll::Ready(Ok(theirs)), Poll::Ready(Ok(mine))) = polled else {
            panic!("a waiter is not in the queue");
        };
        assert_eq!((theirs.num_permits(), mine.num_permits()), (2, 1));
        drop((theirs, mine));
        assert_eq!(semaphore.available_permits(), 3);
    }
}

model! {
    /// A newcomer does not overtake a waiter, at any step of the release.
    waiter_is_not_overtaken {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        let mut waiter = semaphore.acquire();
        if !is_ready(&mut waiter) {
            let mut newcomer = semaphore.acquire();
            assert!(!is_ready(&mut newcomer), "overtaken");
            assert!(semaphore.try_acquire().is_err(), "overtaken");
            releaser.join().unwrap();
            assert!(is_ready(&mut waiter), "pending beside a free permit");
            assert!(is_ready(&mut newcomer), "released, and it is the next");
        } else {
            releaser.join().unwrap();
        }
        drop(waiter);
        assert_eq!(semaphore.available_permits(), 1);
    }
    fails_without_the_look: NoLook, "pending beside a free permit";
}

// === Two releases ===

model! {
    /// Two releases of one permit add up for a waiter of two, and do not reach the waiter behind.
    two_releases_add_up_for_large_waiter {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let (mut large, mut small) = (semaphore.acquire_many(2), semaphore.acquire());
        assert!(!is_ready(&mut large) && !is_ready(&mut small));
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        semaphore.add_permits(1);
        releaser.join().unwrap();
        assert!(!is_ready(&mut small), "overtaken");
        let Poll::Ready(Ok(two)) = poll_once(&mut large) else { panic!("the permits did not add up") };
        drop(two);
        assert!(is_ready(&mut small));
        drop(small);
        assert_eq!(semaphore.available_permits(), 2);
    }
}

model! {
    /// Two releases that find the same two waiters grant one permit to each.
    two_releases_serve_two_waiters with 1 less {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let (mut first, mut second) = (semaphore.acquire(), semaphore.acquire());
        assert!(!is_ready(&mut first) && !is_ready(&mut second));
        let releasers = [(); 2].map(|()| spawn(&semaphore, |semaphore| semaphore.add_permits(1)));
        for releaser in releasers {
            releaser.join().unwrap();
        }
        let both = (poll_once(&mut first), poll_once(&mut second));
        assert!(matches!(&both, (Poll::Ready(Ok(_)), Poll::Ready(Ok(_)))), "the second release served no waiter");
        drop(both);
        assert_eq!(semaphore.available_permits(), 2);
    }
}

// === Cancel ===

model! {
    /// A waiter is dropped while it is granted a permit: the next waiter gets the permit, once.
    cancelled_waiter_passes_grant_on {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let (mut first, mut second) = (semaphore.acquire(), semaphore.acquire());
        assert!(!is_ready(&mut first) && !is_ready(&mut second));
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        drop(first);
        releaser.join().unwrap();
        assert!(is_ready(&mut second), "the permit was lost with the waiter");
        drop(second);
        assert_eq!(semaphore.available_permits(), 1);
    }
    fails_if_the_grant_dies_with_the_waiter: GrantDiesWithWaiter, "the permit was lost with the waiter";
}

model! {
    /// A waiter for two is dropped while one permit is released: the permit suffices for the waiter behind.
    release_passes_cancelled_large_head {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let (mut large, mut small) = (semaphore.acquire_many(2), semaphore.acquire());
        assert!(!is_ready(&mut large) && !is_ready(&mut small));
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        drop(large);
        releaser.join().unwrap();
        assert!(is_ready(&mut small), "pending behind a cancelled waiter");
        drop(small);
        assert_eq!(semaphore.available_permits(), 1);
    }
    fails_without_the_look: NoLook, "pending behind a cancelled waiter";
}

// === Wakers ===

model! {
    /// A waiter is polled with another waker while it is granted its permit: the new waker is called, or the
    /// poll is ready. The first waker leads nowhere: a wait for its call would deadlock.
    grant_wakes_latest_waker {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let waiter = spawn(&semaphore, |semaphore| {
            let mut waiter = semaphore.acquire();
            if let Poll::Ready(permit) = poll_once(&mut waiter) {
                return drop(permit);
            }
            drop(block_on(waiter));
        });
        semaphore.add_permits(1);
        waiter.join().unwrap();
        assert_eq!(semaphore.available_permits(), 1);
    }
    fails_if_published_without_a_look: PublishWithoutLook, "deadlock";
    fails_if_the_waiter_is_not_woken: GrantedNotWoken, "deadlock";
}

/// A waker whose clones can be counted.
struct Counted;

impl Wake for Counted {
    fn wake(self: Arc<Self>) {}
}

model! {
    /// A wait that ends while its waker is replaced keeps neither waker, though the node lives on.
    no_waker_outlives_its_wait {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let (first, second) = (Arc::new(Counted), Arc::new(Counted));
        let mut waiter = Box::pin(semaphore.acquire());
        let waker = Waker::from(Arc::clone(&first));
        assert!(waiter.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        let changed = Waker::from(Arc::clone(&second));
        let early = waiter.as_mut().poll(&mut Context::from_waker(&changed)).is_ready();
        releaser.join().unwrap();
        drop((waker, changed));
        assert!(early || is_ready(&mut waiter));
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 1), "a waker was left behind");
        drop(waiter);
        assert_eq!(semaphore.available_permits(), 1);
    }
    fails_if_a_waker_outlives_its_wait: WakerOutlivesWait, "a waker was left behind";
}

model! {
    /// A waiter replaces its waker while it is closed: either waker ends its sleep.
    close_wakes_latest_waker {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let waiter = spawn(&semaphore, |semaphore| {
            let mut waiter = semaphore.acquire();
            match poll_once(&mut waiter) {
                Poll::Ready(refused) => refused.is_err(),
                Poll::Pending => block_on(waiter).is_err(),
            }
        });
        semaphore.close();
        assert!(waiter.join().unwrap());
    }
    fails_if_published_without_a_look: PublishWithoutLook, "deadlock";
    fails_if_the_waiter_is_not_woken: GrantedNotWoken, "deadlock";
}

model! {
    /// The first waiter replaces its waker while the capacity is lowered: it still waits, behind the deficit.
    deficit_does_not_end_wait_of_changing_waker {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let held = semaphore.try_acquire().unwrap();
        let mut waiter = semaphore.acquire();
        assert!(!is_ready(&mut waiter));
        let resizer = spawn(&semaphore, |semaphore| semaphore.set_capacity(0));
        let changed = Waker::from(Arc::new(Counted));
        let early = Pin::new(&mut waiter).poll(&mut Context::from_waker(&changed));
        assert!(early.is_pending(), "granted a permit that does not exist");
        resizer.join().unwrap();
        drop(held);
        assert!(!is_ready(&mut waiter), "granted a permit that does not exist");
        semaphore.add_permits(1);
        assert!(is_ready(&mut waiter));
        drop(waiter);
        assert_eq!(semaphore.available_permits(), 1);
    }
    fails_if_the_deficit_ends_the_wait: DeficitEndsWait, "granted a permit that does not exist";
}

model! {
    /// The same, and the waiter is granted a permit at once: only one of the two threads accesses the waker's
    /// slot at a time, and no waker is left there.
    grant_past_deficit_leaves_slot_to_its_owner {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let held = semaphore.try_acquire().unwrap();
        let (first, second) = (Arc::new(Counted), Arc::new(Counted));
        let mut waiter = semaphore.acquire();
        let waker = Waker::from(Arc::clone(&first));
        assert!(Pin::new(&mut waiter).poll(&mut Context::from_waker(&waker)).is_pending());
        let resizer = spawn(&semaphore, |semaphore| {
            semaphore.set_capacity(0);
            semaphore.add_permits(2);
        });
        let changed = Waker::from(Arc::clone(&second));
        let early = Pin::new(&mut waiter).poll(&mut Context::from_waker(&changed)).is_ready();
        resizer.join().unwrap();
        drop((waker, changed));
        assert!(early || is_ready(&mut waiter), "pending beside a free permit");
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 1), "a waker was left behind");
        drop((waiter, held));
        assert_eq!(semaphore.available_permits(), 2);
    }
    fails_if_the_deficit_forgets_the_owner: DeficitForgetsOwner, "";
}

// === Close ===

model! {
    /// The semaphore is closed while a waiter enqueues: the waiter is refused, and does not sleep for ever.
    close_ends_waiter_that_enqueues {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let waiter = spawn(&semaphore, |semaphore| block_on(semaphore.acquire()).is_err());
        semaphore.close();
        assert!(waiter.join().unwrap());
        assert_eq!(semaphore.available_permits(), 0);
    }
    fails_if_the_waiter_is_not_woken: GrantedNotWoken, "deadlock";
}

model! {
    /// A settler that met a closed waiter grants nothing to the waiters behind it.
    no_waiter_is_granted_behind_closed_waiter {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let (mut large, mut small) = (semaphore.acquire_many(2), semaphore.acquire());
        assert!(!is_ready(&mut large) && !is_ready(&mut small));
        let settler = spawn(&semaphore, |semaphore| semaphore.available_permits());
        semaphore.close();
        settler.join().unwrap();
        assert!(matches!(poll_once(&mut large), Poll::Ready(Err(_))), "a closed semaphore's waiter is pending");
        assert!(matches!(poll_once(&mut small), Poll::Ready(Err(_))), "granted behind a closed waiter");
        assert_eq!(semaphore.available_permits(), 1);
    }
}

model! {
    /// The semaphore is closed while a permit is released: the waiter gets the error or the permit.
    close_vs_grant_counts_each_permit_once {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut waiter = semaphore.acquire();
        assert!(!is_ready(&mut waiter));
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        semaphore.close();
        releaser.join().unwrap();
        match poll_once(&mut waiter) {
            Poll::Ready(Ok(permit)) => {
                assert_eq!(semaphore.available_permits(), 0);
                drop(permit);
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => panic!("a closed semaphore's waiter is pending"),
        }
        assert_eq!(semaphore.available_permits(), 1);
    }
}

model! {
    /// A thread that has seen the close releases a permit: the waiter gets the error, and the permit is free.
    release_after_close_grants_nothing {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut waiter = semaphore.acquire();
        assert!(!is_ready(&mut waiter));
        let closer = spawn(&semaphore, AsyncSemaphore::close);
        if semaphore.is_closed() {
            semaphore.add_permits(1);
            assert!(matches!(poll_once(&mut waiter), Poll::Ready(Err(_))), "granted after the close");
        }
        closer.join().unwrap();
    }
    fails_without_the_look_at_closed: NoLookAtClosed, "granted after the close";
}

model! {
    /// A thread that gets `Closed` finds all waiters ended, though the closing thread may be stopped.
    closed_is_not_returned_beside_pending_waiter {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut waiter = semaphore.acquire();
        assert!(!is_ready(&mut waiter));
        let closer = spawn(&semaphore, AsyncSemaphore::close);
        if matches!(semaphore.try_acquire(), Err(TryAcquireError::Closed)) {
            assert!(is_ready(&mut waiter), "pending though `Closed` was returned");
        }
        closer.join().unwrap();
        drop(waiter);
        assert!(matches!(semaphore.try_acquire(), Err(TryAcquireError::Closed)));
    }
    fails_if_closed_is_returned_at_once: ClosedNotSettled, "pending though `Closed` was returned";
}

model! {
    /// The holder releases while a task drains: the task is woken, and finds no permit held.
    last_release_ends_drain {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let held = semaphore.try_acquire().unwrap();
        let drainer = spawn(&semaphore, |semaphore| {
            block_on(pin!(semaphore.drain()));
            semaphore.held()
        });
        drop(held);
        assert_eq!(drainer.join().unwrap(), 0, "drained with a held permit");
    }
    fails_if_counted_before_there_is_a_place: CountsBeforePlace, "deadlock";
    fails_if_no_release_tells: LastReleaseNotTold, "deadlock";
}

model! {
    /// A holder forgets its permit while a task drains: there is no last release, and the task ends.
    forgotten_permit_ends_drain {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let held = semaphore.try_acquire().unwrap();
        let drainer = spawn(&semaphore, |semaphore| block_on(pin!(semaphore.drain())));
        held.forget();
        drainer.join().unwrap();
        assert_eq!(semaphore.capacity(), 0);
    }
    fails_if_counted_before_there_is_a_place: CountsBeforePlace, "deadlock";
}

model! {
    /// A permit is taken, and the semaphore drained, while another permit is forgotten: the task waits for
    /// the taken permit.
    drain_waits_for_permit_taken_just_before {
        let semaphore = Arc::new(AsyncSemaphore::new(2));
        let forgotten = Arc::clone(&semaphore).try_acquire_owned().unwrap();
        let forgetter = start(|| forgotten.forget());
        let held = semaphore.try_acquire().unwrap();
        let mut drained = Box::pin(semaphore.drain());
        assert!(!is_ready(&mut drained), "drained with a held permit");
        forgetter.join().unwrap();
        assert!(!is_ready(&mut drained), "drained with a held permit");
        drop(held);
        assert!(is_ready(&mut drained), "drains on without a held permit");
    }
    fails_if_counted_while_open: CountsWhileOpen, "drained with a held permit";
}

model! {
    /// The capacity rises and falls while a permit is held: no drain ends, as the permit always counts.
    changing_capacity_ends_no_drain with 1 less {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let held = semaphore.try_acquire().unwrap();
        let resizer = spawn(&semaphore, |semaphore| {
            semaphore.set_capacity(2);
            semaphore.set_capacity(1);
        });
        let mut drained = Box::pin(semaphore.drain());
        assert!(!is_ready(&mut drained), "drained with a held permit");
        resizer.join().unwrap();
        assert!(!is_ready(&mut drained), "drained with a held permit");
        drop(held);
        assert!(is_ready(&mut drained), "drains on without a held permit");
    }
    fails_if_the_consumption_is_read_once: HeldReadOnce, "drained with a held permit";
}

model! {
    /// Another permit is taken and forgotten while a permit is held and counted.
    held_permit_counts_beside_forgotten_one {
        let semaphore = Arc::new(AsyncSemaphore::new(2));
        let held = semaphore.try_acquire().unwrap();
        let forgetter = spawn(&semaphore, |semaphore| semaphore.try_acquire().unwrap().forget());
        assert!(semaphore.held() >= 1, "a held permit does not count");
        forgetter.join().unwrap();
        drop(held);
        assert_eq!((semaphore.held(), semaphore.capacity()), (0, 1));
    }
    fails_if_the_consumption_is_read_once: HeldReadOnce, "a held permit does not count";
}

model! {
    /// Two tasks begin to drain at once, and meet the last release: both end, though one is not polled while
    /// the other waits.
    last_release_ends_each_drain with 2 less {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let held = semaphore.try_acquire().unwrap();
        let drainer = spawn(&semaphore, |semaphore| block_on(pin!(semaphore.drain())));
        let mut early = Box::pin(semaphore.drain());
        assert!(!is_ready(&mut early), "drained with a held permit");
        drop(held);
        drainer.join().unwrap();
        assert!(is_ready(&mut early), "drains on without a held permit");
    }
}

// === Trying and looking ===

model! {
    /// A released permit is taken by `try_acquire` or granted to the waiter; never both, and never neither.
    released_permit_is_taken_once {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut waiter = semaphore.acquire();
        assert!(!is_ready(&mut waiter));
        let tries = spawn(&semaphore, |semaphore| match semaphore.try_acquire() {
            Ok(permit) => {
                permit.forget();
                true
            }
            Err(TryAcquireError::NoPermits) => false,
            Err(TryAcquireError::Closed) => unreachable!(),
        });
        semaphore.add_permits(1);
        let taken = tries.join().unwrap();
        assert!(!taken, "overtaken");
        assert!(is_ready(&mut waiter));
        drop(waiter);
        assert_eq!(semaphore.available_permits(), 1);
    }
}

/// A semaphore without a waiter whose queue is in use, until the next `try_acquire`.
fn with_queue_in_use(permits: usize) -> Arc<AsyncSemaphore> {
    let semaphore = Arc::new(AsyncSemaphore::new(0));
    let mut earlier = semaphore.acquire();
    assert!(!is_ready(&mut earlier));
    semaphore.add_permits(1);
    let Poll::Ready(Ok(permit)) = poll_once(&mut earlier) else { panic!("a permit was added") };
    permit.forget();
    drop(earlier);
    if permits > 0 {
        semaphore.add_permits(permits);
    }
    semaphore
}

model! {
    /// Two threads release a permit and try to acquire one: no try fails, as each permit is free until taken.
    try_acquire_fails_only_without_permits with 2 less {
        let semaphore = with_queue_in_use(0);
        let release_and_try = |semaphore: &AsyncSemaphore| {
            semaphore.add_permits(1);
            semaphore.try_acquire().expect("a permit was free all the time").forget();
        };
        let other = spawn(&semaphore, release_and_try);
        release_and_try(&semaphore);
        other.join().unwrap();
        assert_eq!(semaphore.available_permits(), 0);
    }
    fails_if_tries_do_not_settle: TryWithoutSettle, "a permit was free all the time";
}

model! {
    /// One of two permits is released and another taken: one is free at any moment, so a try succeeds.
    try_succeeds_beside_release_and_take {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let other = spawn(&semaphore, |semaphore| {
            semaphore.add_permits(1);
            semaphore.try_acquire().expect("a permit was free all the time").forget();
        });
        semaphore.try_acquire().expect("a permit was free all the time").forget();
        other.join().unwrap();
        assert_eq!(semaphore.available_permits(), 0);
    }
}

model! {
    /// The same while the queue is in use.
    try_succeeds_beside_release_and_take_in_used_queue with 2 less {
        let semaphore = with_queue_in_use(1);
        let other = spawn(&semaphore, |semaphore| {
            semaphore.add_permits(1);
            semaphore.try_acquire().expect("a permit was free all the time").forget();
        });
        semaphore.try_acquire().expect("a permit was free all the time").forget();
        other.join().unwrap();
        assert_eq!(semaphore.available_permits(), 0);
    }
    fails_if_tries_do_not_settle: TryWithoutSettle, "a permit was free all the time";
}

/// A semaphore whose queue stays in use: the returned, granted waiter has not been polled since.
fn with_queue_kept_in_use(permits: usize) -> (Arc<AsyncSemaphore>, AcquireOwned) {
    let semaphore = Arc::new(AsyncSemaphore::new(0));
    let mut granted = Arc::clone(&semaphore).acquire_owned();
    assert!(!is_ready(&mut granted));
    semaphore.add_permits(1);
    semaphore.add_permits(permits);
    (semaphore, granted)
}

model! {
    /// The same while the queue stays in use, because a granted waiter has not been polled.
    try_succeeds_beside_release_and_take_in_kept_queue with 2 less {
        let (semaphore, granted) = with_queue_kept_in_use(1);
        let other = spawn(&semaphore, |semaphore| {
            semaphore.add_permits(1);
            semaphore.try_acquire().expect("a permit was free all the time").forget();
        });
        semaphore.try_acquire().expect("a permit was free all the time").forget();
        other.join().unwrap();
        drop(granted);
    }
}

model! {
    /// Exactly one of two tries for a permit succeeds, while the queue is in use.
    one_of_two_tries_succeeds {
        let semaphore = with_queue_in_use(1);
        let try_it = |it: &AsyncSemaphore| it.try_acquire().map(SemaphorePermit::forget).is_ok();
        let other = spawn(&semaphore, try_it);
        let mine = try_it(&semaphore);
        assert_ne!(mine, other.join().unwrap(), "one permit, and two tries");
        assert_eq!(semaphore.available_permits(), 0);
    }
}

model! {
    /// A permit is taken directly while the queue is in use and a waiter enqueues for another: both get one.
    direct_take_vs_enqueue with 1 less {
        let semaphore = with_queue_in_use(2);
        let taker = spawn(&semaphore, |it| it.try_acquire().map(SemaphorePermit::forget).is_ok());
        let mut waiter = semaphore.acquire();
        let got = poll_once(&mut waiter);
        assert!(taker.join().unwrap(), "two permits, and a try has failed");
        let Poll::Ready(Ok(permit)) = got else { panic!("two permits, and a waiter is pending") };
        assert_eq!(semaphore.available_permits(), 0);
        drop(permit);
        assert_eq!(semaphore.available_permits(), 1);
    }
}

model! {
    /// Permits are taken and released: `available_permits` is the free count at some moment.
    available_permits_is_exact_at_some_moment {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let taker = spawn(&semaphore, |semaphore| drop(semaphore.try_acquire().unwrap()));
        let available = semaphore.available_permits();
        taker.join().unwrap();
        assert!(available <= 1, "{available} of 1 permit were free");
        assert_eq!(semaphore.available_permits(), 1);
    }
    fails_if_the_two_numbers_are_read_once: FreeReadOnce, "2 of 1 permit were free";
}

// === The capacity ===

model! {
    /// The capacity is lowered while permits are released: in the end the free count is as intended.
    lowering_takes_released_permits_out {
        let semaphore = Arc::new(AsyncSemaphore::new(2));
        let held = semaphore.try_acquire_many(2).unwrap();
        let resizer = spawn(&semaphore, |semaphore| semaphore.set_capacity(1));
        drop(held);
        resizer.join().unwrap();
        assert_eq!(semaphore.available_permits(), 1, "the capacity is not what was asked for");
    }
    fails_if_only_free_permits_are_taken_out: OnlyFreeReduced, "the capacity is not what was asked for";
}

model! {
    /// One thread lowers the capacity to the held permits, another raises it: no second permit ever exists.
    lowering_vs_raising_admits_no_more {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let held = semaphore.try_acquire().unwrap();
        let other = spawn(&semaphore, |semaphore| {
            semaphore.set_capacity(0);
            semaphore.set_capacity(1);
        });
        semaphore.set_capacity(1);
        assert!(semaphore.try_acquire().is_err(), "more permits than the capacity ever was");
        other.join().unwrap();
        drop(held);
        let (capacity, available) = (semaphore.capacity(), semaphore.available_permits());
        assert_eq!(capacity, available, "the capacity is not what was asked for");
    }
    fails_if_only_free_permits_are_taken_out: OnlyFreeReduced, "";
}

model! {
    /// Two threads lower the capacity at once: capacity and free permits are one of the two numbers.
    lowering_vs_lowering_takes_out_what_one_does {
        let semaphore = Arc::new(AsyncSemaphore::new(3));
        let other = spawn(&semaphore, |semaphore| semaphore.set_capacity(1));
        semaphore.set_capacity(2);
        other.join().unwrap();
        let (capacity, available) = (semaphore.capacity(), semaphore.available_permits());
        assert_eq!(capacity, available, "the capacity is not what was asked for");
    }
    fails_if_it_is_lowered_twice: LoweredTwice, "the capacity is not what was asked for";
}

model! {
    /// The capacity is lowered during a grant to the first waiter: the deficit is before the waiter or after.
    lowering_vs_grant_keeps_the_deficit {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let held = semaphore.try_acquire().unwrap();
        let mut waiter = semaphore.acquire();
        assert!(!is_ready(&mut waiter));
        let resizer = spawn(&semaphore, |semaphore| semaphore.set_capacity(0));
        drop(held);
        resizer.join().unwrap();
        let permit = poll_once(&mut waiter);
        assert_eq!(semaphore.available_permits(), 0, "the capacity is not what was asked for");
        drop(permit);
        drop(waiter);
        assert_eq!(semaphore.available_permits(), 0, "the capacity is not what was asked for");
    }
    fails_if_only_free_permits_are_taken_out: OnlyFreeReduced, "the capacity is not what was asked for";
}

model! {
    /// The first waiter is dropped while the capacity is lowered: the deficit stays.
    deficit_outlives_cancelled_waiter {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let held = semaphore.try_acquire().unwrap();
        let (mut first, mut second) = (semaphore.acquire(), semaphore.acquire());
        assert!(!is_ready(&mut first) && !is_ready(&mut second));
        let resizer = spawn(&semaphore, |semaphore| semaphore.set_capacity(0));
        drop(first);
        resizer.join().unwrap();
        drop(held);
        assert!(!is_ready(&mut second), "a permit exists that was taken out");
        drop(second);
        assert_eq!(semaphore.available_permits(), 0, "a permit exists that was taken out");
    }
    fails_if_the_deficit_dies_with_the_waiter: DeficitDiesWithWaiter, "a permit exists that was taken out";
}

// === Latches ===

model! {
    /// A latch is notified while a waiter enqueues: the notification is not lost.
    notification_reaches_waiter_that_enqueues {
        let latch = Arc::new(Latch::new());
        let waiter = {
            let latch = Arc::clone(&latch);
            start(move || block_on(latch.wait()).consume())
        };
        latch.release(1);
        waiter.join().unwrap();
        assert_eq!(latch.pending(), 0);
    }
    fails_without_the_look: NoLook, "deadlock";
}

model! {
    /// A latch without waiters is notified twice at once: a single notification is pending.
    two_notifications_do_not_add_up {
        let latch = Arc::new(Latch::new());
        let other = {
            let latch = Arc::clone(&latch);
            start(move || latch.release(1))
        };
        latch.release(1);
        other.join().unwrap();
        assert_eq!(latch.pending(), 1, "notifications have added up");
    }
    fails_if_notifications_add_up: NotificationsAddUp, "notifications have added up";
}

model! {
    /// The same while the queue is in use.
    two_notifications_do_not_add_up_in_used_queue {
        let latch = Arc::new(Latch::new());
        // Its notification is passed on, and then pending.
        let mut earlier = Box::pin(latch.wait());
        assert!(!is_ready(&mut earlier));
        latch.release(1);
        drop(earlier);
        latch.try_wait().expect("passed on").consume();
        let other = {
            let latch = Arc::clone(&latch);
            start(move || latch.release(1))
        };
        latch.release(1);
        other.join().unwrap();
        assert_eq!(latch.pending(), 1, "notifications have added up");
    }
    fails_if_notifications_add_up: NotificationsAddUp, "notifications have added up";
}

model! {
    /// A thread notifies twice; another takes the pending notification and sees none: two become pending.
    pending_is_no_part_of_a_notification {
        let latch = Arc::new(Latch::new());
        latch.release(1);
        let taker = {
            let latch = Arc::clone(&latch);
            start(move || {
                latch.try_wait().expect("kept").consume();
                latch.pending()
            })
        };
        latch.release(2);
        let left = taker.join().unwrap();
        // The notification came before the take, or before the second read, or after it.
        assert!(latch.pending() >= if left == 0 { 2 } else { 1 }, "a notification was lost");
    }
    fails_if_what_was_pending_counts: PendingCountsAsGiven, "a notification was lost";
}

model! {
    /// A waiter of a latch is dropped while it is notified: the notification is pending.
    cancelled_waiter_passes_notification_on {
        let latch = Arc::new(Latch::new());
        let mut waiter = Box::pin(latch.wait());
        assert!(!is_ready(&mut waiter));
        let notifier = {
            let latch = Arc::clone(&latch);
            start(move || latch.release(1))
        };
        drop(waiter);
        notifier.join().unwrap();
        assert_eq!(latch.pending(), 1, "the notification was lost");
    }
    fails_if_the_grant_dies_with_the_waiter: GrantDiesWithWaiter, "the notification was lost";
}

// === Memory ordered by a permit ===

/// A number, touched only by the holder of the single permit.
struct Protected(AsyncSemaphore, loom::cell::UnsafeCell<u32>);

// SAFETY: only the permit's holder touches the cell; the semaphore's exclusion is under test.
unsafe impl Sync for Protected {}
// SAFETY: as above; a number may be sent.
unsafe impl Send for Protected {}

impl Protected {
    fn new() -> Arc<Self> {
        Arc::new(Self(AsyncSemaphore::new(1), loom::cell::UnsafeCell::new(0)))
    }

    fn add_one(&self) {
        // SAFETY: the caller holds the one permit.
        self.1.with_mut(|number| unsafe { *number += 1 });
    }
}

model! {
    /// Two threads take turns at a permit; the first thread's writes happen before the second thread's.
    permit_orders_plain_memory_by_waiting {
        let shared = Protected::new();
        let take_turn = |shared: &Protected| {
            let _permit = block_on(shared.0.acquire()).unwrap();
            shared.add_one();
        };
        let other = {
            let shared = Arc::clone(&shared);
            start(move || take_turn(&shared))
        };
        take_turn(&shared);
        other.join().unwrap();
        // SAFETY: the other thread has ended.
        assert_eq!(shared.1.with(|number| unsafe { *number }), 2);
        assert_eq!(shared.0.available_permits(), 1);
    }
}

model! {
    /// The same by polling, without a waker that orders anything.
    permit_orders_plain_memory_by_polling {
        let shared = Protected::new();
        let held = shared.0.try_acquire().unwrap();
        let waiter = {
            let shared = Arc::clone(&shared);
            start(move || {
                let mut waiter = shared.0.acquire();
                for _ in 0..2 {
                    if let Poll::Ready(Ok(_permit)) = poll_once(&mut waiter) {
                        return shared.add_one();
                    }
                }
            })
        };
        shared.add_one();
        drop(held);
        waiter.join().unwrap();
        assert_eq!(shared.0.available_permits(), 1);
    }
}

model! {
    /// The holder's writes happen before the reads of a task that has drained the semaphore.
    drain_orders_plain_memory with 1 less {
        let shared = Protected::new();
        let held = shared.0.try_acquire().unwrap();
        let drainer = {
            let shared = Arc::clone(&shared);
            start(move || {
                block_on(pin!(shared.0.drain()));
                shared.add_one();
            })
        };
        shared.add_one();
        drop(held);
        drainer.join().unwrap();
    }
    fails_if_counted_before_there_is_a_place: CountsBeforePlace, "deadlock";
}

model! {
    /// The same by trying.
    permit_orders_plain_memory_by_trying {
        let shared = Protected::new();
        let take_turn = |shared: &Protected| {
            if let Ok(_permit) = shared.0.try_acquire() {
                shared.add_one();
            }
        };
        let other = {
            let shared = Arc::clone(&shared);
            start(move || {
                take_turn(&shared);
                take_turn(&shared);
            })
        };
        take_turn(&shared);
        other.join().unwrap();
        assert_eq!(shared.0.available_permits(), 1);
    }
}

model! {
    /// A thread's writes before it notifies a latch happen before the waiter's reads.
    notification_orders_plain_memory {
        let shared = Arc::new((Latch::new(), loom::cell::UnsafeCell::new(0)));
        let waiter = {
            let shared = Arc::clone(&shared);
            start(move || {
                block_on(shared.0.wait()).consume();
                // SAFETY: the notifier no longer touches the number; the latch's order is under test.
                shared.1.with(|number| unsafe { *number })
            })
        };
        // SAFETY: the waiter has not been notified.
        shared.1.with_mut(|number| unsafe { *number = 1 });
        shared.0.release(1);
        assert_eq!(waiter.join().unwrap(), 1);
    }
    fails_without_the_look: NoLook, "deadlock";
}

/// Sets the flag, then notifies a latch with a pending notification, which adds nothing; another thread takes
/// the pending notification. Either the taker sees the flag, or a notification is pending afterwards.
fn notification_that_adds_nothing(latch: Latch) {
    let shared = Arc::new((latch, loom::sync::atomic::AtomicBool::new(false)));
    let taker = {
        let shared = Arc::clone(&shared);
        start(move || {
            shared.0.try_wait().expect("pending").consume();
            // Ordering: Relaxed, to leave the order to the notification.
            shared.1.load(loom::sync::atomic::Ordering::Relaxed)
        })
    };
    // Ordering: as above.
    shared.1.swap(true, loom::sync::atomic::Ordering::Relaxed);
    shared.0.release(1);
    let was_told = taker.join().unwrap();
    assert!(was_told || shared.0.pending() == 1, "a notification was lost");
}

model! {
    /// A notification adds nothing to a pending one; another thread takes the pending notification: either
    /// the taker sees the writes before both, or a notification is still pending.
    notification_that_adds_nothing_orders_memory {
        let latch = Latch::new();
        latch.release(1);
        notification_that_adds_nothing(latch);
    }
}

model! {
    /// The same while the queue is in use.
    notification_that_adds_nothing_orders_memory_in_used_queue {
        let latch = Latch::new();
        let mut earlier = Box::pin(latch.wait());
        assert!(!is_ready(&mut earlier));
        latch.release(1);
        drop(earlier);
        notification_that_adds_nothing(latch);
    }
}

model! {
    /// The same by a pending notification.
    pending_notification_orders_plain_memory {
        let shared = Arc::new((Latch::new(), loom::cell::UnsafeCell::new(0)));
        let taker = {
            let shared = Arc::clone(&shared);
            start(move || {
                let Some(notification) = shared.0.try_wait() else { return };
                notification.consume();
                // SAFETY: as above.
                shared.1.with(|number| unsafe { assert_eq!(*number, 1) });
            })
        };
        // SAFETY: as above.
        shared.1.with_mut(|number| unsafe { *number = 1 });
        shared.0.release(1);
        taker.join().unwrap();
    }
}

// === Numbers that go round ===

model! {
    /// A reader tries beside a writer, after two acquisitions of all permits and two of one.
    count_does_not_come_back_under_a_step {
        const MAX: usize = AsyncSemaphore::MAX_PERMITS;
        let semaphore = Arc::new(AsyncSemaphore::new(MAX));
        let reader = spawn(&semaphore, |it| it.try_acquire().map(SemaphorePermit::forget).is_ok());
        (0..2).for_each(|_| drop(semaphore.try_acquire()));
        drop(semaphore.try_acquire_weight(MAX));
        let writes = semaphore.try_acquire_weight(MAX).map(SemaphorePermit::forget).is_ok();
        let reads = reader.join().unwrap();
        assert!(!(reads && writes), "a reader beside a writer");
    }
}

model! {
    /// A waiter opens the queue while the maximum is added: its stale count does not hide the permits.
    most_permits_are_not_hidden_by_a_late_opener {
        const MAX: usize = AsyncSemaphore::MAX_PERMITS;
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        semaphore.try_acquire().unwrap().forget();
        let mut waiter = Arc::clone(&semaphore).acquire_owned();
        let opener = start(move || match poll_once(&mut waiter) {
            Poll::Ready(permit) => Ok(permit.unwrap()),
            Poll::Pending => Err(waiter),
        });
        semaphore.add_permits(MAX);
        let permit = opener.join().unwrap().unwrap_or_else(|mut waiter| match poll_once(&mut waiter) {
            Poll::Ready(permit) => permit.unwrap(),
            Poll::Pending => panic!("the waiter has no permit"),
        });
        permit.forget();
        semaphore.add_permits(1);
        assert!(semaphore.try_acquire().is_ok(), "all permits are free");
    }
}
