//! [`WakeBatch`]: wakers that are collected first and called afterwards, without recursion, and past those
//! that panic.
//!
//! A waker is foreign code. It may come back into the semaphore or the lock that calls it, or into another
//! one, and it may panic. So an operation first does all else, collects the wakers, and then calls them. An
//! operation inside of a waker finds the batch that is being called on this thread and appends its own wakers
//! there, so that the stack does not grow with the number of waiters or of semaphores. A batch of a semaphore
//! holds no permits: those were credited before, and are free or assigned.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::task::Waker;

use crate::support::fault::fault;
use crate::support::sync::thread_cell;

use super::call;

/// Wakers that an operation collects before it calls some. Few for the model checkers, so that they see the
/// border.
pub(crate) const BATCH: usize = match cfg!(latchwork_loom) {
    true => 2,
    false if cfg!(latchwork_suspend) => 4,
    false => 32,
};

// The batch whose wakers this thread is calling.
thread_cell!(CALLING: Cell<*const WakeBatch> = Cell::new(ptr::null()));

/// What a full batch leaves to be done when its wakers have been called: a semaphore.
pub(crate) trait Unsettled {
    /// Grants what can be granted, and wakes.
    fn go_on(&self);
}

/// Wakers that are collected to be called later.
pub(crate) struct WakeBatch {
    len: Cell<usize>,
    first: Cell<usize>,
    /// The semaphore that has not been settled to the end, as there was no room for its wakers.
    unsettled: Cell<Option<NonNull<dyn Unsettled>>>,
    /// What operations inside of wakers append when the ring is full.
    // An operation that no waker has called does without: it calls what is in the ring, and goes on.
    #[expect(
        clippy::box_collection,
        reason = "absent from nearly all batches, so a word to be made and dropped"
    )]
    more: Cell<Option<Box<VecDeque<Waker>>>>,
    /// A ring in place, as a release must not allocate: `len` wakers from `first` on, round the end.
    ring: [Cell<MaybeUninit<Waker>>; BATCH],
}

impl WakeBatch {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            len: Cell::new(0),
            first: Cell::new(0),
            unsettled: Cell::new(None),
            more: Cell::new(None),
            ring: [const { Cell::new(MaybeUninit::uninit()) }; BATCH],
        }
    }

    /// Whether the batch has to be called before another waker is collected.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len.get() == if fault!(WakesAsItGoes) { 1 } else { BATCH }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    #[inline]
    pub(crate) fn push(&self, waker: Waker) {
        let len = self.len.get();
        if len == BATCH {
            return self.with_more(|more| more.push_back(waker));
        }
        self.ring[(self.first.get() + len) % BATCH].set(MaybeUninit::new(waker));
        self.len.set(len + 1);
    }

    #[cold]
    fn with_more<R>(&self, f: impl FnOnce(&mut VecDeque<Waker>) -> R) -> R {
        let mut more = self.more.take().unwrap_or_default();
        let result = f(&mut more);
        self.more.set(Some(more));
        result
    }

    #[inline]
    fn has_more(&self) -> bool {
        // SAFETY: no other thread has the cell, and nothing happens while it is read.
        unsafe { &*self.more.as_ptr() }.is_some()
    }

    #[inline]
    fn pop(&self) -> Option<Waker> {
        let Some(left) = self.len.get().checked_sub(1) else {
            return if self.has_more() { self.with_more(VecDeque::pop_front) } else { None };
        };
        self.len.set(left);
        let slot = self.first.get();
        self.first.set((slot + 1) % BATCH);
        // SAFETY: the slot is within `first..first + len` as it was, so it was written, and has not been read
        // since.
        Some(unsafe { self.ring[slot % BATCH].replace(MaybeUninit::uninit()).assume_init() })
    }

    /// Calls all wakers, those included that are appended meanwhile; or, inside of a waker, appends them to
    /// the batch that is being called. `unsettled`: the semaphore, if it has more to be settled when this
    /// returns.
    #[inline]
    pub(crate) fn call(&self, unsettled: Option<&(dyn Unsettled + 'static)>) {
        if self.is_empty() {
            return;
        }
        let outer = CALLING.with(Cell::get);
        if !outer.is_null() {
            return self.append_to(outer);
        }
        self.unsettled.set(unsettled.map(NonNull::from));
        CALLING.with(|calling| calling.set(self));
        self.drain();
        CALLING.with(|calling| calling.set(ptr::null()));
    }

    #[cold]
    #[inline(never)]
    fn append_to(&self, outer: *const Self) {
        // SAFETY: a batch further down this thread's stack, which takes itself out before it returns. Only
        // shared references to it are around.
        let outer = unsafe { &*outer };
        while let Some(waker) = self.pop() {
            outer.push(waker);
        }
    }

    #[inline]
    fn drain(&self) {
        // `wake` consumes the waker, so its being dropped is in here as well.
        let call_all = || {
            while let Some(waker) = self.pop() {
                waker.wake();
            }
        };
        // A waker that panics is not to cost the others their call.
        while call("a waker", call_all).is_none() {}
    }
}

#[cfg(debug_assertions)]
impl Drop for WakeBatch {
    fn drop(&mut self) {
        assert!(self.is_empty() || std::thread::panicking(), "wakers were collected and not called");
    }
}

/// Calls wakers; or, inside of a waker, leaves them to the outermost call of this thread.
pub(crate) fn wake(wakers: impl IntoIterator<Item = Waker>) {
    let batch = WakeBatch::new();
    wakers.into_iter().for_each(|waker| batch.push(waker));
    batch.call(None);
}

/// Runs `run`, and calls the wakers that it comes to once it has returned; or, inside of a waker, leaves them
/// to the outermost call of this thread.
pub(crate) fn wake_after<T>(run: impl FnOnce() -> T) -> T {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            CALLING.with(|calling| calling.set(ptr::null()));
        }
    }
    if !CALLING.with(Cell::get).is_null() {
        return run();
    }
    let batch = WakeBatch::new();
    // Also by a panic, as the batch is gone then.
    let _reset = Reset;
    CALLING.with(|calling| calling.set(&raw const batch));
    let done = run();
    batch.drain();
    done
}

/// Calls the wakers that wait behind the one that this thread is in, for the thread is about to sleep: those
/// may wake the task that is to wake it.
#[cold]
pub(crate) fn call_those_behind() {
    // SAFETY: as in `append_to`.
    let Some(outer) = (unsafe { CALLING.with(Cell::get).as_ref() }) else { return };
    outer.drain();
    if let Some(unsettled) = outer.unsettled.take() {
        // SAFETY: the semaphore that the operation which made the batch borrows, further down this thread's
        // stack.
        unsafe { unsettled.as_ref() }.go_on();
        outer.drain();
    }
}
