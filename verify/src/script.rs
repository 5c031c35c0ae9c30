//! [`Script`]: what a thread of a round does, step by step.

use fastrand::Rng;

use crate::mix::Kind;

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

/// A number that every small one divides, so that each of a few is picked as often.
pub(crate) const PICKS: usize = 60;

/// The steps of one thread.
pub type Script = Vec<Step>;

impl Step {
    /// A random step out of `kinds`, each as likely as its weight says.
    pub(crate) fn random(kinds: &[(Kind, u32)], rng: &mut Rng) -> Self {
        let all: u32 = kinds.iter().map(|(_, weight)| weight).sum();
        let mut number = rng.u32(..all);
        let kind = kinds.iter().find(|(_, weight)| {
            let found = number < *weight;
            number = number.wrapping_sub(*weight);
            found
        });
        match kind.expect("the number is less than the sum of the weights").0 {
            // Mostly one: large requests are few, or everybody stands behind one of them.
            Kind::Acquire => Self::Acquire([1, 1, 1, 2, 3][rng.usize(..5)]),
            Kind::AcquireOne => Self::Acquire(1),
            Kind::PassBy => Self::PassBy(rng.usize(1..=3)),
            Kind::TryAcquire => Self::TryAcquire(rng.usize(1..=2)),
            Kind::TryOne => Self::TryAcquire(1),
            Kind::ChangeWaker => Self::ChangeWaker(rng.usize(..PICKS)),
            Kind::Cancel => Self::Cancel(rng.usize(..PICKS)),
            Kind::Release => Self::Release(rng.usize(..PICKS)),
            Kind::Add => Self::Add(rng.usize(1..=2)),
            Kind::AddOne => Self::Add(1),
            Kind::SetCapacity => Self::SetCapacity(rng.usize(0..=4)),
            Kind::ForgetPermits => Self::ForgetPermits(rng.usize(1..=2)),
            Kind::Free => Self::Free,
            Kind::Look => Self::Look,
            Kind::Close => Self::Close,
        }
    }
}
