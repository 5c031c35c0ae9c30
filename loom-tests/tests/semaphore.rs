//! Models of `AsyncSemaphore`, the real code. Each asks one question and ends by counting the permits; for each line that the
//! answer hangs on there is a twin in which that line is missing, and which must fail.
#![cfg(latchwork_loom)]

use std::sync::Arc;
use std::task::Poll;

use latchwork::{AcquireError, AsyncSemaphore, Latch, TryAcquireError};
use loom::future::block_on;
use loom::thread;
use loom_tests::{is_ready, model, poll_once, spawn};

model! {
    /// A holder lets go while a newcomer joins: the newcomer gets the permit, whoever comes first.
    release_vs_acquire {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let held = semaphore.try_acquire().unwrap();
        let newcomer = spawn(&semaphore, |semaphore| {
            drop(block_on(semaphore.acquire()).unwrap());
        });
        drop(held);
        newcomer.join().unwrap();
        assert_eq!(semaphore.available_permits(), 1);
    }
    fails_without_the_look_at_the_counter: NoLookAtCounter, "deadlock";
}

model! {
    /// The same question, asked without sleeping: once all is quiet, no permit is free while somebody waits. The counter says
    /// "somebody may be waiting" at first, as after an earlier wait.
    no_free_permit_beside_a_waiter {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut earlier = semaphore.acquire();
        assert!(poll_once(&mut earlier).is_pending());
        drop(earlier);
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        let mut waiter = semaphore.acquire();
        let early = poll_once(&mut waiter);
        releaser.join().unwrap();
        match early {
            Poll::Ready(permit) => drop(permit.unwrap()),
            Poll::Pending => assert!(is_ready(&mut waiter), "asleep beside a free permit"),
        }
        drop(waiter);
        assert_eq!(semaphore.available_permits(), 1);
    }
    fails_without_the_second_look: NoSecondLook, "asleep beside a free permit";
    fails_without_the_look_at_the_counter: NoLookAtCounter, "asleep beside a free permit";
    fails_without_a_common_order: NoCommonOrder, "asleep beside a free permit";
    fails_if_the_mark_is_left: MarkNotWiped, "asleep beside a free permit";
}

model! {
    /// A releaser finds nobody, a waiter comes and goes to sleep, and a newcomer comes after it: the newcomer does not get the
    /// permit, wherever the releaser is with it.
    sleeper_is_not_overtaken {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut earlier = semaphore.acquire();
        assert!(!is_ready(&mut earlier));
        drop(earlier);
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        let mut sleeper = semaphore.acquire();
        if !is_ready(&mut sleeper) {
            let mut newcomer = semaphore.acquire();
            assert!(!is_ready(&mut newcomer), "overtaken");
            assert!(semaphore.try_acquire().is_err(), "overtaken");
            releaser.join().unwrap();
            assert!(is_ready(&mut sleeper), "asleep beside a free permit");
            assert!(is_ready(&mut newcomer), "given back, and it is the next");
        } else {
            releaser.join().unwrap();
        }
        drop(sleeper);
        assert_eq!(semaphore.available_permits(), 1);
    }
    fails_without_the_second_look: NoSecondLook, "overtaken";
    fails_if_the_mark_is_left: MarkNotWiped, "overtaken";
}

model! {
    /// Two come one after the other while a releaser walks along the row: the later one is not served before the earlier one.
    break_vs_arrive {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        let (mut earlier, mut later) = (semaphore.acquire(), semaphore.acquire());
        let early = is_ready(&mut earlier);
        if !early {
            let overtaken = is_ready(&mut later);
            releaser.join().unwrap();
            assert!(!overtaken && !is_ready(&mut later), "overtaken");
            assert!(is_ready(&mut earlier), "asleep beside a free permit");
        } else {
            releaser.join().unwrap();
        }
        drop((earlier, later));
        assert_eq!(semaphore.available_permits(), 1);
    }
    fails_if_the_slow_come_behind_our_back: SlowComesBehindOurBack, "overtaken";
}

model! {
    /// Somebody sleeps behind one who has claimed a cell and not come yet: the permit that comes back is for the sleeper, and not
    /// for whoever passes by.
    sleeper_behind_a_slow_comer with 1 less {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let slow = spawn(&semaphore, |semaphore| is_ready(&mut semaphore.acquire()));
        let mut sleeper = semaphore.acquire();
        if !is_ready(&mut sleeper) {
            semaphore.add_permits(1);
            assert!(semaphore.try_acquire().is_err() || is_ready(&mut sleeper), "overtaken");
        }
        slow.join().unwrap();
        drop(sleeper);
    }
    fails_if_the_row_ends_at_who_is_slow: RowEndsAtWhoIsSlow, "overtaken";
}

model! {
    /// Two releasers find nobody at once, and a waiter comes: it gets one of the permits, and the other one is free.
    two_releasers_put_down with 1 less {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut earlier = semaphore.acquire();
        assert!(!is_ready(&mut earlier));
        drop(earlier);
        let releasers = [(); 2].map(|()| spawn(&semaphore, |semaphore| semaphore.add_permits(1)));
        let mut waiter = semaphore.acquire();
        let early = is_ready(&mut waiter);
        for releaser in releasers {
            releaser.join().unwrap();
        }
        assert!(early || is_ready(&mut waiter), "asleep beside a free permit");
        drop(waiter);
        assert_eq!(semaphore.available_permits(), 2);
    }
    fails_without_the_second_look: NoSecondLook, "asleep beside a free permit";
}

model! {
    /// Two releases before either waiter has run wake both.
    two_releases_two_waiters {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let (mut first, mut second) = (semaphore.acquire(), semaphore.acquire());
        assert!(!is_ready(&mut first) && !is_ready(&mut second));
        let releasers = [(); 2].map(|()| spawn(&semaphore, |semaphore| semaphore.add_permits(1)));
        for releaser in releasers {
            releaser.join().unwrap();
        }
        let both = (poll_once(&mut first), poll_once(&mut second));
        assert!(matches!(&both, (Poll::Ready(Ok(_)), Poll::Ready(Ok(_)))), "the second release woke nobody");
        drop(both);
        assert_eq!(semaphore.available_permits(), 2);
    }
}

model! {
    /// Two releases of one permit each meet at the cell of a waiter for two, with a waiter for one behind it.
    two_releases_fill_one_cell {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let (mut many, mut one) = (semaphore.acquire_many(2), semaphore.acquire());
        assert!(!is_ready(&mut many) && !is_ready(&mut one));
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        semaphore.add_permits(1);
        releaser.join().unwrap();
        assert!(!is_ready(&mut one), "overtaken");
        let Poll::Ready(Ok(two)) = poll_once(&mut many) else { panic!("the permits did not add up") };
        drop(two);
        assert!(is_ready(&mut one));
        drop(one);
        assert_eq!(semaphore.available_permits(), 2);
    }
}

model! {
    /// A waiter is dropped while its permit is on the way: the permit goes to the next in line, once.
    cancel_vs_grant {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let (mut first, mut second) = (semaphore.acquire(), semaphore.acquire());
        assert!(!is_ready(&mut first) && !is_ready(&mut second));
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        drop(first);
        releaser.join().unwrap();
        assert!(is_ready(&mut second), "the permit died with the waiter");
        drop(second);
        assert_eq!(semaphore.available_permits(), 1);
    }
    fails_if_the_grant_dies_with_the_waiter: GrantDiesWithWaiter, "the permit died with the waiter";
}

model! {
    /// A waiter for two is dropped with one permit laid in and another on the way: both go to those behind it.
    cancel_partly_fed_head {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut large = semaphore.acquire_many(2);
        let (mut second, mut third) = (semaphore.acquire(), semaphore.acquire());
        assert!(!is_ready(&mut large) && !is_ready(&mut second) && !is_ready(&mut third));
        semaphore.add_permits(1);
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        drop(large);
        releaser.join().unwrap();
        let both = (poll_once(&mut second), poll_once(&mut third));
        assert!(matches!(&both, (Poll::Ready(Ok(_)), Poll::Ready(Ok(_)))), "gathered permits died with the waiter");
        drop(both);
        assert_eq!(semaphore.available_permits(), 2);
    }
    fails_if_what_was_gathered_dies: GatheredDiesWithWaiter, "gathered permits died with the waiter";
    fails_if_the_grant_dies_with_the_waiter: GrantDiesWithWaiter, "gathered permits died with the waiter";
}

model! {
    /// A waiter is polled with another waker while its permit is on the way: one of the two wakers is called, or the poll is
    /// ready. The first waker leads nowhere: if the wait went by that one alone, this would deadlock.
    waker_change_vs_grant {
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
    fails_if_the_waker_is_not_published: WakerNotPublished, "Causality violation";
}

model! {
    /// The semaphore is closed while a newcomer joins: the newcomer is refused, and does not sleep for ever.
    close_vs_acquire {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let newcomer = spawn(&semaphore, |semaphore| block_on(semaphore.acquire()).map(drop));
        semaphore.close();
        let refused: Result<(), AcquireError> = newcomer.join().unwrap();
        assert!(refused.is_err());
        assert_eq!(semaphore.available_permits(), 0);
    }
    fails_without_the_look_whether_closed: NoLookAtClosed, "deadlock";
}

model! {
    /// The semaphore is closed with a permit laid into the cell of a waiter for two, and another on the way: both are free in
    /// the end, or the waiter has got them.
    close_vs_partly_fed {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut large = semaphore.acquire_many(2);
        assert!(!is_ready(&mut large));
        semaphore.add_permits(1);
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        semaphore.close();
        releaser.join().unwrap();
        assert!(is_ready(&mut large));
        assert_eq!(semaphore.available_permits(), 2);
    }
}

model! {
    /// Two threads pass one permit around; what each did under it is visible to the next.
    permit_protects_plain_memory {
        struct Shared(AsyncSemaphore, loom::cell::UnsafeCell<u32>);
        // SAFETY: the cell is only touched by whoever holds the one permit; that this is enough is what the model checks.
        unsafe impl Sync for Shared {}
        // SAFETY: as above; a number may be sent.
        unsafe impl Send for Shared {}

        let shared = Arc::new(Shared(AsyncSemaphore::new(1), loom::cell::UnsafeCell::new(0)));
        let add = |shared: &Shared| {
            let _permit = block_on(shared.0.acquire()).unwrap();
            // SAFETY: we hold the one permit.
            shared.1.with_mut(|number| unsafe { *number += 1 });
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || add(&shared))
        };
        add(&shared);
        other.join().unwrap();
        // SAFETY: the other thread has ended.
        assert_eq!(shared.1.with(|number| unsafe { *number }), 2);
        assert_eq!(shared.0.available_permits(), 1);
    }
    fails_if_a_permit_carries_nothing: PermitCarriesNothing, "Causality violation";
}

model! {
    /// A permit that comes back is either taken by a passer-by or reaches the waiter; it is never in both hands, nor in none.
    try_acquire_vs_hand_over {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut waiter = semaphore.acquire();
        assert!(!is_ready(&mut waiter));
        let passer_by = spawn(&semaphore, |semaphore| match semaphore.try_acquire() {
            Ok(permit) => {
                permit.forget();
                true
            }
            Err(TryAcquireError::NoPermits) => false,
            Err(TryAcquireError::Closed) => unreachable!(),
        });
        semaphore.add_permits(1);
        let taken = passer_by.join().unwrap();
        assert_eq!(is_ready(&mut waiter), !taken);
        drop(waiter);
        assert_eq!(semaphore.available_permits(), usize::from(!taken));
    }
}

model! {
    /// The capacity is lowered while a permit comes back: in the end as many are left as were meant to be.
    capacity_down_vs_release {
        let semaphore = Arc::new(AsyncSemaphore::new(2));
        let held = semaphore.try_acquire_many(2).unwrap();
        let resizer = spawn(&semaphore, |semaphore| semaphore.set_capacity(1));
        drop(held);
        resizer.join().unwrap();
        assert_eq!(semaphore.available_permits(), 1, "the capacity is not what was asked for");
    }
    fails_without_a_debt: NoDebt, "the capacity is not what was asked for";
}

model! {
    /// A latch is released twice at once while nobody waits: one call is kept, not two.
    simultaneous_calls_do_not_add_up {
        let latch = Arc::new(Latch::new());
        // "Somebody may be waiting", as after an earlier wait.
        assert!(!is_ready(&mut Box::pin(latch.wait())));
        let other = {
            let latch = Arc::clone(&latch);
            thread::spawn(move || latch.release(1))
        };
        latch.release(1);
        other.join().unwrap();
        assert_eq!(latch.kept(), 1, "calls have added up");
    }
    fails_if_calls_add_up: CallsAddUp, "calls have added up";
}

model! {
    /// Two come at once where a segment begins: each has a cell of its own, and both are served.
    two_come_at_a_border {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut line: Vec<_> = (0..3).map(|_| Arc::clone(&semaphore).acquire_owned()).collect();
        let mut last = line.pop().unwrap();
        for waiter in &mut line {
            assert!(!is_ready(waiter));
        }
        let other = thread::spawn(move || {
            assert!(!is_ready(&mut last));
            last
        });
        let mut mine = semaphore.acquire();
        assert!(!is_ready(&mut mine));
        line.push(other.join().unwrap());
        semaphore.add_permits(4);
        assert!(line.iter_mut().all(is_ready) && is_ready(&mut mine), "two in one cell");
        assert_eq!(semaphore.waiters(), 0);
    }
}
