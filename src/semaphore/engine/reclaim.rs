//! The memory of nodes: which are in the queue, which have left it, and when they may be used again.
//!
//! # When a node is freed, and by which thread
//!
//! Nodes stay linked when their waiters have gone. From time to time the thread that leaves a node becomes
//! the *sweeper*, of which there is one at a time: it walks along the queue from the oldest node and takes
//! out those that were left, wherever they stand. So memory is in proportion to the waiters of now, not to
//! those of the past. A thread that finds another sweeper at work goes on without.
//!
//! What was taken out goes to *limbo*, and is used again when no walk can reach it any more [R]:
//!
//! * Walks begin at the queue's tail, at its oldest node or at the hint `done`, and follow links. The tail is
//!   never taken out; `oldest`, and the links of the nodes that remain, lead to none that was, before the
//!   sweeper looks for walks. The hint may be set to such a node by a walk that came there before. So there
//!   are two rounds: when all walks are over that were under way when the node was taken out, no thread sets
//!   the hint to it any more; the sweeper sets it to the oldest node that stays, and waits until all walks
//!   are over that may have begun there.
//! * A round lasts two epochs: an epoch begins when no walk of the one before the last is under way, as a
//!   walk notes the epoch before it is seen. Hence [`ROUNDS`].
//!
//! # What a stopped thread holds back
//!
//! A thread that is stopped on a walk, or as the sweeper, holds back all nodes of this semaphore that are
//! left meanwhile. No thread waits for it, and no other semaphore's memory is held back. They are 40 bytes
//! each, and a place in limbo; and where the capacity was lowered beside a waiter, the deficits: the node's
//! own and each one that was replaced.
//!
//! # Sessions
//!
//! While waiters come and go the queue is one chain, from `oldest` to the tail. A take without waiting that
//! finds all nodes left gives the chain up for a plain count: that ends the session, and the next waiter
//! begins another chain. It is the sweeper's to do, so that no node is forgotten.

use std::ptr::{self, NonNull};

use crate::support::fault::fault;
use crate::support::sync::UnsafeCell;
use crate::support::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use super::epoch::{self, Epoch, Walk};
use super::node::{Deficit, Hint, Node};

/// Epochs from a node's being taken out to its next use: two rounds of two.
const ROUNDS: u32 = 4;

/// So many nodes that were left are worth a sweep.
const FEW: u32 = if cfg!(any(latchwork_loom, latchwork_suspend)) { 2 } else { 32 };

/// So many nodes in limbo are worth more than one epoch at a time.
const MUCH: usize = if cfg!(any(latchwork_loom, latchwork_suspend)) { 0 } else { 6 * FEW as usize };

#[derive(Debug)]
pub(super) struct Memory {
    /// The first node of the chain. Null while there is none, and until the thread that opened the session
    /// has said which it is.
    oldest: AtomicPtr<Node>,
    /// The sweeper's: nodes that were taken out, by the epoch in which they were. Boxed, as most semaphores
    /// never have any.
    limbo: UnsafeCell<Option<Box<Limbo>>>,
    /// Whether there is a sweeper.
    sweeping: AtomicBool,
    epoch: Epoch,
    /// Nodes that were left since the last sweep. Only says when to sweep, so it may be off.
    left: AtomicU32,
    /// How many are worth the next one.
    sweep_at: AtomicU32,
}

// SAFETY: `limbo` is the only part that is not `Sync` by itself, and is the sweeper's, of which there is one
// at a time. The nodes in it are `Send`.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

/// By the epoch's last bits: a power of two, so that they go on where the epoch's number wraps, and more than
/// [`ROUNDS`].
type Limbo = [Retired; 8];

fn of_epoch(limbo: &mut Limbo, epoch: u32) -> &mut Retired {
    let slot = epoch as usize % limbo.len();
    &mut limbo[slot]
}

/// What no walk reaches that has not reached it already.
#[derive(Debug, Default)]
struct Retired {
    /// Nodes of which nothing is left but their memory, which is used again without another look at it: so
    /// most are.
    memory: Vec<NonNull<Node>>,
    /// Those that have a deficit.
    nodes: Vec<NonNull<Node>>,
    deficits: Vec<NonNull<Deficit>>,
}

impl Retired {
    /// By the sweeper, of a node that was left.
    #[inline]
    fn push(&mut self, node: NonNull<Node>) {
        // SAFETY: only the sweeper frees nodes.
        let has_deficit = unsafe { node.as_ref() }.mark_unlinked();
        if has_deficit { &mut self.nodes } else { &mut self.memory }.push(node);
    }

    fn len(&self) -> usize {
        self.memory.len() + self.nodes.len()
    }

    /// # Safety
    ///
    /// No walk that may have reached them is under way.
    unsafe fn free(&mut self) {
        // SAFETY: the caller's promise.
        unsafe { spare::put(&mut self.memory) };
        for node in self.nodes.drain(..) {
            // SAFETY: as above.
            unsafe { spare::free_node(node) };
        }
        for deficit in self.deficits.drain(..) {
            // SAFETY: as above.
            unsafe { Deficit::free(deficit.as_ptr()) };
        }
        // They are empty. Room for a few is kept.
        let room = [self.memory.capacity(), self.nodes.capacity(), self.deficits.capacity()];
        if room.iter().any(|room| *room > 4 * FEW as usize) {
            *self = Self::default();
        }
    }
}

/// The right to take nodes out of the queue, and to free them.
pub(super) struct Sweeper<'a>(&'a Memory);

impl Drop for Sweeper<'_> {
    fn drop(&mut self) {
        // Ordering: Release, for the next sweeper.
        self.0.sweeping.store(false, Ordering::Release);
    }
}

crate::support::sync::maybe_const! {
    impl Memory {
        pub(super) fn new() -> Self {
            Self {
                oldest: AtomicPtr::new(ptr::null_mut()),
                limbo: UnsafeCell::new(None),
                sweeping: AtomicBool::new(false),
                epoch: Epoch::new(),
                left: AtomicU32::new(0),
                sweep_at: AtomicU32::new(FEW),
            }
        }
    }
}

impl Memory {
    /// Begins a walk over the nodes.
    #[inline]
    pub(super) fn walk(&self) -> Walk<'_> {
        self.epoch.walk()
    }

    /// The first node of a session, from the thread that opened it.
    #[inline]
    pub(super) fn opened(&self, first: NonNull<Node>) {
        // Ordering: Release, for the node's content. Until this is stored there is no sweep, and the session
        // does not end: so it is never stored late.
        self.oldest.store(first.as_ptr(), Ordering::Release);
    }

    /// A node was left.
    #[inline]
    pub(super) fn left_one(&self, done: &AtomicPtr<Node>, meet: impl Fn()) {
        // Ordering: Relaxed, twice: a hint. Counts that are lost when two threads leave at once only put the
        // sweep off.
        let left = self.left.load(Ordering::Relaxed).wrapping_add(1);
        self.left.store(left, Ordering::Relaxed);
        if self.is_sweep_due() {
            self.tidy(done, meet);
        }
    }

    #[inline]
    pub(super) fn is_sweep_due(&self) -> bool {
        // Ordering: Relaxed, twice: as above.
        self.left.load(Ordering::Relaxed) >= self.sweep_at.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn sweeper(&self) -> Option<Sweeper<'_>> {
        // Ordering: Acquire, after the sweeper before. Relaxed first, so that those that fail do not disturb
        // it.
        let free = !self.sweeping.load(Ordering::Relaxed) && !self.sweeping.swap(true, Ordering::Acquire);
        free.then(|| Sweeper(self))
    }

    /// Takes out what was left, and frees what no walk can reach any more. `meet` is a read-modify-write on
    /// each of the words that walkers do theirs on.
    #[cold]
    fn tidy(&self, done: &AtomicPtr<Node>, meet: impl Fn()) {
        let Some(sweeper) = self.sweeper() else { return };
        // Ordering: Relaxed, twice: a hint.
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(0, Ordering::Relaxed);
        // Ordering: Relaxed, only to be compared.
        let hint = NonNull::new(Hint::node(done.load(Ordering::Relaxed)));
        let in_vain = sweeper.sweep(left, hint);
        let mut looked = 0;
        for _ in 0..ROUNDS {
            let Some(seen) = sweeper.advance(done, &meet) else { break };
            looked = seen;
            // Usually one is enough: a node waits for as many sweeps then, and what waits is little.
            let much = |limbo: &mut Limbo| limbo.iter().map(Retired::len).sum::<usize>() > MUCH;
            if !sweeper.limbo(much) {
                break;
            }
        }
        // The next sweep is to find half as many as this one visited in vain, and as it looks at threads.
        // Ordering: Relaxed, a hint.
        self.sweep_at.store(FEW.max(in_vain / 2).max(looked / 2), Ordering::Relaxed);
    }

    /// A deficit was replaced by another one, to which `replaced` belongs: frees it in time. Where there is a
    /// sweeper at work it stays with the node instead.
    #[cold]
    pub(super) fn retire_replaced(
        &self,
        replaced: &AtomicPtr<Deficit>,
        done: &AtomicPtr<Node>,
        meet: impl Fn(),
    ) {
        let Some(sweeper) = self.sweeper() else { return };
        // Ordering: Relaxed, twice: only a sweeper changes or follows it.
        let Some(deficit) = NonNull::new(replaced.load(Ordering::Relaxed)) else { return };
        replaced.store(ptr::null_mut(), Ordering::Relaxed);
        let epoch = self.epoch.number();
        sweeper.limbo(|limbo| of_epoch(limbo, epoch).deficits.push(deficit));
        // Waiters may not come and go meanwhile.
        sweeper.advance(done, meet);
    }

    /// The oldest node of the queue, for a walk.
    pub(super) fn oldest(&self) -> Option<NonNull<Node>> {
        // Ordering: Acquire, for the node's content, see `opened`.
        NonNull::new(self.oldest.load(Ordering::Acquire))
    }
}

impl Sweeper<'_> {
    /// Ends the session, if `end` does, which gives up the queue whose tail is `tail`. `None` if that cannot
    /// be now: the session is just being opened, or an owner has not left its node.
    #[inline]
    pub(super) fn end_session(&self, tail: NonNull<Node>, end: impl FnOnce() -> bool) -> Option<bool> {
        let epoch = self.0.epoch.number();
        self.limbo(|limbo| {
            let limbo = of_epoch(limbo, epoch);
            // SAFETY: in the queue, and only the sweeper frees nodes.
            if self.take_out_oldest(limbo) != Some(tail) || !unsafe { tail.as_ref() }.is_left() {
                return None;
            }
            // Before the session ends: afterwards it is for the next one's opener to say.
            // Ordering: Relaxed, made visible by the step that ends the session.
            self.0.oldest.store(ptr::null_mut(), Ordering::Relaxed);
            let ended = end();
            if ended {
                limbo.push(tail);
            } else {
                // Ordering: Release, as in `opened`.
                self.0.oldest.store(tail.as_ptr(), Ordering::Release);
            }
            Some(ended)
        })
    }

    /// Takes out the nodes at the queue's head that were left. The first that stays, if there is a queue.
    #[inline]
    fn take_out_oldest(&self, limbo: &mut Retired) -> Option<NonNull<Node>> {
        let first = self.0.oldest()?;
        let mut here = first;
        loop {
            // SAFETY: in the queue, and only the sweeper frees nodes.
            let look = unsafe { here.as_ref() };
            // The tail stays, and so does a node whose successor is not known here.
            let Some(next) = look.next().filter(|_| look.is_left()) else { break };
            Self::take_out(here, next, limbo);
            here = next;
        }
        if here != first {
            // Ordering: Release, as in `opened`.
            self.0.oldest.store(here.as_ptr(), Ordering::Release);
        }
        Some(here)
    }

    fn limbo<R>(&self, f: impl FnOnce(&mut Limbo) -> R) -> R {
        self.0.limbo.with_mut(|limbo| {
            // SAFETY: the sweeper's, and there is one.
            f(unsafe { &mut *limbo }.get_or_insert_default())
        })
    }

    /// Takes out `node`, which was left, and which `next` is behind.
    #[inline]
    fn take_out(node: NonNull<Node>, next: NonNull<Node>, limbo: &mut Retired) {
        // SAFETY: in the chain, and only the sweeper takes nodes out and frees them.
        let look = unsafe { node.as_ref() };
        if let Some(offset) = look.link().as_offset() {
            // All before it are final, and so is it. What they have consumed is not to be forgotten with
            // them. SAFETY: as above.
            unsafe { next.as_ref() }.come_to(offset.wrapping_add(look.has_consumed(look.load())));
        }
        limbo.push(node);
    }

    /// Takes nodes out of the chain that were left: at least so many, if there are, and those next to them.
    /// How many it visited and did not free.
    fn sweep(&self, left: u32, hint: Option<NonNull<Node>>) -> u32 {
        let epoch = self.0.epoch.number();
        self.limbo(|limbo| self.sweep_into(of_epoch(limbo, epoch), left as usize, hint))
    }

    fn sweep_into(&self, limbo: &mut Retired, left: usize, hint: Option<NonNull<Node>>) -> u32 {
        /// So many in a row that stay end a sweep that has what it came for.
        const ENOUGH: u32 = 8;

        let enough = limbo.len().saturating_add(left);
        let (mut remain, mut in_a_row) = (0, 0);
        // The last that stays, and the last behind it that does not.
        let (mut before, mut gone): (Option<NonNull<Node>>, Option<NonNull<Node>>) = (None, None);
        let mut here = self.0.oldest();
        while let Some(node) = here {
            // SAFETY: in the chain, and only the sweeper takes nodes out and frees them.
            let look = unsafe { node.as_ref() };
            here = look.next();
            // The tail stays, and so does a node whose successor is not known here; and the hint, as walks
            // would have to begin at the tail.
            if let Some(next) = here
                && Some(node) != hint
                && (look.is_left() || fault!(SweptUnderOwner))
            {
                Self::take_out(node, next, limbo);
                gone = Some(node);
                in_a_row = 0;
                continue;
            }
            remain += 1;
            in_a_row += 1;
            if let Some(gone) = gone.take() {
                // Unless it has an offset, those that go were cancelled while others waited before them, and
                // have consumed nothing.
                if let Some(before) = before {
                    look.replace_predecessor(gone, before);
                }
                match before {
                    // SAFETY: as above.
                    Some(before) => unsafe { before.as_ref() }.set_next(node),
                    // Ordering: Release, as in `opened`.
                    None => self.0.oldest.store(node.as_ptr(), Ordering::Release),
                }
            }
            before = Some(node);
            if in_a_row >= ENOUGH && limbo.len() >= enough {
                break;
            }
        }
        remain
    }

    /// Begins an epoch, and frees what may be freed in it; `None` if a walk of the epoch before the last goes
    /// on.
    pub(super) fn advance(&self, done: &AtomicPtr<Node>, meet: impl Fn()) -> Option<u32> {
        meet();
        let looked = self.0.epoch.has_no_older_walks();
        if looked.is_none() && !fault!(FreedUnderWalkers) {
            return None;
        }
        let epoch = self.0.epoch.advance();
        // Ordering: Acquire, for the node's content [D]: a thread on a walk may just have set it. The node is
        // not freed, as it would not be here then.
        let hint = done.load(Ordering::Acquire);
        // SAFETY: null, or a node that was not freed.
        let is_unlinked = unsafe { Hint::node(hint).as_ref() }.is_some_and(Node::is_unlinked);
        let is_kept = fault!(MarkedHintOutlivesNode).then(|| Hint::is_marked(hint));
        let outlives = is_kept.unwrap_or(fault!(HintOutlivesNode));
        if is_unlinked && !outlives {
            // Not null, for which the next walk would go back over all waiters: those before the oldest node
            // were left, so they are final, and it has its offset from them.
            // SAFETY: in the chain, and only the sweeper frees nodes.
            let oldest = self.0.oldest().map(|oldest| Hint::first(unsafe { oldest.as_ref() }));
            let oldest = oldest.unwrap_or(ptr::null_mut());
            // Ordering: Release, as in `remember` [D]. Relaxed on failure: another hint was set.
            let _ = done.compare_exchange(hint, oldest, Ordering::Release, Ordering::Relaxed);
        }
        self.free(epoch);
        Some(looked.unwrap_or(0))
    }

    fn free(&self, epoch: u32) {
        let rounds = if fault!(FreedInOneRound) { 2 } else { ROUNDS };
        self.limbo(|limbo| {
            // SAFETY: no walk reaches them any more, see the essay.
            unsafe { of_epoch(limbo, epoch.wrapping_sub(rounds)).free() };
        });
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if fault!(NeverFreed) {
            return;
        }
        // Ordering: Relaxed, the semaphore is being dropped, by its only owner.
        let mut here = NonNull::new(self.oldest.load(Ordering::Relaxed));
        while let Some(node) = here {
            // SAFETY: in the chain, and the caller is the semaphore's only owner.
            here = unsafe { node.as_ref() }.next();
            // A waiter that was forgotten has left its waker there.
            // SAFETY: as above.
            unsafe { spare::free_node(node) };
        }
        self.limbo.with_mut(|limbo| {
            // SAFETY: as above.
            for retired in unsafe { &mut *limbo }.as_deref_mut().into_iter().flatten() {
                // SAFETY: as above.
                unsafe { retired.free() };
            }
        });
    }
}

pub(super) use self::spare::{discard, take as place_for};

/// Nodes' memory that this thread keeps for its next waiters, as each would cost a call of the allocator
/// otherwise.
#[cfg(not(latchwork_loom))]
mod spare {
    use std::cell::UnsafeCell;
    use std::mem::{ManuallyDrop, MaybeUninit};
    use std::ptr::NonNull;

    use super::{Node, epoch};
    use crate::support::sync::thread_cell;

    /// 40 KiB, and 8 KiB for where they are. None where threads are stopped, so that AddressSanitizer sees a
    /// late access.
    const KEPT: usize = if cfg!(latchwork_suspend) { 0 } else { 1024 };

    // Never dropped as such: freed when the thread's record is given back.
    type Spare = UnsafeCell<ManuallyDrop<Vec<NonNull<Node>>>>;
    thread_cell!(SPARE: Spare = UnsafeCell::new(ManuallyDrop::new(Vec::new())));

    #[inline]
    fn with<R>(f: impl FnOnce(&mut Vec<NonNull<Node>>) -> R) -> R {
        // SAFETY: this thread's, and nothing in here calls back.
        SPARE.with(|spare| f(unsafe { &mut *spare.get() }))
    }

    /// Puts a node into memory that no other thread knows.
    #[inline]
    pub(in super::super) fn take(node: Node) -> NonNull<Node> {
        let Some(place) = with(Vec::pop) else { return allocate(node) };
        // SAFETY: memory for a node, and ours.
        unsafe { place.write(node) };
        place
    }

    #[cold]
    fn allocate(node: Node) -> NonNull<Node> {
        epoch::register(at_exit);
        NonNull::from(Box::leak(Box::new(node)))
    }

    /// Keeps what is nothing but memory any more, or frees it.
    ///
    /// # Safety
    ///
    /// The nodes came from [`take`], and no walk reaches them any more.
    pub(super) unsafe fn put(nodes: &mut Vec<NonNull<Node>>) {
        // A thread without a record is not asked for what it keeps when it ends.
        if epoch::is_registered() {
            with(|spare| {
                let fit = KEPT.saturating_sub(spare.len()).min(nodes.len());
                spare.extend(nodes.drain(nodes.len() - fit..));
            });
        }
        for node in nodes.drain(..) {
            // SAFETY: the caller's promise.
            unsafe { free_node(node) };
        }
    }

    /// # Safety
    ///
    /// The node came from [`take`], and no walk reaches it any more.
    pub(super) unsafe fn free_node(node: NonNull<Node>) {
        // SAFETY: the caller's promise; and sooner or later it came from a box.
        drop(unsafe { Box::from_raw(node.as_ptr()) });
    }

    /// # Safety
    ///
    /// The node came from [`take`], and was not published.
    #[cold]
    pub(in super::super) unsafe fn discard(node: NonNull<Node>) {
        // SAFETY: the caller's promise.
        unsafe { free_node(node) };
    }

    /// This thread ends: frees what it keeps.
    fn at_exit() {
        epoch::unregister();
        for place in with(std::mem::take) {
            let memory = place.cast::<MaybeUninit<Node>>();
            // SAFETY: it came from a box of a node, without one in it now.
            drop(unsafe { Box::from_raw(memory.as_ptr()) });
        }
    }
}

/// In a model, freed nodes are buried and not used again, so that a thread that still reaches one meets a
/// dead canary.
#[cfg(latchwork_loom)]
mod spare {
    use std::ptr::NonNull;

    use super::{Node, epoch};

    pub(in super::super) fn take(node: Node) -> NonNull<Node> {
        epoch::register(at_exit);
        NonNull::from(Box::leak(Box::new(node)))
    }

    /// # Safety
    ///
    /// That of the real one.
    pub(super) unsafe fn put(nodes: &mut Vec<NonNull<Node>>) {
        for node in nodes.drain(..) {
            // SAFETY: the caller's promise.
            unsafe { free_node(node) };
        }
    }

    /// # Safety
    ///
    /// That of the real one.
    pub(super) unsafe fn free_node(node: NonNull<Node>) {
        // What is buried is not dropped.
        // SAFETY: the caller's promise.
        unsafe { node.as_ref().free_deficit() };
        // SAFETY: as above; and it came from a box.
        crate::support::sync::bury(unsafe { Box::from_raw(node.as_ptr()) }, Node::canary);
    }

    /// # Safety
    ///
    /// That of the real one.
    pub(in super::super) unsafe fn discard(node: NonNull<Node>) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(node.as_ptr()) });
    }

    fn at_exit() {
        epoch::unregister();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads that only release, or count waiters, can see to it that there always is a walk. Each of
    /// them ends.
    #[test]
    fn walks_without_a_record_that_take_turns_hold_back_nothing() {
        let (memory, done) = (Memory::new(), AtomicPtr::new(ptr::null_mut()));
        let advance = || memory.sweeper().expect("no other").advance(&done, || ()).is_some();
        let mut walk = memory.walk();
        for _ in 0..10 {
            let next = memory.walk();
            drop(std::mem::replace(&mut walk, next));
            assert!(advance(), "held back by a walk that has just begun");
        }
        assert!(!advance(), "it was under way when the last epoch began");
    }
}
