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
//! While waiters come and go, the queue is one chain from `oldest` to the tail. A take that finds the tail
//! left and no other node replaces the chain by a plain count, which ends the session; the next waiter begins
//! another chain. The tail's offset says what all nodes before have consumed. Only the sweeper ends a
//! session, so no node is forgotten.
//!
//! # Runs
//!
//! Neighbours that are taken out together stay linked: a *run*, which limbo and a thread's spare memory hold
//! by its ends. The link of a node taken out is never changed. The publisher of the next node may still store
//! the link, to the same node; helpers fill only null links; the sweeper changes links of remaining nodes.

use std::ptr::{self, NonNull};
use std::task::Waker;

use crate::support::fault::fault;
use crate::support::sync::UnsafeCell;
use crate::support::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use super::epoch::{self, Epoch, Walk};
use super::node::{Deficit, Hint, Node, Word};

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
    /// Nodes to be left before the next sweep, which is due below zero. May be off: only times the sweep.
    until_sweep: AtomicU32,
    /// The number that `until_sweep` began with.
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

/// Nodes taken out, or the memory of nodes: each leads to the next by the link that it had in the queue.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: NonNull<Node>,
    last: NonNull<Node>,
}

impl Run {
    /// Calls `free` for each node, after its link was read.
    ///
    /// # Safety: no walk can reach the nodes.
    unsafe fn each(&self, free: impl Fn(NonNull<Node>)) {
        let mut here = Some(self.first);
        while let Some(node) = here {
            // SAFETY: the caller's promise, and not freed yet.
            here = unsafe { node.as_ref() }.next().filter(|_| node != self.last);
            free(node);
        }
    }
}

/// Memory out of the reach of walks that begin later.
#[derive(Debug, Default)]
struct Retired {
    /// Reused without being read, but for the links within a run.
    runs: Vec<Run>,
    /// Number of nodes in `runs`.
    len: usize,
    deficits: Vec<NonNull<Deficit>>,
}

impl Retired {
    /// # Safety: no walk that may have reached the contents is under way.
    unsafe fn free(&mut self) {
        // SAFETY: the caller's promise.
        unsafe { spare::put(&self.runs, self.len) };
        self.runs.clear();
        self.len = 0;
        for deficit in self.deficits.drain(..) {
            // SAFETY: as above.
            unsafe { Deficit::free(deficit.as_ptr()) };
        }
        // Keep small buffers.
        if self.runs.capacity().max(self.deficits.capacity()) > 4 * FEW as usize {
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
                until_sweep: AtomicU32::new(FEW - 1),
                sweep_at: AtomicU32::new(FEW - 1),
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

    /// Counts a left node. True if a sweep is due.
    #[inline]
    pub(super) fn left_one(&self) -> bool {
        // Ordering: Relaxed, twice: a hint. A count lost between two threads only delays the sweep.
        let until = self.until_sweep.load(Ordering::Relaxed).wrapping_sub(1);
        self.until_sweep.store(until, Ordering::Relaxed);
        (until as i32) < 0
    }

    #[inline]
    pub(super) fn is_sweep_due(&self) -> bool {
        // Ordering: Relaxed, as above.
        (self.until_sweep.load(Ordering::Relaxed) as i32) < 0
    }

    #[inline]
    pub(super) fn sweeper(&self) -> Option<Sweeper<'_>> {
        // Ordering: Acquire, after the previous sweeper. Relaxed first: a failing thread writes nothing.
        let free = !self.sweeping.load(Ordering::Relaxed) && !self.sweeping.swap(true, Ordering::Acquire);
        free.then(|| Sweeper(self))
    }

    /// Takes out left nodes, frees unreachable ones. `meet` does a read-modify-write on both words.
    pub(super) fn sweep_if_due(&self, done: &AtomicPtr<Node>, meet: impl Fn()) {
        let Some(sweeper) = self.is_sweep_due().then(|| self.sweeper()).flatten() else { return };
        // Ordering: Relaxed, three times: a hint.
        let sweep_at = self.sweep_at.load(Ordering::Relaxed);
        let left = sweep_at.wrapping_sub(self.until_sweep.load(Ordering::Relaxed)) as i32;
        self.until_sweep.store(sweep_at, Ordering::Relaxed);
        // Ordering: Relaxed, only compared.
        let hint = NonNull::new(Hint::node(done.load(Ordering::Relaxed)));
        let in_vain = sweeper.sweep(left.max(0) as u32, hint);
        let mut looked = 0;
        for _ in 0..ROUNDS {
            let Some(seen) = sweeper.advance(done, &meet) else { break };
            looked = seen;
            // One epoch is usually enough: a node waits for `ROUNDS` sweeps then, and few nodes wait.
            let much = |limbo: &mut Limbo| limbo.iter().map(|retired| retired.len).sum::<usize>() > MUCH;
            if !sweeper.limbo(much) {
                break;
            }
        }
        // The next sweep waits for half as many left nodes as this sweep visited remaining nodes, or records.
        // Ordering: Relaxed, twice: a hint.
        let sweep_at = FEW.max(in_vain / 2).max(looked / 2) - 1;
        self.sweep_at.store(sweep_at, Ordering::Relaxed);
        self.until_sweep.store(sweep_at, Ordering::Relaxed);
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
    /// Ends the session if `end`, which gives up the queue with the tail `tail`, returns true. False if other
    /// nodes remain, the tail's owner has not left, a thread is just opening the session, or limbo has no
    /// room. `word` is the tail's.
    #[inline]
    pub(super) fn end_session(&self, tail: NonNull<Node>, word: Word, end: impl FnOnce() -> bool) -> bool {
        // SAFETY: limbo is the sweeper's, and there is one sweeper.
        let limbo = self.0.limbo.with_mut(|limbo| unsafe { &mut *limbo }.as_deref_mut());
        let Some(limbo) = limbo.map(|limbo| of_epoch(limbo, self.0.epoch.number())) else { return false };
        let is_left = word.is_plainly_left() || fault!(SessionEndsUnderOwner);
        let is_alone = self.0.oldest() == Some(tail) || fault!(SessionForgetsNodes);
        if !is_left || !is_alone || limbo.runs.len() == limbo.runs.capacity() {
            return false;
        }
        limbo.runs.push(Run { first: tail, last: tail });
        limbo.len += 1;
        // Cleared before the session ends: afterwards the field belongs to the next session's opener.
        // Ordering: Relaxed, made visible by the step that ends the session.
        self.0.oldest.store(ptr::null_mut(), Ordering::Relaxed);
        let has_ended = end();
        if has_ended {
            // SAFETY: only the sweeper frees nodes.
            unsafe { tail.as_ref() }.mark_unlinked(word);
        } else {
            limbo.runs.pop();
            limbo.len -= 1;
            // Ordering: Release, as in `opened`.
            self.0.oldest.store(tail.as_ptr(), Ordering::Release);
        }
        has_ended
    }

    /// Makes room in limbo, and takes out the left nodes at the queue's head.
    pub(super) fn prepare_end_of_session(&self) {
        let epoch = self.0.epoch.number();
        self.limbo(|limbo| {
            let limbo = of_epoch(limbo, epoch);
            limbo.runs.reserve(FEW as usize);
            if let Some(oldest) = self.0.oldest() {
                self.take_out(oldest, None, None, limbo);
            }
        });
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

    /// Takes out the left nodes from `first` on, the oldest or the node behind `before`. Returns the first
    /// that stays: a node with an owner, the tail, a node without a known successor, or `hint`.
    #[inline]
    fn take_out(
        &self,
        first: NonNull<Node>,
        before: Option<NonNull<Node>>,
        hint: Option<NonNull<Node>>,
        limbo: &mut Retired,
    ) -> NonNull<Node> {
        let (mut node, mut last, mut len) = (first, first, 0);
        // Consumption of all nodes before `node`, if they are final.
        let mut consumed = None;
        loop {
            // SAFETY: in the chain, and only the sweeper takes nodes out and frees them.
            let look = unsafe { node.as_ref() };
            let (word, Some(next)) = (look.load(), look.next()) else { break };
            if Some(node) == hint || !word.is_left() && !fault!(SweptUnderOwner) {
                break;
            }
            let own = look.has_consumed(word);
            consumed = look.link().as_offset().or(consumed).map(|offset| offset.wrapping_add(own));
            if let Some(deficit) = look.mark_unlinked(word) {
                limbo.deficits.push(deficit);
            }
            (node, last, len) = (next, node, len + 1);
        }
        if len > 0 {
            // SAFETY: as above.
            let look = unsafe { node.as_ref() };
            // Without an offset, the nodes taken out were cancelled behind a waiter: nothing consumed.
            consumed.map(|offset| look.come_to(offset));
            match before {
                Some(before) => {
                    look.replace_predecessor(last, before);
                    // SAFETY: as above.
                    unsafe { before.as_ref() }.set_next(node);
                }
                // Ordering: Release, as in `opened`.
                None => self.0.oldest.store(node.as_ptr(), Ordering::Release),
            }
            limbo.runs.push(Run { first, last });
            limbo.len += len;
        }
        node
    }

    /// Takes out left nodes: at least `left`, if there are as many. Returns how many visited nodes remain.
    fn sweep(&self, left: u32, hint: Option<NonNull<Node>>) -> u32 {
        let epoch = self.0.epoch.number();
        self.limbo(|limbo| self.sweep_into(of_epoch(limbo, epoch), left as usize, hint))
    }

    fn sweep_into(&self, limbo: &mut Retired, left: usize, hint: Option<NonNull<Node>>) -> u32 {
        /// A sweep that has taken out enough ends after so many remaining nodes in a row.
        const ENOUGH: u32 = 8;

        let enough = limbo.len.saturating_add(left);
        let (mut remain, mut in_a_row) = (0, 0);
        // The last remaining node.
        let mut before = None;
        let mut here = self.0.oldest();
        while let Some(first) = here {
            let node = self.take_out(first, before, hint, limbo);
            in_a_row = if node == first { in_a_row + 1 } else { 1 };
            remain += 1;
            before = Some(node);
            if in_a_row >= ENOUGH && limbo.len >= enough {
                break;
            }
            // SAFETY: in the chain, and only the sweeper takes nodes out and frees them.
            here = unsafe { node.as_ref() }.next();
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

/// A node that is not published, and this thread's alone.
pub(in super::super) struct NewNode(NonNull<Node>);

impl NewNode {
    #[inline]
    pub(super) fn new(make: impl FnOnce() -> Node) -> Self {
        Self(spare::take(make))
    }

    /// A waiter for `need` permits, at least one.
    #[inline]
    pub(in super::super) fn waiting(need: usize, waker: &Waker) -> Self {
        let mut node = Self::new(|| Node::waiting(need as u64));
        node.get().set_waker(waker);
        node
    }

    /// True if a node can be made without a call of the allocator.
    #[inline]
    pub(in super::super) fn is_spare() -> bool {
        spare::is_there()
    }

    #[inline]
    pub(super) fn get(&mut self) -> &mut Node {
        // SAFETY: not published.
        unsafe { self.0.as_mut() }
    }

    /// The node's address, to be published.
    #[inline]
    pub(super) fn place(&self) -> NonNull<Node> {
        self.0
    }

    #[inline]
    pub(super) fn published(self) -> NonNull<Node> {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for NewNode {
    // By value, or the hot path would keep the node's address in memory.
    #[inline]
    fn drop(&mut self) {
        #[cold]
        fn discard(node: NonNull<Node>) {
            // SAFETY: not published, and from a box, perhaps some uses ago.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        }
        discard(self.0);
    }
}

/// Memory of nodes kept by this thread for its next waiters, to save calls of the allocator.
#[cfg(not(latchwork_loom))]
mod spare {
    use std::cell::Cell;
    use std::mem::ManuallyDrop;
    use std::ptr::{self, NonNull};

    use super::{Node, Run, epoch};
    use crate::support::sync::thread_cell;

    /// 40 KiB of nodes. None under suspension: AddressSanitizer sees late accesses.
    const KEPT: usize = if cfg!(latchwork_suspend) { 0 } else { 1024 };

    // A chain of nodes that were left. Freed when the thread gives its record back.
    thread_cell!(FIRST: Cell<*mut Node> = Cell::new(ptr::null_mut()));
    thread_cell!(LEN: Cell<usize> = Cell::new(0));

    #[inline]
    pub(super) fn is_there() -> bool {
        !FIRST.with(Cell::get).is_null()
    }

    #[inline]
    fn pop() -> Option<NonNull<Node>> {
        // SAFETY: null, or a node out of every other thread's reach.
        let first = unsafe { FIRST.with(Cell::get).as_ref() }?;
        FIRST.with(|cell| cell.set(first.next().map_or(ptr::null_mut(), NonNull::as_ptr)));
        LEN.with(|len| len.set(len.get() - 1));
        Some(NonNull::from(first))
    }

    /// Makes a node in memory unknown to other threads.
    #[inline]
    pub(super) fn take(make: impl FnOnce() -> Node) -> NonNull<Node> {
        // Before the node, which would be made on the stack and moved.
        let place = pop().unwrap_or_else(allocate);
        // SAFETY: memory for a node, and ours.
        unsafe { place.write(make()) };
        place
    }

    #[cold]
    fn allocate() -> NonNull<Node> {
        epoch::register(at_exit);
        NonNull::from(Box::leak(Box::<Node>::new_uninit())).cast()
    }

    /// Keeps the memory of `nodes` nodes, or frees it.
    ///
    /// # Safety: the nodes came from [`take`], and no walk can reach them.
    #[inline]
    pub(super) unsafe fn put(runs: &[Run], nodes: usize) {
        let len = LEN.with(Cell::get) + nodes;
        // A thread without a record would not free its spare memory when it ends.
        if len > KEPT || !epoch::is_registered() {
            // SAFETY: the caller's promise.
            return runs.iter().for_each(|run| unsafe { free(run) });
        }
        let mut first = FIRST.with(Cell::get);
        for run in runs {
            // SAFETY: as above.
            unsafe { run.last.as_ref() }.chain(first);
            first = run.first.as_ptr();
        }
        FIRST.with(|cell| cell.set(first));
        LEN.with(|cell| cell.set(len));
    }

    /// # Safety: the nodes came from [`take`], and no walk can reach them.
    #[cold]
    unsafe fn free(run: &Run) {
        // SAFETY: the caller's promise.
        let free = |node| unsafe { free_memory(node) };
        // SAFETY: as above.
        unsafe { run.each(free) };
    }

    /// Frees a node, whose deficit is freed on its own.
    ///
    /// # Safety: the node came from [`take`], and no other thread can reach the node.
    unsafe fn free_memory(node: NonNull<Node>) {
        // SAFETY: the caller's promise; from a box.
        drop(unsafe { Box::from_raw(node.cast::<ManuallyDrop<Node>>().as_ptr()) });
    }

    /// # Safety: the node came from [`take`], and no walk can reach the node.
    pub(super) unsafe fn free_node(node: NonNull<Node>) {
        // SAFETY: the caller's promise; and the memory came from a box, perhaps some uses ago.
        drop(unsafe { Box::from_raw(node.as_ptr()) });
    }

    fn at_exit() {
        epoch::unregister();
        while let Some(node) = pop() {
            // SAFETY: this thread's.
            unsafe { free_memory(node) };
        }
    }
}

/// In a model, freed nodes are buried, never reused: a thread that still gets there meets a dead canary.
#[cfg(latchwork_loom)]
mod spare {
    use std::ptr::NonNull;

    use super::{Node, Run, epoch};

    pub(super) fn is_there() -> bool {
        true
    }

    pub(super) fn take(make: impl FnOnce() -> Node) -> NonNull<Node> {
        epoch::register(at_exit);
        NonNull::from(Box::leak(Box::new(make())))
    }

    /// # Safety: as for the real function.
    pub(super) unsafe fn put(runs: &[Run], _nodes: usize) {
        for run in runs {
            // SAFETY: the caller's promise; and the nodes came from boxes.
            let boxed = |node: NonNull<Node>| unsafe { Box::from_raw(node.as_ptr()) };
            // SAFETY: as above.
            unsafe { run.each(|node| crate::support::sync::bury(boxed(node), Node::canary)) };
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
