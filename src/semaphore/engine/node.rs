//! A waiter's node: its need, its waker, and its position in the queue.
//!
//! ```text
//!         ┌──► Granted, GrantedOfMore ──┐           by any thread, when the credit covers it
//! Waiting ┤                             ├──► Left ──► Unlinked
//!  ▲   │  └──► Cancelled ───────────────┘           by the owner, or by any thread that closes
//!  │   ▼
//! Updating                                          the owner changes its waker
//! ```
//!
//! `Updating` leads to the same ends as `Waiting`. A node whose wait has ended is *final*: its consumption
//! never changes. `GrantedOfMore` means that credit was left for the waiters behind: the owner settles the
//! queue, in case the granting thread has stopped. The owner leaves the node, and a sweeper unlinks the node.
//!
//! # The waker's slot
//!
//! The slot is a plain cell with one owner at a time [W]. The waiter owns the slot before the node is
//! published, in `Updating`, and after a wait that it has ended itself, or that has ended in `Updating`.
//! Otherwise the thread that moves the node out of `Waiting` owns the slot from then on. So a waker is taken
//! at most once, and the waiter changes its waker without a lock.

use std::ptr::{self, NonNull};
use std::task::Waker;

use crate::support::fault::fault;
use crate::support::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use crate::support::sync::{Canary, UnsafeCell};

/// One permit in counts and offsets; in some words the bits below are flags.
pub(super) const UNIT: u64 = 4;

/// A waiter's node, in the queue from its publishing CAS until taken out by the [sweeper](super::reclaim).
#[derive(Debug)]
#[repr(C)]
pub(super) struct Node {
    /// A [`Word`].
    state: AtomicU64,
    /// A [`Link`].
    link: AtomicU64,
    /// The node published after this one; null until linked by its publisher or a helper.
    next: AtomicPtr<Self>,
    waker: UnsafeCell<Option<Waker>>,
    canary: Canary,
}

/// Where walks start: the address of a node with only final nodes before it. Marked by a bit if the node
/// itself may not be final; as the tail, a marked node does not prove the queue settled.
pub(super) struct Hint;

impl Hint {
    const NOT_FINAL: usize = 1;

    #[inline]
    pub(super) fn first(node: &Node) -> *mut Node {
        ptr::from_ref(node).cast_mut().map_addr(|address| address | Self::NOT_FINAL)
    }

    /// True if the node was not known to be final.
    #[inline]
    pub(super) fn is_marked(hint: *mut Node) -> bool {
        hint.addr() & Self::NOT_FINAL != 0
    }

    /// The node, or null.
    #[inline]
    pub(super) fn node(hint: *mut Node) -> *mut Node {
        hint.map_addr(|address| address & !Self::NOT_FINAL)
    }
}

// SAFETY: only `waker` is not `Sync` by itself; [W] names one owner at a time, and each change of owner goes
// through a Release/Acquire pair on `state`. `Waker` is `Send`.
unsafe impl Sync for Node {}
// SAFETY: as above.
unsafe impl Send for Node {}

/// A node's predecessor; once all earlier nodes are final, its offset, which is their consumption. The two
/// share a word, as a walk needs no predecessor of a node with an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link(u64);

impl Link {
    /// Marks a predecessor: offsets are multiples of [`UNIT`].
    const BEHIND: u64 = 1;

    pub(super) fn behind(node: NonNull<Node>) -> Self {
        Self(node.as_ptr().expose_provenance() as u64 | Self::BEHIND)
    }

    pub(super) const fn offset(consumed: u64) -> Self {
        Self(consumed)
    }

    /// The consumption of all nodes before, once they are final.
    #[inline]
    pub(super) fn as_offset(self) -> Option<u64> {
        (self.0 & Self::BEHIND == 0).then_some(self.0)
    }

    pub(super) fn predecessor(self) -> Option<*mut Node> {
        (self.0 & Self::BEHIND != 0)
            .then(|| ptr::with_exposed_provenance_mut((self.0 & !Self::BEHIND) as usize))
    }
}

/// A node's state in three bits, and its need or consumption above. A node with a deficit keeps both numbers
/// in a [`Deficit`]; its word then has the deficit's address, the state in three bits of [`Beside`], and
/// [`Word::DEFICIT`] in the lowest three. Deficits are rare: their code is kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum NodeState {
    Waiting = 1,
    /// The owner is at the waker's slot.
    Updating = 2,
    // Final states:
    /// Granted with the last credit known to the granting thread.
    Granted = 3,
    /// Cancelled or closed. Consumes nothing but a deficit.
    Cancelled = 4,
    /// Granted with credit left: the granting thread may have stopped before the next waiter.
    GrantedOfMore = 5,
    // Final states without an owner:
    Left = 6,
    /// Taken out of the queue; its consumption is still right for threads standing here.
    Unlinked = 7,
}

impl NodeState {
    const BITS: u32 = 3;
    const MASK: u64 = (1 << Self::BITS) - 1;
    const fn of(bits: u64) -> Self {
        match bits & Self::MASK {
            1 => Self::Waiting,
            2 => Self::Updating,
            3 => Self::Granted,
            4 => Self::Cancelled,
            5 => Self::GrantedOfMore,
            6 => Self::Left,
            _ => Self::Unlinked,
        }
    }
}

/// A state beside a deficit's address. States without an owner still tell a grant from a cancellation.
struct Beside;

impl Beside {
    const GRANTED: u64 = NodeState::Granted as u64;
    const CANCELLED: u64 = NodeState::Cancelled as u64;
    const LEFT: u64 = NodeState::Left as u64;
    const LEFT_CANCELLED: u64 = 7;
    const UNLINKED: u64 = 5;
    const UNLINKED_CANCELLED: u64 = 0;
}

impl Word {
    const DEFICIT: u64 = 0;

    pub(super) const fn new(state: NodeState, permits: u64) -> Self {
        Self(permits << NodeState::BITS | state as u64)
    }

    #[inline]
    const fn bits(self) -> u64 {
        self.0 & NodeState::MASK
    }

    #[inline]
    const fn has_deficit(self) -> bool {
        self.bits() == Self::DEFICIT
    }

    #[inline]
    pub(super) const fn state(self) -> NodeState {
        if self.has_deficit() { self.state_beside_deficit() } else { NodeState::of(self.0) }
    }

    /// The state in a word with a deficit: one of [`Beside`], `Waiting` or `Updating`.
    const fn beside_deficit(self) -> u64 {
        self.0 >> NodeState::BITS & NodeState::MASK
    }

    #[cold]
    const fn state_beside_deficit(self) -> NodeState {
        match self.beside_deficit() {
            // Perhaps only `Granted`: the two are not told apart here.
            Beside::GRANTED => NodeState::GrantedOfMore,
            Beside::LEFT | Beside::LEFT_CANCELLED => NodeState::Left,
            Beside::UNLINKED | Beside::UNLINKED_CANCELLED => NodeState::Unlinked,
            state => NodeState::of(state),
        }
    }

    /// True if the wait was cancelled, also after the node was left or taken out. The word has a deficit.
    #[cold]
    const fn is_cancelled_beside_deficit(self) -> bool {
        matches!(
            self.beside_deficit(),
            Beside::CANCELLED | Beside::LEFT_CANCELLED | Beside::UNLINKED_CANCELLED
        )
    }

    /// The same need and deficit in another state. A cancelled waiter's need stays only beside a deficit.
    #[inline]
    const fn with_state(self, state: NodeState) -> Self {
        if self.has_deficit() {
            self.with_state_beside_deficit(state)
        } else if matches!(state, NodeState::Cancelled) {
            Self::new(state, 0)
        } else {
            Self(self.0 & !NodeState::MASK | state as u64)
        }
    }

    #[cold]
    const fn with_state_beside_deficit(self, state: NodeState) -> Self {
        let beside = match (state, self.is_cancelled_beside_deficit()) {
            (NodeState::Granted | NodeState::GrantedOfMore, _) => Beside::GRANTED,
            (NodeState::Left, false) => Beside::LEFT,
            (NodeState::Left, true) => Beside::LEFT_CANCELLED,
            (NodeState::Unlinked, false) => Beside::UNLINKED,
            (NodeState::Unlinked, true) => Beside::UNLINKED_CANCELLED,
            (NodeState::Waiting | NodeState::Updating | NodeState::Cancelled, _) => state as u64,
        };
        Self(self.0 & !(NodeState::MASK << NodeState::BITS) | beside << NodeState::BITS)
    }

    #[inline]
    pub(super) const fn is_final(self) -> bool {
        self.bits() >= NodeState::Granted as u64
            || self.has_deficit() && self.state_beside_deficit() as u64 >= NodeState::Granted as u64
    }

    #[inline]
    const fn is_waiting(self) -> bool {
        self.bits() == NodeState::Waiting as u64
            || self.has_deficit() && matches!(self.state_beside_deficit(), NodeState::Waiting)
    }

    #[inline]
    pub(super) const fn is_left(self) -> bool {
        self.bits() >= NodeState::Left as u64
            || self.has_deficit() && self.state_beside_deficit() as u64 >= NodeState::Left as u64
    }

    /// Left, and without a deficit.
    #[inline]
    pub(super) const fn is_plainly_left(self) -> bool {
        self.bits() >= NodeState::Left as u64
    }

    #[inline]
    const fn is_unlinked(self) -> bool {
        self.bits() == NodeState::Unlinked as u64
            || self.has_deficit() && matches!(self.state_beside_deficit(), NodeState::Unlinked)
    }

    #[inline]
    const fn left(self) -> Self {
        self.with_state(NodeState::Left)
    }

    /// The need or consumption in units, of a word without a deficit.
    #[inline]
    const fn units(self) -> u64 {
        (self.0 >> NodeState::BITS) * UNIT
    }
}

/// Permits taken out of existence while this node's waiter was first in the queue and no permit was free:
/// consumed before the waiter, or without a grant. Never changed once published. A larger deficit refers to
/// the replaced deficit, readable until retired or freed with the node.
#[derive(Debug)]
// The alignment leaves room in the address for two times three bits.
#[repr(align(64))]
pub(super) struct Deficit {
    need: u64,
    permits: u64,
    replaced: AtomicPtr<Deficit>,
    canary: Canary,
}

impl Node {
    /// A waiter's node, but for its waker and link.
    pub(super) fn waiting(need: u64) -> Self {
        Self::new(Word::new(NodeState::Waiting, need), Link::offset(0))
    }

    /// A node without a waiter, final from the start, of `permits` consumed. Owned by its publisher.
    pub(super) fn consumed(permits: u64, link: Link) -> Self {
        Self::new(Word::new(NodeState::Granted, permits), link)
    }

    fn new(word: Word, link: Link) -> Self {
        Self {
            state: AtomicU64::new(word.0),
            link: AtomicU64::new(link.0),
            next: AtomicPtr::new(ptr::null_mut()),
            waker: UnsafeCell::new(None),
            canary: Canary::new(),
        }
    }

    /// Clones the waker, before the node is published.
    #[inline]
    pub(super) fn set_waker(&mut self, waker: &Waker) {
        let waker = UnsafeCell::new(Some(waker.clone()));
        // SAFETY: a field of ours. Written, as there is no waker to be dropped.
        unsafe { ptr::from_mut(&mut self.waker).write(waker) };
    }

    /// The need in units, before the node is published.
    #[inline]
    pub(super) fn needs(&mut self) -> u64 {
        // Ordering: Relaxed: this thread alone has the node.
        Word(self.state.load(Ordering::Relaxed)).units()
    }

    /// Replaces the link, before the node is published.
    pub(super) fn relink(&mut self, link: Link) {
        self.link = AtomicU64::new(link.0);
    }

    #[cfg(latchwork_loom)]
    pub(super) fn canary(&self) -> &Canary {
        &self.canary
    }

    #[inline]
    pub(super) fn link(&self) -> Link {
        self.canary.assert_alive();
        // Ordering: Acquire, for a predecessor's content [N]. Every helper would compute the same offset.
        Link(self.link.load(Ordering::Acquire))
    }

    /// All nodes before are final, and have consumed `consumed`. Sets the offset, unless set; returns it.
    #[inline]
    pub(super) fn come_to(&self, consumed: u64) -> u64 {
        match self.link().as_offset() {
            Some(offset) => offset,
            None => {
                self.set_offset(consumed);
                consumed
            }
        }
    }

    #[inline]
    fn set_offset(&self, consumed: u64) {
        if cfg!(latchwork_loom) {
            // In loom, a sweeper's compare-and-swap may read the value before another thread's plain store
            // and still count as the later of the two. Two read-modify-writes are ordered.
            let mut seen = self.link();
            // Ordering: as below. Relaxed on failure: tried again.
            while let Err(now) = self.link.compare_exchange(
                seen.0,
                Link::offset(consumed).0,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                seen = Link(now);
            }
            return;
        }
        // Ordering: Release: a walker starting here has seen all earlier nodes final, as we have, and skips
        // them [D]. A plain store, as all threads store the same.
        self.link.store(Link::offset(consumed).0, Ordering::Release);
    }

    /// Replaces the predecessor `gone` by the node before it, unless there is an offset. For the sweeper.
    pub(super) fn replace_predecessor(&self, gone: NonNull<Self>, before: NonNull<Self>) {
        let (from, to) = (Link::behind(gone).0, Link::behind(before).0);
        // Ordering: Release, for the content of `before` [N]. Relaxed on failure: the offset is as good.
        let _ = self.link.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn next(&self) -> Option<NonNull<Self>> {
        self.canary.assert_alive();
        // Ordering: Acquire, for the next node's content [N].
        NonNull::new(self.next.load(Ordering::Acquire))
    }

    /// Links `next`: for its publisher, and for the sweeper, which has taken out all nodes in between.
    #[inline]
    pub(super) fn set_next(&self, next: NonNull<Self>) {
        self.canary.assert_alive();
        // Ordering: Release, for the content of `next` [N]. A plain store: a helper stores the same, the
        // sweeper changes the link only after the publisher has left `next`, and alone changes a set link.
        self.next.store(next.as_ptr(), Ordering::Release);
    }

    /// Links `next`, of a node out of every other thread's reach.
    #[inline]
    #[cfg(not(latchwork_loom))]
    pub(super) fn chain(&self, next: *mut Self) {
        // Ordering: Relaxed: only this thread has the node.
        self.next.store(next, Ordering::Relaxed);
    }

    /// Links `next` on behalf of a slow publisher.
    #[cold]
    pub(super) fn complete_next(&self, next: NonNull<Self>) {
        self.canary.assert_alive();
        if fault!(LinkNotCompleted) {
            return;
        }
        let null = ptr::null_mut();
        // Ordering: Release, for the content of `next` [N]. Not a store: `next` may have been taken out by
        // now, and this link may point past it. Relaxed on failure: nothing is read.
        let _ = self.next.compare_exchange(null, next.as_ptr(), Ordering::Release, Ordering::Relaxed);
    }

    /// Marks the node, left by its owner as `word`, as taken out. Returns its deficit, to be freed with the
    /// node. Only for the sweeper, which alone changes a left word.
    #[inline]
    pub(super) fn mark_unlinked(&self, word: Word) -> Option<NonNull<Deficit>> {
        // Ordering: Release, in place of the owner's Release that this store covers: a walk standing here
        // reaches the deficit's content only through this word. A thread may still read the old word; the
        // read-modify-writes between the epochs show the mark to every thread that must see it [R].
        self.state.store(word.with_state(NodeState::Unlinked).0, Ordering::Release);
        if word.has_deficit() { NonNull::new(Self::deficit_of(word)) } else { None }
    }

    pub(super) fn is_unlinked(&self) -> bool {
        self.canary.assert_alive();
        // Ordering: Relaxed, see `mark_unlinked`.
        Word(self.state.load(Ordering::Relaxed)).is_unlinked()
    }

    /// Returns how the wait ended. `None` while it lasts: its end will wake `waker`, or without `waker` the
    /// present one.
    pub(super) fn poll(&self, waker: Option<&Waker>) -> Option<NodeState> {
        self.canary.assert_alive();
        // Ordering: Acquire receives the work done before the releases [G].
        let mut word = Word(self.state.load(Ordering::Acquire));
        while word.is_waiting() {
            let waker = waker?;
            let updating = word.with_state(NodeState::Updating);
            // Ordering: Acquire on failure, in case the wait has ended [G]. On success nothing is read.
            match self.state.compare_exchange(word.0, updating.0, Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => return self.update(waker),
                Err(now) => word = Word(now),
            }
        }
        Some(word.state())
    }

    /// Puts `waker` into the slot, and goes from `Updating` back to `Waiting` unless the wait has ended.
    #[cold]
    fn update(&self, waker: &Waker) -> Option<NodeState> {
        /// Cloning a waker is foreign code. If it panics, the old waker stays, as good as before.
        struct BackToWaiting<'a>(&'a Node);

        impl Drop for BackToWaiting<'_> {
            fn drop(&mut self) {
                self.0.publish_waker();
            }
        }

        let in_case_of_a_panic = BackToWaiting(self);
        let replaced = self.waker.with_mut(|slot| {
            // SAFETY: the node is `Updating` and we are its owner, so the slot is ours [W].
            let slot = unsafe { &mut *slot };
            match slot {
                Some(current) if current.will_wake(waker) => None,
                _ => slot.replace(waker.clone()),
            }
        });
        std::mem::forget(in_case_of_a_panic);
        let ended = self.publish_waker();
        // Dropped last: foreign code, which may call this semaphore or panic.
        drop(replaced);
        ended
    }

    fn publish_waker(&self) -> Option<NodeState> {
        // Ordering: Relaxed, a guess checked by the CAS below.
        let mut word = Word(self.state.load(Ordering::Relaxed));
        while word.state() == NodeState::Updating {
            let waiting = word.with_state(NodeState::Waiting);
            if fault!(PublishWithoutLook) {
                // Ordering: as below; the fault is a store in place of the CAS.
                self.state.store(waiting.0, Ordering::Release);
                return None;
            }
            // Ordering: Release publishes the waker [W]. Relaxed on failure: the wait's end is read below.
            match self.state.compare_exchange(word.0, waiting.0, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return None,
                Err(_) if fault!(DeficitEndsWait) => break,
                Err(now) => word = Word(now),
            }
        }
        // Ordering: Acquire receives the work done before the releases [G].
        let word = Word(self.state.load(Ordering::Acquire));
        // The wait ended while the slot was ours, so no other thread takes the waker.
        if !fault!(WakerOutlivesWait) {
            drop(self.take_waker());
        }
        Some(word.state())
    }

    /// As [`cancel`](Self::cancel), if the node waits and has no deficit. Otherwise `None`, without effect.
    #[inline]
    pub(super) fn cancel_waiting(&self) -> Option<Option<Waker>> {
        self.canary.assert_alive();
        // Ordering: Relaxed, checked by the step.
        let word = Word(self.state.load(Ordering::Relaxed));
        if word.bits() != NodeState::Waiting as u64 {
            return None;
        }
        let cancelled = Word::new(NodeState::Cancelled, 0);
        // Ordering: SeqCst, before the recheck of the credit [S]. Relaxed on failure: loaded again.
        self.state.compare_exchange(word.0, cancelled.0, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        let waker = self.take_waker();
        self.leave_as(cancelled);
        Some(waker)
    }

    /// Gives up the wait and leaves the node. `Ok` returns the waker, to be dropped last: in the node, the
    /// waker would keep a whole task alive. `Err` if the wait had already ended.
    pub(super) fn cancel(&self) -> Result<Option<Waker>, NodeState> {
        self.canary.assert_alive();
        // Ordering: Acquire receives the work done before the releases, to be passed on [G].
        let mut word = Word(self.state.load(Ordering::Acquire));
        while word.is_waiting() {
            let cancelled = if fault!(DeficitDiesWithWaiter) {
                Word::new(NodeState::Cancelled, 0)
            } else {
                word.with_state(NodeState::Cancelled)
            };
            // Ordering: SeqCst, before the recheck of the credit [S]. Acquire on failure as above.
            match self.state.compare_exchange(word.0, cancelled.0, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => {
                    let waker = self.take_waker();
                    self.leave_as(cancelled);
                    return Ok(waker);
                }
                Err(now) => word = Word(now),
            }
        }
        self.leave_as(word);
        Err(word.state())
    }

    /// Leaves the node if the wait was granted without a deficit, as most are, and with the last of the
    /// credit or while `is_settled`. False if not.
    #[inline]
    pub(super) fn leave_if_granted(&self, is_settled: impl FnOnce() -> bool) -> bool {
        self.canary.assert_alive();
        // Ordering: Acquire receives the work done before the releases [G].
        let word = Word(self.state.load(Ordering::Acquire));
        let is_granted = word.bits() == NodeState::Granted as u64
            || word.bits() == NodeState::GrantedOfMore as u64 && is_settled();
        if is_granted {
            self.leave_as(word);
        }
        is_granted
    }

    /// The owner's last step here, after the end of the wait.
    #[inline]
    pub(super) fn leave(&self) {
        // Ordering: Relaxed: only its owner changes a final word.
        self.leave_as(Word(self.state.load(Ordering::Relaxed)));
    }

    /// As [`leave`](Self::leave). `word` is the present word.
    #[inline]
    fn leave_as(&self, word: Word) {
        // Ordering: Release puts all uses of the node before the reuse of its memory; pairs with the Acquire
        // in the sweeper's `load` [R]. A plain store, as no other thread changes a final node's word.
        self.state.store(word.left().0, Ordering::Release);
    }

    fn take_waker(&self) -> Option<Waker> {
        // SAFETY: the slot is the caller's [W].
        self.waker.with_mut(|slot| unsafe { (*slot).take() })
    }

    #[inline]
    pub(super) fn load(&self) -> Word {
        self.canary.assert_alive();
        // Ordering: SeqCst: after a release's credit, this sees a cancellation that missed the credit [S].
        // Includes the Acquire that passes on the work before an earlier grant [D], and, for the sweeper, all
        // uses of a left node by its owner [R].
        Word(self.state.load(Ordering::SeqCst))
    }

    fn deficit_of(word: Word) -> *mut Deficit {
        ptr::with_exposed_provenance_mut((word.0 & !(align_of::<Deficit>() as u64 - 1)) as usize)
    }

    #[cold]
    fn deficit(&self, word: Word) -> &Deficit {
        // SAFETY: published with this word; freed with the node or, once replaced, when no walk can reach it.
        let deficit = unsafe { &*Self::deficit_of(word) };
        deficit.canary.assert_alive();
        deficit
    }

    /// The waiter's need, and the deficit consumed before the grant; in units.
    #[inline]
    pub(super) fn wants(&self, word: Word) -> (u64, u64) {
        if word.has_deficit() {
            let deficit = self.deficit(word);
            return (deficit.need * UNIT, deficit.permits.wrapping_mul(UNIT));
        }
        (word.units(), 0)
    }

    /// The consumption of the node, already final, in units.
    #[inline]
    pub(super) fn has_consumed(&self, word: Word) -> u64 {
        if word.has_deficit() {
            return self.has_consumed_with_deficit(word);
        }
        word.units()
    }

    #[cold]
    fn has_consumed_with_deficit(&self, word: Word) -> u64 {
        let deficit = self.deficit(word);
        let need = if word.is_cancelled_beside_deficit() { 0 } else { deficit.need };
        deficit.permits.wrapping_add(need).wrapping_mul(UNIT)
    }

    /// Ends the wait as `state`. Returns the new word and a sleeping waiter's waker, or the present word.
    #[inline(always)]
    pub(super) fn make_final(&self, word: Word, state: NodeState) -> Result<(Word, Option<Waker>), Word> {
        let ended = word.with_state(state);
        // Ordering: Release hands on the work done before the release [G], and Acquire receives the waker
        // [W]; on failure, too, as the present word may be final, and is walked over then.
        match self.state.compare_exchange(word.0, ended.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) if word.is_waiting() && !fault!(GrantedNotWoken) => Ok((ended, self.take_waker())),
            // In `Updating` the owner is at the slot, awake, and finds the new state afterwards.
            Ok(_) => Ok((ended, None)),
            Err(now) => Err(Word(now)),
        }
    }

    /// Adds to the deficit of a waiting node. False if `word` has changed. `retire` gets the old deficit.
    #[cold]
    pub(super) fn add_deficit(
        &self,
        word: Word,
        permits: u64,
        retire: impl FnOnce(&AtomicPtr<Deficit>),
    ) -> bool {
        let (before, need, deficit) = if word.has_deficit() {
            let before = self.deficit(word);
            (Self::deficit_of(word), before.need, before.permits)
        } else {
            (ptr::null_mut(), word.units() / UNIT, 0)
        };
        // Goes round like all consumption; only the difference to the credit has to fit.
        let permits = deficit.wrapping_add(permits);
        let replaced = AtomicPtr::new(before);
        let deficit = Box::new(Deficit { need, permits, replaced, canary: Canary::new() });
        let deficit = Box::into_raw(deficit);
        let state = if fault!(DeficitForgetsOwner) { NodeState::Waiting } else { word.state() };
        let state = (state as u64) << NodeState::BITS;
        let with_deficit = Word(deficit.expose_provenance() as u64 | state | Word::DEFICIT);
        // Ordering: Release publishes the deficit. Relaxed on failure: nothing is read. A grant decided on
        // the old word fails, and is decided anew.
        match self.state.compare_exchange(word.0, with_deficit.0, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => {
                // SAFETY: published, and the caller is on a walk.
                retire(&unsafe { &*deficit }.replaced);
                true
            }
            Err(_) => {
                // SAFETY: from `Box::into_raw`, and not published.
                drop(unsafe { Box::from_raw(deficit) });
                false
            }
        }
    }
}

impl Node {
    /// # Safety: no other thread has the node, and the caller does not use the node afterwards.
    #[inline]
    pub(super) unsafe fn free_deficit(&self) {
        // Ordering: Relaxed, no other thread has the node.
        let word = Word(self.state.load(Ordering::Relaxed));
        if word.has_deficit() {
            // SAFETY: the caller's promise.
            unsafe { Deficit::free(Self::deficit_of(word)) };
        }
    }
}

impl Drop for Node {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the node is being dropped.
        unsafe { self.free_deficit() };
    }
}

impl Deficit {
    /// Frees the deficit, and all replaced deficits not yet retired.
    ///
    /// # Safety: `deficit` comes from [`Node::add_deficit`] or is null, and no thread reads it afterwards.
    #[cold]
    pub(super) unsafe fn free(mut deficit: *mut Self) {
        while !deficit.is_null() {
            // SAFETY: from `Box::into_raw`, and the caller's promise.
            let owned = unsafe { Box::from_raw(deficit) };
            // Ordering: Relaxed: no other thread has the deficit.
            deficit = owned.replaced.load(Ordering::Relaxed);
            if fault!(ReplacedOutlivesDeficit) {
                deficit = ptr::null_mut();
            }
            crate::support::sync::bury(owned, |dead| &dead.canary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Consumes its deficit and, if granted, its need, in every state from the end of the wait on.
    #[test]
    fn final_node_keeps_its_consumption_while_a_thread_uses_it() {
        for (is_granted, deficit, consumed) in
            [(false, None, 0), (true, None, 2), (false, Some(3), 3), (true, Some(3), 5)]
        {
            let node = Node::waiting(2);
            if let Some(permits) = deficit {
                assert!(node.add_deficit(node.load(), permits, |_| ()));
            }
            match is_granted {
                true => assert!(node.make_final(node.load(), NodeState::Granted).is_ok()),
                false => assert!(node.cancel().is_ok()),
            }
            let then: [fn(&Node); 3] = [|_| (), Node::leave, |node| _ = node.mark_unlinked(node.load())];
            for then in then {
                then(&node);
                let word = node.load();
                assert!(word.is_final());
                assert_eq!(node.has_consumed(word), consumed * UNIT, "{is_granted}, {:?}", word.state());
            }
        }
    }
}
