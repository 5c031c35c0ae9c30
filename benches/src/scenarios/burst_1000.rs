//! A thousand waiters, then a thousand permits.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::each_peer;
use crate::event::{Event, Row};
use crate::line::Line;
use crate::peers::{Queueing, poll_pending, poll_ready};
use crate::wakers::Counting;

const WAITERS: u32 = 1000;

#[derive(Clone, Copy, Debug)]
enum Added {
    OneByOne,
    AtOnce,
}

/// All waiters are polled and wait, the permits are added, all are polled and drop theirs. Per waiter.
pub fn burst_1000() -> Vec<Event> {
    vec![
        Event {
            name: "burst_1000/one_by_one",
            per_round: WAITERS,
            rows: each_peer!(row(Added::OneByOne)).into(),
        },
        Event { name: "burst_1000/at_once", per_round: WAITERS, rows: each_peer!(row(Added::AtOnce)).into() },
    ]
}

/// Each round has a new semaphore without permits, and only the waiting is timed.
fn row<P: Queueing>(added: Added) -> Row {
    let waker = Counting::new();
    let waiters = WAITERS as usize;
    Row::new::<P>(move |rounds| {
        let mut context = waker.context();
        let mut took = Duration::ZERO;
        for _ in 0..rounds {
            let woken_before = waker.wakes();
            let semaphore = P::new(0);
            let mut line = Line::new(waiters);
            let start = Instant::now();
            for place in 0..waiters {
                poll_pending::<P>(line.put(place, black_box(&semaphore).acquire()), &mut context);
            }
            match added {
                Added::OneByOne => {
                    for _ in 0..waiters {
                        black_box(&semaphore).add(1);
                    }
                }
                Added::AtOnce => semaphore.add(waiters),
            }
            for place in 0..waiters {
                let permit = poll_ready::<P>(line.at(place), &mut context);
                black_box(&permit);
                drop(permit);
                line.clear(place);
            }
            took += start.elapsed();
            assert_eq!(semaphore.available(), waiters);
            // A semaphore that hands over wakes each waiter once. With async-lock, newcomers pass the wake-up
            // on.
            let woken = waker.wakes() - woken_before;
            assert!(
                (1..=u64::from(WAITERS)).contains(&woken),
                "{}: expected wake-ups of 1 to {WAITERS} waiters, and saw {woken}",
                P::NAME
            );
            assert!(P::NAME == "async-lock" || woken == u64::from(WAITERS), "{}: {woken}", P::NAME);
        }
        waker.assert_no_copies();
        took
    })
}
