//! The row of cells: endless at one end, forgotten at the other, and thinned out in between.
//!
//! # The idea
//!
//! The row is a chain of segments of [`CELLS`] cells each. Its end is one word, `tail`: the last segment, and how many of its cells
//! are claimed. Who waits claims the next cell by moving that word on, which is all it takes: a segment with a claimed cell
//! in it stays until the cell is left, so nothing has to be protected first.
//!
//! Servers start from a *hint*: `head`, and an index within the segment. Hints are only ever behind the truth, never ahead of it
//! (R1), so they need no atomic step of their own.
//!
//! A segment is *dead* when all its cells are `Gone`: their owners have left, or their debts are paid. Dead segments are
//! taken out of the chain wherever they are, so that memory follows those who wait and not those who have waited.
//!
//! # Invariants
//!
//! * R1. Every cell in the segments before a `head` hint is over, and so is every one of a segment's before its `over`: it will never
//!   take a permit again. That is for ever, so a stale hint, or one that is set back by a slow thread, is still true.
//! * R2. Cells are claimed strictly from left to right, each once. Only the last segment has unclaimed ones: the next is appended
//!   when all are claimed, and `tail` comes there with its first claim.
//! * R3. A segment's word `holds` counts `head` and `tail` while they stand on it, and says whether it is in the chain. Both move only
//!   to a segment in the chain, by counting themselves in. So a segment on which one stands is in the chain; and so is one with a
//!   cell that is not `Gone`, since only dead segments are taken out.
//! * R4. Out of the chain comes a segment only by the sweeper, of which there is one at a time: it swaps the word of a dead
//!   segment that is not the last, and on which no hint stands, for zero, makes the predecessor point past it, and then
//!   retires it. Nothing else is ever freed while the row lives.
//!
//! # Why nobody meets freed memory
//!
//! *Who claims* a cell does not look at memory until the claim is done. When it is, `tail` named that segment at that moment, so the
//! segment was in the chain (R3), and stays as long as the claimed cell is not left. It does not matter how old the word
//! was that the claimer had read: if the address had been freed and used again meanwhile, then for a segment of this row that
//! has exactly this cell to claim.
//!
//! *Servers* are pinned (`sync::epoch`), and a retired segment is freed when every reader that was pinned at the time has
//! left. A reader starts from a hint, which points to a segment in the chain at that moment (R3), and goes on by `next`. Say it
//! comes from segment Y to X. If Y was in the chain when the reader read `next`, X had not been retired yet. If Y had been taken
//! out after the reader was pinned, its `next` is what it was at that time, and was in the chain then; so X was retired after
//! the reader was pinned, if at all. Either way X is there for as long as the reader is.
//!
//! # Cost
//!
//! A sweep walks the chain. It starts when at least half of the chain's segments are known to be dead, or when the chain is
//! twice as long as the last sweep left it; so each segment pays for a step or two over its life. What stays is at most as many
//! dead segments as living ones, and a few.
//!
//! That a segment has died is noticed by the owner that leaves it last, who looks at the other cells before it leaves. Of two
//! that leave at the very same moment, each may take the other for the last, and then nobody notices: such a segment stays
//! until the next sweep, which looks at them all. It would take an atomic step for each waiter to be sure.

use std::ptr;
use std::task::Waker;

use crate::fault::fault;
use crate::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use crate::sync::epoch::{Canary, Guard, Retire};

use super::cell::{Cell, Fed, State};

/// Cells to a segment. Two for the model checker, so that its few waiters cross borders.
pub(super) const CELLS: usize = if cfg!(any(latchwork_loom, latchwork_shuttle)) { 2 } else { 32 };

/// A chain of so many segments is not worth sweeping.
const FEW: u32 = 4;

/// In `holds`: the segment is in the chain. Above what hints can add up to.
const LINKED: usize = 1 << (usize::BITS - 1);
/// In `holds`: a hint stands here, or somebody is about to move one here.
const HINT: usize = 1;

// Aligned so that a pointer to it has room for a cell's index: see `Place`.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Segment {
    holds: AtomicUsize,
    next: AtomicPtr<Segment>,
    /// Every cell of this segment before this one is over.
    over: AtomicUsize,
    /// A cell that was not `Gone` when somebody looked. Where to look next.
    alive: AtomicUsize,
    cells: [Cell; CELLS],
    canary: Canary,
}

impl Retire for Segment {
    fn canary(&self) -> &Canary {
        &self.canary
    }
}

impl Segment {
    fn new() -> Box<Self> {
        Box::new(Self {
            holds: AtomicUsize::new(LINKED),
            next: AtomicPtr::new(ptr::null_mut()),
            over: AtomicUsize::new(0),
            alive: AtomicUsize::new(0),
            cells: std::array::from_fn(|_| Cell::new()),
            canary: Canary::new(),
        })
    }

    pub(super) fn cell(&self, index: usize) -> &Cell {
        self.canary.assert_alive();
        &self.cells[index]
    }

    /// Whether all cells are `Gone`, but for `myself` if given.
    ///
    /// Looks at the last cell first, which mostly is the last to be left, and then on from where the last look found somebody. Who
    /// has gone does not come back, so over the life of a segment all these looks together go round once.
    #[inline]
    fn is_dead(&self, myself: Option<usize>) -> bool {
        if myself.is_none() && fault!(SweptUnderOwner) {
            return self.cells[0].is_gone();
        }
        (myself == Some(CELLS - 1) || self.cells[CELLS - 1].is_gone()) && self.are_all_gone(myself)
    }

    fn are_all_gone(&self, myself: Option<usize>) -> bool {
        // Ordering: Relaxed, any cell will do to start from.
        let first = self.alive.load(Ordering::Relaxed);
        for index in (first..CELLS).chain(0..first) {
            if Some(index) != myself && !self.cells[index].is_gone() {
                if index != first {
                    // Ordering: Relaxed, as above.
                    self.alive.store(index, Ordering::Relaxed);
                }
                return false;
            }
        }
        true
    }

    /// Counts a hint in. False if the segment is out of the chain.
    fn hold(&self) -> bool {
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut holds = self.holds.load(Ordering::Relaxed);
        while holds & LINKED != 0 {
            // Ordering: Relaxed. The count keeps the sweeper away by its modification order alone; the memory is kept by the
            // caller's pin until the hint is there.
            match self.holds.compare_exchange_weak(holds, holds + HINT, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return true,
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
    /// The row's end: the next cell to claim, as a [`Place`]; none until the first waiter comes.
    tail: AtomicUsize,
    /// Segments in the chain.
    // 32 bits for this and the next two, because there are many semaphores, and so many segments do not fit into memory.
    linked: AtomicU32,
    /// Segments in the chain that are known to be dead. Only says when to sweep, so it may be off.
    dead: AtomicI32,
    /// How long the chain may get before it is swept in any case.
    sweep_at: AtomicU32,
    /// Whether somebody sweeps. Nobody waits for this: who finds it set leaves, and the sweeper looks again.
    sweeping: AtomicBool,
}

/// A cell: its segment's address, and its number in the low bits that the alignment leaves free. As the row's end, where it names the
/// cell to be claimed next, the number may be [`CELLS`]: the segment is full. Zero stands for no place at all.
///
/// Who has claimed the cell has its segment as well, until [`Row::leave`].
// An address, exposed, and not a pointer: who claims may have read the row's end before that segment was freed, and the same address
// been given to a new one. The comparison then rightly succeeds, but a pointer that was read before would be one to what is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

const INDEX: usize = align_of::<Segment>() - 1;
const _: () = assert!(CELLS <= INDEX);

impl Place {
    const NONE: Self = Self(0);

    fn new(segment: &Segment, index: usize) -> Self {
        Self(ptr::from_ref(segment).expose_provenance() | index)
    }

    fn segment(self) -> *const Segment {
        ptr::with_exposed_provenance(self.0 & !INDEX)
    }

    fn index(self) -> usize {
        self.0 & INDEX
    }

    /// The next place, in the same segment. There must be one.
    fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// # Safety
    ///
    /// The caller owns the cell, and has not left it.
    pub(super) unsafe fn cell<'a>(self) -> &'a Cell {
        // SAFETY: the cell is claimed and not `Gone`, so its segment is in the chain and not freed (R3, R4).
        unsafe { &*self.segment() }.cell(self.index())
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
    /// A debt has swallowed so many.
    Debt {
        used: usize,
    },
}

impl Row {
    #[cfg(not(latchwork_loom))]
    pub(super) const fn new() -> Self {
        Self {
            oldest: AtomicPtr::new(ptr::null_mut()),
            head: AtomicPtr::new(ptr::null_mut()),
            tail: AtomicUsize::new(Place::NONE.0),
            linked: AtomicU32::new(0),
            dead: AtomicI32::new(0),
            sweep_at: AtomicU32::new(FEW),
            sweeping: AtomicBool::new(false),
        }
    }

    // loom's types register themselves with the running model, so they cannot be made in a const.
    #[cfg(latchwork_loom)]
    pub(super) fn new() -> Self {
        Self {
            oldest: AtomicPtr::new(ptr::null_mut()),
            head: AtomicPtr::new(ptr::null_mut()),
            tail: AtomicUsize::new(Place::NONE.0),
            linked: AtomicU32::new(0),
            dead: AtomicI32::new(0),
            sweep_at: AtomicU32::new(FEW),
            sweeping: AtomicBool::new(false),
        }
    }

    // === Waiters ===

    /// Makes the caller the owner of the row's first unclaimed cell.
    #[inline]
    pub(super) fn claim(&self) -> Place {
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut end = Place(self.tail.load(Ordering::Relaxed));
        while end != Place::NONE && end.index() < CELLS {
            match self.claim_at(end) {
                Ok(()) => return end,
                Err(now) => end = now,
            }
        }
        self.claim_in_next()
    }

    fn claim_at(&self, end: Place) -> Result<(), Place> {
        // Ordering: SeqCst, a part of "I have come" [S1]: who looks for waiters must see how far the row goes. Includes the
        // Acquire that receives the segment's content. Relaxed on failure, as in `claim`.
        let step = self.tail.compare_exchange_weak(end.0, end.next().0, Ordering::SeqCst, Ordering::Relaxed);
        step.map(drop).map_err(Place)
    }

    /// Claims in the segment behind the one that is full, or in the first one.
    #[cold]
    fn claim_in_next(&self) -> Place {
        let guard = &crate::sync::epoch::pin();
        loop {
            // Ordering: Acquire receives the segment's content.
            let end = Place(self.tail.load(Ordering::Acquire));
            // SAFETY: null, or the segment at the row's end, which is freed no sooner than the guard is dropped (see the essay).
            let last = unsafe { end.segment().as_ref() };
            if last.is_some() && end.index() < CELLS {
                // Somebody has moved on meanwhile.
                if self.claim_at(end).is_ok() {
                    return end;
                }
                continue;
            }
            let link = last.map_or(&self.oldest, |full| &full.next);
            let next = match self.load(link, guard) {
                Some(next) => next,
                None => self.append(link, guard),
            };
            let first = Place::new(next, 0);
            if self.advance(next, last, guard, || {
                // Ordering: SeqCst, a part of "I have come" [S1]. Includes the Release by which who claims here sees the segment's
                // content, as we do. Relaxed on failure: nothing is read.
                self.tail.compare_exchange(end.0, first.next().0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            }) {
                return first;
            }
        }
    }

    /// Whether somebody has claimed the segment's cell of that number.
    fn is_claimed(&self, segment: &Segment, index: usize, guard: &Guard) -> bool {
        // Ordering: SeqCst, a part of the look [S2] at whether somebody has come.
        let end = Place(self.tail.load(Ordering::SeqCst));
        // The end has not come to a segment that it does not stand on and that has no successor, and has left all others (R2).
        match ptr::eq(end.segment(), segment) {
            true => index < end.index(),
            false => self.next(segment, guard).is_some(),
        }
    }

    /// The owner leaves its cell, whose wait has ended.
    ///
    /// # Safety
    ///
    /// The caller owns the cell, and does not touch it again.
    #[inline]
    pub(super) unsafe fn leave(&self, place: Place) {
        // SAFETY: the caller owns the cell, which is not `Gone`, so the segment is in the chain (R3, R4).
        let segment = unsafe { &*place.segment() };
        // Before we leave, because afterwards the segment may be freed at any moment.
        let last = segment.is_dead(Some(place.index()));
        segment.cell(place.index()).leave();
        if last {
            self.died(&crate::sync::epoch::pin());
        }
    }

    // === Servers ===

    /// Brings `permits` to the oldest cell that can take some.
    #[inline]
    pub(super) fn serve(&self, permits: usize, guard: &Guard) -> Front {
        let mut front = Front::Nobody;
        self.visit(guard, Slow::Break, |segment, cell| match cell.feed(permits) {
            Fed::NobodyYet => Visit::NobodyYet,
            Fed::Over => Visit::Over,
            Fed::Absorbed => {
                front = Front::Absorbed;
                Visit::Stop
            }
            Fed::Served { used, waker } => {
                front = Front::Served { used, waker };
                Visit::OverAndStop
            }
            Fed::Lessened => {
                front = Front::Debt { used: permits };
                Visit::Stop
            }
            Fed::Paid { used } => {
                front = Front::Debt { used };
                // A paid debt is `Gone`, and has no owner that would look.
                if segment.is_dead(None) {
                    self.died(guard);
                }
                Visit::OverAndStop
            }
        });
        front
    }

    /// Whether somebody has come who is not served.
    pub(super) fn is_awaited(&self, guard: &Guard) -> bool {
        let mut awaited = false;
        self.visit(guard, Slow::PassBy, |_, cell| {
            let seen = cell.look();
            awaited = seen.is_in_need();
            match seen.state {
                State::Empty => Visit::NobodyYet,
                _ if awaited => Visit::Stop,
                _ => Visit::Over,
            }
        });
        awaited
    }

    /// Sends home who waits, giving each waker to `put` until that says there is no more room. True if none is left.
    pub(super) fn close(&self, guard: &Guard, mut put: impl FnMut(Waker) -> bool) -> bool {
        let mut none_left = true;
        // Who is slow looks whether it was closed once it has come.
        self.visit(guard, Slow::PassBy, |_, cell| {
            if let Some(waker) = cell.close()
                && !put(waker)
            {
                none_left = false;
                return Visit::OverAndStop;
            }
            match cell.look().state {
                State::Empty => Visit::NobodyYet,
                State::Debt => Visit::Skip,
                _ => Visit::Over,
            }
        });
        none_left
    }

    /// Pays debts, wherever they stand in line, and says what is left.
    pub(super) fn pay_debts(&self, mut permits: usize, guard: &Guard) -> usize {
        self.visit(guard, Slow::PassBy, |segment, cell| {
            if permits == 0 {
                return Visit::Stop;
            }
            match cell.look().state {
                State::Empty => return Visit::NobodyYet,
                State::Debt => match cell.feed(permits) {
                    Fed::Paid { used } => {
                        permits -= used;
                        if segment.is_dead(None) {
                            self.died(guard);
                        }
                    }
                    Fed::Lessened => permits = 0,
                    // Somebody else has paid it.
                    Fed::Over | Fed::NobodyYet | Fed::Absorbed | Fed::Served { .. } => {}
                },
                _ => {}
            }
            Visit::Skip
        });
        permits
    }

    /// Shows every claimed cell from the oldest on, those that are over included.
    pub(super) fn for_each(&self, guard: &Guard, mut show: impl FnMut(&Cell)) {
        let mut segment = self.load(&self.oldest, guard);
        while let Some(here) = segment {
            for (index, cell) in here.cells.iter().enumerate() {
                if cell.look().state == State::Empty && !self.is_claimed(here, index, guard) {
                    return;
                }
                show(cell);
            }
            segment = self.next(here, guard);
        }
    }

    /// Goes from the first cell that is not known to be over to the end of the row, or until told to stop.
    #[inline]
    fn visit(&self, guard: &Guard, slow: Slow, mut visit: impl FnMut(&Segment, &Cell) -> Visit) {
        let Some(mut segment) = self.start(guard) else { return };
        let mut all_over = true;
        loop {
            let mut over_here = true;
            // Ordering: Relaxed, R1.
            let first = segment.over.load(Ordering::Relaxed);
            for index in first..CELLS {
                let cell = segment.cell(index);
                let mut visited = visit(segment, cell);
                while visited == Visit::NobodyYet {
                    if !self.is_claimed(segment, index, guard) || fault!(RowEndsAtWhoIsSlow) {
                        return;
                    }
                    visited = match slow {
                        Slow::PassBy => Visit::Skip,
                        Slow::Break if fault!(SlowComesBehindOurBack) => Visit::Skip,
                        Slow::Break => {
                            cell.break_if_slow();
                            visit(segment, cell)
                        }
                    };
                }
                over_here &= matches!(visited, Visit::Over | Visit::OverAndStop);
                if over_here {
                    // Ordering: Relaxed, R1. A plain store, because being set back does no harm.
                    segment.over.store(index + 1, Ordering::Relaxed);
                }
                if matches!(visited, Visit::Stop | Visit::OverAndStop) {
                    return;
                }
            }
            let Some(next) = self.next(segment, guard) else { return };
            all_over &= over_here;
            if all_over {
                self.advance_head(segment, next, guard);
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
        let segment = unsafe { segment.as_ref() };
        segment.inspect(|segment| segment.canary.assert_alive())
    }

    fn next<'g>(&self, segment: &Segment, guard: &'g Guard) -> Option<&'g Segment> {
        self.load(&segment.next, guard)
    }

    fn start<'g>(&self, guard: &'g Guard) -> Option<&'g Segment> {
        self.load(&self.head, guard).or_else(|| self.load(&self.oldest, guard))
    }

    /// Appends a segment at `link`, which was seen to be null, unless somebody else was faster.
    fn append<'g>(&self, link: &AtomicPtr<Segment>, guard: &'g Guard) -> &'g Segment {
        let new = Box::into_raw(Segment::new());
        // Ordering: SeqCst, a part of "I have come" [S1]; includes the Release that publishes the segment's content, and on
        // failure the Acquire that receives another's.
        match link.compare_exchange(ptr::null_mut(), new, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => {
                // Ordering: Relaxed, see `Row::dead`.
                self.linked.fetch_add(1, Ordering::Relaxed);
                self.tidy(guard);
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

    /// Moves the head on from `from`, which is done with, to `to` or, if that is out of the chain already, not at all: the next one
    /// who comes by tries again from further on.
    fn advance_head(&self, from: &Segment, to: &Segment, guard: &Guard) {
        // Ordering: Relaxed, a guess that the CAS below checks.
        let stands = self.head.load(Ordering::Relaxed);
        // Somebody who started from further back must not set the hint back to where segments may be freed; and if it stands
        // further on, there is nothing to do. Null is "at the oldest", and can be left from anywhere.
        if !stands.is_null() && !ptr::eq(stands, from) {
            return;
        }
        let to_pointer = ptr::from_ref(to).cast_mut();
        self.advance(to, (!stands.is_null()).then_some(from), guard, || {
            // Ordering: Release, so that who starts here sees the segment's content, as we do; SeqCst reads include the
            // Acquire. Relaxed on failure: somebody else has moved it.
            self.head.compare_exchange(stands, to_pointer, Ordering::Release, Ordering::Relaxed).is_ok()
        });
    }

    /// Moves the head or the tail to `to` by `step`, which says whether it did; both segments are counted. False also if `to` is out
    /// of the chain, which takes that somebody else has moved it there, and on.
    fn advance(
        &self,
        to: &Segment,
        from: Option<&Segment>,
        guard: &Guard,
        step: impl FnOnce() -> bool,
    ) -> bool {
        if !to.hold() {
            return false;
        }
        let stepped = step();
        let left = if stepped { from } else { Some(to) };
        if let Some(left) = left {
            // Ordering: Relaxed, as in `hold`. It may be dead and have waited only for us, so it is time to look.
            left.holds.fetch_sub(HINT, Ordering::Relaxed);
            self.tidy(guard);
        }
        stepped
    }

    /// A segment was left by its last owner.
    fn died(&self, guard: &Guard) {
        // Ordering: AcqRel, so that the sweeper which did not see this will see it when it looks again: it hands `sweeping`
        // back by a read-modify-write, which ours in `tidy` comes before or after.
        self.dead.fetch_add(1, Ordering::AcqRel);
        self.tidy(guard);
    }

    /// Sweeps if it is worth it: see the essay's "Cost".
    fn tidy(&self, guard: &Guard) {
        loop {
            // Ordering: Relaxed for all three, they only say when; that a sweep is not forgotten is by the swaps below.
            let dead = self.dead.load(Ordering::Relaxed).max(0).unsigned_abs();
            // Ordering: as above.
            let linked = self.linked.load(Ordering::Relaxed);
            // Ordering: as above.
            let long = linked >= self.sweep_at.load(Ordering::Relaxed);
            if !long && (dead == 0 || dead < linked.div_ceil(2)) {
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

    /// Takes the dead segments out of the chain, but for the last one and those on which a hint stands. Says how many. The
    /// caller is the only sweeper.
    fn sweep(&self, guard: &Guard) -> u32 {
        // Ordering: Relaxed, see `dead`. Those that die while we walk may be counted twice.
        let known = self.dead.load(Ordering::Relaxed);
        let (mut swept, mut stays, mut stays_dead) = (0, 0_u32, 0);
        let mut link = &self.oldest;
        while let Some(segment) = self.load(link, guard) {
            stays += 1;
            let Some(next) = self.next(segment, guard) else { break };
            if !segment.is_dead(None) {
                link = &segment.next;
                continue;
            }
            let swept_under_hint = fault!(SweptUnderHint) && {
                // Ordering: none would make this right.
                segment.holds.swap(0, Ordering::Relaxed) != 0
            };
            // Ordering: Relaxed. What was done with the cells was received when they were seen to be `Gone` [R1]; a hint that
            // comes or goes is ordered by this word alone.
            let claimed = segment.holds.compare_exchange(LINKED, 0, Ordering::Relaxed, Ordering::Relaxed);
            if claimed.is_err() && !swept_under_hint {
                stays_dead += 1;
                link = &segment.next;
                continue;
            }
            // Ordering: SeqCst as all stores to links; includes the Release by which `next`'s content is passed on.
            link.store(ptr::from_ref(next).cast_mut(), Ordering::SeqCst);
            // SAFETY: made by `Box`; out of the chain and without hints (R3), so who is not pinned now will never reach it;
            // and only this sweeper has taken its word to zero, so it is retired once.
            unsafe { guard.retire(ptr::from_ref(segment).cast_mut()) };
            swept += 1;
            stays -= 1;
        }
        // Ordering: Relaxed for all three, see `tidy`.
        self.linked.fetch_sub(swept, Ordering::Relaxed);
        // Ordering: as above.
        self.dead.fetch_sub(known - stays_dead, Ordering::Relaxed);
        // Ordering: as above.
        self.sweep_at.store(stays.saturating_mul(2).saturating_add(FEW), Ordering::Relaxed);
        swept
    }
}

/// What to do about a cell that is claimed, but whose owner has not come yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slow {
    /// Nothing: it will look for itself when it has come.
    PassBy,
    /// Tell it to come again, for we go on to those behind it, and it must not come into the line behind our back.
    Break,
}

/// What to do after a cell was visited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    /// Nobody has come to the cell. If nobody has claimed it either, this is the end of the row.
    NobodyYet,
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
        #[cfg(latchwork_loom)]
        crate::sync::epoch::forget_buried();
    }
}
