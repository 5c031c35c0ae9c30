//! The engine: two counts of permits that only grow, and a queue of nodes.
//!
//! # The idea
//!
//! `credited` counts all permits ever given; a release adds to it and is done. While no waiter is queued,
//! `end` holds the number of permits ever consumed; otherwise `end` names the queue's last node, and each
//! node says how many permits it consumes. A request that finds too few permits writes its need and its waker
//! into a node, and publishes the node by one compare-and-swap on `end`. Once `credited` covers the first
//! non-final node on top of all earlier consumption, one compare-and-swap grants the node. Any thread may
//! grant it, at any time, in the loop `settle`.
//!
//! Permits are therefore never in flight. After a release returns, the released permits are free or belong to
//! waiters, whatever any thread does or stops doing.
//!
//! # Source
//!
//! The seed is Redisson's `AsyncSemaphore`: a counter, a queue of one-shot listeners, and a loop `tryRun`
//! between the two. `settle` makes the loop idempotent and open to helpers. Two growing counts replace the
//! counter, as a permit taken from a counter for a waiter is in flight until the waiter has the permit.
//! Publication by one swap of the tail, with links completed later by any thread, comes from the CLH lock
//! (Craig 1993; Landin and Hagersten 1994) and the queue of Michael and Scott (1996). Permits as positions of
//! two counters, and abortable waiters, come from CQS (Koval, Khalanskiy, Alistarh 2023).
//!
//! # States and transitions
//!
//! | `end` | means | leaves by |
//! |---|---|---|
//! | free(*e*) | the queue is empty, *e* permits are consumed | take: free(*e*+*n*), if `credited` − *e* ≥ *n*; enqueue: queued(*node*), with *e* in the node |
//! | queued(*t*) | *t* is the last node | enqueue: queued(*node* behind *t*); take, if all nodes are final: free(*c*+*n*), if *c* permits are consumed in all and every owner has left; otherwise queued(a node that has consumed *n*) |
//!
//! Either state can be closed, for good: nothing is taken or enqueued afterwards. Every take consumes at
//! least one permit, so no free(*e*) recurs before the word wraps, see *Numbers that go round*.
//!
//! A node is `Waiting`, then `Granted` (consumes its need) or `Cancelled` (cancelled or closed, consumes
//! nothing), see `node.rs`. Its *offset*, the number of permits consumed before it, is set once all earlier
//! nodes are final. Lowering the capacity consumes, too. While no waiter is blocked, it advances free(*e*),
//! even past the free permits, or publishes a final node; otherwise it adds the permits to the blocked node
//! as a *deficit*, by compare-and-swap of the node's one word.
//!
//! # Invariants
//!
//! * I1. `credited` and the consumed count never fall. Free permits are the difference.
//! * I2. Nodes become final from the first on, and a final node never changes its consumption. So an offset,
//!   once set, is right for ever, and all helpers compute the same.
//! * I3. A node is granted only while `credited` covers its offset, need and deficit, and all earlier nodes
//!   are final. So no permit is granted twice, and no waiter is overtaken.
//! * I4. Hints stay true for ever: at least `front` is consumed, deficits included; all nodes before `done`
//!   are final, and so is `done` itself unless marked.
//!
//! # Numbers that go round
//!
//! Both counts grow for ever, in words of 62 bits that go round. They are only compared by their difference,
//! read as a signed number ([`ahead`]), which is right while the counts are less than 2⁶¹ apart. Present
//! counts differ by [`MAX_PERMITS`] at most, and as much again for each thread now changing the capacity;
//! earlier readings, and hints stored late, are one step of a thread old. No hint lags by more: `front` is
//! stored before a session begins and after each consumption in it, and includes the first waiter's deficit,
//! which may grow as often as the capacity changes. So a thread errs only if the others consume 2⁶¹ permits
//! within one of its steps, by 2²¹ acquisitions of all permits of the largest semaphore; and free(*e*) recurs
//! under a compare-and-swap only if they consume 2⁶², to the permit.
//!
//! # Why no wake-up is lost
//!
//! A waiter publishes its node and then rechecks the credit; a release adds to the credit and then reads
//! `end` [S]. One of the two sees the other, and settles. The loop makes final every node that the credit
//! covers, from the first on, up to the tail read by the loop; a waiter behind this tail came later, and
//! rechecks for itself. A cancellation is a step like a publication, and rechecks too: permits too few for
//! the leaving waiter may be enough for the next. If a thread stops in the middle of the loop, a waiter
//! granted before goes on when polled.
//!
//! # Pairing
//!
//! | label | one side | other side | carries |
//! |---|---|---|---|
//! | [S] | publish or cancel a node, then read `credited` | add to `credited`, then read `end` and the nodes | one of the two sees the other; SeqCst |
//! | [G] | add to `credited`; grant | read `credited`; see the grant | the work done before the release |
//! | [N] | publish a node; link it | follow the link | the node's content |
//! | [D] | set an offset, or `done` | start a walk there | all earlier nodes are final |
//! | [L] | publish where to drain, then a read-modify-write on `credited` | give back permits, or lower the capacity, then the same | one of the two sees the other: `drain.rs` |
//! | [W] | publish or update a waker | end the wait | the waker |
//! | [R] | begin a walk, then a read-modify-write on `credited` or `end` | take nodes out, then a read-modify-write on both | one of the two sees the other: `epoch.rs` |
//!
//! # Progress
//!
//! [`AsyncSemaphore`](super::AsyncSemaphore)'s page has a table of all operations. A compare-and-swap fails
//! only because another thread's has succeeded. `settle` ends: the loop visits each node up to the tail read
//! at its start (or a later tail, if a sweeper has taken the former out). A failed step there means that the
//! node became final, or that its owner changed its waker or another thread its deficit. A release takes the
//! loop's steps at the first waiter without the loop (`settle_first`), and enters the loop for all else.
//!
//! # What the checkers see
//!
//! `verify`'s `model` explores this algorithm step by step against a sequential queue, with threads stopped
//! anywhere, in sequentially consistent memory with a new node for each wait; keep the model in line with
//! this file. `loom-tests` checks orderings, the waker's slot and the use of memory. loom takes a SeqCst
//! load as Acquire, so the load of [S] is a read-modify-write there (`credited_after_a_step`).

mod capacity;
mod drain;
mod epoch;
mod node;
mod reclaim;
mod settle;

use std::fmt;
use std::ptr::{self, NonNull};
use std::task::Waker;

use crate::semaphore::AsyncSemaphore;
use crate::support::fault::fault;
use crate::support::foreign;
use crate::support::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU64, Ordering};

use self::node::{Link, Node, NodeState, UNIT};
pub(super) use self::reclaim::NewNode;
use self::reclaim::{Memory, Sweeper};
use self::settle::Settled;

/// tokio's `usize::MAX >> 3` where a `usize` is smaller. See *Numbers that go round*.
pub(super) const MAX_PERMITS: usize =
    if usize::BITS > 40 { (1_u64 << 40) as usize - 1 } else { usize::MAX >> 3 };

// Free permits, deficit and need take one MAX_PERMITS each, stale readings a million more.
const _: () = assert!((MAX_PERMITS as u64) < (1 << 61) >> 20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Closed,
    NoPermits,
}

/// How permits were taken, and so the best way to release them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The queue was empty.
    Free,
    /// The queue was in use, and may still be.
    Queued,
}

/// The deciding word: the consumed count while the queue is empty, else its tail; and a flag for closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End(u64);

impl End {
    const QUEUED: u64 = 1;
    const CLOSED: u64 = 2;
    const FLAGS: u64 = Self::QUEUED | Self::CLOSED;

    /// Names `tail` as the queue's tail; stays open or closed.
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
        let tail = ptr::with_exposed_provenance_mut((self.0 & !Self::FLAGS) as usize);
        // SAFETY: not null, by `with_tail`.
        self.is_queued().then(|| unsafe { NonNull::new_unchecked(tail) })
    }

    /// The consumed count; valid only while the queue is empty.
    #[inline]
    const fn consumed(self) -> u64 {
        self.0 & !Self::FLAGS
    }

    #[inline]
    const fn consuming(self, permits: u64) -> Self {
        Self(self.0.wrapping_add(permits * UNIT))
    }
}

// Counts and addresses leave the flag bits free. Links and hints need only one bit.
const _: () = assert!(align_of::<Node>() as u64 > End::FLAGS && UNIT > End::FLAGS);

/// Units by which `credited` exceeds `consumed`, negative in a deficit. Counts go round: the one comparison.
#[inline]
const fn ahead(credited: u64, consumed: u64) -> i64 {
    credited.wrapping_sub(consumed) as i64
}

/// Free permits; negative in a deficit.
#[inline]
const fn free(credited: u64, consumed: u64) -> i64 {
    ahead(credited, consumed) / UNIT as i64
}

/// `permits` may exceed [`MAX_PERMITS`] by one at most, or would overflow.
#[inline]
const fn covers(credited: u64, consumed: u64, permits: usize) -> bool {
    ahead(credited, consumed) >= (permits as u64 * UNIT) as i64
}

/// A published node, owned by the holder of this handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnedNode(NonNull<Node>);

// SAFETY: a node is `Sync`, and any thread may be its owner.
unsafe impl Send for OwnedNode {}
// SAFETY: as above.
unsafe impl Sync for OwnedNode {}

impl OwnedNode {
    /// # Safety: the caller owns the node.
    #[inline]
    unsafe fn node<'a>(self) -> &'a Node {
        // SAFETY: a node is not freed before its owner leaves it.
        unsafe { self.0.as_ref() }
    }
}

#[derive(Debug)]
pub(super) enum Enqueued {
    /// The queue was empty.
    Taken,
    Closed,
    Waits(OwnedNode),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Granted,
    Closed,
}

/// A waiter's state, for an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Waiting { need: u64 },
    Granted,
    Closed,
}

pub(super) struct Engine {
    /// Permits ever credited, in units. Never falls.
    credited: AtomicU64,
    /// An [`End`].
    end: AtomicU64,
    /// A hint, true for ever: lower bound on the consumed count, the first waiter's deficit included.
    front: AtomicU64,
    /// A [`Hint`](node::Hint) where walks start, true for ever; or null.
    done: AtomicPtr<Node>,
    /// Number of permits meant to exist. Negative if more were forgotten than added, as in a latch.
    capacity: AtomicIsize,
    /// Where draining tasks wait; null before the first.
    place_to_drain: AtomicPtr<AsyncSemaphore>,
    memory: Memory,
    /// True if permits are a latch's notifications, which do not add up.
    is_latch: bool,
}

/// Panics with the number in the message; in constants, too, where `format_args!` takes text only.
#[cold]
#[track_caller]
const fn too_many(permits: usize) -> ! {
    let mut text = *b"                     permits are more than MAX_PERMITS";
    let (mut at, mut rest) = (20, permits);
    while rest > 0 {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    match str::from_utf8(text.split_at(at).1) {
        Ok(text) => panic!("{}", text),
        Err(_) => unreachable!(),
    }
}

crate::support::sync::maybe_const! {
    impl Engine {
        #[track_caller]
        pub(super) fn new(permits: usize, is_latch: bool) -> Self {
            if permits > MAX_PERMITS {
                too_many(permits);
            }
            Self {
                credited: AtomicU64::new(permits as u64 * UNIT),
                end: AtomicU64::new(0),
                front: AtomicU64::new(0),
                done: AtomicPtr::new(ptr::null_mut()),
                capacity: AtomicIsize::new(permits as isize),
                place_to_drain: AtomicPtr::new(ptr::null_mut()),
                memory: Memory::new(),
                is_latch,
            }
        }
    }
}

impl Engine {
    #[inline]
    fn end(&self) -> End {
        // Ordering: Acquire, for a tail's content [N], and for every credit that decided the word.
        End(self.end.load(Ordering::Acquire))
    }

    // Runs with one weakened ordering tell the callers of this step apart.
    #[cfg_attr(latchwork_loom, track_caller)]
    #[inline]
    fn step(&self, from: End, to: End, success: Ordering) -> bool {
        // Ordering: Relaxed on failure: the caller loads the word again.
        self.end.compare_exchange(from.0, to.0, success, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn credited(&self) -> u64 {
        // Ordering: Acquire receives the work done before the releases [G].
        self.credited.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.end().is_closed()
    }

    #[inline]
    pub(super) fn try_take(&self, permits: usize) -> Result<Taken, Refused> {
        // A larger number is refused as this number is, and would overflow.
        let permits = permits.min(MAX_PERMITS + 1);
        match self.try_take_free(permits) {
            Some(true) => Ok(Taken::Free),
            Some(false) => Err(Refused::NoPermits),
            None => self.try_take_queued(permits).map(|()| Taken::Queued),
        }
    }

    /// True if taken, false if too few are free; `None` if the queue is in use or the semaphore is closed.
    #[inline]
    pub(super) fn try_take_free(&self, permits: usize) -> Option<bool> {
        let mut end = self.end();
        while end.is_open_and_free() {
            // Read after `end`: a credit too small now was too small when `end` was read.
            if !covers(self.credited(), end.consumed(), permits) {
                // A take of zero permits succeeds even in a deficit.
                return Some(permits == 0);
            }
            if permits == 0 {
                return Some(true);
            }
            let taken = end.consuming(permits as u64);
            // Ordering: AcqRel. Release: a thread that sees the consumption sees the credit that covered it.
            // Acquire: for a notification that met a pending one [G]; on failure as in `end`. The work before
            // other releases came with the credit.
            match self.end.compare_exchange_weak(end.0, taken.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(true),
                Err(now) => end = End(now),
            }
        }
        None
    }

    #[inline(never)]
    fn try_take_queued(&self, permits: usize) -> Result<(), Refused> {
        // A lower bound: while the queue is blocked, a try writes nothing.
        let front = self.front();
        if permits > 0
            && covers(self.credited(), front, permits)
            && let Some(sweeper) = self.memory.sweeper()
        {
            if self.take_and_end_session(permits, &sweeper) {
                return Ok(());
            }
            return self.take_closely(permits, sweeper);
        }
        self.settle_and_take(permits)
    }

    /// Takes `permits` and ends the session, whose only node was left. False if there are others, or too few
    /// permits. The sweeper needs no walk: no other thread frees nodes.
    #[inline(always)]
    fn take_and_end_session(&self, permits: usize, sweeper: &Sweeper<'_>) -> bool {
        let end = self.end();
        let Some(tail) = end.tail().filter(|_| !end.is_closed()) else { return false };
        // SAFETY: the tail is not freed beside this sweeper.
        let node = unsafe { tail.as_ref() };
        let word = node.load();
        // With an offset, all nodes before are final.
        let Some(offset) = node.link().as_offset() else { return false };
        let consumed = offset.wrapping_add(node.has_consumed(word));
        if !covers(self.credited(), consumed, permits) {
            return false;
        }
        let after = End(consumed.wrapping_add(permits as u64 * UNIT));
        // Ordering: AcqRel, as in `try_take_free`.
        let has_ended = sweeper.end_session(tail, word, || self.step(end, after, Ordering::AcqRel));
        if has_ended {
            // Ordering: Relaxed: null is right at any time.
            self.done.store(ptr::null_mut(), Ordering::Relaxed);
        }
        has_ended
    }

    #[cold]
    #[inline(never)]
    fn take_closely(&self, permits: usize, sweeper: Sweeper<'_>) -> Result<(), Refused> {
        sweeper.prepare_end_of_session();
        if self.take_and_end_session(permits, &sweeper) {
            return Ok(());
        }
        drop(sweeper);
        self.settle_and_take(permits)
    }

    #[cold]
    #[inline(never)]
    fn settle_and_take(&self, permits: usize) -> Result<(), Refused> {
        loop {
            // Read before `end`, so a lower bound on the consumption at that moment.
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
            let taken = self.settled(|settled| match settled {
                Settled::Blocked { .. } => Some(Err(Refused::NoPermits)),
                Settled::All { end, tail, consumed } if !end.is_closed() => {
                    if !covers(self.credited(), consumed, permits) {
                        return Some(Err(Refused::NoPermits));
                    }
                    self.consume(end, tail, consumed, permits as u64).then_some(Ok(()))
                }
                _ => None,
            });
            if let Some(taken) = taken {
                return taken;
            }
        }
    }

    /// Takes `min` permits, and up to `max` if more are free; those beyond `min` in a separate step.
    pub(super) fn try_take_up_to(&self, min: usize, max: usize) -> Result<usize, Refused> {
        self.try_take(min)?;
        Ok(min + self.take_free(max - min, false))
    }

    /// Consumes `permits` from a settled queue by a node without a waiter. False if the queue has changed.
    /// The caller keeps `tail` from being freed.
    fn consume(&self, end: End, tail: &Node, consumed: u64, permits: u64) -> bool {
        let node = NewNode::new(|| Node::consumed(permits, Link::offset(consumed)));
        // Ordering: AcqRel, as in `try_take_free`, and for the node's content [N].
        if !self.step(end, end.with_tail(node.place()), Ordering::AcqRel) {
            return false;
        }
        let node = node.published();
        tail.set_next(node);
        // SAFETY: published, and not freed before `tail` may be.
        let node = unsafe { node.as_ref() };
        self.remember(consumed.wrapping_add(permits * UNIT), Some(node));
        self.leave(node);
        true
    }

    /// True if the queue is known to be settled, and `need` permits seem free. In an unsettled queue, a try
    /// would hold up the thread about to grant the free credit to another.
    #[inline]
    pub(super) fn seems_free(&self, need: usize) -> bool {
        // Ordering: Relaxed, a guess.
        let front = self.front.load(Ordering::Relaxed);
        covers(self.credited(), front, need) && self.is_known_settled()
    }

    /// Enqueues the node by one step. The caller owns the node then, until [`poll`](Self::poll) reports the
    /// end of the wait or [`cancel`](Self::cancel) ends it. Call [`look`](Self::look) next. `Err`, without
    /// effect, if there are enough free permits, the semaphore is closed, or `end` changes.
    #[inline(always)]
    pub(super) fn publish(&self, mut node: NewNode) -> Result<OwnedNode, NewNode> {
        let end = self.end();
        if end.is_closed() {
            return Err(node);
        }
        let Some(tail) = end.tail() else {
            if ahead(self.credited(), end.consumed()) >= node.get().needs() as i64 {
                return Err(node);
            }
            node.get().relink(Link::offset(end.consumed()));
            // Stored before the session begins: `front` lacks all consumption since the last session, and
            // other threads would use the old value if this thread stopped in between.
            // Ordering: Release, see `front`.
            self.front.store(end.consumed(), Ordering::Release);
            // Ordering: SeqCst, before the recheck of the credit [S]; Release for the node's content [N].
            if !self.step(end, end.with_tail(node.place()), Ordering::SeqCst) {
                return Err(node);
            }
            let node = node.published();
            self.memory.opened(node);
            return Ok(OwnedNode(node));
        };
        node.get().relink(Link::behind(tail));
        let walk = self.memory.walk();
        // Ordering: as above; also Acquire, as this read-modify-write makes the walk visible [R].
        if !self.step(end, end.with_tail(node.place()), Ordering::SeqCst) {
            return Err(node);
        }
        let node = node.published();
        // SAFETY: `tail` was still in the queue after the walk had begun.
        unsafe { tail.as_ref() }.set_next(node);
        drop(walk);
        Ok(OwnedNode(node))
    }

    /// As `publish`, or takes the permits.
    #[cold]
    pub(super) fn enqueue(&self, mut node: NewNode) -> Enqueued {
        loop {
            let end = self.end();
            if end.is_closed() {
                drop(node);
                self.settle_what_is_closed(end);
                return Enqueued::Closed;
            }
            let need = node.get().needs();
            if !end.is_queued() && ahead(self.credited(), end.consumed()) >= need as i64 {
                // Ordering: AcqRel, as in `try_take_free`.
                if self.step(end, End(end.0.wrapping_add(need)), Ordering::AcqRel) {
                    // The caller has its permits, whatever the drop of its waker does.
                    foreign::call("dropping a waker", || drop(node));
                    return Enqueued::Taken;
                }
                continue;
            }
            match self.publish(node) {
                Ok(position) => return Enqueued::Waits(position),
                Err(unpublished) => node = unpublished,
            }
        }
    }

    /// Settles, if a release may have missed the caller's step. True if so: the caller's wait may be over.
    #[inline]
    pub(super) fn look(&self) -> bool {
        let anything = self.may_grant();
        if anything {
            self.settle_and_wake();
        }
        anything
    }

    /// True if a release may have missed the caller's step, and left a grant to the caller.
    #[inline]
    fn may_grant(&self) -> bool {
        if fault!(NoLook) {
            return false;
        }
        let credited = self.credited_after_a_step();
        // Ordering: Relaxed: any value is a lower bound on the consumption.
        let front = self.front.load(Ordering::Relaxed);
        // A deficit is part of `front`: nothing is granted before the credit covers it.
        ahead(front, credited) < 0
    }

    /// The credit, ordered after a step of the caller: a release whose credit is missing sees the step [S].
    #[inline]
    fn credited_after_a_step(&self) -> u64 {
        if cfg!(latchwork_loom) {
            // Ordering: AcqRel, to be ordered with the releases' own.
            return self.credited.fetch_add(0, Ordering::AcqRel);
        }
        // Ordering: SeqCst [S].
        self.credited.load(Ordering::SeqCst)
    }

    /// Ends the ownership if the wait was granted, and nothing has to be settled, as after most waits. `None`
    /// if not; `Some(true)` if the caller must [sweep](Self::sweep_if_due) next.
    ///
    /// # Safety: the caller owns the node.
    #[inline]
    pub(super) unsafe fn poll_granted(&self, owned: OwnedNode) -> Option<bool> {
        // SAFETY: the caller's promise.
        let is_left = unsafe { owned.node() }.leave_if_granted(|| !self.is_unsettled());
        is_left.then(|| self.memory.left_one())
    }

    /// Returns how the wait ended, and ends the ownership. `None` while it lasts: its end wakes `waker`, or
    /// without `waker` the present one.
    ///
    /// # Safety: the caller owns the node.
    pub(super) unsafe fn poll(&self, owned: OwnedNode, waker: Option<&Waker>) -> Option<Ended> {
        // SAFETY: the caller's promise.
        let node = unsafe { owned.node() };
        let state = node.poll(waker)?;
        match state {
            // No credit was left for the waiters behind.
            NodeState::Granted => {}
            NodeState::Cancelled if fault!(ClosedPollDoesNotSettle) => {}
            // The thread that ended this wait may have stopped before it reached the waiters behind.
            _ if self.is_unsettled() => self.settle_and_wake(),
            _ => {}
        }
        self.leave(node);
        Some(if state == NodeState::Cancelled { Ended::Closed } else { Ended::Granted })
    }

    /// True if waiters may be left for the caller to grant or close.
    #[inline]
    fn is_unsettled(&self) -> bool {
        let end = self.end();
        let front = self.front();
        (ahead(self.credited(), front) > 0 || end.is_closed()) && end.is_queued() && !self.is_done(end)
    }

    /// Gives up the wait at `owned`, releases its `need` permits if granted, and ends the ownership.
    ///
    /// # Safety: the caller owns the node.
    #[inline]
    pub(super) unsafe fn cancel(&self, owned: OwnedNode, need: usize) {
        // SAFETY: the caller's promise.
        let Some(waker) = unsafe { owned.node() }.cancel_waiting() else {
            // SAFETY: as above.
            return unsafe { self.cancel_closely(owned, need) };
        };
        if self.memory.left_one() | self.may_grant() {
            return self.after_cancel(waker);
        }
        // Dropped last: foreign code, which may call this semaphore or panic.
        drop(waker);
    }

    #[cold]
    #[inline(never)]
    fn after_cancel(&self, waker: Option<Waker>) {
        self.sweep_if_due();
        // Permits too few for this waiter may be enough for the next.
        self.look();
        drop(waker);
    }

    /// # Safety: the caller owns the node.
    #[cold]
    #[inline(never)]
    unsafe fn cancel_closely(&self, owned: OwnedNode, need: usize) {
        // SAFETY: the caller's promise.
        match unsafe { owned.node() }.cancel() {
            Ok(waker) => {
                self.memory.left_one();
                self.after_cancel(waker);
            }
            // If the cancellation comes first, a settler goes on to the next; else we release its grant.
            Err(state) => {
                self.left_one();
                if state == NodeState::Cancelled {
                    self.settle_what_is_closed(self.end());
                } else if !fault!(GrantDiesWithWaiter) {
                    self.give_back(need, Taken::Queued);
                }
            }
        }
    }

    fn leave(&self, node: &Node) {
        node.leave();
        self.left_one();
    }

    fn left_one(&self) {
        if self.memory.left_one() {
            self.sweep_if_due();
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn sweep_if_due(&self) {
        self.memory.sweep_if_due(&self.done, || self.meet_all());
    }

    /// Gives permits back, of a latch as well.
    #[inline]
    pub(super) fn give_back(&self, permits: usize, taken: Taken) {
        if self.is_latch { self.notify(permits) } else { self.release(permits, taken) }
    }

    /// Releases permits. Zero permits need no case of their own.
    #[inline]
    pub(super) fn release(&self, permits: usize, taken: Taken) {
        debug_assert!(permits == 0 || !self.is_latch, "notifications may add up");
        match taken {
            Taken::Free => self.release_free(permits),
            Taken::Queued => self.release_queued(permits),
        }
    }

    #[inline]
    fn release_free(&self, permits: usize) {
        // Ordering: SeqCst, before the read of the queue [S]; Release of the work done before [G].
        self.credited.fetch_add(permits as u64 * UNIT, Ordering::SeqCst);
        // Ordering: SeqCst [S]. Includes the Acquire for the tail [N].
        let end = End(self.end.load(Ordering::SeqCst));
        if !end.is_open_and_free() {
            self.settle_unless_done(end);
            self.end_drain_if_closed(end);
        }
    }

    #[inline]
    fn end_drain_if_closed(&self, end: End) {
        if end.is_closed() && !fault!(LastReleaseNotTold) {
            self.end_drain();
        }
    }

    /// As `release_free`, with the walk begun before the credit, which saves the walk a step of its own.
    #[inline(never)]
    fn release_queued(&self, permits: usize) {
        let permits = permits as u64 * UNIT;
        let walk = self.memory.walk();
        // Ordering: as in `release`; also makes the walk visible [R].
        let credit = || self.credited.fetch_add(permits, Ordering::SeqCst).wrapping_add(permits);
        let credited =
            if fault!(CreditsAfterGrants) { self.meet_credit().wrapping_add(permits) } else { credit() };
        // Ordering: Acquire [D]. On the walk and before `end`, as in `settle`.
        let hint = self.done.load(Ordering::Acquire);
        // Ordering: as in `release`.
        let end = End(self.end.load(Ordering::SeqCst));
        let is_closed = end.is_closed() && !fault!(NoLookAtClosed);
        if is_closed || fault!(CreditsAfterGrants) {
            self.settle_from(walk, credited, None);
            if fault!(CreditsAfterGrants) {
                credit();
            }
            return self.end_drain_if_closed(end);
        }
        self.settle_first(walk, credited, hint, end);
    }
}

impl Engine {
    /// Calls `show` for each node still owned, oldest first: on the walk, so `show` must not use a semaphore.
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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The formatter is foreign code, which may begin a walk of this semaphore: its end would end ours.
        let mut queue = Vec::new();
        self.for_each_waiter(|seen| queue.push(seen));
        f.debug_list().entries(queue).finish()
    }
}
