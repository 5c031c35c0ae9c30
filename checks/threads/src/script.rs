//! [`Script`]: the steps of a thread of a round.

use fastrand::Rng;

/// A step. An index into several requests counts modulo their number; without requests, the step is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Begins to wait for this number of permits.
    Acquire(usize),
    /// Acquires up to this number of free permits, and releases them at once; gives up if none is free.
    PassBy(usize),
    /// Acquires this number of permits if they are free.
    TryAcquire(usize),
    /// Polls a pending future, with another waker.
    ChangeWaker(usize),
    /// Drops a pending future.
    Cancel(usize),
    /// Releases acquired permits.
    Release(usize),
    /// Adds this number of permits.
    Add(usize),
    /// Sets the total number of permits.
    SetCapacity(usize),
    /// Removes free permits, up to this number.
    ForgetPermits(usize),
    /// Notifies a latch.
    Notify(usize),
    /// Asks for the number of free permits.
    Free,
    /// Walks over the queue.
    Look,
    /// Closes the semaphore.
    Close,
}

/// A kind of [`Step`], whose numbers are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    Acquire,
    AcquireOne,
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
    Close,
}

/// A multiple of every small number, so that each of a few requests is picked as often.
const PICKS: usize = 60;

/// The steps of a thread.
pub type Script = Vec<Step>;

impl Step {
    /// A random step out of `kinds`, each as likely as its weight says.
    pub(crate) fn random(kinds: &[(StepKind, u32)], rng: &mut Rng) -> Self {
        let all: u32 = kinds.iter().map(|(_, weight)| weight).sum();
        let mut number = rng.u32(..all);
        let kind = kinds.iter().find(|(_, weight)| {
            let found = number < *weight;
            number = number.wrapping_sub(*weight);
            found
        });
        match kind.expect("the number is less than the sum of the weights").0 {
            // Mostly single permits: many large requests would make all queue behind one of them.
            StepKind::Acquire => Self::Acquire([1, 1, 1, 2, 3][rng.usize(..5)]),
            StepKind::AcquireOne => Self::Acquire(1),
            StepKind::TryAcquire => Self::TryAcquire(rng.usize(1..=2)),
            StepKind::TryOne => Self::TryAcquire(1),
            StepKind::ChangeWaker => Self::ChangeWaker(rng.usize(..PICKS)),
            StepKind::Cancel => Self::Cancel(rng.usize(..PICKS)),
            StepKind::Release => Self::Release(rng.usize(..PICKS)),
            StepKind::Add => Self::Add(rng.usize(1..=2)),
            StepKind::AddOne => Self::Add(1),
            StepKind::SetCapacity => Self::SetCapacity(rng.usize(0..=4)),
            StepKind::ForgetPermits => Self::ForgetPermits(rng.usize(1..=2)),
            StepKind::Free => Self::Free,
            StepKind::Close => Self::Close,
        }
    }
}
