//! `StripedSemaphores`: stripes of names, and acquiring several names without deadlock.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::Context;
use std::time::Duration;

use latchwork::latch::Latch;
use latchwork::striped::{DEFAULT_STRIPES, StripedSemaphores};
use latchwork_testkit::waker;

use crate::wakers::poll;

const SOON: Duration = Duration::from_secs(30);

/// Returns two names of different stripes, in the order of their stripes.
fn two_names(stripes: &StripedSemaphores) -> [String; 2] {
    let names = (0..).map(|number| format!("orders:{number}"));
    let other = names.skip(1).find(|name| stripes.stripe_of(name) != stripes.stripe_of("orders:0"));
    let mut two = ["orders:0".to_owned(), other.unwrap()];
    two.sort_by_key(|name| stripes.stripe_of(name));
    two
}

#[test]
fn a_name_always_picks_the_same_stripe() {
    let stripes = StripedSemaphores::new();
    assert_eq!(stripes.len(), DEFAULT_STRIPES);
    for number in 0..1000 {
        let name = format!("orders:{number}");
        assert_eq!(stripes.stripe_of(&name), stripes.stripe_of(&name));
        assert!(stripes.stripe_of(&name) < stripes.len());
        let held = stripes.for_name(&name).try_acquire().unwrap();
        assert!(stripes.for_name(&name).try_acquire().is_none());
        drop(held);
    }
}

#[test]
fn names_spread_over_all_stripes() {
    let stripes = StripedSemaphores::new();
    let picked: HashSet<usize> =
        (0..5000).map(|number| stripes.stripe_of(&format!("orders:{number}"))).collect();
    assert_eq!(picked.len(), stripes.len());
}

#[test]
fn rows_are_seeded_apart() {
    let (one, other) = (StripedSemaphores::new(), StripedSemaphores::new());
    let names: Vec<String> = (0..100).map(|number| format!("orders:{number}")).collect();
    assert!(names.iter().any(|name| one.stripe_of(name) != other.stripe_of(name)));
}

#[test]
fn a_hasher_of_ones_own_decides() {
    let hasher = BuildHasherDefault::<DefaultHasher>::default;
    let (one, other) =
        (StripedSemaphores::with_hasher(7, hasher()), StripedSemaphores::with_hasher(7, hasher()));
    for number in 0..100 {
        let name = format!("orders:{number}");
        assert_eq!(
            one.stripe_of(&name),
            other.stripe_of(&name),
            "expected the same stripe from two unseeded hashers"
        );
    }
}

#[test]
fn debug_shows_holders_and_waiters_of_each_stripe() {
    let stripes = StripedSemaphores::with_stripes(1);
    assert_eq!(format!("{stripes:?}"), "[Stripe { holders: 0, waiters: 0 }]");
    let held = stripes.for_name("a").try_acquire().unwrap();
    assert!(stripes.for_name("b").try_acquire().is_none(), "expected the one stripe for all names");
    let mut waits = pin!(stripes.for_name("b").acquire());
    assert!(poll(&mut waits).is_pending());
    assert_eq!(format!("{stripes:?}"), "[Stripe { holders: 1, waiters: 1 }]");
    drop(held);
    drop(poll(&mut waits));
    assert_eq!(format!("{stripes:?}"), "[Stripe { holders: 0, waiters: 0 }]");
}

#[test]
#[should_panic(expected = "at least one")]
fn no_stripes_are_refused() {
    let _ = StripedSemaphores::with_stripes(0);
}

#[test]
fn threads_wait_for_a_stripe_under_a_time_limit() {
    let stripes = StripedSemaphores::with_stripes(1);
    let held = stripes.for_name("a").blocking_acquire();
    assert!(stripes.for_name("a").blocking_acquire_timeout(Duration::from_millis(1)).is_none());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| stripes.for_name("a").blocking_acquire_timeout(SOON).is_some());
        while stripes.for_name("a").waiters() == 0 {
            std::thread::yield_now();
        }
        drop(held);
        assert!(waits.join().unwrap());
    });
}

#[test]
fn names_that_share_a_stripe_take_it_once() {
    let stripes = StripedSemaphores::with_stripes(1);
    let all = stripes.try_acquire_all(["a", "b", "a"]).expect("one permit of each stripe suffices");
    assert_eq!(all.len(), 1);
    assert!(stripes.for_name("c").try_acquire().is_none());
    drop(all);
    assert!(stripes.for_name("c").try_acquire().is_some());
    assert!(stripes.blocking_acquire_all([""; 0]).is_empty());
}

#[test]
fn all_or_nothing_when_trying() {
    let stripes = StripedSemaphores::new();
    let two = two_names(&stripes);
    let last = stripes.for_name(&two[1]).try_acquire();
    assert!(stripes.try_acquire_all(&two).is_none());
    assert!(
        stripes.for_name(&two[0]).try_acquire().is_some(),
        "expected both stripes free after a failed attempt"
    );
    drop(last);
    assert_eq!(stripes.try_acquire_all(&two).unwrap().len(), 2);
}

#[test]
fn threads_that_take_many_in_clashing_orders_finish() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 2000;
    let stripes: &'static StripedSemaphores = Box::leak(Box::new(StripedSemaphores::with_stripes(5)));
    // Number of threads inside each stripe.
    let inside: &'static [AtomicUsize; 5] = Box::leak(Box::default());
    let (done, is_done) = mpsc::channel();
    for thread in 0..THREADS {
        let done = done.clone();
        std::thread::spawn(move || {
            for round in 0..ROUNDS {
                let mut names: Vec<String> =
                    (0..4).map(|name| ((thread * 7 + round * (name + 1)) % 20).to_string()).collect();
                if thread % 2 == 0 {
                    names.reverse();
                }
                let held = stripes.blocking_acquire_all(&names);
                let taken: HashSet<usize> = names.iter().map(|name| stripes.stripe_of(name)).collect();
                assert_eq!(held.len(), taken.len());
                for stripe in &taken {
                    // Ordering: Relaxed, ordered by the stripe itself.
                    assert_eq!(
                        inside[*stripe].fetch_add(1, Ordering::Relaxed),
                        0,
                        "expected one holder of each stripe"
                    );
                }
                for stripe in taken {
                    // Ordering: Relaxed, as above.
                    inside[stripe].fetch_sub(1, Ordering::Relaxed);
                }
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..THREADS {
        is_done.recv_timeout(SOON).unwrap_or_else(|_| panic!("deadlock: {stripes:?}"));
    }
}

/// Redisson (#7264): one path lost a stripe's permit, which blocked a fiftieth of all names for good.
#[test]
fn no_way_out_of_a_wait_for_stripes_loses_one() {
    let stripes = StripedSemaphores::new();
    let two = two_names(&stripes);
    let free = |stripes: &StripedSemaphores| stripes.try_acquire_all(&two).is_some();

    // Drop the future unpolled, with one stripe of two acquired, with the second granted, and with both.
    drop(stripes.acquire_all(&two));
    let last = stripes.for_name(&two[1]).try_acquire();
    let mut waits = Box::pin(stripes.acquire_all(&two));
    assert!(poll(&mut waits).is_pending());
    drop(waits);
    assert!(stripes.for_name(&two[0]).try_acquire().is_some());
    let mut waits = Box::pin(stripes.acquire_all(&two));
    assert!(poll(&mut waits).is_pending());
    drop(last);
    drop(waits);
    assert!(free(&stripes));
    drop(poll(&mut pin!(stripes.acquire_all(&two))));
    assert!(free(&stripes));

    // Panic with both stripes held, and within the iterator of names.
    let panicked = std::panic::catch_unwind(|| {
        let _held = stripes.blocking_acquire_all(&two);
        panic!("on purpose");
    });
    assert!(panicked.is_err());
    assert!(free(&stripes));
    let names = two.iter().chain(std::iter::once_with(|| panic!("on purpose")));
    assert!(
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stripes.blocking_acquire_all(names)))
            .is_err()
    );
    assert!(free(&stripes));
}

/// A waker that releases a stripe and waits there again depends on a waiter only its own thread can wake.
#[test]
fn a_waker_that_blocks_twice_waits_for_one_it_has_not_woken() {
    let stripes: &'static StripedSemaphores = Box::leak(Box::default());
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let latch = Latch::new();
        let waker = waker(|| {
            let stripe = stripes.for_name("a");
            let held = stripe.try_acquire().unwrap();
            let other = std::thread::spawn(move || drop(stripe.blocking_acquire()));
            while stripe.waiters() == 0 {
                std::thread::yield_now();
            }
            drop(held);
            drop(stripe.blocking_acquire());
            other.join().unwrap();
        });
        let mut wait = pin!(latch.wait());
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        latch.release(1);
        done.send(()).unwrap();
    });
    is_done.recv_timeout(SOON).expect("the call ends");
}
