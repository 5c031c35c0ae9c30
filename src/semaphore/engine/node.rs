//! A waiter's node: what it needs, its waker, and where it stands in the queue.
//!
//! ```text
//!         ┌──► Granted, GrantedOfMore ──┐           by any thread, when the credit covers it
//! Waiting ┤                             ├──► Left ──► Unlinked
//!  ▲   │  └──► Cancelled ───────────────┘           by the owner, or by any thread that closes
//!  │   ▼
//! Updating                                          the owner changes its waker
//! ```
//!
//! `Updating` leads to the same ends as `Waiting`. A node is *final* from then on: what it has consumed never
//! changes again. `GrantedOfMore` says that there was credit for those behind: its owner settles them, should
//! the granting thread have been stopped. The owner leaves the node, and a sweeper unlinks it.
//!
//! # The waker's slot
//!
//! The slot is a plain cell with one owner at a time [W]: the waiter before the node is published, in
//! `Updating`, and after it ended the wait itself or the wait ended in `Updating`; the thread that moves the
//! node out of `Waiting`, from then on. So a waker is taken at most once, and the waiter needs no lock to
//! change it.

use std::ptr::{self, NonNull};
use std::task::Waker;

use crate::support::fault::fault;
use crate::support::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use crate::support::sync::{Canary, UnsafeCell};

/// One permit in what is credited and consumed, and in offsets: in some words there are flags below.
pub(super) const UNIT: u64 = 4;

/// One waiter's node, in the queue from the CAS that publishes it until the
/// [sweeper](super::reclaim) takes it out.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Node {
    /// A [`Word`].
    state: AtomicU64,
    /// A [`Link`].
    link: AtomicU64,
    /// The node that was published after this one; null until its publisher or a helper has said so.
    next: AtomicPtr<Self>,
    waker: UnsafeCell<Option<Waker>>,
    canary: Canary,
}

/// Where walks start: at a node all before which are final. Its address; with a bit if it was not known to be
/// final itself, so that it does not say that the queue is settled where it is the tail.
pub(super) struct Hint;

impl Hint {
    const NOT_FINAL: usize = 1;

    #[inline]
    pub(super) fn first(node: &Node) -> *mut Node {
        ptr::from_ref(node).cast_mut().map_addr(|address| address | Self::NOT_FINAL)
    }

    /// Whether the node was not known to be final.
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

// SAFETY: `waker` is the only part that is not `Sync` by itself; [W] names one owner at a time, and each
// change of owner goes through a Release/Acquire pair on `state`. `Waker` is `Send`.
unsafe impl Sync for Node {}
// SAFETY: as above.
unsafe impl Send for Node {}

/// A node's place among the others: behind which one it was published, until all before it are final; then
/// what those have consumed.
///
/// The two share a word, since the predecessor is needed only until the queue's walkers have come here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link(u64);

impl Link {
    /// Offsets are in multiples of [`UNIT`], so this bit tells the two apart.
    const BEHIND: u64 = 1;

    pub(super) fn behind(node: NonNull<Node>) -> Self {
        Self(node.as_ptr().expose_provenance() as u64 | Self::BEHIND)
    }

    pub(super) const fn offset(consumed: u64) -> Self {
        Self(consumed)
    }

    /// What all nodes before have consumed; they are final then.
    #[inline]
    pub(super) fn as_offset(self) -> Option<u64> {
        (self.0 & Self::BEHIND == 0).then_some(self.0)
    }

    pub(super) fn predecessor(self) -> Option<*mut Node> {
        (self.0 & Self::BEHIND != 0)
            .then(|| ptr::with_exposed_provenance_mut((self.0 & !Self::BEHIND) as usize))
    }
}

/// A node's word: its state in three bits, and what it consumes above them. A node that a deficit was added
/// to keeps both in a [`Deficit`] instead; the word is that one's address then, and beside it the state in
/// three bits of [`Beside`], above three bits that are [`Word::DEFICIT`].
///
/// That is rare, and its code is kept out of the others' way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum NodeState {
    Waiting = 1,
    /// The owner is at the waker's slot.
    Updating = 2,
    // From here on, final.
    /// With the last of the credit that the granting thread knew of.
    Granted = 3,
    /// Cancelled or closed. Consumes nothing but a deficit.
    Cancelled = 4,
    /// Granted, and there was credit left for those behind: the granting thread may have been stopped before
    /// it came to them.
    GrantedOfMore = 5,
    // From here on, the node has no owner.
    Left = 6,
    /// Taken out of the queue; what it has consumed is still right for a thread that stands here.
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

/// A state beside a deficit's address, where a node that has gone still has to say whether it was granted:
/// what it has consumed is not in its word.
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

    const fn new(state: NodeState, permits: u64) -> Self {
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

    /// Of a word with a deficit: one of [`Beside`], or the state of a wait that goes on.
    const fn beside_deficit(self) -> u64 {
        self.0 >> NodeState::BITS & NodeState::MASK
    }

    #[cold]
    const fn state_beside_deficit(self) -> NodeState {
        match self.beside_deficit() {
            // Which of the two is not told apart here.
            Beside::GRANTED => NodeState::GrantedOfMore,
            Beside::LEFT | Beside::LEFT_CANCELLED => NodeState::Left,
            Beside::UNLINKED | Beside::UNLINKED_CANCELLED => NodeState::Unlinked,
            state => NodeState::of(state),
        }
    }

    /// Of a word with a deficit, whether or not the node was left or taken out.
    #[cold]
    const fn is_cancelled_beside_deficit(self) -> bool {
        matches!(
            self.beside_deficit(),
            Beside::CANCELLED | Beside::LEFT_CANCELLED | Beside::UNLINKED_CANCELLED
        )
    }

    /// The same need and deficit in another state. A waiter's need is no consumption once it is cancelled,
    /// and stays with it only where a deficit keeps the word.
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
    const fn is_left(self) -> bool {
        self.bits() >= NodeState::Left as u64
            || self.has_deficit() && self.state_beside_deficit() as u64 >= NodeState::Left as u64
    }

    #[inline]
    const fn is_unlinked(self) -> bool {
        self.bits() == NodeState::Unlinked as u64
            || self.has_deficit() && matches!(self.state_beside_deficit(), NodeState::Unlinked)
    }

    /// A final word whose owner has left.
    #[inline]
    const fn left(self) -> Self {
        self.with_state(NodeState::Left)
    }

    /// Of a word without a deficit: what it needs or has consumed, in units.
    #[inline]
    const fn units(self) -> u64 {
        (self.0 >> NodeState::BITS) * UNIT
    }
}

/// Permits that were taken out of existence while this node's waiter was first in the queue, and there were
/// none free to take: they are consumed before the waiter is granted, and also if it never is.
///
/// Never changed once it is published. A larger one refers to the one it replaces, which may still be read:
/// until that is freed, or with the node.
#[derive(Debug)]
// Aligned so that the address has room for two times three bits.
#[repr(align(64))]
pub(super) struct Deficit {
    need: u64,
    permits: u64,
    replaced: AtomicPtr<Deficit>,
    canary: Canary,
}

impl Node {
    /// What a waiter for `need` permits publishes.
    pub(super) fn waiting(need: u64, waker: Waker, link: Link) -> Self {
        Self::new(Word::new(NodeState::Waiting, need), Some(waker), link)
    }

    /// A node without a waiter, final from the start: it consumes `permits`. Its publisher owns it until it
    /// has done the second step.
    pub(super) fn consumed(permits: u64, link: Link) -> Self {
        Self::new(Word::new(NodeState::Granted, permits), None, link)
    }

    fn new(word: Word, waker: Option<Waker>, link: Link) -> Self {
        Self {
            state: AtomicU64::new(word.0),
            link: AtomicU64::new(link.0),
            next: AtomicPtr::new(ptr::null_mut()),
            waker: UnsafeCell::new(waker),
            canary: Canary::new(),
        }
    }

    /// Another link, before the node is published.
    pub(super) fn relink(&mut self, link: Link) {
        self.link = AtomicU64::new(link.0);
    }

    #[cfg(latchwork_loom)]
    pub(super) fn canary(&self) -> &Canary {
        &self.canary
    }

    // === The queue ===

    #[inline]
    pub(super) fn link(&self) -> Link {
        self.canary.assert_alive();
        // Ordering: Acquire, for a predecessor's content [N]. An offset is a number that every helper would
        // compute alike.
        Link(self.link.load(Ordering::Acquire))
    }

    /// All nodes before this one are final, and have consumed so much. The same number, if it was known
    /// already.
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
            // loom lets the sweeper's compare-and-swap read what was there before a plain store of another
            // thread, and takes its own for the later one then. Not so one of two read-modify-writes.
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
        // Ordering: Release: a walker that starts here has seen all before it final, as we have, and need not
        // look at those [D]. A plain store, as all threads store the same.
        self.link.store(Link::offset(consumed).0, Ordering::Release);
    }

    /// By the sweeper: replaces the predecessor `gone` by the one before it, unless there is an offset.
    pub(super) fn replace_predecessor(&self, gone: NonNull<Self>, before: NonNull<Self>) {
        let (from, to) = (Link::behind(gone).0, Link::behind(before).0);
        // Ordering: Release, for the content of `before` [N]. Relaxed on failure: there is an offset then,
        // which is as good.
        let _ = self.link.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);
    }

    /// The node that was published next, if that is known here.
    #[inline]
    pub(super) fn next(&self) -> Option<NonNull<Self>> {
        self.canary.assert_alive();
        // Ordering: Acquire, for that node's content [N].
        NonNull::new(self.next.load(Ordering::Acquire))
    }

    /// By the publisher of `next`, whose predecessor this is; or by the sweeper, which has taken out all
    /// between the two.
    #[inline]
    pub(super) fn set_next(&self, next: NonNull<Self>) {
        self.canary.assert_alive();
        // Ordering: Release, for that node's content [N]. A plain store. By the publisher: a helper can only
        // have stored the same before, and the sweeper changes it when the next node has been left, which its
        // publisher does after this. By the sweeper: there is one, and no other thread changes what is not
        // null.
        self.next.store(next.as_ptr(), Ordering::Release);
    }

    /// By a helper, for a publisher that is slow.
    #[cold]
    pub(super) fn complete_next(&self, next: NonNull<Self>) {
        self.canary.assert_alive();
        if fault!(LinkNotCompleted) {
            return;
        }
        let null = ptr::null_mut();
        // Ordering: Release, for that node's content [N]. Not a store: by the time that we come here, `next`
        // may have been taken out of the queue, and this one points past it. Relaxed on failure: nothing is
        // read.
        let _ = self.next.compare_exchange(null, next.as_ptr(), Ordering::Release, Ordering::Relaxed);
    }

    /// By the sweeper, which takes the node, left by its owner, out of the queue. Whether it has a deficit.
    #[inline]
    pub(super) fn mark_unlinked(&self) -> bool {
        // Ordering: Relaxed, a word that was left is changed by the sweeper only, which has acquired it
        // (`is_left`).
        let word = Word(self.state.load(Ordering::Relaxed));
        // Ordering: Release, in place of the owner's that it covers: a walk that stands here follows the word
        // to the deficit, whose content it has seen by no other way. It does not keep a thread from reading
        // the old word: one that must see the mark sees it by the read-modify-writes that divide the epochs
        // [R].
        self.state.store(word.with_state(NodeState::Unlinked).0, Ordering::Release);
        word.has_deficit()
    }

    pub(super) fn is_unlinked(&self) -> bool {
        self.canary.assert_alive();
        // Ordering: Relaxed, see `mark_unlinked`.
        Word(self.state.load(Ordering::Relaxed)).is_unlinked()
    }

    // === The owner ===

    /// How the wait ended; `None` while it lasts, in which case `waker` will be woken.
    #[inline]
    pub(super) fn poll(&self, waker: &Waker) -> Option<NodeState> {
        self.canary.assert_alive();
        // Ordering: Acquire receives what the releasers did [G].
        let mut word = Word(self.state.load(Ordering::Acquire));
        while word.is_waiting() {
            let updating = word.with_state(NodeState::Updating);
            // Ordering: Acquire on failure, for the end of the wait that it may have met [G]. On success
            // nothing is read: the slot is as the owner left it.
            match self.state.compare_exchange(word.0, updating.0, Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => return self.update(waker),
                Err(now) => word = Word(now),
            }
        }
        Some(word.state())
    }

    /// Puts `waker` into the slot and goes back to `Waiting`, unless the wait has ended meanwhile. The node
    /// is `Updating`.
    #[cold]
    fn update(&self, waker: &Waker) -> Option<NodeState> {
        /// Cloning a waker is foreign code. If it panics, the old one stays, and is as good as it was.
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
        // Foreign code, which may come back into this semaphore, or panic: when all is as it should be.
        drop(replaced);
        ended
    }

    /// From `Updating` back to `Waiting`, unless the wait has ended meanwhile.
    fn publish_waker(&self) -> Option<NodeState> {
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut word = Word(self.state.load(Ordering::Relaxed));
        while word.state() == NodeState::Updating {
            let waiting = word.with_state(NodeState::Waiting);
            if fault!(PublishWithoutLook) {
                // Ordering: as below; the fault is that this is not a CAS.
                self.state.store(waiting.0, Ordering::Release);
                return None;
            }
            // Ordering: Release publishes the waker to the thread that ends the wait [W]. Relaxed on failure:
            // what ended the wait is read below.
            match self.state.compare_exchange(word.0, waiting.0, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return None,
                Err(_) if fault!(DeficitEndsWait) => break,
                Err(now) => word = Word(now),
            }
        }
        // Ordering: Acquire receives what the releasers did [G].
        let word = Word(self.state.load(Ordering::Acquire));
        // The wait ended while the slot was ours, so no other thread takes the waker.
        if !fault!(WakerOutlivesWait) {
            drop(self.take_waker());
        }
        Some(word.state())
    }

    /// Gives up the wait. `Ok` has the waker, which must not live as long as the node (behind it is a whole
    /// task), to be dropped when all else is done. `Err` says that the wait had ended.
    #[inline]
    pub(super) fn cancel(&self) -> Result<Option<Waker>, NodeState> {
        self.canary.assert_alive();
        // Ordering: Acquire receives what the releasers did before they ended the wait, for it is passed on
        // [G].
        let mut word = Word(self.state.load(Ordering::Acquire));
        while word.is_waiting() {
            let cancelled = if fault!(DeficitDiesWithWaiter) {
                Word::new(NodeState::Cancelled, 0)
            } else {
                word.with_state(NodeState::Cancelled)
            };
            // Ordering: SeqCst, before the look at the credit that follows [S]. Acquire on failure as above.
            match self.state.compare_exchange(word.0, cancelled.0, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => return Ok(self.take_waker()),
                Err(now) => word = Word(now),
            }
        }
        Err(word.state())
    }

    /// The owner's last step here, when the wait has ended.
    #[inline]
    pub(super) fn leave(&self) {
        // Ordering: Relaxed, a final word does not change but by its owner.
        let word = Word(self.state.load(Ordering::Relaxed));
        // Ordering: Release puts all that was done with the node before its memory is used again; pairs with
        // the Acquire in `is_left` [R]. A plain store, for no other thread moves a final node.
        self.state.store(word.left().0, Ordering::Release);
    }

    fn take_waker(&self) -> Option<Waker> {
        // SAFETY: the slot is the caller's [W].
        self.waker.with_mut(|slot| unsafe { (*slot).take() })
    }

    // === Any thread ===

    #[inline]
    pub(super) fn load(&self) -> Word {
        self.canary.assert_alive();
        // Ordering: SeqCst: after a release's credit, this sees a cancel that did not see the credit [S].
        // Includes the Acquire that passes on what was done before an earlier grant [D].
        Word(self.state.load(Ordering::SeqCst))
    }

    pub(super) fn is_left(&self) -> bool {
        self.canary.assert_alive();
        // Ordering: Acquire, see `leave` [R].
        Word(self.state.load(Ordering::Acquire)).is_left()
    }

    /// Of a word that has one.
    fn deficit_of(word: Word) -> *mut Deficit {
        ptr::with_exposed_provenance_mut((word.0 & !(align_of::<Deficit>() as u64 - 1)) as usize)
    }

    #[cold]
    fn deficit(&self, word: Word) -> &Deficit {
        // SAFETY: the word of this node names a deficit that was published with it, and that goes when the
        // node does.
        let deficit = unsafe { &*Self::deficit_of(word) };
        deficit.canary.assert_alive();
        deficit
    }

    /// What the waiter needs, and the deficit that is consumed before it is granted; in units.
    #[inline]
    pub(super) fn wants(&self, word: Word) -> (u64, u64) {
        if word.has_deficit() {
            let deficit = self.deficit(word);
            return (deficit.need * UNIT, deficit.permits.wrapping_mul(UNIT));
        }
        (word.units(), 0)
    }

    /// What the node, which is final, has consumed; in units.
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

    /// Ends the wait from `word`, which is not final, as `state`. The new word, and the waker if the waiter
    /// sleeps.
    #[inline]
    pub(super) fn make_final(&self, word: Word, state: NodeState) -> Result<(Word, Option<Waker>), Word> {
        let ended = word.with_state(state);
        // Ordering: Release hands on what was done before the release [G], and Acquire receives the waker
        // [W]; on failure, too, since what it met may be final, and is walked over then.
        match self.state.compare_exchange(word.0, ended.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) if word.is_waiting() && !fault!(GrantedNotWoken) => Ok((ended, self.take_waker())),
            // In `Updating` the owner is at the slot, awake, and finds the new state when it is done.
            Ok(_) => Ok((ended, None)),
            Err(now) => Err(Word(now)),
        }
    }

    /// Adds to the deficit of a waiting node. False if `word` is not the node's any more. `retire` takes the
    /// replaced one, if it can.
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
        // Round the end, as all that is consumed: what is free says how far, and fits.
        let permits = deficit.wrapping_add(permits);
        let replaced = AtomicPtr::new(before);
        let deficit = Box::new(Deficit { need, permits, replaced, canary: Canary::new() });
        let deficit = Box::into_raw(deficit);
        let state = if fault!(DeficitForgetsOwner) { NodeState::Waiting } else { word.state() };
        let state = (state as u64) << NodeState::BITS;
        let with_deficit = Word(deficit.expose_provenance() as u64 | state | Word::DEFICIT);
        // Ordering: Release publishes the deficit. Relaxed on failure: nothing is read. A grant that was
        // decided before this fails, and is decided anew.
        match self.state.compare_exchange(word.0, with_deficit.0, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => {
                // SAFETY: published, and the caller walks.
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
    /// Frees the deficit, if there is one: it goes with its node.
    ///
    /// # Safety
    ///
    /// No other thread has the node, and it is not used afterwards.
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
        // SAFETY: it is being dropped.
        unsafe { self.free_deficit() };
    }
}

impl Deficit {
    /// Frees it, and those that it has replaced and that are still there.
    ///
    /// # Safety
    ///
    /// It comes from [`Node::add_deficit`] or is null, and no thread reads it any more.
    #[cold]
    pub(super) unsafe fn free(mut deficit: *mut Self) {
        while !deficit.is_null() {
            // SAFETY: from `Box::into_raw`, and the caller's promise.
            let owned = unsafe { Box::from_raw(deficit) };
            // Ordering: Relaxed, no other thread has it.
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

    /// A deficit, and the need of a waiter that was granted it: in every state from the end of its wait on.
    #[test]
    fn final_node_has_consumed_the_same_as_long_as_a_thread_may_stand_there() {
        for (is_granted, deficit, consumed) in
            [(false, None, 0), (true, None, 2), (false, Some(3), 3), (true, Some(3), 5)]
        {
            let node = Node::waiting(2, Waker::noop().clone(), Link::offset(0));
            if let Some(permits) = deficit {
                assert!(node.add_deficit(node.load(), permits, |_| ()));
            }
            match is_granted {
                true => assert!(node.make_final(node.load(), NodeState::Granted).is_ok()),
                false => assert!(node.cancel().is_ok()),
            }
            let then: [fn(&Node); 3] = [|_| (), Node::leave, |node| _ = node.mark_unlinked()];
            for then in then {
                then(&node);
                let word = node.load();
                assert!(word.is_final());
                assert_eq!(node.has_consumed(word), consumed * UNIT, "{is_granted}, {:?}", word.state());
            }
        }
    }
}
