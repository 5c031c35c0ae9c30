//! Applies a script to a semaphore and to the model, and compares both states after each step.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use latchwork::AsyncSemaphore;

use super::op::{Op, Script};
use super::sequential::{Id, Model};
use super::subject::{Bell, Future, Permit};

/// Limit of the futures at a time, because each step checks all of them.
const MOST_WAITS: usize = 100;

/// Panics if the semaphore and the model differ.
pub(crate) fn run(script: &Script) {
    let semaphore = Arc::new(if script.permits.is_multiple_of(2) {
        AsyncSemaphore::new(script.permits)
    } else {
        old(script.permits)
    });
    let mut run = Run {
        semaphore: &semaphore,
        model: Model::new(script.permits),
        made: 0,
        waits: Vec::new(),
        permits: Vec::new(),
    };
    run.compare();
    for op in &script.ops {
        run.step(op);
        run.compare();
    }
    run.drop_all();
}

/// A semaphore with `permits` permits whose counters are about to wrap around.
fn old(permits: usize) -> AsyncSemaphore {
    let semaphore = AsyncSemaphore::new(0);
    for _ in 0..2 {
        semaphore.add_permits(AsyncSemaphore::MAX_PERMITS);
        semaphore.forget_permits(AsyncSemaphore::MAX_PERMITS);
    }
    semaphore.add_permits(permits);
    semaphore
}

struct Run<'a> {
    semaphore: &'a Arc<AsyncSemaphore>,
    model: Model,
    made: usize,
    waits: Vec<Wait<'a>>,
    permits: Vec<Permit<'a>>,
}

struct Wait<'a> {
    id: Id,
    min: usize,
    max: usize,
    future: Future<'a>,
    bells: [Arc<Bell>; 2],
    /// Expected wake-ups of each bell.
    rings: [usize; 2],
    /// The bell of the latest poll.
    last: usize,
    /// True if the semaphore should keep the waker of that bell.
    asleep: bool,
}

fn pick(which: usize, len: usize) -> Option<usize> {
    (len > 0).then(|| which % len)
}

impl<'a> Run<'a> {
    fn step(&mut self, op: &Op) {
        match *op {
            Op::Acquire { min, more, owned } => _ = self.make(min, more, owned),
            Op::Poll { which, bell } => {
                if let Some(which) = pick(which, self.waits.len()) {
                    self.poll(which, bell);
                }
            }
            Op::Cancel { which } => self.cancel(which),
            Op::Try { permits, owned } => {
                let expected = self.model.take(permits, permits);
                let acquired = Permit::try_acquire(self.semaphore, permits, owned);
                self.keep(acquired, expected);
            }
            Op::TryBriefly { permits } => {
                // The call enqueues and gives up, which changes nothing.
                let expected = self.model.take(permits, permits);
                let acquired = self.semaphore.blocking_acquire_timeout(permits, Duration::from_nanos(1));
                self.keep(acquired.map(Permit::Borrowed), expected);
            }
            Op::PendingRelease { which } => {
                if let Some(permit) = self.take_permit(which) {
                    self.model.give_back(permit.num_permits());
                    drop(permit);
                }
            }
            Op::Split { which, permits } => {
                if let Some(which) = pick(which, self.permits.len()) {
                    let whole = self.permits[which].num_permits();
                    let part = self.permits[which].split(permits);
                    assert_eq!(part.as_ref().map(Permit::num_permits), (permits <= whole).then_some(permits));
                    let left = self.permits[which].num_permits();
                    assert_eq!(left, if permits <= whole { whole - permits } else { whole });
                    self.permits.extend(part);
                }
            }
            Op::Merge { which, other } => {
                if let Some(other) = self.take_permit(other) {
                    match pick(which, self.permits.len()) {
                        Some(which) => {
                            let sum = self.permits[which].num_permits() + other.num_permits();
                            match self.permits[which].merge(other) {
                                Ok(()) => assert_eq!(self.permits[which].num_permits(), sum),
                                Err(other) => self.permits.push(other),
                            }
                        }
                        None => self.permits.push(other),
                    }
                }
            }
            Op::Forget { which } => {
                if let Some(permit) = self.take_permit(which) {
                    self.model.forget(permit.num_permits());
                    permit.forget();
                }
            }
            Op::ForgetPermits { permits } => {
                let forgotten = self.semaphore.forget_permits(permits);
                assert_eq!(forgotten, self.model.forget_free(permits), "forgotten");
            }
            Op::AddPermits { permits } => {
                // More would panic, which a fuzz target may not.
                let permits = permits.min(self.model.room());
                self.model.add(permits);
                self.semaphore.add_permits(permits);
            }
            Op::SetCapacity { permits } => {
                self.model.set_capacity(permits);
                self.semaphore.set_capacity(permits);
            }
            Op::Queue { len, min, owned } => {
                for _ in 0..len {
                    if let Some(newest) = self.make(min, 0, owned) {
                        self.poll(newest, 0);
                    }
                }
            }
            Op::Disperse { which, len } => {
                for _ in 0..len {
                    self.cancel(which);
                }
            }
            Op::Close => {
                self.model.close();
                self.semaphore.close();
            }
        }
    }

    fn make(&mut self, min: usize, more: usize, owned: bool) -> Option<usize> {
        if self.waits.len() == MOST_WAITS {
            return None;
        }
        let max = min.saturating_add(more).min(AsyncSemaphore::MAX_PERMITS);
        self.waits.push(Wait {
            id: self.made,
            min,
            max,
            future: Future::new(self.semaphore, min, max, owned),
            bells: Default::default(),
            rings: [0; 2],
            last: 0,
            asleep: false,
        });
        self.made += 1;
        Some(self.waits.len() - 1)
    }

    fn poll(&mut self, which: usize, bell: usize) {
        let wait = &mut self.waits[which];
        wait.last = bell;
        let expected = self.model.poll(wait.id, wait.min, wait.max);
        let polled = wait.future.poll(&wait.bells[bell]);
        match (polled, expected) {
            (Poll::Pending, Poll::Pending) => wait.asleep = true,
            (Poll::Ready(acquired), Poll::Ready(expected)) => {
                self.note_rings();
                self.waits[which].assert_over();
                self.waits.remove(which);
                self.keep(acquired, expected);
            }
            (Poll::Ready(_), Poll::Pending) => panic!("a future was ready too early"),
            (Poll::Pending, Poll::Ready(expected)) => {
                panic!("a future waits that should have had {expected:?}")
            }
        }
    }

    fn cancel(&mut self, which: usize) {
        if let Some(which) = pick(which, self.waits.len()) {
            let mut wait = self.waits.remove(which);
            self.model.cancel(wait.id);
            // Replaced by an unpolled future, to check the wakers afterwards.
            wait.future = Future::new(self.semaphore, 0, 0, false);
            wait.assert_over();
            self.note_rings();
        }
    }

    fn keep<E: std::fmt::Debug + PartialEq>(
        &mut self,
        acquired: Result<Permit<'a>, E>,
        expected: Result<usize, E>,
    ) {
        assert_eq!(acquired.as_ref().map(Permit::num_permits), expected.as_ref().copied(), "acquired");
        self.permits.extend(acquired.ok());
    }

    fn take_permit(&mut self, which: usize) -> Option<Permit<'a>> {
        pick(which, self.permits.len()).map(|which| self.permits.remove(which))
    }

    // === Comparing ===

    /// Checks that the waiters woken by the model were woken, by the waker of their latest poll.
    fn note_rings(&mut self) {
        for id in self.model.take_woken() {
            let woken = self.waits.iter_mut().find(|wait| wait.id == id);
            let woken = woken.expect("only a waiter is woken");
            woken.rings[woken.last] += 1;
            woken.asleep = false;
        }
    }

    fn compare(&mut self) {
        self.note_rings();
        for wait in &self.waits {
            wait.assert_rings();
            let kept = [0, 1].map(|bell| usize::from(bell == wait.last && wait.asleep));
            assert_eq!(wait.kept(), kept, "expected the model's number of kept wakers of waiter {}", wait.id);
        }
        let (semaphore, model) = (self.semaphore, &self.model);
        assert_eq!(semaphore.available_permits(), model.available(), "expected the model's permits");
        assert_eq!(semaphore.waiters(), model.waiters(), "waiters");
        assert_eq!(semaphore.held(), model.held(), "held");
        assert_eq!(semaphore.capacity(), model.capacity(), "capacity");
        assert_eq!(semaphore.is_closed(), model.is_closed(), "expected the model's `is_closed`");
    }

    /// Drops everything; then all permits are free.
    fn drop_all(mut self) {
        while !self.waits.is_empty() {
            self.cancel(0);
        }
        self.compare();
        while let Some(permit) = self.permits.pop() {
            self.model.give_back(permit.num_permits());
            drop(permit);
            self.compare();
        }
        let semaphore = self.semaphore;
        assert_eq!(semaphore.available_permits(), semaphore.capacity(), "expected all permits free");
        assert_eq!((semaphore.waiters(), semaphore.held()), (0, 0));
    }
}

impl Wait<'_> {
    fn assert_rings(&self) {
        let rung = [self.bells[0].rung(), self.bells[1].rung()];
        assert_eq!(rung, self.rings, "expected the model's wake-ups of waiter {}, per waker", self.id);
    }

    /// The number of clones of each waker that the semaphore keeps: a whole task may be behind each.
    fn kept(&self) -> [usize; 2] {
        [0, 1].map(|bell| Arc::strong_count(&self.bells[bell]) - 1)
    }

    fn assert_over(&self) {
        self.assert_rings();
        assert_eq!(self.kept(), [0, 0], "expected no kept waker of the departed waiter {}", self.id);
    }
}
