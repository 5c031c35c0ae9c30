//! The engine: a counter of free permits, a row of cells in which waiters stand, and the moves between the two.
//!
//! # The idea
//!
//! Free permits lie in `counter`. Who finds too few there claims the next cell of the row and sleeps in it. Who brings permits
//! while somebody sleeps lays them into the oldest cell until it has what it needs, then into the next, and puts what is left
//! into the counter. A request for many gathers its permits in its own cell, so small ones neither overtake nor starve it.
//! Each of these moves is one compare-and-swap; whoever comes second sees what the first one did and goes on from there.
//!
//! # Source
//!
//! The seed is `AsyncSemaphore` of Redisson: a counter, a queue, and a loop `tryRun` between them. The form, an endless row of
//! cells in which a waiter and a permit meet by compare-and-swap, is that of the CancellableQueueSynchronizer by Koval,
//! Khalanskiy and Alistarh (PLDI 2023), on which Kotlin's semaphore stands; so is the breaking of a cell whose owner is slow. Three
//! things differ. Permits go to the oldest cell and not to one by ticket, which is what makes weights possible: several
//! releases can fill one cell, one release several. The row's end is one word of address and index, so who claims a cell has its
//! segment in the same step, and looks for nothing by number. And the memory of those who gave up is taken out of the
//! middle of the row (`row.rs`).
//!
//! # The counter
//!
//! * `>= 0`: so many permits are free, and nobody sleeps who could have them.
//! * [`NONE_FREE`] (−1): none is, and somebody may be waiting. What is brought goes to the row first.
//! * `< -1`: the same; and a releaser that found nobody in the row has left this *mark*, and is about to put permits here. Each
//!   mark is used once in the life of a semaphore.
//!
//! # Why no wake-up is lost, and nobody is overtaken
//!
//! A permit in the counter is for whoever comes next. It must not get there while somebody sleeps: neither may the sleeper be
//! forgotten, nor may a newcomer have it first.
//!
//! *A waiter* claims a cell, comes there with its waker [S1], and then looks at the counter [S3]. Only if it finds `NONE_FREE` does
//! it sleep. A mark it wipes out, by setting the counter to `NONE_FREE`. If there are permits it takes them all, likewise, and
//! brings them to the row as a releaser would.
//! *A releaser* that finds nobody in the row marks the counter [S0], looks at the row again [S2], and then swaps the mark for its
//! permits [S4]. If somebody is in the row, it goes back to the row; if the mark is gone, it starts again.
//!
//! Say a waiter sleeps, and a releaser's S4 succeeds. The mark was there all the time from S0 to S4, so the waiter's S3, which found
//! no mark, was before S0, or after S4. After S4 it would have found the permits. So S1, S3, S0, S2 come in this order, and the
//! releaser saw the waiter, and did not come to S4: a contradiction. All four are SeqCst, so this order is one that everybody
//! agrees on. While the counter is `>= 0`, a releaser adds to it without a look at the row: then no waiter has yet been past S3.
//!
//! Between claiming and coming a waiter has a cell, but is not there. A releaser that meets such a cell and goes on to those behind
//! it first *breaks* it, after a moment's patience: it moves the cell to `Cancelled`, and the waiter has to claim another. If it
//! went on without, the waiter could come meanwhile, and a newcomer behind it, and the newcomer would be served first. So the order in
//! which they are served is the order in which they came, S1; and who was broken had not come, for its first poll had not
//! returned.
//!
//! The seed put its permit back into the counter first and looked at the queue afterwards, if at all. Without the second look a
//! wake-up is lost; with it none is, but for a moment the permit lies open beside a sleeper.
//!
//! # Invariants
//!
//! * Q1. A permit lies in the counter, in one cell, in one thread's hand, or with a holder. Every move is one atomic step.
//! * Q2. Once no thread is inside, either the counter is not positive or nobody waits.
//! * Q3. No cell is granted while an older one waits: permits are brought to the first cell that is not over.
//! * Q4. A thread that has a permit in its hand calls nothing foreign until it has put it down. (But for one that serves more
//!   waiters than it can put wakers aside for: it calls a batch of them, with what is left still in its hand.)
//!
//! # Pairing
//!
//! | label | one side | other side | carries |
//! |---|---|---|---|
//! | [S0]–[S4] | row, then counter | counter, then row, then counter | see above |
//! | [C1] | owner publishes `Waiting` | server ends the wait | the waker |
//! | [C2] | server feeds or ends a cell | owner sees the end | what came before the release |
//! | [P] | every change of the counter that adds | every change that takes | what came before the release |
//! | [R1] | owner leaves its cell | sweeper finds all cells left | that nobody is at the cell |
//! | [R2] | sweeper leaves | next sweeper comes | the chain |
//!
//! # Progress
//!
//! Every operation finishes in a bounded number of its own steps unless another one succeeds meanwhile: a compare-and-swap fails
//! only because another thread's has been done, and a waiter that is broken knows that a releaser has gone past it. No lock is
//! taken and no thread waits for another (but for the bounded patience above). So the semaphore is lock-free in the usual
//! sense; with these qualifications:
//!
//! * Waking runs the woken task's waker, which is foreign code. All permits are where they belong before it is called.
//! * The allocator is called when a waiter finds the last segment full, and when a dead segment is freed; never by a release
//!   that finds no dead segment to sweep, and never to allocate by any release.
//! * There is one place where a thread has permits in its hand that others gave back: between a waiter's taking them from
//!   the counter and its bringing them to the row. If the system suspends it exactly there, those permits rest with it. Every
//!   call of every thread still returns; but a waiter that they would serve sleeps on until the thread runs again, and
//!   `try_acquire` may fail although a release had returned. So failing is not strictly linearizable. Success is.
//! * Memory is given back by a sweeper and by crossbeam-epoch. While a thread is suspended inside either, what others retire is
//!   kept.
//!
//! # What the model checker does not see
//!
//! loom takes SeqCst loads and stores for Acquire and Release; where S0 to S4 need more, `sync::seq_cst_for_loom` puts a fence, in
//! the model only. Under loom the epoch scheme is replaced by the strictest one that keeps its promise: retired memory is freed
//! the moment that nobody is pinned. That crossbeam's own keeps it is tried by `verify`, with
//! real threads under the sanitizers, and beyond that taken on trust.

use std::fmt;
use std::task::Waker;

use crate::fault::fault;
use crate::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use crate::sync::{epoch, seq_cst_for_loom};

use super::cell::{Ended, Seen, State};
use super::row::{Front, Place, Row};
use super::wakes::{Frame, Panic};

/// As in tokio, so that code which checks against it means the same thing here. It also fits a cell's state word.
pub(super) const MAX_PERMITS: usize = usize::MAX >> 3;

/// The counter's value while no permit is free and somebody may be waiting.
const NONE_FREE: isize = -1;

/// Why no permit was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Closed,
    NoPermits,
}

pub(super) struct Queue {
    counter: AtomicIsize,
    /// Marks that were used so far.
    marks: AtomicUsize,
    closed: AtomicBool,
    /// Permits that are meant to exist: a debt counts as paid. Below zero while permits are forgotten that a debt waits for.
    capacity: AtomicIsize,
    /// What debts still wait for. With `capacity` this is what exists: free, laid in, or held. Never too small.
    owed: AtomicUsize,
    /// A latch's: permits that nobody waits for do not add up; as many are kept as came at once.
    coalesces: bool,
    row: Row,
}

impl Queue {
    const fn assert_permits(permits: usize) {
        assert!(permits <= MAX_PERMITS, "a semaphore may not have more than MAX_PERMITS permits");
    }

    #[cfg(not(latchwork_loom))]
    pub(super) const fn new(permits: usize, coalesces: bool) -> Self {
        Self::assert_permits(permits);
        Self {
            counter: AtomicIsize::new(permits as isize),
            marks: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            capacity: AtomicIsize::new(permits as isize),
            owed: AtomicUsize::new(0),
            coalesces,
            row: Row::new(),
        }
    }

    // loom's types register themselves with the running model, so they cannot be made in a const.
    #[cfg(latchwork_loom)]
    pub(super) fn new(permits: usize, coalesces: bool) -> Self {
        Self::assert_permits(permits);
        Self {
            counter: AtomicIsize::new(permits as isize),
            marks: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            capacity: AtomicIsize::new(permits as isize),
            owed: AtomicUsize::new(0),
            coalesces,
            row: Row::new(),
        }
    }

    #[inline]
    pub(super) fn available(&self) -> usize {
        // Ordering: Acquire, so that a caller who sees a permit back also sees what its holder did [P].
        self.counter.load(Ordering::Acquire).max(0) as usize
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        // Ordering: SeqCst. Also a waiter's look after it has come: see `close`.
        self.closed.load(Ordering::SeqCst)
    }

    // === Taking ===

    #[inline]
    pub(super) fn try_take(&self, need: usize) -> Result<(), Refused> {
        if self.is_closed() {
            return Err(Refused::Closed);
        }
        // More than MAX_PERMITS are never free, and more than that would not be a number here.
        let need = isize::try_from(need).unwrap_or(isize::MAX);
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut free = self.counter.load(Ordering::Relaxed);
        while free >= need {
            // Ordering: Acquire receives what the last holders did [P]. Relaxed on failure: only the number is read, and it is
            // tried again.
            match self.counter.compare_exchange_weak(free, free - need, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(now) => free = now,
            }
        }
        // None are to be had even where `NONE_FREE` is less.
        if need == 0 { Ok(()) } else { Err(Refused::NoPermits) }
    }

    /// Takes as many free permits as there are, from `min` to `max`.
    pub(super) fn try_take_up_to(&self, min: usize, max: usize) -> Result<usize, Refused> {
        if self.is_closed() {
            return Err(Refused::Closed);
        }
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut free = self.counter.load(Ordering::Relaxed);
        loop {
            let taken = max.min(free.max(0) as usize);
            if taken < min {
                return Err(Refused::NoPermits);
            }
            if taken == 0 {
                return Ok(0);
            }
            let rest = free - taken as isize;
            // Ordering: as in `try_take` [P].
            match self.counter.compare_exchange_weak(free, rest, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(taken),
                Err(now) => free = now,
            }
        }
    }

    /// Takes a place in line for `need` permits, at least one. The caller owns the cell there, until [`poll`](Self::poll) says
    /// that the wait has ended, or [`cancel`](Self::cancel) ends it. It is to [`look_about`](Self::look_about) next.
    #[inline]
    pub(super) fn enqueue(&self, need: usize, waker: &Waker) -> Place {
        // Foreign code, which may panic: before there is a place that could be lost with it.
        let mut waker = waker.clone();
        loop {
            let place = self.row.claim();
            // SAFETY: we own the cell.
            match unsafe { place.cell() }.come(need, waker) {
                Ok(()) => return place,
                Err(back) => waker = back,
            }
            // SAFETY: we own the cell, and forget the place.
            unsafe { self.row.leave(place) };
        }
    }

    /// The second half of coming: wipes out a mark, and brings to the row what is in the counter. True if anything was there; who
    /// waits may be among those that it served.
    #[inline]
    pub(super) fn look_about(&self) -> bool {
        seq_cst_for_loom();
        if fault!(NoLookAtCounter) {
            return false;
        }
        // Ordering: SeqCst, the waiter's look at the counter [S3].
        let seen = self.counter.load(Ordering::SeqCst);
        seen != NONE_FREE && self.take_what_lies_about(seen)
    }

    fn take_what_lies_about(&self, mut seen: isize) -> bool {
        while seen != NONE_FREE {
            if seen < NONE_FREE && fault!(MarkNotWiped) {
                return false;
            }
            // Ordering: SeqCst, as part of S3: from here on releases go to the row. Includes the Acquire that receives what the
            // releasers did [P]; it is passed on with the permits.
            match self.counter.compare_exchange_weak(seen, NONE_FREE, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => {
                    let found = seen.max(0) as usize;
                    if found > 0 {
                        self.bring(found);
                    }
                    return found > 0;
                }
                Err(now) => seen = now,
            }
        }
        false
    }

    /// How the wait at `place` ended; `None` while it lasts, in which case `waker` will be woken. Ends the ownership of the cell
    /// unless it is `None`.
    ///
    /// # Safety
    ///
    /// The caller owns the cell at `place`.
    #[inline]
    pub(super) unsafe fn poll(&self, place: Place, waker: &Waker) -> Option<Ended> {
        // SAFETY: the caller owns the cell.
        let cell = unsafe { place.cell() };
        let ended = cell.poll(waker)?;
        // SAFETY: the caller owns the cell, and by our contract does so no longer.
        unsafe { self.row.leave(place) };
        Some(ended)
    }

    /// Gives up the wait at `place` for `need` permits, and passes on what was laid in. Ends the ownership of the cell.
    ///
    /// # Safety
    ///
    /// The caller owns the cell at `place`.
    pub(super) unsafe fn cancel(&self, place: Place, need: usize) {
        // SAFETY: the caller owns the cell.
        let cell = unsafe { place.cell() };
        let (cancelled, waker) = match cell.cancel() {
            Ok((missing, waker)) => (Ok(missing), waker),
            Err(ended) => (Err(ended), None),
        };
        let laid_in = match cancelled {
            Ok(_) if fault!(GatheredDiesWithWaiter) => 0,
            Ok(missing) | Err(Ended::Closed { missing }) => need - missing,
            Err(Ended::Granted) if fault!(GrantDiesWithWaiter) => 0,
            // If we come first, a server goes on to the next; if it comes first, what it brought is ours to pass on.
            Err(Ended::Granted) => need,
        };
        // SAFETY: the caller owns the cell, and by our contract does so no longer.
        unsafe { self.row.leave(place) };
        self.give_back(laid_in);
        // Foreign code, which may come back into this semaphore, or panic: when nothing is in our hand any more (Q4).
        drop(waker);
    }

    // === Giving ===

    /// Gives permits back that were taken from here.
    #[inline]
    pub(super) fn give_back(&self, permits: usize) {
        if permits == 0 {
            return;
        }
        if self.coalesces {
            // Takes the long way to `put_down`, so that the short one has no more to ask.
            return self.bring(permits);
        }
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut free = self.counter.load(Ordering::Relaxed);
        while free >= 0 {
            let more = free + permits as isize;
            // Ordering: Release hands on what the holder did [P]. Relaxed on failure, as in `try_take`.
            match self.counter.compare_exchange_weak(free, more, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => free = now,
            }
        }
        self.bring(permits);
    }

    /// Adds permits to those in existence.
    ///
    /// # Panics
    ///
    /// When there would be more than [`MAX_PERMITS`]; nothing has changed then.
    pub(super) fn add(&self, permits: usize) {
        // Ordering: Acquire, so that who sees a capacity that was lowered sees what is owed for it.
        let mut capacity = self.capacity.load(Ordering::Acquire);
        loop {
            // Ordering: Relaxed, see above.
            let existing = capacity + self.owed.load(Ordering::Relaxed) as isize;
            let room = (MAX_PERMITS as isize - existing).max(0) as usize;
            assert!(permits <= room, "adding {permits} permits to {existing} would exceed MAX_PERMITS");
            let more = capacity + permits as isize;
            // Ordering: Relaxed, a sum of its own; the permits themselves are handed on by the counter and the cells. Acquire on
            // failure, as above.
            match self.capacity.compare_exchange_weak(capacity, more, Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => capacity = now,
            }
        }
        self.give_back(permits);
    }

    /// Gives back permits that are no capacity: a latch's calls.
    ///
    /// # Panics
    ///
    /// When they are more than [`MAX_PERMITS`].
    pub(super) fn call(&self, permits: usize) {
        Self::assert_permits(permits);
        self.give_back(permits);
    }

    /// Permits that somebody has taken will not come back.
    pub(super) fn forget(&self, permits: usize) {
        // Ordering: Relaxed, as in `add`. A latch's calls are no capacity, so there it goes below zero; nobody asks.
        self.capacity.fetch_sub(permits as isize, Ordering::Relaxed);
    }

    /// Brings permits to those who wait, and wakes them.
    #[inline(never)]
    fn bring(&self, permits: usize) {
        let me = std::ptr::from_ref(self).cast::<()>();
        let left = Frame::with_innermost(|innermost| match innermost {
            None => permits,
            Some(innermost) => self.bring_inside_of_a_waker(permits, innermost, me),
        });
        if left == 0 {
            return;
        }
        let frame = Frame::new(me);
        // What does not fit into the batch stays in our hand while the batch is woken.
        let left = self.hand_out(left, &frame);
        let mut panicked = None;
        frame.wake_all(&mut panicked);
        if left > 0 || !frame.is_worked_off() || panicked.is_some() {
            frame.leave_over(left);
            self.work_off(&frame, panicked);
        }
    }

    /// Whom we serve is woken when the waker returns. Returns what is to be brought by ourselves.
    #[cold]
    fn bring_inside_of_a_waker(&self, permits: usize, innermost: &Frame, me: *const ()) -> usize {
        let left = self.hand_out_more(permits, innermost);
        match innermost.of(me) {
            Some(ours) if left > 0 => {
                ours.leave_over(left);
                0
            }
            _ => left,
        }
    }

    /// Does what is left over in the frame, and wakes who is put aside there, until nothing is; then goes on with the first panic.
    #[cold]
    fn work_off(&self, frame: &Frame, mut panicked: Option<Panic>) {
        while !frame.is_worked_off() {
            if frame.take_close() {
                self.close_into(frame);
            }
            let left = self.hand_out_more(frame.take_left_over(), frame);
            frame.leave_over(left);
            frame.wake_all(&mut panicked);
        }
        // A second panic would end the process.
        if let Some(payload) = panicked.filter(|_| !std::thread::panicking()) {
            std::panic::resume_unwind(payload);
        }
    }

    /// Calls all wakers that releases on this thread have put aside, for it is about to sleep: whom they wake may be the one who is to
    /// wake us. There are such if we are inside of a waker.
    pub(super) fn call_all_put_aside() {
        Frame::for_each(|frame| {
            // SAFETY: the frame's queue is borrowed by who made the frame, further down this thread's stack.
            let queue = unsafe { &*frame.semaphore().cast::<Self>() };
            // That one is in the middle of its own round, so this takes another frame.
            let ours = Frame::new(frame.semaphore());
            frame.hand_over(&ours);
            queue.work_off(&ours, None);
        });
    }

    /// Sends home as many as there is room for in the frame, and leaves the rest over.
    fn close_into(&self, frame: &Frame) {
        let guard = epoch::pin();
        let room = |waker| {
            frame.put(waker);
            !frame.is_full()
        };
        if frame.is_full() || !self.row.close(&guard, room) {
            frame.leave_close();
        }
    }

    /// Lays permits into the cells of those who wait, in order, and what is left into the counter. Returns what is left because
    /// `frame` has no more room for wakers.
    #[inline]
    fn hand_out(&self, mut permits: usize, frame: &Frame) -> usize {
        if permits == 0 {
            return 0;
        }
        let guard = epoch::pin();
        while permits > 0 && !frame.is_full() {
            match self.row.serve(permits, &guard) {
                Front::Absorbed => return 0,
                Front::Served { used, waker } => {
                    permits -= used;
                    if let Some(waker) = waker {
                        frame.put(waker);
                    }
                }
                Front::Debt { used } => {
                    permits -= used;
                    self.paid(used);
                }
                Front::Nobody => permits = self.put_down(permits, &guard),
            }
        }
        permits
    }

    /// [`hand_out`](Self::hand_out) for those who are not in a hurry.
    #[inline(never)]
    fn hand_out_more(&self, permits: usize, frame: &Frame) -> usize {
        self.hand_out(permits, frame)
    }

    /// Nobody was in the row: puts permits into the counter. Returns those that are to be brought to the row after all.
    fn put_down(&self, permits: usize, guard: &epoch::Guard) -> usize {
        // Ordering: SeqCst, since this may be another releaser's mark, and then stands for our S0: what we look at below must
        // not be older than it.
        let mut seen = self.counter.load(Ordering::SeqCst);
        loop {
            if seen >= 0 {
                // Ordering: Release hands on what the holder did [P], also if the number stays; SeqCst on failure, as above.
                let more = self.together(seen, permits);
                match self.counter.compare_exchange_weak(seen, more, Ordering::Release, Ordering::SeqCst) {
                    Ok(_) => return 0,
                    Err(now) => seen = now,
                }
                continue;
            }
            if seen == NONE_FREE {
                let mark = self.new_mark();
                // Ordering: SeqCst, "permits are about to come" [S0].
                match self.counter.compare_exchange(NONE_FREE, mark, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(_) => seen = mark,
                    Err(now) => {
                        seen = now;
                        continue;
                    }
                }
            }
            seq_cst_for_loom();
            // The look that Redisson's loop lacked [S2]. Somebody who came after our first look, and looked at the counter before
            // the mark was there, sleeps; without this line nobody would come back for it.
            if !fault!(NoSecondLook) && self.row.is_awaited(guard) {
                return permits;
            }
            // Ordering: SeqCst, "they are here" [S4]; includes the Release that hands on what the holder did [P].
            match self.counter.compare_exchange(seen, permits as isize, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return 0,
                // A waiter has wiped out the mark, or another releaser has put its permits here.
                Err(now) => seen = now,
            }
        }
    }

    /// What is free when permits come to those that are.
    fn together(&self, free: isize, permits: usize) -> isize {
        let permits = permits as isize;
        if self.coalesces && !fault!(CallsAddUp) { free.max(permits) } else { free + permits }
    }

    /// A value below `NONE_FREE` that no other releaser ever leaves: a mark that was wiped out does not come back, so who finds
    /// the one that it has seen knows that nobody has been here in between.
    fn new_mark(&self) -> isize {
        // Ordering: Relaxed, only its being used once matters.
        let used = self.marks.fetch_add(1, Ordering::Relaxed);
        // Half of all numbers: at one each nanosecond they last for a century.
        NONE_FREE - 1 - (used & (isize::MAX as usize >> 1)) as isize
    }

    // === Closing, resizing, looking ===

    /// From now on nobody is served: those in line are sent home, newcomers are refused.
    pub(super) fn close(&self) {
        // Ordering: SeqCst. A waiter claims its cell [S1] and then looks here; we set this and then look at the row. As with S1
        // to S4, at least one of the two sees the other.
        self.closed.swap(true, Ordering::SeqCst);
        seq_cst_for_loom();
        let me = std::ptr::from_ref(self).cast::<()>();
        let passed_on = Frame::with_innermost(|innermost| {
            // Inside of a waker: whoever called it goes on with the closing.
            innermost.and_then(|innermost| innermost.of(me)).map(Frame::leave_close).is_some()
        });
        if !passed_on {
            let frame = Frame::new(me);
            frame.leave_close();
            self.work_off(&frame, None);
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.balance().max(0) as usize
    }

    /// The capacity, before it is cut off at zero.
    fn balance(&self) -> isize {
        // Ordering: Relaxed, a figure to look at.
        self.capacity.load(Ordering::Relaxed)
    }

    pub(super) fn held(&self) -> usize {
        // Ordering: Relaxed, a figure to look at.
        let existing = self.balance() + self.owed.load(Ordering::Relaxed) as isize;
        (existing - self.available() as isize).max(0) as usize
    }

    pub(super) fn set_capacity(&self, capacity: usize) {
        Self::assert_permits(capacity);
        let capacity = capacity as isize;
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut before = self.capacity.load(Ordering::Relaxed);
        loop {
            let debt = (before - capacity).max(0) as usize;
            // Before the capacity goes down, so that nobody in between sees room for permits that there is not.
            // Ordering: Relaxed, the CAS below publishes it.
            self.owed.fetch_add(debt, Ordering::Relaxed);
            // Ordering: Release, see `add`. Of several callers, each makes up the difference that it finds.
            match self.capacity.compare_exchange(before, capacity, Ordering::Release, Ordering::Relaxed) {
                Ok(_) if debt > 0 => return self.go_into_debt(debt),
                Ok(_) => return self.make_more((capacity - before) as usize),
                Err(now) => {
                    self.paid(debt);
                    before = now;
                }
            }
        }
    }

    /// Debts first, wherever they stand: what they wait for is out and will come back, so a permit that was made in their stead
    /// would be one too many.
    fn make_more(&self, permits: usize) {
        let left = self.row.pay_debts(permits, &epoch::pin());
        self.paid(permits - left);
        self.give_back(left);
    }

    /// Free permits pay at once. For what is missing, the debt is in line like a waiter, so that those who came before are served
    /// before.
    fn go_into_debt(&self, debt: usize) {
        let paid = self.drain(debt);
        self.paid(paid);
        if debt > paid && !fault!(NoDebt) {
            self.enqueue_debt(debt - paid);
            self.look_about();
        }
    }

    fn paid(&self, permits: usize) {
        // Ordering: Relaxed, a sum of its own.
        self.owed.fetch_sub(permits, Ordering::Relaxed);
    }

    fn enqueue_debt(&self, debt: usize) {
        loop {
            let place = self.row.claim();
            // SAFETY: we own the cell.
            if unsafe { place.cell() }.come_as_debt(debt) {
                return;
            }
            // SAFETY: we own the cell, and forget the place.
            unsafe { self.row.leave(place) };
        }
    }

    /// Takes up to `most` free permits out of existence, and says how many; the capacity is the caller's to mend.
    pub(super) fn drain(&self, most: usize) -> usize {
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut free = self.counter.load(Ordering::Relaxed);
        loop {
            let taken = most.min(free.max(0) as usize);
            if taken == 0 {
                return 0;
            }
            let rest = free - taken as isize;
            // Ordering: Acquire, so that a caller which drains sees what the holders did [P].
            match self.counter.compare_exchange_weak(free, rest, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return taken,
                Err(now) => free = now,
            }
        }
    }

    /// Shows every cell that somebody is in, from the oldest on, at some moment of the call each.
    pub(super) fn for_each_waiter(&self, mut show: impl FnMut(Seen)) {
        let guard = epoch::pin();
        self.row.for_each(&guard, |cell| {
            let seen = cell.look();
            if !matches!(seen.state, State::Empty | State::Cancelled | State::Gone) {
                show(seen);
            }
        });
    }
}

impl fmt::Debug for Queue {
    /// Shows the line: who waits for how many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut states: Vec<Seen> = Vec::new();
        self.for_each_waiter(|seen| states.push(seen));
        f.debug_list().entries(states).finish()
    }
}
