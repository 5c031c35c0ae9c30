//! The loop `settle`, which makes nodes final, and its callers.

use std::ptr::{self, NonNull};
use std::task::Waker;

use crate::support::fault::fault;
use crate::support::foreign::{Unsettled, WakeBatch, wake_one};
use crate::support::sync::atomic::Ordering;

use super::epoch::Walk;
use super::node::{Hint, Node, NodeState, UNIT, Word};
use super::{End, Engine, ahead};

/// How far the queue is settled.
pub(super) enum Settled<'w> {
    /// The queue is empty, without a tail.
    Free,
    /// All nodes up to `tail` are final, and have consumed `consumed`. `end` may name another tail by now: a
    /// decision needs a step on `end`, or a recheck.
    All { end: End, tail: &'w Node, consumed: u64 },
    /// The first non-final node wants more than `credited` covers beyond its offset, `consumed`.
    Blocked { first: &'w Node, word: Word, credited: u64, consumed: u64 },
    /// The credit is used up, and the caller did not ask for the first waiter.
    Spent,
    /// The wake batch is full.
    Full,
}

/// How far the caller wants the queue settled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Until no other waiter can be granted.
    Spent,
    /// Until the first waiter is known.
    Decided,
}

impl Engine {
    /// True if the tail, named by `end`, is known to be final, and with it all nodes.
    #[inline]
    pub(super) fn is_done(&self, end: End) -> bool {
        // Ordering: Acquire [D]. After `end`: hints from an earlier life of the tail's memory are gone.
        end.tail().map_or(ptr::null_mut(), NonNull::as_ptr) == self.done.load(Ordering::Acquire)
    }

    /// True if the queue is in use and all its nodes are known to be final.
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

    /// If closed, closes the waiters before the caller returns, in case the closing thread has stopped.
    #[cold]
    pub(super) fn settle_what_is_closed(&self, end: End) {
        if end.is_closed() && !fault!(ClosedNotSettled) {
            self.settle_unless_done(end);
        }
    }

    /// Grants every waiter covered by the credit, or closes all waiters if closed, and wakes them.
    #[inline(never)]
    pub(super) fn settle_and_wake(&self) {
        let walk = self.memory.walk();
        let credited = self.meet_credit();
        self.settle_from(walk, credited, None);
    }

    /// Makes a walk visible by a read-modify-write [R], which also orders an earlier step with all credits.
    #[inline]
    pub(super) fn meet_credit(&self) -> u64 {
        // Ordering: SeqCst, as in `release`: after the earlier step, and before the read of the nodes [S].
        self.credited.fetch_add(0, Ordering::SeqCst)
    }

    pub(super) fn meet_all(&self) {
        self.meet_credit();
        // Ordering: AcqRel [R].
        self.end.fetch_or(0, Ordering::AcqRel);
    }

    /// The steps of `settle` at one node, for the usual queue: the first waiter needs exactly the free
    /// permits, or the only waiter was cancelled. Leaves all else to the loop. `hint` was read on the walk,
    /// after `credited` and before `end`, as in `settle`; `end` is open.
    #[inline]
    pub(super) fn settle_first(&self, walk: Walk<'_>, credited: u64, hint: *mut Node, end: End) {
        // SAFETY: reached on the walk.
        let Some(tail) = end.tail().map(|tail| unsafe { tail.as_ref() }) else { return };
        if ptr::eq(hint, tail) {
            return;
        }
        // SAFETY: as above.
        let mut here = unsafe { Hint::node(hint).as_ref() }.unwrap_or(tail);
        let Some(mut consumed) = here.link().as_offset() else {
            return self.settle_from(walk, credited, None);
        };
        let mut word = here.load();
        if word.is_final() {
            consumed = consumed.wrapping_add(here.has_consumed(word));
            if ptr::eq(here, tail) {
                return self.remember_on_walk(consumed, here);
            }
            let Some(next) = here.next() else { return self.settle_from(walk, credited, None) };
            // SAFETY: as above.
            here = unsafe { next.as_ref() };
            consumed = here.come_to(consumed);
            word = here.load();
        }
        // The waiter takes all the credit. `end` was read between the credit and the grant, as in `due`.
        let waits_for_all = Word::new(NodeState::Waiting, ahead(credited, consumed) as u64 / UNIT);
        if word == waits_for_all
            && let Ok((_, Some(waker))) = here.make_final(waits_for_all, NodeState::Granted)
        {
            // As in `has_spent_all`.
            if self.credited() != credited {
                return self.settle_from(walk, credited, Some(waker));
            }
            self.remember_on_walk(credited, here);
            drop(walk);
            return wake_one(waker);
        }
        self.settle_from(walk, credited, None);
    }

    /// `granted` is the waker of a waiter granted before.
    #[inline(never)]
    pub(super) fn settle_from(&self, walk: Walk<'_>, credited: u64, granted: Option<Waker>) {
        let wakes = WakeBatch::new();
        granted.into_iter().for_each(|waker| wakes.push(waker));
        if matches!(self.settle(&walk, credited, &wakes, Until::Spent), Settled::Full) {
            drop(walk);
            wakes.call(Some(self));
            self.settled(|_| Some(()));
        } else {
            drop(walk);
            wakes.call(None);
        }
    }

    /// Settles to the end, calls `decide` with the result while on the walk, wakes, and returns the decision.
    pub(super) fn settled<R>(&self, mut decide: impl FnMut(Settled<'_>) -> Option<R>) -> Option<R> {
        let wakes = WakeBatch::new();
        loop {
            let walk = self.memory.walk();
            let credited = self.meet_credit();
            let settled = self.settle_until_decided(&walk, credited, &wakes);
            let full = matches!(settled, Settled::Full);
            let decided = if full { None } else { decide(settled) };
            drop(walk);
            wakes.call(if full { Some(self) } else { None });
            if !full {
                return decided;
            }
        }
    }

    #[inline(never)]
    fn settle_until_decided<'w>(
        &'w self,
        walk: &'w Walk<'_>,
        credited: u64,
        wakes: &WakeBatch,
    ) -> Settled<'w> {
        self.settle(walk, credited, wakes, Until::Decided)
    }

    /// The loop. Makes nodes final, from the first non-final node on, as far as the credit goes. Any thread
    /// may call it, at any time, with an old `credited`: a thread that adds to the credit settles, too.
    #[inline(always)]
    fn settle<'w>(
        &'w self,
        _walk: &'w Walk<'_>,
        credited: u64,
        wakes: &WakeBatch,
        until: Until,
    ) -> Settled<'w> {
        let _claim = fault!(SettlesUnderLock)
            .then(|| std::iter::repeat_with(|| self.memory.sweeper()).find_map(|s| s));
        // Ordering: Acquire [D]. Read before `end`: the node is not behind the tail found there.
        let hint = self.done.load(Ordering::Acquire);
        // Ordering: SeqCst, after the credit [S]. Includes the Acquire for the tail [N].
        let end = End(self.end.load(Ordering::SeqCst));
        let Some(tail) = end.tail() else { return Settled::Free };
        // SAFETY: reached on the walk.
        let (here, consumed) = match unsafe { Hint::node(hint).as_ref() } {
            Some(start) => Self::start_at(start),
            None => Self::walk_back(tail),
        };
        if ptr::eq(hint, tail.as_ptr()) {
            // Still the tail after it was known to be final.
            let consumed = consumed.wrapping_add(here.has_consumed(here.load()));
            return Settled::All { end, tail: here, consumed };
        }
        let mut at = Cursor { engine: self, end, tail, here, consumed, credited, last: None, hint };
        loop {
            if let Err(stopped) = at.make_final(wakes) {
                return stopped;
            }
            if until == Until::Spent && at.has_spent_all() {
                self.remember(at.consumed, at.last);
                return Settled::Spent;
            }
            if let Err(all) = at.go_on() {
                return all;
            }
        }
    }

    #[inline]
    fn start_at(node: &Node) -> (&Node, u64) {
        (node, node.link().as_offset().expect("walks start at nodes that have an offset"))
    }

    /// Completes links from the tail backwards, to the last node known to have only final nodes before it.
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
        // Ordering: Acquire: later reads are not older than the consumption known here.
        self.front.load(Ordering::Acquire)
    }

    /// Updates the hints for later walks.
    #[inline]
    pub(super) fn remember(&self, front: u64, last: Option<&Node>) {
        // Ordering: Relaxed, twice: these loads only save stores.
        if self.front.load(Ordering::Relaxed) != front {
            // Ordering: Release, see `front`.
            self.front.store(front, Ordering::Release);
        }
        if let Some(last) = last
            && !ptr::eq(self.done.load(Ordering::Relaxed), last)
            && !last.is_unlinked()
        {
            // Ordering: Release: all earlier nodes are final for walks that start there, too [D].
            self.done.store(ptr::from_ref(last).cast_mut(), Ordering::Release);
        }
    }

    /// As `remember`, for a node that was not taken out before this walk began: the first round of a removal
    /// waits for the walk, so the hint may be set even if the node is out by now.
    #[inline]
    fn remember_on_walk(&self, front: u64, last: &Node) {
        // Ordering: Release, twice, as in `remember` [D].
        self.front.store(front, Ordering::Release);
        self.done.store(ptr::from_ref(last).cast_mut(), Ordering::Release);
    }

    /// Sets the hint while no node is final: otherwise each new waiter would walk back over the whole queue.
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

impl Unsettled for Engine {
    fn go_on(&self) {
        self.settle_and_wake();
    }
}

/// Position of the loop `settle`. All nodes before `here` are final.
struct Cursor<'w> {
    engine: &'w Engine,
    /// The word that named `tail`; also closed, if seen later.
    end: End,
    tail: NonNull<Node>,
    here: &'w Node,
    /// Consumption of all nodes before `here`, and of `here` once final.
    consumed: u64,
    credited: u64,
    /// The last node found or made final by this walk.
    last: Option<&'w Node>,
    /// Where the walk began; null if no node was known to be final.
    hint: *mut Node,
}

/// The next state of the waiting node at the cursor.
enum Due {
    Final(NodeState),
    /// More was credited than the cursor knew: ask again.
    Unknown,
    /// The credit does not cover the node. `consumed_first` includes the node's deficit.
    Blocked {
        consumed_first: u64,
    },
}

impl<'w> Cursor<'w> {
    /// Makes the node final and collects its waker. Fails without enough credit, or room in the batch.
    #[inline(always)]
    fn make_final(&mut self, wakes: &WakeBatch) -> Result<(), Settled<'w>> {
        let mut word = self.here.load();
        while !word.is_final() {
            let state = match self.due(word) {
                Due::Final(state) => state,
                Due::Unknown => continue,
                Due::Blocked { consumed_first } => return Err(self.blocked(word, consumed_first)),
            };
            if wakes.is_full() {
                self.engine.remember(self.consumed, self.last);
                return Err(Settled::Full);
            }
            match self.here.make_final(word, state) {
                Ok((ended, waker)) => {
                    word = ended;
                    if let Some(waker) = waker {
                        wakes.push(waker);
                    }
                }
                Err(now) => word = now,
            }
        }
        self.consumed = self.consumed.wrapping_add(self.here.has_consumed(word));
        self.last = Some(self.here);
        Ok(())
    }

    #[inline(always)]
    fn due(&mut self, word: Word) -> Due {
        if self.end.is_closed() {
            return Due::Final(NodeState::Cancelled);
        }
        let (need, deficit) = self.here.wants(word);
        // The deficit is consumed first.
        let consumed_first = self.consumed.wrapping_add(deficit);
        let free = ahead(self.credited, consumed_first);
        if free < need as i64 {
            // A release that saw no node behind `done` has left the grant to this node's publisher, now
            // perhaps stopped. (Acquire may miss a release not ordered before the publication. The
            // publisher's own recheck does not [S].)
            let now = self.engine.credited();
            if now == self.credited || fault!(BlockedByOldCredit) {
                return Due::Blocked { consumed_first };
            }
            self.credited = now;
            return Due::Unknown;
        }
        // Read between the credit and the grant: permits credited after `close` are not granted.
        if self.engine.end().is_closed() && !fault!(NoLookAtClosed) {
            self.end = End(self.end.0 | End::CLOSED);
            return Due::Final(NodeState::Cancelled);
        }
        Due::Final(if free == need as i64 { NodeState::Granted } else { NodeState::GrantedOfMore })
    }

    #[inline(always)]
    fn blocked(&self, word: Word, consumed_first: u64) -> Settled<'w> {
        // Includes the deficit, consumed even if the waiter leaves, or the hint would lag too far.
        self.engine.remember(consumed_first, self.last);
        if self.hint.is_null() && self.last.is_none() {
            self.engine.remember_first(self.here);
        }
        Settled::Blocked { first: self.here, word, credited: self.credited, consumed: self.consumed }
    }

    /// True if the known credit can grant no other waiter.
    #[inline(always)]
    fn has_spent_all(&self) -> bool {
        self.credited == self.consumed && self.engine.credited() == self.credited && !self.end.is_closed()
    }

    /// Advances from a final node to the next, if any.
    #[inline(always)]
    fn go_on(&mut self) -> Result<(), Settled<'w>> {
        if self.is_at_tail() {
            // A waiter enqueued meanwhile does its own recheck.
            return Err(self.all());
        }
        if let Some(next) = self.here.next() {
            // SAFETY: reached on the walk.
            self.here = unsafe { next.as_ref() };
            self.consumed = self.here.come_to(self.consumed);
            return Ok(());
        }
        // Back from the present tail: the former tail may have been cancelled and taken out.
        if !fault!(WalkToOldTail) {
            self.end = self.engine.end();
            self.tail = self.end.tail().ok_or(Settled::Free)?;
        }
        if self.is_at_tail() {
            return Err(self.all());
        }
        (self.here, self.consumed) = Engine::walk_back(self.tail);
        Ok(())
    }

    #[inline(always)]
    fn is_at_tail(&self) -> bool {
        ptr::eq(self.here, self.tail.as_ptr())
    }

    #[inline(always)]
    fn all(&self) -> Settled<'w> {
        self.engine.remember(self.consumed, self.last);
        Settled::All { end: self.end, tail: self.here, consumed: self.consumed }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::super::node::UNIT;
    use super::super::{Enqueued, NewNode, OwnedNode, Taken};
    use super::*;
    use crate::support::foreign::BATCH;

    const MAX: usize = super::super::MAX_PERMITS;

    fn wait(engine: &Engine, need: usize) -> OwnedNode {
        match engine.enqueue(NewNode::waiting(need, Waker::noop())) {
            Enqueued::Waits(position) => position,
            taken => panic!("{taken:?}"),
        }
    }

    fn cancel(engine: &Engine, position: OwnedNode) {
        // SAFETY: enqueued by this test, and cancelled once.
        unsafe { engine.cancel(position, 1) };
    }

    fn hint(engine: &Engine) -> *mut Node {
        // Ordering: Relaxed, one thread.
        engine.done.load(Ordering::Relaxed)
    }

    /// Runs `test` with a node just taken out of the middle of the engine's queue.
    fn with_node_taken_out(engine: &Engine, test: impl FnOnce(&Node)) {
        let first = wait(engine, 1);
        let gone = wait(engine, 1);
        let last = wait(engine, 1);
        // SAFETY: a node is there until left, and for some sweeps after its removal.
        let node = unsafe { gone.node() };
        cancel(engine, gone);
        while !node.is_unlinked() {
            cancel(engine, wait(engine, 1));
        }
        test(node);
        cancel(engine, first);
        cancel(engine, last);
    }

    /// A walk begun at the node before the removal would pass the node on to later walks, past its own end.
    #[test]
    fn hint_is_not_set_to_a_node_that_was_taken_out() {
        let engine = Engine::new(0, false);
        with_node_taken_out(&engine, |gone| {
            engine.remember(0, Some(gone));
            assert!(
                !ptr::eq(Hint::node(hint(&engine)), gone),
                "expected no hint to a removed node by a walk that found it final"
            );
            // Ordering: Relaxed, one thread.
            engine.done.store(ptr::null_mut(), Ordering::Relaxed);
            engine.remember_first(gone);
            assert!(
                !ptr::eq(Hint::node(hint(&engine)), gone),
                "expected no hint to a removed node by a walk that found it blocked"
            );
        });
    }

    /// Otherwise each batch would walk again over all waiters granted since the first.
    #[test]
    fn walk_that_filled_its_batch_resumes_where_it_ended() {
        let engine = Engine::new(0, false);
        let queue: Vec<_> = (0..=BATCH).map(|_| wait(&engine, 1)).collect();
        // Ordering: Relaxed, one thread.
        engine.credited.fetch_add(queue.len() as u64 * UNIT, Ordering::Relaxed);
        let wakes = WakeBatch::new();
        let walk = engine.memory.walk();
        let credited = engine.meet_credit();
        assert!(matches!(engine.settle(&walk, credited, &wakes, Until::Spent), Settled::Full));
        // SAFETY: not left yet.
        assert!(ptr::eq(hint(&engine), unsafe { queue[BATCH - 1].node() }));
        drop(walk);
        wakes.call(None);
        queue.into_iter().for_each(|position| cancel(&engine, position));
    }

    /// The hint is set by a thread stopped since before the removal. The next epoch begins without the hint.
    #[test]
    fn hint_to_a_node_that_was_taken_out_is_cleared_marked_or_not() {
        for mark in [|gone: &Node| ptr::from_ref(gone).cast_mut(), |gone: &Node| Hint::first(gone)] {
            let engine = Engine::new(0, false);
            with_node_taken_out(&engine, |gone| {
                // Ordering: Relaxed, one thread.
                engine.done.store(mark(gone), Ordering::Relaxed);
                let sweeper = engine.memory.sweeper().expect("no other is at work");
                assert!(
                    sweeper.advance(&engine.done, || engine.meet_all()).is_some(),
                    "expected an epoch, as no walk is under way"
                );
                assert!(!ptr::eq(Hint::node(hint(&engine)), gone));
            });
        }
    }

    /// However much was taken without a queue, a waiter's recheck sees a release that saw no waiter.
    #[test]
    fn front_is_not_of_a_session_long_ago() {
        let engine = Engine::new(0, false);
        for word in [&engine.credited, &engine.end] {
            // Ordering: Relaxed, one thread.
            word.store(1 << 63, Ordering::Relaxed);
        }
        let waiter = wait(&engine, 1);
        // Ordering: as above.
        engine.credited.fetch_add(UNIT, Ordering::Relaxed);
        assert!(engine.look(), "expected the recheck to see the credit");
        cancel(&engine, waiter);
    }

    /// However often the capacity changes beside a blocked waiter, `front` stays close to the consumption.
    #[test]
    fn front_counts_the_deficit_of_the_first_waiter() {
        let engine = Engine::new(MAX, false);
        assert!(engine.try_take(MAX).is_ok());
        let waiter = wait(&engine, 2);
        for round in 0..5 {
            engine.set_capacity(0);
            engine.set_capacity(MAX);
            assert!(
                ahead(engine.credited(), engine.front()) <= 0,
                "expected no front behind the credited permits in round {round}"
            );
        }
        engine.give_back(1, Taken::Queued);
        assert_eq!(ahead(engine.credited(), engine.front()), UNIT as i64);
        cancel(&engine, waiter);
    }
}
