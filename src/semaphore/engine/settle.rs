//! The loop `settle`, which makes nodes final, and the steps that have to call it.

use std::ptr::{self, NonNull};

use crate::fault::fault;
use crate::sync::atomic::Ordering;

use super::super::epoch::Walk;
use super::super::node::{Hint, Kind, Node, Word};
use super::super::wakes::WakeBatch;
use super::{End, Engine, ahead};

/// How far the queue is settled.
pub(super) enum Settled<'w> {
    /// The queue is empty, and there is no tail.
    Free,
    /// All nodes are final, and have consumed so much. `end` named `tail` after that was seen.
    All { end: End, tail: &'w Node, consumed: u64 },
    /// The first node that is not final wants more than `credited` covers beyond its offset.
    Blocked { first: &'w Node, word: Word, credited: u64, consumed: u64 },
    /// The credit is used up, and the caller did not ask which waiter is first.
    Spent,
    /// The wake batch is full.
    Full,
}

/// How far a caller wants it settled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Until no other waiter can be granted.
    Spent,
    /// Until it is known which waiter is first.
    Decided,
}

impl Engine {
    /// Whether all nodes were final when this was known of the tail, which is the word's.
    #[inline]
    pub(super) fn is_done(&self, end: End) -> bool {
        // Ordering: Acquire [D]. After the word was read: a hint of an earlier life of that memory was
        // cleared before this life began.
        end.tail().map_or(ptr::null_mut(), NonNull::as_ptr) == self.done.load(Ordering::Acquire)
    }

    /// Whether a queue is in use, and all its nodes are known to be final.
    pub(super) fn is_known_settled(&self) -> bool {
        let end = self.end();
        end.is_queued() && self.is_done(end)
    }

    #[inline]
    pub(super) fn settle_unless_done(&self, end: End) {
        if end.is_queued() && !self.is_done(end) {
            self.settle_and_wake();
        }
    }

    /// A caller that finds the semaphore closed does not return while waiters sleep because the thread that
    /// closes it has stopped.
    #[cold]
    pub(super) fn settle_what_is_closed(&self, end: End) {
        if end.is_closed() && !fault!(ClosedNotSettled) {
            self.settle_unless_done(end);
        }
    }

    /// Grants what can be granted, or closes what is to be closed, and wakes.
    #[inline(never)]
    pub(in super::super) fn settle_and_wake(&self) {
        let walk = self.memory.walk();
        let credited = self.meet();
        self.settle_from(walk, credited);
    }

    /// A read-modify-write that makes a walk visible [R], and orders a step before it with all credits.
    #[inline]
    pub(super) fn meet(&self) -> u64 {
        // Ordering: SeqCst, as in `release`: after a step before it, and before the look at the nodes [S].
        self.credited.fetch_add(0, Ordering::SeqCst)
    }

    /// One on each word.
    pub(super) fn meet_all(&self) {
        self.meet();
        // Ordering: AcqRel [R].
        self.end.fetch_or(0, Ordering::AcqRel);
    }

    #[inline]
    pub(super) fn settle_from(&self, walk: Walk<'_>, credited: u64) {
        let wakes = WakeBatch::new();
        if matches!(self.settle(&walk, credited, &wakes, Until::Spent), Settled::Full) {
            drop(walk);
            wakes.call(Some(self));
            self.settled(&wakes, |_| Some(()));
        } else {
            drop(walk);
            wakes.call(None);
        }
        wakes.resume_panic(|| ());
    }

    /// Settles to the end, and calls `decide` with what is found. Wakes then, and says what that returned; a
    /// panic of a waker's is left in the batch.
    pub(super) fn settled<R>(
        &self,
        wakes: &WakeBatch,
        mut decide: impl FnMut(Settled<'_>) -> Option<R>,
    ) -> Option<R> {
        loop {
            let walk = self.memory.walk();
            let credited = self.meet();
            let settled = self.settle_until_decided(&walk, credited, wakes);
            let full = matches!(settled, Settled::Full);
            let decided = if full { None } else { decide(settled) };
            drop(walk);
            wakes.call(full.then_some(self));
            if !full {
                return decided;
            }
        }
    }

    /// One copy of the loop for all callers that ask what was found.
    #[inline(never)]
    fn settle_until_decided<'w>(&self, walk: &'w Walk<'_>, credited: u64, wakes: &WakeBatch) -> Settled<'w> {
        self.settle(walk, credited, wakes, Until::Decided)
    }

    /// The loop. Makes nodes final, from the first on that is not, as far as the credit goes. Any thread may
    /// call it, at any time.
    ///
    /// `credited` may be old: it never falls, and a thread that adds to it settles.
    #[inline(always)]
    fn settle<'w>(
        &self,
        _walk: &'w Walk<'_>,
        mut credited: u64,
        wakes: &WakeBatch,
        until: Until,
    ) -> Settled<'w> {
        let _claim = fault!(SettlesUnderLock).then(|| self.memory.claim());
        // Ordering: Acquire [D]. Before `end`: so the node is not behind the tail that is found there.
        let hint = self.done.load(Ordering::Acquire);
        // Ordering: SeqCst, after the credit [S]. Includes the Acquire for the tail [N].
        let mut end = End(self.end.load(Ordering::SeqCst));
        let Some(mut tail) = end.tail() else { return Settled::Free };
        // SAFETY: reached on the walk.
        let (mut here, mut consumed) = match unsafe { Hint::node(hint).as_ref() } {
            Some(start) => Self::start_at(start),
            None => Self::walk_back(tail),
        };
        if ptr::eq(hint, tail.as_ptr()) {
            // It was the tail after it was known to be final.
            let consumed = consumed.wrapping_add(here.has_consumed(here.load()));
            return Settled::All { end, tail: here, consumed };
        }
        let mut last = None;
        loop {
            let mut word = here.load();
            while !word.is_final() {
                let mut kind = Kind::Void;
                if !end.is_closed() {
                    let (need, deficit) = here.wants(word);
                    // The deficit goes to what is consumed: it comes first.
                    let consumed_first = consumed.wrapping_add(deficit);
                    let free = ahead(credited, consumed_first);
                    if free < need as i64 {
                        // A release that saw no node behind `done` has left it to this node's publisher,
                        // which may have stopped.
                        let now = self.credited();
                        if now != credited && !fault!(BlockedByOldCredit) {
                            credited = now;
                            continue;
                        }
                        // With the deficit, which is consumed whether the waiter stays or goes: it may be as
                        // large as the changes of the capacity are many, and what is behind by that much
                        // cannot be compared any more.
                        self.remember(consumed_first, last);
                        if hint.is_null() && last.is_none() {
                            self.remember_first(here);
                        }
                        return Settled::Blocked { first: here, word, credited, consumed };
                    }
                    // Between the credit and the grant: what is credited after `close` is not granted.
                    if self.end().is_closed() && !fault!(NoLookAtClosed) {
                        end = End(end.0 | End::CLOSED);
                    } else {
                        kind = if free == need as i64 { Kind::Granted } else { Kind::GrantedOfMore };
                    }
                }
                if wakes.is_full() {
                    self.remember(consumed, last);
                    return Settled::Full;
                }
                match here.end(word, kind) {
                    Ok((ended, waker)) => {
                        word = ended;
                        if let Some(waker) = waker {
                            wakes.push(waker);
                        }
                    }
                    Err(now) => word = now,
                }
            }
            consumed = consumed.wrapping_add(here.has_consumed(word));
            last = Some(here);
            if until == Until::Spent
                && credited == consumed
                && self.credited() == credited
                && !end.is_closed()
            {
                self.remember(consumed, last);
                return Settled::Spent;
            }
            if ptr::eq(here, tail.as_ptr()) {
                // A waiter that came meanwhile looks for itself.
                self.remember(consumed, last);
                return Settled::All { end, tail: here, consumed };
            }
            if let Some(next) = here.next() {
                // SAFETY: reached on the walk.
                here = unsafe { next.as_ref() };
                consumed = here.come_to(consumed);
                continue;
            }
            // From the tail of now: the one from before may have been cancelled and taken out, and nothing
            // leads to it then.
            if !fault!(WalkToOldTail) {
                end = self.end();
                let Some(now) = end.tail() else { return Settled::Free };
                tail = now;
            }
            if ptr::eq(here, tail.as_ptr()) {
                self.remember(consumed, last);
                return Settled::All { end, tail: here, consumed };
            }
            (here, consumed) = Self::walk_back(tail);
        }
    }

    /// A node all before which are final, and what those have consumed.
    #[inline]
    fn start_at(node: &Node) -> (&Node, u64) {
        (node, node.link().as_offset().expect("walks start at nodes that have an offset"))
    }

    /// Completes the links from the tail backwards, up to the last node all before which are known to be
    /// final.
    #[cold]
    pub(super) fn walk_back<'w>(tail: NonNull<Node>) -> (&'w Node, u64) {
        let mut node = tail;
        // SAFETY: reached on the caller's walk.
        while let Some(before) = unsafe { node.as_ref() }.link().predecessor().and_then(NonNull::new) {
            // SAFETY: as above.
            unsafe { before.as_ref() }.complete_next(node);
            node = before;
        }
        // SAFETY: as above.
        Self::start_at(unsafe { node.as_ref() })
    }

    #[inline]
    pub(super) fn front(&self) -> u64 {
        // Ordering: Acquire, so that what is read afterwards is not older than what was known to be consumed.
        self.front.load(Ordering::Acquire)
    }

    /// Updates the hints for later walks.
    #[inline]
    pub(super) fn remember(&self, front: u64, last: Option<&Node>) {
        // Ordering: Relaxed, twice: only to leave what is right as it is.
        if self.front.load(Ordering::Relaxed) != front {
            // Ordering: Release, see `front`.
            self.front.store(front, Ordering::Release);
        }
        if let Some(last) = last
            && !ptr::eq(self.done.load(Ordering::Relaxed), last)
            && !last.is_unlinked()
        {
            // Ordering: Release: all before it are final for walks that start there, too [D].
            self.done.store(ptr::from_ref(last).cast_mut(), Ordering::Release);
        }
    }

    /// Nothing is final yet: without this, every new waiter that finds too few permits free would walk back
    /// over the whole queue.
    #[cold]
    fn remember_first(&self, first: &Node) {
        if first.is_unlinked() {
            return;
        }
        let hint = Hint::first(first);
        // Ordering: Release, as in `remember`. Not a store, which could replace a later node. Relaxed on
        // failure: nothing is read.
        let _ = self.done.compare_exchange(ptr::null_mut(), hint, Ordering::Release, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::super::super::node::UNIT;
    use super::super::{Enqueued, Position, Taken};
    use super::*;

    const MAX: usize = super::super::MAX_PERMITS;

    fn wait(engine: &Engine, need: usize) -> Position {
        match engine.enqueue(need, Waker::noop()) {
            Enqueued::Waits(position) => position,
            taken => panic!("{taken:?}"),
        }
    }

    fn cancel(engine: &Engine, position: Position) {
        // SAFETY: enqueued by this test, and cancelled once.
        unsafe { engine.cancel(position, 1) };
    }

    fn hint(engine: &Engine) -> *mut Node {
        // Ordering: Relaxed, one thread.
        engine.done.load(Ordering::Relaxed)
    }

    /// The queue of the engine, with a node that has just been taken out of its middle.
    fn with_node_taken_out(engine: &Engine, test: impl FnOnce(&Node)) {
        let first = wait(engine, 1);
        let gone = wait(engine, 1);
        let last = wait(engine, 1);
        // SAFETY: a node that was not left is there, and so is one that was taken out by the last sweep, for
        // some more sweeps.
        let node = unsafe { gone.node() };
        cancel(engine, gone);
        while !node.is_unlinked() {
            cancel(engine, wait(engine, 1));
        }
        test(node);
        cancel(engine, first);
        cancel(engine, last);
    }

    /// A walk that began at a node before that was taken out would hand it on to the next walk, and so on,
    /// past its end.
    #[test]
    fn hint_is_not_set_to_a_node_that_was_taken_out() {
        let engine = Engine::new(0, false);
        with_node_taken_out(&engine, |gone| {
            engine.remember(0, Some(gone));
            assert!(!ptr::eq(Hint::node(hint(&engine)), gone), "by a walk that found it final");
            // Ordering: Relaxed, one thread.
            engine.done.store(ptr::null_mut(), Ordering::Relaxed);
            engine.remember_first(gone);
            assert!(!ptr::eq(Hint::node(hint(&engine)), gone), "by a walk that found it blocked");
        });
    }

    /// By a thread that looked before the node was taken out, and was stopped until then: the next epoch
    /// begins without that hint.
    #[test]
    fn hint_to_a_node_that_was_taken_out_is_cleared_marked_or_not() {
        for mark in [|gone: &Node| ptr::from_ref(gone).cast_mut(), |gone: &Node| Hint::first(gone)] {
            let engine = Engine::new(0, false);
            with_node_taken_out(&engine, |gone| {
                // Ordering: Relaxed, one thread.
                engine.done.store(mark(gone), Ordering::Relaxed);
                let sweeper = engine.memory.sweeper().expect("no other is at work");
                assert!(sweeper.advance(&engine.done, || engine.meet_all()).is_some(), "no walk goes on");
                assert!(!ptr::eq(Hint::node(hint(&engine)), gone));
            });
        }
    }

    /// However often the capacity falls and rises beside a waiter that it keeps blocked: what is compared
    /// stays close to what is true.
    #[test]
    fn front_counts_the_deficit_of_the_first_waiter() {
        let engine = Engine::new(MAX, false);
        assert!(engine.try_take(MAX).is_ok());
        let waiter = wait(&engine, 2);
        for round in 0..5 {
            engine.set_capacity(0);
            engine.set_capacity(MAX);
            assert!(ahead(engine.credited(), engine.front()) <= 0, "in round {round}");
        }
        engine.give_back(1, Taken::Queued);
        assert_eq!(ahead(engine.credited(), engine.front()), UNIT as i64);
        cancel(&engine, waiter);
    }
}
