//! Permits in existence: adding, removing, closing; and how many are free.

use crate::support::fault::fault;
use crate::support::sync::atomic::Ordering;

use super::node::UNIT;
use super::settle::Settled;
use super::{End, Engine, MAX_PERMITS, covers, free};

impl Engine {
    /// Permits added to those in existence.
    ///
    /// # Panics
    ///
    /// When there would be more than [`MAX_PERMITS`]; nothing has changed then.
    pub(in super::super) fn add(&self, permits: usize) {
        // Ordering: Relaxed, a number of its own; the permits themselves are handed on by `credited`.
        let mut capacity = self.capacity.load(Ordering::Relaxed);
        loop {
            let room = (MAX_PERMITS as isize).saturating_sub(capacity);
            assert!(
                permits as u64 <= room.max(0) as u64,
                "adding {permits} permits to {capacity} would exceed MAX_PERMITS"
            );
            let more = capacity + permits as isize;
            // Ordering: Relaxed, as above.
            match self.capacity.compare_exchange_weak(capacity, more, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => capacity = now,
            }
        }
        if permits > 0 {
            self.release_queued(permits);
        }
    }

    /// Notifies a latch's `n` oldest waiters. What is left stays pending: as many as the largest call left,
    /// and no more.
    ///
    /// # Panics
    ///
    /// When `n` exceeds [`MAX_PERMITS`].
    #[inline(never)]
    pub(in super::super) fn notify(&self, n: usize) {
        assert!(n <= MAX_PERMITS, "cannot notify {n} waiters, more than MAX_PERMITS");
        if n == 0 {
            return;
        }
        let mut given = 0;
        loop {
            let (before, end) = (given, self.end());
            let done = match end.is_queued() {
                false => self.try_notify(n, &mut given, self.credited(), end.consumed(), end),
                // Within the walk: the tail cannot go and come again, so a word that is the same has not
                // changed.
                true => self
                    .settled(|settled| match settled {
                        Settled::All { end, consumed, .. } => {
                            Some(self.try_notify(n, &mut given, self.credited(), consumed, end))
                        }
                        // There is a waiter, so none stay pending.
                        Settled::Blocked { credited, .. } => {
                            Some(self.try_notify(n, &mut given, credited, credited, end))
                        }
                        Settled::Free | Settled::Spent | Settled::Full => None,
                    })
                    .unwrap_or(false),
            };
            if given > before {
                // Ordering: SeqCst, as in `release`.
                let now = End(self.end.load(Ordering::SeqCst));
                if now.is_queued() && !self.is_done(now) {
                    self.settled(|_| Some(()));
                }
            }
            if done {
                return;
            }
        }
    }

    /// Adds what is missing of `n` to what is pending, of which `given` are this notification's. Whether that
    /// is all: if `end` has changed, some of the others may have been taken.
    fn try_notify(&self, n: usize, given: &mut u64, credited: u64, consumed: u64, end: End) -> bool {
        let permits = n as u64 * UNIT;
        if !covers(credited, consumed, n) || fault!(NotificationsAddUp) {
            let missing = match fault!(NotificationsAddUp) {
                true => permits,
                false => consumed.wrapping_add(permits).wrapping_sub(credited).min(permits - *given),
            };
            let notified = credited.wrapping_add(missing);
            // Ordering: SeqCst, as in `release` [S]. Relaxed on failure: nothing is read.
            if self
                .credited
                .compare_exchange(credited, notified, Ordering::SeqCst, Ordering::Relaxed)
                .is_err()
            {
                return false;
            }
            *given += missing;
            if *given == permits || fault!(PendingCountsAsGiven) {
                return true;
            }
        }
        // Those that are pending count only if they were not taken before this step, by a thread that knows
        // nothing of this notification: it would wake fewer waiters than it is for. And a step, not a look: a
        // waiter may have come in between, and gone again.
        // Ordering: AcqRel: a thread that takes them does it behind this step, and sees what was done before
        // this notification as well [G].
        self.step(end, end, Ordering::AcqRel)
    }

    /// Refuses all requests from now on, and ends all waits.
    pub(in super::super) fn close(&self) {
        // Ordering: SeqCst, as in `enqueue`. The read-modify-write on the credit that follows puts it before
        // later grants.
        let end = End(self.end.fetch_or(End::CLOSED, Ordering::SeqCst));
        if end.is_queued() {
            self.settle_and_wake();
        }
    }

    /// Free permits; below zero while a deficit is not made up for. Those that the first waiter has too few
    /// of are not free.
    pub(in super::super) fn free(&self) -> i64 {
        loop {
            let end = self.end();
            if !end.is_queued() {
                let free = free(self.credited(), end.consumed());
                if self.end() == end || fault!(FreeReadOnce) {
                    return free;
                }
                continue;
            }
            let found = self.settled(|settled| match settled {
                Settled::Blocked { first, word, credited, consumed } => {
                    let (_, deficit) = first.wants(word);
                    Some(free(credited, consumed.wrapping_add(deficit)).min(0))
                }
                Settled::All { end, consumed, .. } => {
                    let free = free(self.credited(), consumed);
                    (self.end() == end).then_some(free)
                }
                Settled::Free | Settled::Spent | Settled::Full => None,
            });
            if let Some(free) = found {
                return free;
            }
        }
    }

    /// Consumes up to `most` of the permits that are free; of a closed semaphore's only if `even_closed`. The
    /// number that was consumed.
    pub(in super::super) fn drain(&self, most: usize, even_closed: bool) -> usize {
        let most = most.min(MAX_PERMITS) as u64;
        let mut drained = 0;
        while drained < most {
            let amount = |end: End, consumed| match even_closed || !end.is_closed() {
                true => (most - drained).min(free(self.credited(), consumed).max(0) as u64),
                false => 0,
            };
            let permits = match self.end() {
                end if !end.is_queued() => {
                    let permits = amount(end, end.consumed());
                    // Ordering: Release, as in `try_take_free`.
                    (permits == 0 || self.step(end, end.consuming(permits), Ordering::Release))
                        .then_some(permits)
                }
                _ => self.settled(|settled| match settled {
                    Settled::All { end, tail, consumed } => {
                        let permits = amount(end, consumed);
                        (permits == 0 || self.consume(end, tail, consumed, permits)).then_some(permits)
                    }
                    Settled::Blocked { .. } => Some(0),
                    Settled::Free | Settled::Spent | Settled::Full => None,
                }),
            };
            match permits {
                Some(0) => break,
                Some(permits) => drained += permits,
                None => {}
            }
        }
        drained as usize
    }

    /// Takes `permits` out of existence in one step, free or not: if fewer are free, whatever comes back next
    /// makes up for it first.
    fn reduce(&self, permits: usize) {
        if fault!(OnlyFreeReduced) {
            self.drain(permits, true);
            return;
        }
        let permits = permits as u64;
        if permits == 0 {
            return;
        }
        loop {
            let end = self.end();
            if !end.is_queued() {
                // Ordering: Release, as in `try_take_free`.
                if self.step(end, end.consuming(permits), Ordering::Release) {
                    return;
                }
                continue;
            }
            let reduced = self.settled(|settled| match settled {
                Settled::All { end, tail, consumed } => {
                    self.consume(end, tail, consumed, permits).then_some(())
                }
                Settled::Blocked { first, word, .. } => {
                    let retire = |replaced: &_| {
                        self.memory.retire_replaced(replaced, &self.done, || self.meet_all());
                    };
                    first.add_deficit(word, permits, retire).then_some(())
                }
                Settled::Free | Settled::Spent | Settled::Full => None,
            });
            if reduced.is_some() {
                return;
            }
        }
    }

    /// The same, and the number with them.
    #[cfg(latchwork_suspend)]
    pub(in super::super) fn lower(&self, permits: usize) {
        self.reduce(permits);
        self.forget(permits);
    }

    /// Permits that are meant to exist.
    pub(in super::super) fn capacity(&self) -> usize {
        // Ordering: Relaxed, a number of its own.
        self.capacity.load(Ordering::Relaxed).max(0) as usize
    }

    /// Permits that exist and are not free, as far as the capacity is right.
    pub(in super::super) fn held(&self) -> usize {
        // Ordering: Relaxed, as above.
        (self.capacity.load(Ordering::Relaxed) as i64 - self.free()).max(0) as usize
    }

    /// Permits taken from here will not come back.
    pub(in super::super) fn forget(&self, permits: usize) {
        // Ordering: Relaxed, as above.
        self.capacity.fetch_sub(permits as isize, Ordering::Relaxed);
    }

    /// What exists is taken out before the number falls, and added after it has risen, so that it is never
    /// more than the number says.
    ///
    /// # Panics
    ///
    /// If `capacity` exceeds [`MAX_PERMITS`]; nothing has changed then.
    pub(in super::super) fn set_capacity(&self, capacity: usize) {
        assert!(capacity <= MAX_PERMITS, "a semaphore may not have more than MAX_PERMITS permits");
        let to = capacity as isize;
        let mut reduced = 0;
        // Ordering: Relaxed, a number of its own; see `add`.
        let mut before = self.capacity.load(Ordering::Relaxed);
        loop {
            let less = (before - to).max(0) as usize;
            if less > reduced {
                self.reduce(less - reduced);
                reduced = less;
            }
            // Ordering: Relaxed, as above.
            match self.capacity.compare_exchange(before, to, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => before = now,
            }
        }
        let more = (to - before) + if fault!(LoweredTwice) { 0 } else { reduced as isize };
        if more > 0 {
            self.release_queued(more as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two notifications one was given, and all that was pending is taken: the other one is missing.
    #[test]
    fn notification_that_goes_on_gives_what_is_missing_of_it_and_no_more() {
        let engine = Engine::new(0, true);
        let mut given = UNIT;
        assert!(engine.try_notify(2, &mut given, engine.credited(), 0, engine.end()));
        assert_eq!((given, engine.free()), (2 * UNIT, 1));
    }
}
