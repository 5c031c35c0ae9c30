//! A permit is acquired, a task waits, and then none: the changes between idle and queued.

use std::hint::black_box;
use std::pin::pin;
use std::time::Instant;

use crate::each_peer;
use crate::event::{Event, Row};
use crate::peers::{Queueing, poll_pending, poll_ready};
use crate::wakers::Counting;

/// Acquire, wait, hand over, release; acquire, wait, cancel, release; and wait, cancel behind a holder.
pub fn first_wait() -> Vec<Event> {
    vec![
        Event { name: "first_wait/hand_over", per_round: 1, rows: each_peer!(hand_over()).into() },
        Event { name: "first_wait/cancel", per_round: 1, rows: each_peer!(cancel()).into() },
        Event { name: "first_wait/cancel_held", per_round: 1, rows: each_peer!(cancel_held()).into() },
    ]
}

fn hand_over<P: Queueing>() -> Row {
    let semaphore = P::new(1);
    let waker = Counting::new();
    Row::new::<P>(move |rounds| {
        let mut context = waker.context();
        let start = Instant::now();
        for _ in 0..rounds {
            let semaphore = black_box(&semaphore);
            let held = semaphore.try_acquire().expect("a permit is free");
            let mut waiter = pin!(semaphore.acquire());
            poll_pending::<P>(waiter.as_mut(), &mut context);
            drop(held);
            drop(black_box(poll_ready::<P>(waiter.as_mut(), &mut context)));
        }
        let took = start.elapsed();
        assert_eq!(semaphore.available(), 1);
        waker.assert_no_copies();
        took
    })
}

fn cancel<P: Queueing>() -> Row {
    let semaphore = P::new(1);
    let waker = Counting::new();
    Row::new::<P>(move |rounds| {
        let mut context = waker.context();
        let start = Instant::now();
        for _ in 0..rounds {
            let semaphore = black_box(&semaphore);
            let held = semaphore.try_acquire().expect("a permit is free");
            {
                let mut waiter = pin!(semaphore.acquire());
                poll_pending::<P>(waiter.as_mut(), &mut context);
                black_box(&waiter);
            }
            drop(held);
        }
        let took = start.elapsed();
        assert_eq!(semaphore.available(), 1);
        waker.assert_no_copies();
        took
    })
}

fn cancel_held<P: Queueing>() -> Row {
    let semaphore = P::new(1);
    let waker = Counting::new();
    Row::new::<P>(move |rounds| {
        let mut context = waker.context();
        let held = semaphore.try_acquire().expect("a permit is free");
        let start = Instant::now();
        for _ in 0..rounds {
            let mut waiter = pin!(black_box(&semaphore).acquire());
            poll_pending::<P>(waiter.as_mut(), &mut context);
            black_box(&waiter);
        }
        let took = start.elapsed();
        drop(held);
        assert_eq!(semaphore.available(), 1);
        waker.assert_no_copies();
        took
    })
}
