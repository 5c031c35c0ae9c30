//! A permit goes from its holder to a waiter.

use std::hint::black_box;
use std::pin::pin;
use std::time::Instant;

use crate::each_peer;
use crate::event::{Event, Row};
use crate::peers::{Queueing, poll_pending, poll_ready};
use crate::wakers::Counting;

/// The only permit is held; a waiter waits; the permit is dropped; the waiter is polled and has it.
pub fn hand_over() -> Vec<Event> {
    vec![Event { name: "hand_over", per_round: 1, rows: each_peer!(row()).into() }]
}

/// The waiter with the permit is the next round's holder: a round is exactly one hand-off.
fn row<P: Queueing>() -> Row {
    let semaphore = P::new(1);
    let waker = Counting::new();
    Row::new::<P>(move |rounds| {
        let mut context = waker.context();
        let woken_before = waker.wakes();
        let mut held = semaphore.try_acquire().expect("a permit is free");
        let start = Instant::now();
        for _ in 0..rounds {
            let mut waiter = pin!(black_box(&semaphore).acquire());
            poll_pending::<P>(waiter.as_mut(), &mut context);
            drop(held);
            held = poll_ready::<P>(waiter.as_mut(), &mut context);
            black_box(&held);
        }
        let took = start.elapsed();
        drop(held);
        assert_eq!(semaphore.available(), 1);
        assert_eq!(waker.wakes() - woken_before, rounds, "expected one wake-up of each waiter");
        waker.assert_no_copies();
        took
    })
}
