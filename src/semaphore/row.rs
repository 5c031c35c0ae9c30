//! The row of cells: endless at one end, forgotten at the other, and thinned out in between.
//!
//! # The idea
//!
//! The row is a chain of segments of [`CELLS`] cells each. Cells are claimed strictly from left to right, so the claimed ones
//! are a prefix of the row, and the first `Empty` cell is its end. Two *hints* say where to start looking: `tail` for the next
//! waiter, `head` for the next server; within a segment an index does the same. Hints are only ever behind the truth, never
//! ahead of it (R1), so they need no atomic step of their own.
//!
//! A segment is *dead* when all its cells are through: their owners have gone, or their debts are paid. Dead segments are
//! taken out of the chain wherever they are, so that memory follows those who wait and not those who have waited.
//!
//! # Invariants
//!
//! * R1. Every cell left of a `head` hint is over (it will never take a permit again); every cell left of a `tail` hint is
//!   claimed. Both properties are for ever, so a stale hint, or one that is set back by a slow thread, is still true.
//! * R2. Only the last segment has `Empty` cells: the next one is appended when all are claimed.
//! * R3. A segment's word `holds` counts its cells that are not through, and the hints that stand on it, and says whether it
//!   is in the chain. A hint moves only to a segment in the chain, by counting itself in. So a segment on which a hint stands,
//!   or whose cells are not all through, is in the chain.
//! * R4. Out of the chain comes a segment only by the sweeper, of which there is one at a time: it swaps the word of a dead
//!   segment that is not the last for zero, makes the predecessor point past it, and then retires it. Nothing else is ever
//!   freed while the row lives.
//!
//! # Why a reader never meets freed memory
//!
//! Readers are pinned (crossbeam-epoch), and a retired segment is freed when every reader that was pinned at the time has
//! left. A reader starts from a hint, which points to a segment in the chain at that moment (R3), and goes on by `next`. Say it
//! comes from segment Y to X. If Y was in the chain when the reader read `next`, X had not been retired yet. If Y had been taken
//! out after the reader was pinned, its `next` is what it was at that time, and was in the chain then; so X was retired after
//! the reader was pinned, if at all. Either way X is there for as long as the reader is.
//!
//! # Cost
//!
//! A sweep walks the chain, and starts when at least half of its segments are dead, so each segment pays for a step or two over
//! its life. What it leaves is at most as many dead segments as living ones, and two.

use std::ptr;
use std::task::Waker;

use crate::fault::fault;
use crate::sync::atomic::{AtomicBool, AtomicIsize, AtomicPtr, AtomicUsize, Ordering};
use crate::sync::epoch::Guard;

use super::cell::{Cell, Fed, State};

/// Cells to a segment. Two for the model checker, so that its few waiters cross borders.
pub(super) const CELLS: usize = if cfg!(latchwork_loom) { 2 } else { 32 };

/// In `holds`: the segment is in the chain. Above what cells and hints can add up to.
const LINKED: usize = 1 << (usize::BITS - 1);
/// In `holds`: a hint stands here, or somebody is about to move one here.
const HINT: usize = 1 << 8;
const _: () = assert!(CELLS < HINT);

#[derive(Debug)]
pub(super) struct Segment {
    holds: AtomicUsize,
    next: AtomicPtr<Segment>,
    /// Every cell before this one is claimed.
    claimed: AtomicUsize,
    /// Every cell before this one is over.
    over: AtomicUsize,
    cells: [Cell; CELLS],
}

impl Segment {
    fn new() -> Box<Self> {
        Box::new(Self {
            holds: AtomicUsize::new(LINKED + CELLS),
            next: AtomicPtr::new(ptr::null_mut()),
            claimed: AtomicUsize::new(0),
            over: AtomicUsize::new(0),
            cells: std::array::from_fn(|_| Cell::new()),
        })
    }

    pub(super) fn cell(&self, index: usize) -> &Cell {
        &self.cells[index]
    }

    /// Counts a hint in. False if the segment is out of the chain.
    fn hold(&self, dead: &AtomicIsize) -> bool {
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut holds = self.holds.load(Ordering::Relaxed);
        while holds & LINKED != 0 {
            // Ordering: Relaxed. The count keeps the sweeper away by its modification order alone; the memory is kept by the
            // caller's pin until the hint is there.
            match self.holds.compare_exchange_weak(holds, holds + HINT, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => {
                    if holds == LINKED {
                        // Ordering: Relaxed, see `Row::dead`.
                        dead.fetch_sub(1, Ordering::Relaxed);
                    }
                    return true;
                }
                Err(now) => holds = now,
            }
        }
        false
    }
}

#[derive(Debug)]
pub(super) struct Row {
    /// The first segment of the chain. Null until the first waiter comes.
    oldest: AtomicPtr<Segment>,
    /// Where servers start; null: at the oldest.
    head: AtomicPtr<Segment>,
    /// Where waiters start; null: at the oldest.
    tail: AtomicPtr<Segment>,
    /// Segments in the chain.
    linked: AtomicUsize,
    /// Segments in the chain that are dead. Only says when to sweep, so it may be off for a moment, and even below zero.
    dead: AtomicIsize,
    /// Whether somebody sweeps. Nobody waits for this: who finds it set leaves, and the sweeper looks again.
    sweeping: AtomicBool,
}

/// A claimed cell. Its segment lives until [`Row::let_go`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    segment: *const Segment,
    index: usize,
}

impl Place {
    /// # Safety
    ///
    /// The caller owns the cell, and has not let go of it.
    pub(super) unsafe fn cell<'a>(self) -> &'a Cell {
        // SAFETY: the cell is not through, so its segment is in the chain and not freed (R3, R4).
        unsafe { &*self.segment }.cell(self.index)
    }
}

/// What a server met at the front of the row.
#[derive(Debug)]
pub(super) enum Front {
    /// Nobody waits.
    Nobody,
    Absorbed,
    Served {
        used: usize,
        waker: Option<Waker>,
    },
}

impl Row {
    #[cfg(not(latchwork_loom))]
    pub(super) const fn new() -> Self {
        Self {
            oldest: AtomicPtr::new(ptr::null_mut()),
            head: AtomicPtr::new(ptr::null_mut()),
            tail: AtomicPtr::new(ptr::null_mut()),
            linked: AtomicUsize::new(0),
            dead: AtomicIsize::new(0),
            sweeping: AtomicBool::new(false),
        }
    }

    // loom's types register themselves with the running model, so they cannot be made in a const.
    #[cfg(latchwork_loom)]
    pub(super) fn new() -> Self {
        Self {
            oldest: AtomicPtr::new(ptr::null_mut()),
            head: AtomicPtr::new(ptr::null_mut()),
            tail: AtomicPtr::new(ptr::null_mut()),
            linked: AtomicUsize::new(0),
            dead: AtomicIsize::new(0),
            sweeping: AtomicBool::new(false),
        }
    }

    // === Waiters ===

    /// Makes the caller the owner of the first free cell.
    pub(super) fn claim(&self, need: usize, guard: &Guard) -> Place {
        self.claim_with(guard, |cell| cell.claim(need))
    }

    /// Leaves a debt in the first free cell.
    pub(super) fn claim_debt(&self, debt: usize, guard: &Guard) {
        self.claim_with(guard, |cell| cell.claim_debt(debt));
    }

    fn claim_with(&self, guard: &Guard, claim: impl Fn(&Cell) -> bool) -> Place {
        let mut segment = match self.start(&self.tail, guard) {
            Some(segment) => segment,
            None => self.begin(guard),
        };
        loop {
            // Ordering: Relaxed, R1.
            let first = segment.claimed.load(Ordering::Relaxed);
            for index in first..CELLS {
                if claim(segment.cell(index)) {
                    // Ordering: Relaxed, R1. A plain store, because being set back does no harm.
                    segment.claimed.store(index + 1, Ordering::Relaxed);
                    return Place { segment, index };
                }
            }
            let next = match self.next(segment, guard) {
                Some(next) => next,
                None => self.append(segment, guard),
            };
            self.advance(&self.tail, segment, next, guard);
            segment = next;
        }
    }

    /// The owner is through with its cell.
    ///
    /// # Safety
    ///
    /// The caller owns the cell, and does not touch it again.
    pub(super) unsafe fn let_go(&self, place: Place) {
        // Ordering: Release puts all that the owner did with the cell before the sweeper's claim of the segment [R1]. Once
        // this is done the segment may be freed at any moment, so the word is the last thing that is touched.
        // SAFETY: the caller owns the cell, so until this very step the segment is in the chain (R3, R4).
        let before = unsafe { &*place.segment }.holds.fetch_sub(1, Ordering::Release);
        self.left(before - 1);
    }

    // === Servers ===

    /// Brings `permits` to the oldest cell that can take some.
    pub(super) fn serve(&self, permits: usize, guard: &Guard) -> Front {
        let mut front = Front::Nobody;
        self.visit(guard, |place, cell| match cell.feed(permits) {
            Fed::Over => Visit::Over,
            Fed::NobodyYet => Visit::Stop,
            Fed::Absorbed => {
                front = Front::Absorbed;
                Visit::Stop
            }
            Fed::Served { used, waker } => {
                front = Front::Served { used, waker };
                Visit::OverAndStop
            }
            Fed::Paid { used } => {
                front = Front::Served { used, waker: None };
                // SAFETY: a paid debt has no owner, and the server that paid it stands in for one.
                unsafe { self.let_go(place) };
                Visit::OverAndStop
            }
        });
        front
    }

    /// Whether somebody has come who is not served.
    pub(super) fn is_awaited(&self, guard: &Guard) -> bool {
        let mut awaited = false;
        self.visit(guard, |_, cell| match cell.peek() {
            State::Granted | State::Closed(_) | State::Gone => Visit::Over,
            State::Empty => Visit::Stop,
            State::Updating(_) | State::Waiting(_) | State::Debt(_) => {
                awaited = true;
                Visit::Stop
            }
        });
        awaited
    }

    /// Sends home who waits, giving each waker to `put` until that says there is no more room. True if none is left.
    pub(super) fn close(&self, guard: &Guard, mut put: impl FnMut(Waker) -> bool) -> bool {
        let mut none_left = true;
        self.visit(guard, |_, cell| {
            if let Some(waker) = cell.close()
                && !put(waker)
            {
                none_left = false;
                return Visit::OverAndStop;
            }
            match cell.peek() {
                State::Empty => Visit::Stop,
                State::Debt(_) => Visit::Skip,
                _ => Visit::Over,
            }
        });
        none_left
    }

    /// Shows every claimed cell from the oldest on, those that are over included.
    pub(super) fn for_each(&self, guard: &Guard, mut show: impl FnMut(&Cell)) {
        let mut segment = self.load(&self.oldest, guard);
        while let Some(here) = segment {
            for cell in &here.cells {
                if cell.peek() == State::Empty {
                    return;
                }
                show(cell);
            }
            segment = self.next(here, guard);
        }
    }

    /// Goes from the first cell that is not known to be over to the end of the row, or until told to stop.
    fn visit(&self, guard: &Guard, mut visit: impl FnMut(Place, &Cell) -> Visit) {
        let Some(mut segment) = self.start(&self.head, guard) else { return };
        let mut all_over = true;
        loop {
            // Ordering: Relaxed, R1.
            let first = segment.over.load(Ordering::Relaxed);
            for index in first..CELLS {
                let visited = visit(Place { segment, index }, segment.cell(index));
                all_over &= matches!(visited, Visit::Over | Visit::OverAndStop);
                if all_over {
                    // Ordering: Relaxed, R1. A plain store, because being set back does no harm.
                    segment.over.store(index + 1, Ordering::Relaxed);
                }
                if matches!(visited, Visit::Stop | Visit::OverAndStop) {
                    return;
                }
            }
            let Some(next) = self.next(segment, guard) else { return };
            if all_over {
                self.advance(&self.head, segment, next, guard);
            }
            segment = next;
        }
    }

    // === The chain ===

    fn load<'g>(&self, link: &AtomicPtr<Segment>, _pinned: &'g Guard) -> Option<&'g Segment> {
        // Ordering: SeqCst, as this is also a part of a server's second look, which must not be ordered before its last step on
        // the counter: see [S2] in `queue.rs`. It includes the Acquire by which the segment's content is seen.
        let segment = link.load(Ordering::SeqCst);
        // SAFETY: null, or a segment that is freed no sooner than the guard is dropped (the essay's "Why a reader…").
        unsafe { segment.as_ref() }
    }

    fn next<'g>(&self, segment: &Segment, guard: &'g Guard) -> Option<&'g Segment> {
        self.load(&segment.next, guard)
    }

    fn start<'g>(&self, hint: &AtomicPtr<Segment>, guard: &'g Guard) -> Option<&'g Segment> {
        self.load(hint, guard).or_else(|| self.load(&self.oldest, guard))
    }

    /// Makes the first segment of the row, unless somebody else was faster.
    fn begin<'g>(&self, guard: &'g Guard) -> &'g Segment {
        self.link(&self.oldest, guard)
    }

    /// Appends a segment to the last one, unless somebody else was faster.
    fn append<'g>(&self, last: &Segment, guard: &'g Guard) -> &'g Segment {
        self.link(&last.next, guard)
    }

    fn link<'g>(&self, link: &AtomicPtr<Segment>, _pinned: &'g Guard) -> &'g Segment {
        let new = Box::into_raw(Segment::new());
        // Ordering: SeqCst, a part of "I have come" [S1]; includes the Release that publishes the segment's content, and on
        // failure the Acquire that receives another's.
        match link.compare_exchange(ptr::null_mut(), new, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => {
                // Ordering: Relaxed, see `Row::dead`.
                self.linked.fetch_add(1, Ordering::Relaxed);
                // SAFETY: in the chain, and freed no sooner than the guard is dropped.
                unsafe { &*new }
            }
            Err(faster) => {
                // SAFETY: nobody has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: `link` was null a moment ago and never becomes null again, so what was put there came after the
                // guard; it is freed no sooner than the guard is dropped.
                unsafe { &*faster }
            }
        }
    }

    /// Moves a hint on from `from`, which is done with, to `to` or, if that is out of the chain already, not at all: the next
    /// one who comes by tries again from further on.
    fn advance(&self, hint: &AtomicPtr<Segment>, from: &Segment, to: &Segment, guard: &Guard) {
        // Ordering: Relaxed, a guess that the CAS below checks.
        let stands = hint.load(Ordering::Relaxed);
        // Somebody who started from further back must not set the hint back to where segments may be freed; and if it stands
        // further on, there is nothing to do. Null is "at the oldest", and can be left from anywhere.
        if !stands.is_null() && !ptr::eq(stands, from) {
            return;
        }
        if !to.hold(&self.dead) {
            return;
        }
        let to_pointer = ptr::from_ref(to).cast_mut();
        // Ordering: Release, so that who starts here sees the segment's content, as we do; SeqCst reads include the Acquire.
        // Relaxed on failure: somebody else has moved it.
        let moved = hint.compare_exchange(stands, to_pointer, Ordering::Release, Ordering::Relaxed);
        let left = if moved.is_ok() { stands } else { to_pointer };
        if !left.is_null() {
            // SAFETY: a hint that we have counted (or that we took over with the CAS) still holds it; and we are pinned.
            let left = unsafe { &*left };
            // Ordering: Release, as in `let_go` [R1].
            let before = left.holds.fetch_sub(HINT, Ordering::Release);
            self.left_pinned(before - HINT, guard);
        }
    }

    /// To be called with what is left in the `holds` that the caller has just gone out of.
    fn left(&self, holds: usize) {
        if holds == LINKED {
            self.left_pinned(holds, &crate::sync::epoch::pin());
        }
    }

    fn left_pinned(&self, holds: usize, guard: &Guard) {
        if holds != LINKED {
            return;
        }
        // Ordering: AcqRel, so that the sweeper which did not see this will see it when it looks again: it hands `sweeping`
        // back by a read-modify-write, which ours in `tidy` comes before or after.
        self.dead.fetch_add(1, Ordering::AcqRel);
        self.tidy(guard);
    }

    /// Sweeps if at least half of the chain is dead.
    fn tidy(&self, guard: &Guard) {
        loop {
            // Ordering: Relaxed for both, see `dead`; that a sweep is not forgotten is by the swaps below.
            let dead = self.dead.load(Ordering::Relaxed);
            // Ordering: as above.
            let linked = self.linked.load(Ordering::Relaxed);
            if dead <= 0 || (dead as usize).saturating_mul(2) < linked {
                return;
            }
            // Ordering: AcqRel. If it is set, our Release shows the sweeper the segment that we have counted, for it swaps after
            // us and looks again. If not, Acquire shows us the chain as the last sweeper left it [R2].
            if self.sweeping.swap(true, Ordering::AcqRel) {
                return;
            }
            let swept = self.sweep(guard);
            // Ordering: AcqRel, the other side of the above [R2].
            self.sweeping.swap(false, Ordering::AcqRel);
            if swept == 0 || fault!(SweeperDoesNotLookAgain) {
                return;
            }
        }
    }

    /// Takes the dead segments out of the chain, but for the last one. Says how many. The caller is the only sweeper.
    fn sweep(&self, guard: &Guard) -> usize {
        let mut swept = 0;
        let mut link = &self.oldest;
        while let Some(segment) = self.load(link, guard) {
            let Some(next) = self.next(segment, guard) else { break };
            // Ordering: Acquire receives all that was done with the cells, before they are freed [R1]. Relaxed on failure:
            // not dead.
            if segment.holds.compare_exchange(LINKED, 0, Ordering::Acquire, Ordering::Relaxed).is_err() {
                link = &segment.next;
                continue;
            }
            // Ordering: SeqCst as all stores to links; includes the Release by which `next`'s content is passed on.
            link.store(ptr::from_ref(next).cast_mut(), Ordering::SeqCst);
            // SAFETY: made by `Box`; out of the chain and without hints (R3), so who is not pinned now will never reach it;
            // and only this sweeper has taken its word to zero, so it is retired once.
            unsafe { guard.retire(ptr::from_ref(segment).cast_mut()) };
            swept += 1;
        }
        // Ordering: Relaxed for both, see `dead`.
        self.linked.fetch_sub(swept, Ordering::Relaxed);
        // Ordering: as above.
        self.dead.fetch_sub(swept as isize, Ordering::Relaxed);
        swept
    }
}

/// What to do after a cell was visited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    /// The cell is over: on to the next.
    Over,
    /// The cell is over now, and that was all.
    OverAndStop,
    /// The cell is not over, but the next one is of interest all the same.
    Skip,
    Stop,
}

impl Drop for Row {
    fn drop(&mut self) {
        // Ordering: Relaxed, nobody else is here any more.
        let mut segment = self.oldest.load(Ordering::Relaxed);
        while !segment.is_null() {
            // SAFETY: in the chain, so not retired, and nobody else is here any more.
            let owned = unsafe { Box::from_raw(segment) };
            // Ordering: as above.
            segment = owned.next.load(Ordering::Relaxed);
        }
    }
}
