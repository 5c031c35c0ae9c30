//! Permits in existence: adding, removing, closing, counting.

use crate::support::fault::fault;
use crate::support::sync::atomic::Ordering;

use super::node::UNIT;
use super::settle::Settled;
use super::{End, Engine, MAX_PERMITS, covers, free};

impl Engine {
    /// Creates and releases `permits` new permits. Panics, without effect, beyond [`MAX_PERMITS`].
    // Under loom, places of weakened orderings are in this function.
    #[cfg_attr(not(latchwork_loom), track_caller)]
    pub(in super::super) fn add(&self, permits: usize) {
        // Ordering: Relaxed, an independent number; `credited` hands the permits on.
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

    /// Notifies a latch's `n` oldest waiters. As many stay pending as the largest call left over.
    /// Panics beyond [`MAX_PERMITS`].
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
                // On this walk the tail cannot go and come back, so an equal word has not changed.
                true => self
                    .settled(|settled| match settled {
                        Settled::All { end, consumed, .. } => {
                            Some(self.try_notify(n, &mut given, self.credited(), consumed, end))
                        }
                        // A waiter is queued, so no notification stays pending.
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

    /// Raises the pending notifications to `n`; `given` units are this call's. True if this call is complete,
    /// false if `end` has changed: other pending notifications may have been taken.
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
        // Pending notifications count only if not taken before this step, or this call would wake fewer than
        // `n` waiters. Not a load: a waiter could have come and gone in between.
        // Ordering: AcqRel: later takers are behind this step, and see the work before this notification [G].
        self.step(end, end, Ordering::AcqRel)
    }

    /// Refuses all requests from now on, and ends all waits.
    pub(in super::super) fn close(&self) {
        // Ordering: SeqCst, as in `enqueue`. The next step on the credit puts this before later grants.
        let end = End(self.end.fetch_or(End::CLOSED, Ordering::SeqCst));
        if end.is_queued() {
            self.settle_and_wake();
        }
    }

    /// Returns the number of free permits, at most zero while a waiter is blocked; negative in a deficit.
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

    /// Consumes up to `most` free permits, of a closed semaphore only if `even_closed`. Returns their number.
    pub(in super::super) fn take_free(&self, most: usize, even_closed: bool) -> usize {
        let most = most.min(MAX_PERMITS) as u64;
        let mut taken = 0;
        while taken < most {
            let amount = |end: End, consumed| match even_closed || !end.is_closed() {
                true => (most - taken).min(free(self.credited(), consumed).max(0) as u64),
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
                Some(permits) => taken += permits,
                None => {}
            }
        }
        taken as usize
    }

    /// Takes `permits` out of existence in a single step, free or not: the rest is a deficit.
    fn reduce(&self, permits: usize) {
        if fault!(OnlyFreeReduced) {
            self.take_free(permits, true);
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

    /// Takes `permits` out of existence, and lowers the capacity.
    #[cfg(latchwork_suspend)]
    pub(in super::super) fn lower(&self, permits: usize) {
        self.reduce(permits);
        self.forget(permits);
    }

    pub(in super::super) fn capacity(&self) -> usize {
        // Ordering: Relaxed, an independent number.
        self.capacity.load(Ordering::Relaxed).max(0) as usize
    }

    /// Returns the number of permits that exist and are not free, as far as the capacity is right; never too
    /// few, or a drain would end too early.
    ///
    /// A capacity rises before its permits are credited, and falls after its permits are consumed. So the
    /// capacity is read after the credit, and the consumption, which only grows, must not have changed then.
    pub(in super::super) fn held(&self) -> usize {
        let held = |credited, consumed| {
            // Ordering: Acquire: the next read sees the consumption before a lower capacity.
            self.capacity.load(Ordering::Acquire) as i64 - free(credited, consumed)
        };
        loop {
            let end = self.end();
            let is_same = |end| self.end() == end || fault!(HeldReadOnce);
            let found = match end.is_queued() {
                false => Some(held(self.credited(), end.consumed())).filter(|_| is_same(end)),
                true => self.settled(|settled| match settled {
                    Settled::Blocked { first, word, credited, consumed } => {
                        let consumed_first = consumed.wrapping_add(first.wants(word).1);
                        // Permits too few for the waiter count as held.
                        let too_few = free(credited, consumed_first).max(0);
                        let held = held(credited, consumed_first) + too_few;
                        (first.load() == word).then_some(held)
                    }
                    // On this walk the tail cannot go and come back, so an equal word has not changed.
                    Settled::All { end, consumed, .. } => {
                        Some(held(self.credited(), consumed)).filter(|_| is_same(end))
                    }
                    Settled::Free | Settled::Spent | Settled::Full => None,
                }),
            };
            if let Some(held) = found {
                return held.max(0) as usize;
            }
        }
    }

    /// Lowers the capacity by `permits`, taken and never to come back.
    pub(in super::super) fn forget(&self, permits: usize) {
        // Ordering: Release: `held` sees the permits' consumption with the lower capacity.
        self.capacity.fetch_sub(permits as isize, Ordering::Release);
        self.end_drain();
    }

    /// Sets the capacity: removes permits before the number falls, adds permits after the number has risen.
    /// Panics, without effect, beyond [`MAX_PERMITS`].
    // Under loom, places of weakened orderings are in this function.
    #[cfg_attr(not(latchwork_loom), track_caller)]
    pub(in super::super) fn set_capacity(&self, capacity: usize) {
        assert!(capacity <= MAX_PERMITS, "{capacity} permits are more than MAX_PERMITS");
        let to = capacity as isize;
        let mut reduced = 0;
        // Ordering: Relaxed, an independent number; see `add`.
        let mut before = self.capacity.load(Ordering::Relaxed);
        loop {
            let less = (before - to).max(0) as usize;
            if less > reduced {
                self.reduce(less - reduced);
                reduced = less;
            }
            // Ordering: Release, as in `forget`. Relaxed on failure, as above.
            match self.capacity.compare_exchange(before, to, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => before = now,
            }
        }
        let more = (to - before) + if fault!(LoweredTwice) { 0 } else { reduced as isize };
        if more > 0 {
            self.release_queued(more as usize);
        }
        // Between the two steps of a lowered capacity too many permits count as held.
        self.end_drain();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two notifications, one is given and already taken: the other is missing.
    #[test]
    fn resumed_notification_gives_the_missing_permits_and_no_more() {
        let engine = Engine::new(0, true);
        let mut given = UNIT;
        assert!(engine.try_notify(2, &mut given, engine.credited(), 0, engine.end()));
        assert_eq!((given, engine.free()), (2 * UNIT, 1));
    }
}
