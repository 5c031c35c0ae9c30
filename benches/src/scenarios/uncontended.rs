//! A permit is free and there are no waiters.

use std::hint::black_box;
use std::pin::pin;
use std::time::Instant;

use crate::each_peer;
use crate::event::{Event, Row};
use crate::peers::{Asyncband, Intrusive, Maitake, Many, Peer, Raw, Tokio, poll_ready};
use crate::wakers::Counting;

const PERMITS: usize = 16;

/// `try_acquire`, `acquire` polled once, `acquire_many(8)` polled once; each with the drop of the permit.
pub fn uncontended() -> Vec<Event> {
    let mut try_rows = Vec::from(each_peer!(try_acquire()));
    try_rows.push(try_acquire::<Raw>());
    let mut acquire_rows = Vec::from(each_peer!(acquire()));
    acquire_rows.push(acquire::<Raw>());
    let mut many_rows = acquire_many_rows();
    many_rows.push(acquire_many::<Raw>());
    vec![
        Event { name: "uncontended/try_acquire", per_round: 1, rows: try_rows },
        Event { name: "uncontended/acquire", per_round: 1, rows: acquire_rows },
        Event { name: "uncontended/acquire_many_8", per_round: 1, rows: many_rows },
    ]
}

fn try_acquire<P: Peer>() -> Row {
    let semaphore = P::new(PERMITS);
    Row::new::<P>(move |rounds| {
        let start = Instant::now();
        for _ in 0..rounds {
            let permit = black_box(&semaphore).try_acquire().expect("a permit is free");
            black_box(&permit);
        }
        let took = start.elapsed();
        assert_eq!(semaphore.available(), PERMITS);
        took
    })
}

fn acquire<P: Peer>() -> Row {
    let semaphore = P::new(PERMITS);
    let waker = Counting::new();
    Row::new::<P>(move |rounds| {
        let mut context = waker.context();
        let start = Instant::now();
        for _ in 0..rounds {
            let acquire = pin!(black_box(&semaphore).acquire());
            let permit = poll_ready::<P>(acquire, &mut context);
            black_box(&permit);
        }
        let took = start.elapsed();
        assert_eq!(semaphore.available(), PERMITS);
        waker.assert_no_copies();
        took
    })
}

fn acquire_many<P: Many>() -> Row {
    let semaphore = P::new(PERMITS);
    let waker = Counting::new();
    Row::new::<P>(move |rounds| {
        let mut context = waker.context();
        let start = Instant::now();
        for _ in 0..rounds {
            let acquire = pin!(black_box(&semaphore).acquire_many(8));
            let permits = poll_ready::<P>(acquire, &mut context);
            black_box(&permits);
        }
        let took = start.elapsed();
        assert_eq!(semaphore.available(), PERMITS);
        waker.assert_no_copies();
        took
    })
}

/// Implements [`Many`] for the named peers, and returns a row of each.
macro_rules! acquire_many {
    ($($peer:ty => |$semaphore:ident, $n:ident| $acquire:expr;)*) => {
        $(
            impl Many for $peer {
                #[inline]
                fn acquire_many(&self, $n: u32) -> impl Future<Output = Self::Acquired<'_>> + Send {
                    let $semaphore = &self.0;
                    $acquire
                }
            }
        )*

        fn acquire_many_rows() -> Vec<Row> {
            vec![$(acquire_many::<$peer>()),*]
        }
    };
}

acquire_many! {
    crate::peers::Latchwork => |semaphore, n| semaphore.acquire_many(n);
    Tokio => |semaphore, n| semaphore.acquire_many(n);
    Asyncband => |semaphore, n| semaphore.acquire(n as usize);
    Intrusive => |semaphore, n| semaphore.acquire(n as usize);
    Maitake => |semaphore, n| semaphore.acquire(n as usize);
}
