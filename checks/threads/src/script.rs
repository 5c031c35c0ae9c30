//! [`Script`]: what a thread of a round does, step by step.

use fastrand::Rng;

/// One step. Where it picks one of several, it counts round them; with nothing to pick from, the step is left
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Begins to wait for so many permits.
    Acquire(usize),
    /// Takes what is free up to so many permits, and gives it back at once; gives up if none is.
    PassBy(usize),
    /// Takes so many permits if they are free.
    TryAcquire(usize),
    /// Polls one of those that wait, with another waker.
    ChangeWaker(usize),
    /// Drops one of those that wait.
    Cancel(usize),
    /// Gives permits back that were taken.
    Release(usize),
    /// Makes so many permits.
    Add(usize),
    /// Makes the permits so many in all.
    SetCapacity(usize),
    /// Takes free permits out of existence, up to so many.
    ForgetPermits(usize),
    /// Notifies a latch.
    Notify(usize),
    /// Asks how many are free.
    Free,
    /// Walks along the line.
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

/// A number that every small one divides, so that each of a few is picked as often.
const PICKS: usize = 60;

/// The steps of one thread.
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
            // Mostly one: large requests are few, or all queue behind one of them.
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
