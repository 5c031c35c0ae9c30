//! The engine: permits as two numbers that only grow, and a queue of nodes.
//!
//! # The idea
//!
//! `credited` counts the permits that were ever given: a release adds to it and is done. What was consumed is
//! in `end`: a number, while no waiter is queued; otherwise the last node of the queue, and each node says
//! what it consumes. A request that finds too few permits writes its need and its waker into a node and
//! publishes it by one compare-and-swap on `end`. The first node that is not final is granted, by one
//! compare-and-swap, when what is credited covers it beyond what those before it have consumed. Any thread
//! may do that, at any time: it is the loop `settle`.
//!
//! So a permit's place is a number, and never a thread's hand. When a release has returned, its permits are
//! free or belong to the waiters that they cover, whatever any thread does or does not do afterwards.
//!
//! # Source
//!
//! The seed is `AsyncSemaphore` of Redisson: a counter, a queue of one-shot listeners, and a loop `tryRun`
//! between the two. `settle` is that loop, made idempotent and open to helpers. The one counter became two
//! since a permit that is taken from a counter, to be assigned to a waiter, is in flight for that moment; of
//! two that only grow, nothing has to be taken. Publication by one swap of the tail, with links that are
//! completed afterwards by any thread that needs them, is that of the CLH lock (Craig 1993; Landin and
//! Hagersten 1994) and of the queue of Michael and Scott (1996); permits as positions of two counters, and
//! abortable waiters, are those of CQS (Koval, Khalanskiy, Alistarh 2023), which has cells where this has
//! nodes, and so has to break those whose owners are slow to register.
//!
//! # States and transitions
//!
//! | `end` | means | leaves by |
//! |---|---|---|
//! | free(*e*) | the queue is empty, *e* permits are consumed | take: free(*e*+*n*), if `credited` − *e* ≥ *n*; enqueue: queued(*node*), with *e* in the node |
//! | queued(*t*) | *t* is the last node | enqueue: queued(*node* behind *t*); take, if all nodes are final: free(*end*+*n*), if all were left as well; otherwise queued(a node that has consumed *n*) |
//!
//! Each can be closed, for good: then nothing is taken or enqueued. Every take consumes at least one permit,
//! so no free(*e*) comes twice until the word has gone round, see *Numbers that go round*.
//!
//! A node is `Waiting`, then `Granted` (consumes its need) or `Cancelled` (cancelled or closed, consumes
//! nothing), `node.rs`. Its *offset*, what all before it have consumed, is set when those are final. Lowering
//! the capacity consumes, too: it moves free(*e*) on, free permits or not, or publishes a final node; and
//! while a waiter is blocked, its permits are added to that node as a deficit, by compare-and-swap of the
//! node's one word.
//!
//! # Invariants
//!
//! * I1. `credited` and what is consumed never fall. Free permits are their difference.
//! * I2. Nodes become final from the first on; a final node never changes what it consumes. So an offset,
//!   once set, is right for ever, and all helpers compute the same.
//! * I3. A node is granted only while its offset, need and deficit are covered by `credited`, and all before
//!   it are final. So no permit is granted twice, and no waiter is overtaken.
//! * I4. Hints are true for ever: at least `front` is consumed, deficits included; all before `done` are
//!   final, and so is `done` itself, unless it is marked.
//!
//! # Numbers that go round
//!
//! What is credited and consumed is counted for ever, in words of 62 bits that go round. Two such numbers are
//! only ever compared by their difference, taken round the end and read as a signed number ([`ahead`]), which
//! is right while they are less than 2⁶¹ apart. What is compared is what is there now ([`MAX_PERMITS`] at
//! most, and for each thread that changes the capacity at that moment once more), and what was read before:
//! as old as one step of the thread is long. A hint that a thread stores late is as old as that. No number
//! stays behind by more than that: `front` is stored before a session begins, after each time that permits
//! are consumed in it, and counts the first waiter's deficit, which may grow as often as the capacity
//! changes. So a thread errs only if the others consume 2⁶¹ permits within one step of it, and free(*e*)
//! comes back under a compare-and-swap only if they consume 2⁶², to the permit.
//!
//! [`MAX_PERMITS`] is what makes that rare: 2²¹ acquisitions of all permits that a semaphore can have, within
//! one step.
//!
//! # Why no wake-up is lost
//!
//! A waiter publishes its node and then looks at the credit; a release adds to the credit and then looks at
//! `end` [S]. One of the two sees the other. If the waiter sees the credit, it settles. If the release sees
//! the queue, it settles. The loop makes final what the credit covers, from the first node on, to the tail
//! that it has read; a waiter behind that came later, and looks for itself. Cancelling is a step like
//! publishing: what is too little for the one that goes may be enough for those behind, so it looks, too. If
//! a thread stops in the middle of the loop, a waiter that it granted before goes on when it is polled.
//!
//! # Pairing
//!
//! | label | one side | other side | carries |
//! |---|---|---|---|
//! | [S] | publish or cancel a node, then look at `credited` | add to `credited`, then look at `end` and the nodes | one of the two sees the other; SeqCst |
//! | [G] | add to `credited`; grant | look at `credited`; see the grant | what was done before the release |
//! | [N] | publish a node; link it | follow the link | the node's content |
//! | [D] | set an offset, or `done` | start there | that all before are final |
//! | [W] | publish or update a waker | end the wait | the waker |
//! | [R] | begin a walk, then a read-modify-write on one of the two words | take nodes out, then one on each | one of the two sees the other: `epoch.rs` |
//!
//! # Progress
//!
//! The table on [`AsyncSemaphore`](super::AsyncSemaphore)'s page says it for each operation. A
//! compare-and-swap fails only because another thread's has been done. `settle` ends: it goes over each node
//! up to the tail that it has read (or a later one, where others have taken that out meanwhile), and each
//! failed step there means that the node has become final, or that its owner has changed its waker or its
//! semaphore a deficit.
//!
//! # What the checkers see
//!
//! `verify`'s `model` explores this algorithm step by step, with threads stopped anywhere, against a
//! sequential queue; it is to be held against this file. It takes memory to be sequentially consistent and
//! nodes to be new each time. `loom-tests` has the orderings, the waker's slot and the use of memory. loom
//! takes SeqCst loads for Acquire ones; the one that [S] needs is a read-modify-write there
//! (`credited_after_a_step`), which orders in any model what the SeqCst load orders in this one.

mod capacity;
mod epoch;
mod node;
mod reclaim;
mod settle;

use std::fmt;
use std::ptr::{self, NonNull};
use std::task::Waker;

use crate::support::fault::fault;
use crate::support::foreign;
use crate::support::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU64, Ordering};

use self::node::{Link, Node, NodeState, UNIT};
use self::reclaim::{Memory, Sweeper};
use self::settle::Settled;

/// Words that count permits have 62 bits, and this is so much less that a thread would have to be stopped,
/// within one step, for 2²¹ acquisitions of all permits before it could compare such words wrongly: see
/// *Numbers that go round*. With tokio's `usize::MAX >> 3`, which is what it is where a `usize` is smaller,
/// it would be for two.
pub(super) const MAX_PERMITS: usize =
    if usize::BITS > 40 { (1_u64 << 40) as usize - 1 } else { usize::MAX >> 3 };

// What is free, what is in deficit and what is wanted are three numbers of that size at most, and what a
// thread knows of the past a million more.
const _: () = assert!((MAX_PERMITS as u64) < (1 << 61) >> 20);

/// Why no permit was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Closed,
    NoPermits,
}

/// What was taken, and how it is best given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The queue was empty.
    Free,
    /// The queue was in use, and may still be.
    Queued,
}

/// The word that decides: how much was consumed, while the queue is empty; or which node is the queue's tail.
/// And whether the semaphore is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End(u64);

impl End {
    const QUEUED: u64 = 1;
    const CLOSED: u64 = 2;
    const FLAGS: u64 = Self::QUEUED | Self::CLOSED;

    /// The same closedness, with `tail` as the queue's tail.
    fn with_tail(self, tail: NonNull<Node>) -> Self {
        Self(tail.as_ptr().expose_provenance() as u64 | Self::QUEUED | self.0 & Self::CLOSED)
    }

    #[inline]
    const fn is_open_and_free(self) -> bool {
        self.0 & Self::FLAGS == 0
    }

    #[inline]
    const fn is_closed(self) -> bool {
        self.0 & Self::CLOSED != 0
    }

    #[inline]
    const fn is_queued(self) -> bool {
        self.0 & Self::QUEUED != 0
    }

    #[inline]
    fn tail(self) -> Option<NonNull<Node>> {
        NonNull::new(ptr::with_exposed_provenance_mut((self.0 & !Self::FLAGS) as usize))
            .filter(|_| self.is_queued())
    }

    /// While the queue is empty.
    #[inline]
    const fn consumed(self) -> u64 {
        self.0 & !Self::FLAGS
    }

    #[inline]
    const fn consuming(self, permits: u64) -> Self {
        Self(self.0.wrapping_add(permits * UNIT))
    }
}

// Neither kind of word has bits where the flags are. Links and hints, which share words too, have but one.
const _: () = assert!(align_of::<Node>() as u64 > End::FLAGS && UNIT > End::FLAGS);

/// How much `credited` is ahead of `consumed`, in units; below zero while a deficit is not made up for. The
/// one way in which such numbers are compared: both go round.
#[inline]
const fn ahead(credited: u64, consumed: u64) -> i64 {
    credited.wrapping_sub(consumed) as i64
}

/// Free permits; below zero while a deficit is not made up for.
#[inline]
const fn free(credited: u64, consumed: u64) -> i64 {
    ahead(credited, consumed) / UNIT as i64
}

#[inline]
const fn covers(credited: u64, consumed: u64, permits: usize) -> bool {
    // More would not fit into the number that is compared.
    permits <= MAX_PERMITS && ahead(credited, consumed) >= (permits as u64 * UNIT) as i64
}

/// A published node, of which the holder is the owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnedNode(NonNull<Node>);

// SAFETY: a node is `Sync`, and its owner may be any thread.
unsafe impl Send for OwnedNode {}
// SAFETY: as above.
unsafe impl Sync for OwnedNode {}

impl OwnedNode {
    /// # Safety
    ///
    /// The caller owns the node.
    #[inline]
    unsafe fn node<'a>(self) -> &'a Node {
        // SAFETY: a node that was not left is not freed.
        unsafe { self.0.as_ref() }
    }
}

/// What became of a request that found too few permits.
#[derive(Debug)]
pub(super) enum Enqueued {
    Taken(Taken),
    Closed,
    Waits(OwnedNode),
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Granted,
    Closed,
}

/// A node as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Waiting { need: u64 },
    Granted,
    Closed,
}

/// How far an attempt to take permits from a queue that may be settled has come.
#[derive(Clone, Copy)]
enum TakeOutcome {
    Decided(Result<(), Refused>),
    /// Another thread has changed the queue meanwhile.
    Changed,
    /// The queue has to be settled first.
    Unsettled,
}

pub(super) struct Engine {
    /// Permits ever credited. Never falls.
    credited: AtomicU64,
    /// An [`End`].
    end: AtomicU64,
    /// At least so much is consumed, the first waiter's deficit included: a hint, and true for ever.
    front: AtomicU64,
    /// A node that is final, as are all before it: a hint where walks start, and true for ever. Or null; or,
    /// marked as a [`Hint`](node::Hint), one all before which are final.
    done: AtomicPtr<Node>,
    /// Permits that are meant to exist. Below zero while more are forgotten than were added, as in a latch.
    capacity: AtomicIsize,
    memory: Memory,
    /// Whether permits are a latch's notifications, which do not add up.
    is_latch: bool,
}

crate::support::sync::maybe_const! {
    impl Engine {
        pub(super) fn new(permits: usize, is_latch: bool) -> Self {
            assert!(permits <= MAX_PERMITS, "a semaphore may not have more than MAX_PERMITS permits");
            Self {
                credited: AtomicU64::new(permits as u64 * UNIT),
                end: AtomicU64::new(0),
                front: AtomicU64::new(0),
                done: AtomicPtr::new(ptr::null_mut()),
                capacity: AtomicIsize::new(permits as isize),
                memory: Memory::new(),
                is_latch,
            }
        }
    }
}

impl Engine {
    #[inline]
    fn end(&self) -> End {
        // Ordering: Acquire, for a tail's content [N], and so that a credit which that word was decided by is
        // seen, too.
        End(self.end.load(Ordering::Acquire))
    }

    // A step is its caller's, where orderings are weakened one by one.
    #[cfg_attr(latchwork_loom, track_caller)]
    #[inline]
    fn step(&self, from: End, to: End, success: Ordering) -> bool {
        // Ordering: Relaxed on failure: the caller loads it again.
        self.end.compare_exchange(from.0, to.0, success, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn credited(&self) -> u64 {
        // Ordering: Acquire receives what was done before the releases [G].
        self.credited.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.end().is_closed()
    }

    // === Taking ===

    #[inline]
    pub(super) fn try_take(&self, permits: usize) -> Result<Taken, Refused> {
        match self.try_take_free(permits) {
            Some(true) => Ok(Taken::Free),
            Some(false) => Err(Refused::NoPermits),
            None => self.try_take_queued(permits).map(|()| Taken::Queued),
        }
    }

    /// Whether they were taken; `None` if the queue is in use, or the semaphore is closed.
    #[inline]
    pub(super) fn try_take_free(&self, permits: usize) -> Option<bool> {
        let mut end = self.end();
        while end.is_open_and_free() {
            // After `end`: what is too little for it was too little when it was read.
            if !covers(self.credited(), end.consumed(), permits) {
                // None are to be had in a deficit as well.
                return Some(permits == 0);
            }
            if permits == 0 {
                return Some(true);
            }
            let taken = end.consuming(permits as u64);
            // Ordering: AcqRel. Release: a thread that sees what was consumed sees the credit that covered
            // it, or it would find too few. Acquire, of a notification that found one kept [G], and on
            // failure as in `end`. What was done before releases came with the credit.
            match self.end.compare_exchange_weak(end.0, taken.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(true),
                Err(now) => end = End(now),
            }
        }
        None
    }

    #[inline(never)]
    fn try_take_queued(&self, permits: usize) -> Result<(), Refused> {
        loop {
            // Before `end`: at least so much had been consumed when that was read.
            let front = self.front();
            let end = self.end();
            if end.is_closed() {
                self.settle_what_is_closed(end);
                return Err(Refused::Closed);
            }
            if !end.is_queued() {
                match self.try_take_free(permits) {
                    Some(true) => return Ok(()),
                    Some(false) => return Err(Refused::NoPermits),
                    None => continue,
                }
            }
            if permits == 0 {
                return Ok(());
            }
            if !covers(self.credited(), front, permits) || fault!(TryWithoutSettle) && !self.is_done(end) {
                return Err(Refused::NoPermits);
            }
            let attempt = match self.try_take_settled(permits) {
                TakeOutcome::Unsettled => self.settle_and_try_take(permits),
                attempt => attempt,
            };
            if let TakeOutcome::Decided(taken) = attempt {
                return taken;
            }
        }
    }

    /// Takes them from a queue that is known to be settled.
    #[inline]
    fn try_take_settled(&self, permits: usize) -> TakeOutcome {
        // As the sweeper this thread needs no walk: no other thread frees nodes. But when there is something
        // to sweep it has to be on one, for the node that it may leave calls a sweeper.
        if !self.memory.is_sweep_due()
            && let Some(sweeper) = self.memory.sweeper()
        {
            return self.take_settled(permits, Some(&sweeper));
        }
        let walk = self.memory.walk();
        self.meet_credit();
        let attempt = self.take_settled(permits, None);
        drop(walk);
        attempt
    }

    /// As the sweeper, or on a walk.
    #[inline]
    fn take_settled(&self, permits: usize, sweeper: Option<&Sweeper<'_>>) -> TakeOutcome {
        let credited_before = fault!(CreditReadBeforeEnd).then(|| self.credited());
        let end = self.end();
        let Some(tail) = end.tail().filter(|_| self.is_done(end) && !end.is_closed()) else {
            return TakeOutcome::Unsettled;
        };
        // SAFETY: the tail, and it is not freed before this returns.
        let node = unsafe { tail.as_ref() };
        let Some(offset) = node.link().as_offset() else { return TakeOutcome::Unsettled };
        let consumed = offset.wrapping_add(node.has_consumed(node.load()));
        // After `end`, as in `try_take_free`: a permit may have been released before that was read, and
        // another one taken.
        let credited = credited_before.unwrap_or_else(|| self.credited());
        if !covers(credited, consumed, permits) {
            return TakeOutcome::Decided(Err(Refused::NoPermits));
        }
        let after = consumed.wrapping_add(permits as u64 * UNIT);
        // Ordering: AcqRel, as in `try_take_free`.
        let end_session = || self.step(end, End(after), Ordering::AcqRel);
        let taken = match sweeper.and_then(|sweeper| sweeper.end_session(tail, end_session)) {
            Some(ended) => {
                if ended {
                    // Ordering: Relaxed, a hint that is right whenever it is seen.
                    self.done.store(ptr::null_mut(), Ordering::Relaxed);
                }
                ended
            }
            None => self.consume(end, node, consumed, permits as u64),
        };
        if taken { TakeOutcome::Decided(Ok(())) } else { TakeOutcome::Changed }
    }

    /// The same, from one that has to be settled first.
    fn settle_and_try_take(&self, permits: usize) -> TakeOutcome {
        let attempt = self.settled(|settled| {
            Some(match settled {
                Settled::Blocked { .. } => TakeOutcome::Decided(Err(Refused::NoPermits)),
                Settled::All { end, tail, consumed } if !end.is_closed() => {
                    if !covers(self.credited(), consumed, permits) {
                        TakeOutcome::Decided(Err(Refused::NoPermits))
                    } else if self.consume(end, tail, consumed, permits as u64) {
                        TakeOutcome::Decided(Ok(()))
                    } else {
                        TakeOutcome::Changed
                    }
                }
                _ => TakeOutcome::Changed,
            })
        });
        attempt.unwrap_or(TakeOutcome::Changed)
    }

    /// Takes `min` permits, and up to `max` if more are free, those beyond `min` in a step of their own.
    pub(super) fn try_take_up_to(&self, min: usize, max: usize) -> Result<usize, Refused> {
        self.try_take(min)?;
        Ok(min + self.drain(max - min, false))
    }

    /// Consumes `permits` from a settled queue, by a node without a waiter. False if the queue has changed.
    /// `tail` is not freed meanwhile.
    fn consume(&self, end: End, tail: &Node, consumed: u64, permits: u64) -> bool {
        let node = reclaim::place_for(Node::consumed(permits, Link::offset(consumed)));
        // Ordering: AcqRel, as in `try_take_free`; and for the node's content [N].
        if !self.step(end, end.with_tail(node), Ordering::AcqRel) {
            // SAFETY: not published.
            unsafe { reclaim::discard(node) };
            return false;
        }
        tail.set_next(node);
        // SAFETY: published, and not freed before `tail` may be.
        let node = unsafe { node.as_ref() };
        self.remember(consumed.wrapping_add(permits * UNIT), Some(node));
        self.leave(node);
        true
    }

    // === Waiting ===

    /// Takes `need` permits, at least one, or a place in the queue. The caller owns the node then, until
    /// [`poll`](Self::poll) says that the wait has ended, or [`cancel`](Self::cancel) ends it. It is to
    /// [`look`](Self::look) next.
    #[inline]
    pub(super) fn enqueue(&self, need: usize, waker: &Waker) -> Enqueued {
        // Ordering: Relaxed, a guess.
        let front = self.front.load(Ordering::Relaxed);
        // In a queue that is not settled, what was credited and is not consumed is most likely about to be
        // granted to another waiter: a try would hold up the thread that is at it.
        if covers(self.credited(), front, need) && self.is_known_settled() {
            match self.try_take_queued(need) {
                Ok(()) => return Enqueued::Taken(Taken::Queued),
                Err(Refused::Closed) => return Enqueued::Closed,
                Err(Refused::NoPermits) => {}
            }
        }
        // Cloning is foreign code, and its panic ends this call: before there is a node, which would be lost.
        let mut node = reclaim::place_for(Node::waiting(need as u64, waker.clone(), Link::offset(0)));
        loop {
            let end = self.end();
            if end.is_closed() {
                // SAFETY: not published.
                unsafe { reclaim::discard(node) };
                self.settle_what_is_closed(end);
                return Enqueued::Closed;
            }
            let Some(tail) = end.tail() else {
                if covers(self.credited(), end.consumed(), need) {
                    // Ordering: AcqRel, as in `try_take_free`.
                    if self.step(end, end.consuming(need as u64), Ordering::AcqRel) {
                        // SAFETY: not published.
                        let discard = || unsafe { reclaim::discard(node) };
                        // The permits are the caller's by now, whatever the drop of its waker does.
                        foreign::call("dropping a waker", discard);
                        return Enqueued::Taken(Taken::Free);
                    }
                    continue;
                }
                // SAFETY: not published.
                unsafe { node.as_mut() }.relink(Link::offset(end.consumed()));
                // Before the session begins: all that was consumed since the last one is not in `front`,
                // which others would go by for as long as this thread were stopped in between.
                // Ordering: Release, see `front`.
                self.front.store(end.consumed(), Ordering::Release);
                // Ordering: SeqCst, before the look at the credit [S]. Includes the Release for the node's
                // content [N].
                if self.step(end, end.with_tail(node), Ordering::SeqCst) {
                    self.memory.opened(node);
                    return Enqueued::Waits(OwnedNode(node));
                }
                continue;
            };
            // SAFETY: not published.
            unsafe { node.as_mut() }.relink(Link::behind(tail));
            let walk = self.memory.walk();
            // Ordering: as above; and this is the read-modify-write that makes the walk visible, so it is
            // Acquire as well [R].
            if self.step(end, end.with_tail(node), Ordering::SeqCst) {
                // SAFETY: it was the tail when the walk had begun, so it was in the queue.
                unsafe { tail.as_ref() }.set_next(node);
                drop(walk);
                return Enqueued::Waits(OwnedNode(node));
            }
        }
    }

    /// After a step that a release may have missed: settles if it may have. True if so; the caller's own wait
    /// may be over then.
    #[inline]
    pub(super) fn look(&self) -> bool {
        if fault!(NoLook) {
            return false;
        }
        let credited = self.credited_after_a_step();
        // Ordering: Relaxed: whatever it is, at least so much was consumed.
        let front = self.front.load(Ordering::Relaxed);
        // A deficit that is not made up for is in `front`, and leaves nothing to grant.
        let anything = ahead(credited, front) > 0;
        if anything {
            self.settle_and_wake();
        }
        anything
    }

    /// The credit, ordered behind a step of the caller's: if a release's credit is not in it, the release
    /// sees the step [S].
    #[inline]
    fn credited_after_a_step(&self) -> u64 {
        if cfg!(latchwork_loom) {
            // loom takes a SeqCst load for an Acquire one. What it orders here, a read-modify-write orders in
            // any model.
            // Ordering: AcqRel, so that it is ordered with the releases' own.
            return self.credited.fetch_add(0, Ordering::AcqRel);
        }
        // Ordering: SeqCst [S].
        self.credited.load(Ordering::SeqCst)
    }

    /// How the wait at `owned` ended; `None` while it lasts, in which case `waker` will be woken. Ends the
    /// ownership of the node unless it is `None`.
    ///
    /// # Safety
    ///
    /// The caller owns the node.
    #[inline]
    pub(super) unsafe fn poll(&self, owned: OwnedNode, waker: &Waker) -> Option<Ended> {
        // SAFETY: the caller's promise.
        let node = unsafe { owned.node() };
        let state = node.poll(waker)?;
        match state {
            // There was nothing for those behind.
            NodeState::Granted => {}
            NodeState::Cancelled if fault!(ClosedPollDoesNotSettle) => {}
            // The thread that ended this wait may have been stopped before it came to those behind.
            _ => self.settle_the_rest(),
        }
        self.leave(node);
        Some(if state == NodeState::Cancelled { Ended::Closed } else { Ended::Granted })
    }

    #[inline]
    fn settle_the_rest(&self) {
        let end = self.end();
        let front = self.front();
        if ahead(self.credited(), front) > 0 || end.is_closed() {
            self.settle_unless_done(end);
        }
    }

    /// Gives up the wait at `owned` for `need` permits, and gives back those that were granted. Ends the
    /// ownership of the node.
    ///
    /// # Safety
    ///
    /// The caller owns the node.
    #[inline]
    pub(super) unsafe fn cancel(&self, owned: OwnedNode, need: usize) {
        // SAFETY: the caller's promise.
        let node = unsafe { owned.node() };
        match node.cancel() {
            Ok(waker) => {
                self.leave(node);
                // What is too little for this waiter may be enough for those behind.
                self.look();
                // Foreign code, which may come back into this semaphore, or panic: when all else is done.
                drop(waker);
            }
            // If the cancellation comes first, a settler goes on to the next; otherwise what it granted is
            // ours to give back.
            Err(state) => {
                self.leave(node);
                if state == NodeState::Cancelled {
                    self.settle_what_is_closed(self.end());
                } else if !fault!(GrantDiesWithWaiter) {
                    self.give_back(need, Taken::Queued);
                }
            }
        }
    }

    #[inline]
    fn leave(&self, node: &Node) {
        node.leave();
        self.memory.left_one(&self.done, || self.meet_all());
    }

    // === Giving ===

    /// Gives permits back. None are as good as some, and not worth a look.
    #[inline]
    pub(super) fn give_back(&self, permits: usize, taken: Taken) {
        if self.is_latch {
            return self.notify(permits);
        }
        match taken {
            Taken::Free => self.release(permits),
            Taken::Queued => self.release_queued(permits),
        }
    }

    #[inline]
    fn release(&self, permits: usize) {
        // Ordering: SeqCst, before the look at the queue [S]. Includes the Release that hands on what was
        // done before [G].
        self.credited.fetch_add(permits as u64 * UNIT, Ordering::SeqCst);
        // Ordering: SeqCst, the look [S]. Includes the Acquire for the tail [N].
        let end = End(self.end.load(Ordering::SeqCst));
        self.settle_unless_done(end);
    }

    /// The same, with the walk begun before the credit, which saves it a step of its own.
    #[inline(never)]
    fn release_queued(&self, permits: usize) {
        let permits = permits as u64 * UNIT;
        let walk = self.memory.walk();
        // Ordering: as in `release`; and this makes the walk visible [R].
        let credit = || self.credited.fetch_add(permits, Ordering::SeqCst).wrapping_add(permits);
        let credited =
            if fault!(CreditsAfterGrants) { self.meet_credit().wrapping_add(permits) } else { credit() };
        // Ordering: as in `release`.
        let end = End(self.end.load(Ordering::SeqCst));
        if end.is_queued() && !self.is_done(end) {
            self.settle_from(walk, credited);
        }
        if fault!(CreditsAfterGrants) {
            credit();
        }
    }
}

impl Engine {
    /// Shows each node whose owner has not left it, oldest first. `show` is called on the walk, so nothing in
    /// it may use a semaphore.
    pub(super) fn for_each_waiter(&self, mut show: impl FnMut(Seen)) {
        let walk = self.memory.walk();
        self.meet_credit();
        let Some(tail) = self.end().tail() else { return };
        let mut here = Some(self.memory.oldest().unwrap_or_else(|| NonNull::from(Self::walk_back(tail).0)));
        while let Some(node) = here {
            // SAFETY: reached on the walk.
            let seen: &Node = unsafe { node.as_ref() };
            let word = seen.load();
            match word.state() {
                NodeState::Waiting | NodeState::Updating => {
                    show(Seen::Waiting { need: seen.wants(word).0 / UNIT })
                }
                NodeState::Granted | NodeState::GrantedOfMore => show(Seen::Granted),
                NodeState::Cancelled => show(Seen::Closed),
                NodeState::Left | NodeState::Unlinked => {}
            }
            here = seen.next();
        }
        drop(walk);
    }
}

impl fmt::Debug for Engine {
    /// The queue, oldest first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is written to is foreign code, which may come back into this semaphore and begin a walk of its
        // own: that one's end would be this one's as well.
        let mut queue = Vec::new();
        self.for_each_waiter(|seen| queue.push(seen));
        f.debug_list().entries(queue).finish()
    }
}
