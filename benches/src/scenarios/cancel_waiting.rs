//! A waiter gives up.

use std::hint::black_box;
use std::pin::pin;
use std::time::Instant;

use crate::each_peer;
use crate::event::{Event, Row};
use crate::peers::{Queueing, poll_pending, poll_ready};
use crate::wakers::Counting;

const CANCELS: u32 = 1000;

/// Behind a holder and a patient waiter, other waiters are polled and dropped, one after the other.
pub fn cancel_waiting() -> Vec<Event> {
    vec![Event { name: "cancel_waiting", per_round: CANCELS, rows: each_peer!(row()).into() }]
}

/// A round ends with the patient waiter's turn, in the timed span, when a queue meets its dead waiters.
fn row<P: Queueing>() -> Row {
    let semaphore = P::new(1);
    let waker = Counting::new();
    Row::new::<P>(move |rounds| {
        let mut context = waker.context();
        let start = Instant::now();
        for _ in 0..rounds {
            let semaphore = black_box(&semaphore);
            let held = semaphore.try_acquire().expect("a permit is free");
            let mut patient = pin!(semaphore.acquire());
            poll_pending::<P>(patient.as_mut(), &mut context);
            for _ in 0..CANCELS {
                let mut waiter = pin!(semaphore.acquire());
                poll_pending::<P>(waiter.as_mut(), &mut context);
                black_box(&waiter);
            }
            drop(held);
            drop(poll_ready::<P>(patient.as_mut(), &mut context));
        }
        let took = start.elapsed();
        assert_eq!(semaphore.available(), 1);
        waker.assert_no_copies();
        took
    })
}
