//! The engine: a counter of free permits, a queue of waiters, and the loop that brings the two together.
//!
//! # The idea
//!
//! Free permits lie in `counter`, waiters stand in `waiters`, and [`Queue::run`] moves permits from the one to the other:
//! take a permit into the hand, take the oldest waiter, hand it over. Whoever adds a permit or a waiter runs the loop, so
//! no thread ever waits for another. A waiter that is found dead is skipped with the same permit in hand. A thread that
//! finds nobody to serve gives its permit back, **and then looks at the queue again**.
//!
//! # Source
//!
//! `AsyncSemaphore.tryRun` of Redisson, without the lost wake-up that stood in its releases for five years: there the loop
//! ended right after giving the permit back. With one permit, a holder A and a newcomer B:
//!
//! | step | A releases | B acquires | counter | queue |
//! |---|---|---|---|---|
//! | 1 | adds its permit, takes it into the hand | | 0 | – |
//! | 2 | finds the queue empty | | 0 | – |
//! | 3 | | joins the queue, finds no permit | 0 | B |
//! | 4 | gives the permit back, leaves | | 1 | B |
//!
//! B sleeps beside a free permit. `loom-tests` keeps that loop as a model that must fail.
//!
//! # Why no wake-up is lost
//!
//! Every access to `counter` is a read-modify-write, so any two of them are ordered, and the later one sees what the thread
//! of the earlier one did before it. A waiter joins the queue *before* its first access (J, in `run`); a thread that is
//! about to leave a permit behind looks at the queue *after* its last one (G, giving back or adding). If J comes before G,
//! the look at the queue finds the waiter, and the thread goes round. If G comes before J, the waiter's own loop finds the
//! permit. When several loops overlap, the counter may dip below zero for a few instructions; the last one to put its
//! unit back sees the true number, and goes round if it is positive (I2).
//!
//! # Invariants
//!
//! * I1. A permit lies in the counter, in one cell, in one thread's hand, or with a holder; every move is one atomic step.
//! * I2. Once no thread is inside, either the counter is zero or the queue holds no living waiter.
//! * I3. A cell is popped once, so it has one server in its life (see `cell.rs`).
//!
//! # Pairing
//!
//! | release | acquire | carries |
//! |---|---|---|
//! | [Q1] every change of `counter` | every change of `counter` | what came before a release; that a waiter has joined |
//! | [Q2] `close` sets `closed` | `enqueue` reads it back | that the semaphore is closed |
//! | [Q3] `enqueue` reads `closed` by a read-modify-write | `close` sets it | that a waiter has joined |
//!
//! # Progress
//!
//! No operation takes a lock or waits for another thread. Two exceptions to what one might hope for: waking runs the woken
//! task's waker, which is foreign code; and a thread that is suspended by the system with a permit in its hand keeps that
//! permit from waiters, and from `try_acquire`, until it runs again. A cancelled waiter's cell stays in the queue until its
//! turn would have come.
//!
//! # What the model checker does not see
//!
//! Under loom the queue is a stand-in (`sync.rs`); that crossbeam's own is linearizable is taken on trust.

use std::task::Waker;

use crate::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use crate::sync::{Arc, SegQueue};

use super::cell::{Cell, Handed, Served};

/// As in tokio, so that code which checks against it means the same thing here.
pub(super) const MAX_PERMITS: usize = usize::MAX >> 3;

/// Why no permit was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Closed,
    NoPermits,
}

#[derive(Debug)]
pub(super) struct Queue {
    /// Free permits. Below zero only while loops overlap.
    counter: AtomicIsize,
    closed: AtomicBool,
    waiters: SegQueue<Arc<Cell>>,
}

impl Queue {
    const fn assert_permits(permits: usize) {
        assert!(permits <= MAX_PERMITS, "a semaphore may not have more than MAX_PERMITS permits");
    }

    #[cfg(not(latchwork_loom))]
    pub(super) const fn new(permits: usize) -> Self {
        Self::assert_permits(permits);
        Self {
            counter: AtomicIsize::new(permits as isize),
            closed: AtomicBool::new(false),
            waiters: SegQueue::new(),
        }
    }

    // loom's types register themselves with the running model, so they cannot be made in a const.
    #[cfg(latchwork_loom)]
    pub(super) fn new(permits: usize) -> Self {
        Self::assert_permits(permits);
        Self {
            counter: AtomicIsize::new(permits as isize),
            closed: AtomicBool::new(false),
            waiters: SegQueue::new(),
        }
    }

    pub(super) fn available(&self) -> usize {
        // Ordering: Acquire, so that a caller who sees a permit back also sees what its holder did [Q1].
        self.counter.load(Ordering::Acquire).max(0) as usize
    }

    pub(super) fn is_closed(&self) -> bool {
        // Ordering: Acquire, a caller who sees the close sees what came before it [Q2].
        self.closed.load(Ordering::Acquire)
    }

    /// Waiters in line, the cancelled ones whose turn has not come included.
    pub(super) fn queued(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn try_take(&self) -> Result<(), Refused> {
        if self.is_closed() {
            return Err(Refused::Closed);
        }
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut free = self.counter.load(Ordering::Relaxed);
        while free > 0 {
            // Ordering: Acquire receives what the last holder did [Q1]; Release keeps the order of all changes that the
            // essay leans on. Relaxed on failure: only the number is read, and it is tried again.
            match self.counter.compare_exchange_weak(free, free - 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => free = now,
            }
        }
        Err(Refused::NoPermits)
    }

    /// A permit at once if nobody stands in line, otherwise a place in it.
    pub(super) fn take_or_enqueue(&self, waker: &Waker) -> Result<Option<Arc<Cell>>, Refused> {
        if self.waiters.is_empty() {
            match self.try_take() {
                Ok(()) => return Ok(None),
                Err(Refused::Closed) => return Err(Refused::Closed),
                Err(Refused::NoPermits) => {}
            }
        }
        let cell = Arc::new(Cell::new(waker.clone()));
        self.waiters.push(Arc::clone(&cell));
        // Ordering: a read-modify-write that changes nothing, so that it is ordered against `close`'s. If ours comes first,
        // Release shows our push to its drain [Q3]; if the close comes first, Acquire shows us that nobody drains any more
        // [Q2]. Two plain accesses could both come too late.
        if self.closed.fetch_or(false, Ordering::AcqRel) {
            self.drain();
        } else {
            self.run();
        }
        Ok(Some(cell))
    }

    /// Adds `n` permits and serves whom they serve.
    ///
    /// # Panics
    ///
    /// When there would be more than [`MAX_PERMITS`]; nothing has changed then.
    pub(super) fn add(&self, n: usize) {
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut free = self.counter.load(Ordering::Relaxed);
        loop {
            // `free` may be a little below zero while loops overlap; the sum must fit whatever they put back.
            let fits = n <= MAX_PERMITS && free.max(0) as usize <= MAX_PERMITS - n;
            assert!(fits, "adding {n} permits to {free} would exceed MAX_PERMITS");
            let more = free + n as isize;
            // Ordering: Release hands on what the caller did, Acquire orders us after a waiter that has joined [Q1].
            match self.counter.compare_exchange_weak(free, more, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => free = now,
            }
        }
        self.run_if_awaited();
    }

    /// Gives one permit back that was taken from here, so it fits.
    pub(super) fn give_back(&self) {
        // Ordering: Release hands on what the holder did, Acquire orders us after a waiter that has joined [Q1].
        self.counter.fetch_add(1, Ordering::AcqRel);
        self.run_if_awaited();
    }

    /// Adds up to `n` permits, but leaves no more than `n` free when nobody waits for them.
    pub(super) fn add_keeping(&self, n: usize) {
        Self::assert_permits(n);
        let n = n as isize;
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut free = self.counter.load(Ordering::Relaxed);
        loop {
            // If a waiter joins after this look, its own loop finds what was kept.
            let more = if free >= 0 && self.waiters.is_empty() { free.max(n) } else { free + n };
            // Ordering: as in `add` [Q1], also when the number stays: a waiter who joined before this must be seen below.
            match self.counter.compare_exchange_weak(free, more, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => free = now,
            }
        }
        self.run_if_awaited();
    }

    /// From now on nobody is served: those in line are sent home, newcomers are refused.
    pub(super) fn close(&self) {
        // Ordering: Release publishes the close [Q2]; Acquire shows us every waiter whose look at `closed` came first [Q3].
        self.closed.swap(true, Ordering::AcqRel);
        self.drain();
    }

    /// After G of the essay: the look at the queue that comes after the counter was changed.
    fn run_if_awaited(&self) {
        if !self.waiters.is_empty() {
            self.run();
        }
    }

    /// Hands free permits to the oldest waiters until one of the two runs out.
    fn run(&self) {
        loop {
            // Ordering: AcqRel on every change of the counter is what the essay's J and G lean on [Q1].
            if self.counter.fetch_sub(1, Ordering::AcqRel) <= 0 {
                // There was none to take; put the unit back. If the sum shows a permit, it came in between, and the loop
                // that brought it may have looked while our unit was missing: it is for us to serve.
                // Ordering: as above [Q1].
                if self.counter.fetch_add(1, Ordering::AcqRel) < 0 {
                    return;
                }
                continue;
            }
            if !self.serve_one() {
                // Ordering: as above [Q1].
                self.counter.fetch_add(1, Ordering::AcqRel);
                // The look that Redisson's loop lacked. A waiter that joined while the permit was in our hand found none in
                // the counter and went to sleep; without this line nobody would come back for it.
                if self.waiters.is_empty() {
                    return;
                }
            }
        }
    }

    /// Hands the permit in our hand to the oldest living waiter. False if there is none; the permit still is in our hand.
    fn serve_one(&self) -> bool {
        while let Some(cell) = self.waiters.pop() {
            match cell.hand(Served::Granted) {
                Handed::Taken(waker) => {
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                    return true;
                }
                // Not given back to the counter, and so not twice: the next in line gets this very permit.
                Handed::Dead => {}
            }
        }
        false
    }

    /// Sends everyone home who stands in line.
    fn drain(&self) {
        while let Some(cell) = self.waiters.pop() {
            if let Handed::Taken(Some(waker)) = cell.hand(Served::Closed) {
                waker.wake();
            }
        }
    }
}
