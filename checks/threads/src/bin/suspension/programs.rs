//! The programs of the threads: each operation beside all interfering operations.

use threads::Step::{
    self, Acquire, Add, Cancel, ChangeWaker, Close, ForgetPermits, Free, Look, Notify, PassBy, Release,
    SetCapacity, TryAcquire,
};

#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Initial permits; `None` for a latch.
    pub(crate) permits: Option<usize>,
    /// Steps before the threads begin.
    pub(crate) early: &'static [Step],
    pub(crate) threads: &'static [&'static [Step]],
}

const fn program(
    name: &'static str,
    permits: usize,
    early: &'static [Step],
    threads: &'static [&'static [Step]],
) -> Program {
    Program { name, permits: Some(permits), early, threads }
}

const fn latch(name: &'static str, early: &'static [Step], threads: &'static [&'static [Step]]) -> Program {
    Program { name, permits: None, early, threads }
}

pub(crate) const PROGRAMS: &[Program] = &[
    program(
        "taken and given back",
        1,
        &[],
        &[&[Acquire(1), Release(0)], &[Acquire(1), Release(0)], &[TryAcquire(1), Release(0), Free]],
    ),
    program(
        "released to waiters",
        0,
        &[Acquire(1), Acquire(1)],
        &[&[Add(1)], &[Add(1)], &[Acquire(1), Free]],
    ),
    program(
        "served one by one",
        1,
        &[TryAcquire(1), Acquire(1), Acquire(1), Acquire(1)],
        &[&[Add(2)], &[Add(1), Free], &[TryAcquire(1), Release(0)]],
    ),
    program("served at once", 0, &[Acquire(1), Acquire(1), Acquire(1)], &[&[Add(3)], &[Look]]),
    program("more than a batch", 0, &[Acquire(1); 5], &[&[Add(5)], &[Free, Add(1)], &[Acquire(1)]]),
    program(
        "weights",
        1,
        &[Acquire(2)],
        &[&[Add(1), Acquire(1)], &[Add(1), TryAcquire(2)], &[Acquire(2), Free]],
    ),
    program(
        "cancelled first",
        1,
        &[],
        &[&[Acquire(2), Cancel(0)], &[Acquire(1), Add(1)], &[Acquire(1), Free]],
    ),
    program(
        "cancelled while granted",
        0,
        &[],
        &[&[Acquire(1), Cancel(0)], &[Acquire(1), ChangeWaker(0)], &[Add(1), Free]],
    ),
    program(
        "wakers change",
        0,
        &[],
        &[&[Acquire(1), ChangeWaker(0), ChangeWaker(0)], &[Add(1)], &[Acquire(1), Free]],
    ),
    program(
        "tries beside waiters",
        1,
        &[],
        &[&[Acquire(2), Cancel(0)], &[TryAcquire(1), Release(0), TryAcquire(1)], &[TryAcquire(1), Free]],
    ),
    program(
        "used queue",
        2,
        &[TryAcquire(2), Acquire(1), Cancel(0), Release(0)],
        &[&[TryAcquire(1), Release(0)], &[Acquire(1), Release(0)], &[Acquire(2), Free]],
    ),
    program(
        "used queue, released and taken",
        1,
        &[TryAcquire(1), Acquire(1), Cancel(0), Release(0)],
        &[&[TryAcquire(1)], &[Add(1), TryAcquire(1)], &[Free]],
    ),
    program(
        "end of a session",
        2,
        &[TryAcquire(2), Acquire(1), Cancel(0), Release(0)],
        &[&[TryAcquire(1), Release(0)], &[Acquire(2), Cancel(0)], &[TryAcquire(1), Free]],
    ),
    program(
        "closed",
        1,
        &[TryAcquire(1), Acquire(1)],
        &[&[Close], &[Acquire(1), Cancel(0)], &[Release(0), TryAcquire(1)]],
    ),
    program(
        "closed beside a release",
        0,
        &[Acquire(1), Acquire(1)],
        &[&[Close], &[Add(1), TryAcquire(1)], &[Acquire(1), Free]],
    ),
    program("closed, more than a batch", 0, &[Acquire(1); 6], &[&[Close], &[Look]]),
    program("closed beside requests", 1, &[], &[&[Close], &[Acquire(2)], &[Acquire(1)]]),
    program(
        "counted beside a blocked waiter",
        1,
        &[],
        &[&[Acquire(2), Cancel(0), Acquire(2)], &[Free, Close], &[Add(1)]],
    ),
    program(
        "lowered beside a waiter",
        2,
        &[TryAcquire(2), Acquire(1)],
        &[&[SetCapacity(1)], &[Acquire(1), Cancel(0)], &[TryAcquire(1), Free]],
    ),
    program(
        "lowered and released",
        2,
        &[],
        &[&[SetCapacity(1), SetCapacity(2)], &[Acquire(2), Release(0)], &[Acquire(1), Release(0), Free]],
    ),
    program(
        "lowered in a queue",
        3,
        &[],
        &[&[SetCapacity(1)], &[Acquire(3), Release(0), Acquire(3)], &[Acquire(1), Cancel(0), Free]],
    ),
    program("forgotten", 2, &[], &[&[ForgetPermits(2)], &[Acquire(1), Release(0)], &[Acquire(2), Cancel(0)]]),
    program(
        "swept",
        0,
        &[Acquire(1), Acquire(1), Acquire(1)],
        &[&[Acquire(1), Cancel(0), Acquire(1), Cancel(0)], &[Acquire(1), Cancel(0), Look], &[Add(2), Free]],
    ),
    program(
        "swept by several",
        0,
        &[Acquire(1)],
        &[
            &[Acquire(1), Acquire(1), Cancel(0), Cancel(0)],
            &[Acquire(1), Acquire(1), Cancel(0), Cancel(0)],
            &[Add(1), Free],
        ],
    ),
    program(
        "up to what is there",
        2,
        &[],
        &[&[PassBy(2)], &[PassBy(2), TryAcquire(1), Release(0)], &[Acquire(1), Release(0)]],
    ),
    latch("notified", &[Acquire(1)], &[&[Notify(1)], &[Acquire(1), Cancel(0)], &[TryAcquire(1), Notify(1)]]),
    latch("notified at once", &[], &[&[Notify(1), Notify(2)], &[Notify(1), Acquire(1)], &[Acquire(1), Free]]),
    latch(
        "notifications in a used queue",
        &[Acquire(1), Cancel(0)],
        &[&[Notify(2)], &[Notify(1), TryAcquire(1)], &[Acquire(1), Cancel(0)]],
    ),
];

/// Programs for runs with two stopped threads, too.
pub(crate) const OF_PAIRS: &[&str] = &[
    "taken and given back",
    "released to waiters",
    "cancelled first",
    "cancelled while granted",
    "notified",
];
