//! [`Mix`]: which steps meet in a round, and how many.

use std::ops::RangeInclusive;

use StepKind::{
    Acquire, AcquireOne, Add, AddOne, Cancel, ChangeWaker, Close, Look, PassBy, Release, SetCapacity,
    TryAcquire,
};

/// A kind of [`Step`](crate::Step). Its numbers are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "as the steps")]
pub enum StepKind {
    Acquire,
    AcquireOne,
    PassBy,
    TryAcquire,
    TryOne,
    ChangeWaker,
    Cancel,
    Release,
    Add,
    AddOne,
    SetCapacity,
    ForgetPermits,
    Free,
    Look,
    Close,
}

/// What rounds are made of.
#[derive(Debug)]
pub struct Mix {
    /// What it is called.
    pub name: &'static str,
    /// How many threads.
    pub threads: usize,
    /// How many steps each of them does.
    pub steps: usize,
    /// Permits at first.
    pub permits: RangeInclusive<usize>,
    /// Waiters that came before the threads begin.
    pub early: RangeInclusive<usize>,
    /// One in so many of them has given up by then.
    pub gave_up: u32,
    /// What the threads do, the first thread by the first list, and so on, and then by the first one again;
    /// with weights.
    pub kinds: &'static [&'static [(StepKind, u32)]],
}

/// So many that leave are worth a sweep of the queue.
const MANY: usize = 32;

/// Each asks the questions of several loom models at once, with more threads and more steps.
pub const MIXES: &[Mix] = &[
    Mix {
        // The published lost wake-up: nothing else going on, so that the two meet as often as possible.
        name: "release_vs_acquire",
        threads: 2,
        steps: 1,
        permits: 0..=0,
        early: 1..=1,
        gave_up: 1,
        kinds: &[&[(AddOne, 1)], &[(AcquireOne, 1)]],
    },
    Mix {
        // A waiter that comes after a sleeper, and meets the permit that is being released.
        name: "no_waiter_is_overtaken",
        threads: 2,
        steps: 2,
        permits: 0..=0,
        early: 1..=1,
        gave_up: 1,
        kinds: &[&[(AddOne, 1), (Release, 1)], &[(AcquireOne, 1), (TryAcquire, 1)]],
    },
    Mix {
        name: "wakers_change",
        threads: 2,
        steps: 3,
        permits: 0..=0,
        early: 0..=1,
        gave_up: 3,
        kinds: &[&[(AddOne, 1)], &[(AcquireOne, 2), (ChangeWaker, 3)]],
    },
    Mix {
        name: "acquire_cancel_release",
        threads: 4,
        steps: 6,
        permits: 0..=3,
        early: 0..=2,
        gave_up: 3,
        kinds: &[&[
            (Acquire, 6),
            (PassBy, 1),
            (TryAcquire, 1),
            (ChangeWaker, 2),
            (Cancel, 3),
            (Release, 4),
            (Add, 2),
            (Look, 1),
        ]],
    },
    Mix {
        name: "set_capacity",
        threads: 3,
        steps: 4,
        permits: 0..=3,
        early: 0..=2,
        gave_up: 3,
        kinds: &[
            &[(SetCapacity, 3), (Add, 1)],
            &[(Acquire, 4), (TryAcquire, 2), (Cancel, 2), (Release, 4), (SetCapacity, 1)],
        ],
    },
    Mix {
        name: "close",
        threads: 4,
        steps: 3,
        permits: 0..=2,
        early: 0..=4,
        gave_up: 3,
        kinds: &[
            &[(Close, 1), (Add, 1), (SetCapacity, 1)],
            &[(Acquire, 5), (TryAcquire, 1), (ChangeWaker, 2), (Cancel, 2), (Release, 2), (Add, 1)],
        ],
    },
    Mix {
        // Nodes are taken out all the time, at the front, in the middle and at the end.
        name: "many_give_up",
        threads: 3,
        steps: 6 * MANY,
        permits: 0..=0,
        early: 0..=MANY,
        gave_up: 3,
        kinds: &[
            &[(Add, 2), (AcquireOne, 2), (Release, 1), (Look, 2)],
            &[(AcquireOne, 4), (Cancel, 4), (Release, 1)],
        ],
    },
];
