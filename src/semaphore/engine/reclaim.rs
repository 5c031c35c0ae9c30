//! Memory of nodes: takes left nodes out of the queue, and reuses memory out of every thread's reach.
//!
//! # When a node is freed, and by which thread
//!
//! Nodes stay linked after their waiters have left. From time to time a thread that leaves a node becomes the
//! only *sweeper*, walks the queue from the oldest node, and takes out every left node, wherever in the
//! queue. Memory is therefore proportional to the present waiters. If another sweeper is at work, the thread
//! does not sweep.
//!
//! Nodes taken out go to *limbo*, and are used again once no walk can reach them [R]:
//!
//! * Walks begin at the queue's tail, its oldest node or the hint `done`, and follow links. The tail is never
//!   taken out. Before the sweeper looks for walks, `oldest` and the remaining links lead past the nodes
//!   taken out, but a walk already standing at a node taken out may set the hint there. Hence two rounds.
//!   After all walks of the removal's time are over, no thread sets the hint to the node: a later walk sets
//!   the hint to unmarked nodes only, or to nodes granted or found as the tail by the walk. The sweeper moves
//!   the hint to the oldest remaining node, and waits for all walks that may have begun at the old hint.
//! * A round lasts two epochs, as a walk notes its epoch before the sweeper can see the walk: an epoch begins
//!   when no walk of the epoch before the last is under way. Hence [`ROUNDS`].
//!
//! # What a stopped thread holds back
//!
//! A thread stopped on a walk, or as the sweeper, holds back all nodes of this semaphore left meanwhile (40
//! bytes, a place in limbo and any deficits each), but no thread, and no memory of another semaphore.
//!
//! # Sessions
//!
//! While waiters come and go, the queue is one chain from `oldest` to the tail. A take that finds all nodes
//! left replaces the chain by a plain count, which ends the session; the next waiter begins another chain.
//! Only the sweeper ends a session, so no node is forgotten.

use std::ptr::{self, NonNull};

use crate::support::fault::fault;
use crate::support::sync::UnsafeCell;
use crate::support::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use super::epoch::{self, Epoch, Walk};
use super::node::{Deficit, Hint, Node};

/// Epochs between a node's removal and its reuse: two rounds of two.
const ROUNDS: u32 = 4;

/// The least number of left nodes worth a sweep.
const FEW: u32 = if cfg!(any(latchwork_loom, latchwork_suspend)) { 2 } else { 32 };

/// Above this number of nodes in limbo, a sweep begins more than one epoch.
const MUCH: usize = if cfg!(any(latchwork_loom, latchwork_suspend)) { 0 } else { 6 * FEW as usize };

#[derive(Debug)]
pub(super) struct Memory {
    /// First node of the chain. Null without a chain, and until the opener of the session has stored it.
    oldest: AtomicPtr<Node>,
    /// Nodes taken out, by the epoch of their removal; the sweeper's. Boxed: most semaphores have none.
    limbo: UnsafeCell<Option<Box<Limbo>>>,
    sweeping: AtomicBool,
    epoch: Epoch,
    /// Nodes left since the last sweep. May be off: only times the next sweep.
    left: AtomicU32,
    /// The next sweep is due when `left` has come to this number.
    sweep_at: AtomicU32,
}

// SAFETY: only `limbo` is not `Sync`, and belongs to the one sweeper. The nodes in limbo are `Send`.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

/// Indexed by the epoch's last bits: longer than [`ROUNDS`], and a power of two, as the epoch's number wraps.
type Limbo = [Retired; 8];

fn of_epoch(limbo: &mut Limbo, epoch: u32) -> &mut Retired {
    let slot = epoch as usize % limbo.len();
    &mut limbo[slot]
}

/// Memory out of the reach of walks that begin later.
#[derive(Debug, Default)]
struct Retired {
    /// Nodes without a deficit, as most are: plain memory, reused without being read.
    memory: Vec<NonNull<Node>>,
    /// Nodes with a deficit.
    nodes: Vec<NonNull<Node>>,
    deficits: Vec<NonNull<Deficit>>,
}

impl Retired {
    /// The caller is the sweeper, and `node` was left.
    #[inline]
    fn push(&mut self, node: NonNull<Node>) {
        // SAFETY: only the sweeper frees nodes.
        match unsafe { node.as_ref() }.mark_unlinked() {
            true => self.nodes.push(node),
            false => self.memory.push(node),
        }
    }

    fn len(&self) -> usize {
        self.memory.len() + self.nodes.len()
    }

    /// # Safety: no walk that may have reached the contents is under way.
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
        // Keep small buffers.
        let room = [self.memory.capacity(), self.nodes.capacity(), self.deficits.capacity()];
        if room.iter().any(|room| *room > 4 * FEW as usize) {
            *self = Self::default();
        }
    }
}

/// The right to take nodes out of the queue and free them.
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
    #[inline]
    pub(super) fn walk(&self) -> Walk<'_> {
        self.epoch.walk()
    }

    /// Stores the first node of a session that the caller has opened.
    #[inline]
    pub(super) fn opened(&self, first: NonNull<Node>) {
        // Ordering: Release, for the node's content. Never late: until then no sweep or end of the session.
        self.oldest.store(first.as_ptr(), Ordering::Release);
    }

    /// Counts a left node, and sweeps if a sweep is due.
    #[inline]
    pub(super) fn left_one(&self, done: &AtomicPtr<Node>, meet: impl Fn()) {
        // Ordering: Relaxed, twice: a hint. A count lost between two threads only delays the sweep.
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
        // Ordering: Acquire, after the previous sweeper. Relaxed first: a failing thread writes nothing.
        let free = !self.sweeping.load(Ordering::Relaxed) && !self.sweeping.swap(true, Ordering::Acquire);
        free.then(|| Sweeper(self))
    }

    /// Takes out left nodes, frees unreachable ones. `meet` does a read-modify-write on both words.
    #[cold]
    fn tidy(&self, done: &AtomicPtr<Node>, meet: impl Fn()) {
        let Some(sweeper) = self.sweeper() else { return };
        // Ordering: Relaxed, twice: a hint.
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(0, Ordering::Relaxed);
        // Ordering: Relaxed, only compared.
        let hint = NonNull::new(Hint::node(done.load(Ordering::Relaxed)));
        let in_vain = sweeper.sweep(left, hint);
        let mut looked = 0;
        for _ in 0..ROUNDS {
            let Some(seen) = sweeper.advance(done, &meet) else { break };
            looked = seen;
            // One epoch is usually enough: a node waits for `ROUNDS` sweeps then, and few nodes wait.
            let much = |limbo: &mut Limbo| limbo.iter().map(Retired::len).sum::<usize>() > MUCH;
            if !sweeper.limbo(much) {
                break;
            }
        }
        // The next sweep waits for half as many left nodes as this sweep visited remaining nodes, or records.
        // Ordering: Relaxed, a hint.
        self.sweep_at.store(FEW.max(in_vain / 2).max(looked / 2), Ordering::Relaxed);
    }

    /// Retires the deficit in `replaced`, a field of its successor; leaves it if a sweeper is at work.
    #[cold]
    pub(super) fn retire_replaced(
        &self,
        replaced: &AtomicPtr<Deficit>,
        done: &AtomicPtr<Node>,
        meet: impl Fn(),
    ) {
        let Some(sweeper) = self.sweeper() else { return };
        // Ordering: Relaxed, twice: only a sweeper changes or follows the field.
        let Some(deficit) = NonNull::new(replaced.load(Ordering::Relaxed)) else { return };
        replaced.store(ptr::null_mut(), Ordering::Relaxed);
        let epoch = self.epoch.number();
        sweeper.limbo(|limbo| of_epoch(limbo, epoch).deficits.push(deficit));
        // Perhaps no waiter comes and goes to begin the next epoch.
        sweeper.advance(done, meet);
    }

    pub(super) fn oldest(&self) -> Option<NonNull<Node>> {
        // Ordering: Acquire, for the node's content, see `opened`.
        NonNull::new(self.oldest.load(Ordering::Acquire))
    }
}

impl Sweeper<'_> {
    /// Ends the session if `end`, which gives up the queue with the tail `tail`, returns true. `None` if a
    /// thread is just opening the session, or an owner has not left its node.
    #[inline]
    pub(super) fn end_session(&self, tail: NonNull<Node>, end: impl FnOnce() -> bool) -> Option<bool> {
        let epoch = self.0.epoch.number();
        self.limbo(|limbo| {
            let limbo = of_epoch(limbo, epoch);
            // SAFETY: in the queue, and only the sweeper frees nodes.
            if self.take_out_oldest(limbo) != Some(tail) || !unsafe { tail.as_ref() }.is_left() {
                return None;
            }
            // Cleared before the session ends: afterwards the field belongs to the next session's opener.
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

    /// Takes out the left nodes at the queue's head. Returns the first remaining node, if there is a queue.
    #[inline]
    fn take_out_oldest(&self, limbo: &mut Retired) -> Option<NonNull<Node>> {
        let first = self.0.oldest()?;
        let mut here = first;
        loop {
            // SAFETY: in the queue, and only the sweeper frees nodes.
            let look = unsafe { here.as_ref() };
            // The tail and a node without a known successor stay.
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

    #[inline]
    fn limbo<R>(&self, f: impl FnOnce(&mut Limbo) -> R) -> R {
        #[cold]
        fn first(limbo: &mut Option<Box<Limbo>>) -> &mut Limbo {
            limbo.insert(Box::default())
        }

        // SAFETY: limbo is the sweeper's, and there is one sweeper.
        self.0.limbo.with_mut(|limbo| match unsafe { &mut *limbo } {
            Some(limbo) => f(limbo),
            none => f(first(none)),
        })
    }

    /// Takes out a left `node`, with the successor `next`.
    #[inline]
    fn take_out(node: NonNull<Node>, next: NonNull<Node>, limbo: &mut Retired) {
        // SAFETY: in the chain, and only the sweeper takes nodes out and frees them.
        let look = unsafe { node.as_ref() };
        if let Some(offset) = look.link().as_offset() {
            // All nodes up to `node` are final: pass their consumption on to `next`.
            // SAFETY: as above.
            unsafe { next.as_ref() }.come_to(offset.wrapping_add(look.has_consumed(look.load())));
        }
        limbo.push(node);
    }

    /// Takes out left nodes: at least `left`, if there are as many. Returns how many visited nodes remain.
    fn sweep(&self, left: u32, hint: Option<NonNull<Node>>) -> u32 {
        let epoch = self.0.epoch.number();
        self.limbo(|limbo| self.sweep_into(of_epoch(limbo, epoch), left as usize, hint))
    }

    fn sweep_into(&self, limbo: &mut Retired, left: usize, hint: Option<NonNull<Node>>) -> u32 {
        /// A sweep that has taken out enough ends after so many remaining nodes in a row.
        const ENOUGH: u32 = 8;

        let enough = limbo.len().saturating_add(left);
        let (mut remain, mut in_a_row) = (0, 0);
        // The last remaining node, and the last node taken out behind it.
        let (mut before, mut gone): (Option<NonNull<Node>>, Option<NonNull<Node>>) = (None, None);
        let mut here = self.0.oldest();
        while let Some(node) = here {
            // SAFETY: in the chain, and only the sweeper takes nodes out and frees them.
            let look = unsafe { node.as_ref() };
            here = look.next();
            // The tail stays; so do a node without a known successor, and the hint, where walks begin.
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
                // Without an offset, the nodes taken out were cancelled behind a waiter: nothing consumed.
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

    /// Begins an epoch, and frees the nodes due in it. Returns the number of records looked at; `None` if a
    /// walk of the epoch before the last goes on.
    pub(super) fn advance(&self, done: &AtomicPtr<Node>, meet: impl Fn()) -> Option<u32> {
        meet();
        let looked = self.0.epoch.has_no_older_walks();
        if looked.is_none() && !fault!(FreedUnderWalkers) {
            return None;
        }
        let epoch = self.0.epoch.advance();
        // Ordering: Acquire, for the node's content [D]: a walk may just have set the hint. The node is not
        // freed yet, or the hint would not name it.
        let hint = done.load(Ordering::Acquire);
        // SAFETY: null, or a node not freed yet.
        let is_unlinked = unsafe { Hint::node(hint).as_ref() }.is_some_and(Node::is_unlinked);
        let is_kept = fault!(MarkedHintOutlivesNode).then(|| Hint::is_marked(hint));
        let outlives = is_kept.unwrap_or(fault!(HintOutlivesNode));
        if is_unlinked && !outlives {
            // Not null, or the next walk would go back over all waiters. All nodes before the oldest were
            // left, therefore final, and have given the oldest its offset.
            // SAFETY: in the chain, and only the sweeper frees nodes.
            let oldest = self.0.oldest().map(|oldest| Hint::first(unsafe { oldest.as_ref() }));
            let oldest = oldest.unwrap_or(ptr::null_mut());
            // Ordering: Release, as in `remember` [D]. Relaxed on failure: another thread has set the hint.
            let _ = done.compare_exchange(hint, oldest, Ordering::Release, Ordering::Relaxed);
        }
        self.free(epoch);
        Some(looked.unwrap_or(0))
    }

    fn free(&self, epoch: u32) {
        let rounds = if fault!(FreedInOneRound) { 2 } else { ROUNDS };
        self.limbo(|limbo| {
            // SAFETY: after two rounds no walk reaches these nodes, see above.
            unsafe { of_epoch(limbo, epoch.wrapping_sub(rounds)).free() };
        });
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if fault!(NeverFreed) {
            return;
        }
        // Ordering: Relaxed: the semaphore's only owner is dropping it.
        let mut here = NonNull::new(self.oldest.load(Ordering::Relaxed));
        while let Some(node) = here {
            // SAFETY: in the chain, and the caller is the semaphore's only owner.
            here = unsafe { node.as_ref() }.next();
            // A forgotten waiter's node still has its waker.
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

/// Memory of nodes kept by this thread for its next waiters, to save calls of the allocator.
#[cfg(not(latchwork_loom))]
mod spare {
    use std::cell::UnsafeCell;
    use std::mem::{ManuallyDrop, MaybeUninit};
    use std::ptr::NonNull;

    use super::{Node, epoch};
    use crate::support::sync::thread_cell;

    /// 40 KiB of nodes, and 8 KiB of pointers. None under suspension: AddressSanitizer sees late accesses.
    const KEPT: usize = if cfg!(latchwork_suspend) { 0 } else { 1024 };

    // Never dropped: freed when the thread gives its record back.
    type Spare = UnsafeCell<ManuallyDrop<Vec<NonNull<Node>>>>;
    thread_cell!(SPARE: Spare = UnsafeCell::new(ManuallyDrop::new(Vec::new())));

    #[inline]
    fn with<R>(f: impl FnOnce(&mut Vec<NonNull<Node>>) -> R) -> R {
        // SAFETY: this thread's cell, and nothing in here calls back.
        SPARE.with(|spare| f(unsafe { &mut *spare.get() }))
    }

    /// Makes a node in memory unknown to other threads.
    #[inline]
    pub(in super::super) fn take(make: impl FnOnce() -> Node) -> NonNull<Node> {
        // Before the node, which would be made on the stack and moved.
        let place = with(Vec::pop).unwrap_or_else(allocate);
        // SAFETY: memory for a node, and ours.
        unsafe { place.write(make()) };
        place
    }

    #[cold]
    fn allocate() -> NonNull<Node> {
        epoch::register(at_exit);
        NonNull::from(Box::leak(Box::<Node>::new_uninit())).cast()
    }

    /// Keeps the nodes' memory, or frees it.
    ///
    /// # Safety: the nodes came from [`take`], and no walk can reach them.
    pub(super) unsafe fn put(nodes: &mut Vec<NonNull<Node>>) {
        // A thread without a record would not free its spare memory when it ends.
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

    /// # Safety: the node came from [`take`], and no walk can reach the node.
    pub(super) unsafe fn free_node(node: NonNull<Node>) {
        // SAFETY: the caller's promise; and the memory came from a box, perhaps some uses ago.
        drop(unsafe { Box::from_raw(node.as_ptr()) });
    }

    /// # Safety: the node came from [`take`], and was not published.
    #[cold]
    pub(in super::super) unsafe fn discard(node: NonNull<Node>) {
        // SAFETY: the caller's promise.
        unsafe { free_node(node) };
    }

    fn at_exit() {
        epoch::unregister();
        for place in with(std::mem::take) {
            let memory = place.cast::<MaybeUninit<Node>>();
            // SAFETY: from a box of a node, without a node now.
            drop(unsafe { Box::from_raw(memory.as_ptr()) });
        }
    }
}

/// In a model, freed nodes are buried, never reused: a thread that still gets there meets a dead canary.
#[cfg(latchwork_loom)]
mod spare {
    use std::ptr::NonNull;

    use super::{Node, epoch};

    pub(in super::super) fn take(make: impl FnOnce() -> Node) -> NonNull<Node> {
        epoch::register(at_exit);
        NonNull::from(Box::leak(Box::new(make())))
    }

    /// # Safety: as for the real function.
    pub(super) unsafe fn put(nodes: &mut Vec<NonNull<Node>>) {
        for node in nodes.drain(..) {
            // SAFETY: the caller's promise.
            unsafe { free_node(node) };
        }
    }

    /// # Safety: as for the real function.
    pub(super) unsafe fn free_node(node: NonNull<Node>) {
        // A buried node is not dropped: free its deficit here.
        // SAFETY: the caller's promise.
        unsafe { node.as_ref().free_deficit() };
        // SAFETY: as above; and the node came from a box.
        crate::support::sync::bury(unsafe { Box::from_raw(node.as_ptr()) }, Node::canary);
    }

    /// # Safety: as for the real function.
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

    /// Threads that only release, or count waiters, can always keep some walk under way, though each ends.
    #[test]
    fn walks_without_a_record_that_take_turns_hold_back_nothing() {
        let (memory, done) = (Memory::new(), AtomicPtr::new(ptr::null_mut()));
        let advance = || memory.sweeper().expect("no other").advance(&done, || ()).is_some();
        let mut walk = memory.walk();
        for _ in 0..10 {
            let next = memory.walk();
            drop(std::mem::replace(&mut walk, next));
            assert!(advance(), "expected an epoch beside a walk that has just begun");
        }
        assert!(!advance(), "expected no epoch beside a walk that began before the last one");
    }
}
