//! [`WakeBatch`]: collects wakers and calls them later, without recursion, past panicking wakers.
//!
//! A waker may call this crate again, and may panic. So an operation first completes, collecting wakers, and
//! then calls them. Inside of a waker, an operation appends its wakers to the batch that this thread is
//! calling: the stack does not grow with the number of waiters. The batch holds no permits.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::task::Waker;

use crate::support::fault::fault;
use crate::support::sync::thread_cell;

use super::call;

/// Number of wakers collected before some are called; small for model checkers, which have to reach it.
pub(crate) const BATCH: usize = match cfg!(latchwork_loom) {
    true => 2,
    false if cfg!(latchwork_suspend) => 4,
    false => 32,
};

// The batch that this thread is calling. Its address is marked if the batch has yet to be made.
thread_cell!(CALLING: Cell<*const WakeBatch> = Cell::new(ptr::null()));

const NOT_MADE: usize = 1;
const _: () = assert!(align_of::<WakeBatch>() > NOT_MADE);

/// The batch that this thread is calling, to append to; or null.
fn outer() -> *const WakeBatch {
    let outer = CALLING.with(Cell::get);
    if outer.addr() & NOT_MADE == 0 {
        return outer;
    }
    let batch = outer.map_addr(|address| address & !NOT_MADE).cast_mut();
    // SAFETY: room for a batch, further down this thread's stack, in `wake_one`.
    unsafe { batch.write(WakeBatch::new()) };
    CALLING.with(|calling| calling.set(batch));
    batch
}

/// A semaphore to settle after the wakers of a full batch were called.
pub(crate) trait Unsettled {
    /// Grants the free permits, and wakes the waiters served.
    fn go_on(&self);
}

pub(crate) struct WakeBatch {
    len: Cell<usize>,
    first: Cell<usize>,
    /// The semaphore that ran out of room for its wakers.
    unsettled: Cell<Option<NonNull<dyn Unsettled>>>,
    /// Wakers appended when the ring is full, by operations inside of wakers.
    #[expect(
        clippy::box_collection,
        reason = "absent from nearly all batches, so a word to be made and dropped"
    )]
    more: Cell<Option<Box<VecDeque<Waker>>>>,
    /// An inline ring, as a release must not allocate: `len` wakers from `first` on, wrapping around.
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

    /// True if the ring's wakers must be called before another is collected.
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
        // SAFETY: no other thread has the cell, and nothing writes to it during the read.
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
        // SAFETY: the slot was within `first..first + len`, so it was written, and not read since.
        Some(unsafe { self.ring[slot % BATCH].replace(MaybeUninit::uninit()).assume_init() })
    }

    /// Calls all wakers, including those appended meanwhile. Inside of a waker, appends them to the batch
    /// being called. `unsettled`: the semaphore, if more must be settled after this call.
    #[inline]
    pub(crate) fn call(&self, unsettled: Option<&(dyn Unsettled + 'static)>) {
        if self.is_empty() {
            return;
        }
        if !CALLING.with(Cell::get).is_null() {
            return self.append();
        }
        self.unsettled.set(unsettled.map(NonNull::from));
        CALLING.with(|calling| calling.set(self));
        self.drain();
        CALLING.with(|calling| calling.set(ptr::null()));
    }

    #[cold]
    #[inline(never)]
    fn append(&self) {
        // SAFETY: the batch is further down this thread's stack, and leaves `CALLING` before it returns. Only
        // shared references to it exist.
        let outer = unsafe { &*outer() };
        while let Some(waker) = self.pop() {
            outer.push(waker);
        }
    }

    #[inline]
    fn drain(&self) {
        // `wake` consumes the waker, so its drop runs in here, too.
        let call_all = || {
            while let Some(waker) = self.pop() {
                waker.wake();
            }
        };
        // Go on after a waker that panics.
        while call("a waker", call_all).is_none() {}
    }
}

#[cfg(debug_assertions)]
impl Drop for WakeBatch {
    fn drop(&mut self) {
        assert!(self.is_empty() || std::thread::panicking(), "wakers were collected and not called");
    }
}

/// Calls one waker, as a batch would. Usually nothing is appended meanwhile, and no batch is made.
#[inline(never)]
pub(crate) fn wake_one(waker: Waker) {
    if !CALLING.with(Cell::get).is_null() {
        return wake([waker]);
    }
    let mut room = MaybeUninit::<WakeBatch>::uninit();
    let marked = room.as_mut_ptr().map_addr(|address| address | NOT_MADE).cast_const();
    CALLING.with(|calling| calling.set(marked));
    call("a waker", || waker.wake());
    if CALLING.with(Cell::get) != marked {
        drain_appended();
    }
    CALLING.with(|calling| calling.set(ptr::null()));
}

/// Calls the wakers appended while [`wake_one`] called its waker.
#[cold]
#[inline(never)]
fn drain_appended() {
    let batch = CALLING.with(Cell::get).cast_mut();
    // SAFETY: made by `outer`, and alive until dropped below.
    unsafe { &*batch }.drain();
    // SAFETY: as above, and nothing else uses the batch: all wakers were called.
    unsafe { batch.drop_in_place() };
}

/// Calls wakers. Inside of a waker, leaves them to the outermost call of this thread.
pub(crate) fn wake(wakers: impl IntoIterator<Item = Waker>) {
    let batch = WakeBatch::new();
    wakers.into_iter().for_each(|waker| batch.push(waker));
    batch.call(None);
}

/// Runs `run`, then calls the wakers collected by it; inside of a waker, leaves them to the outermost call.
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
    // Also on a panic, as the batch is gone then.
    let _reset = Reset;
    CALLING.with(|calling| calling.set(&raw const batch));
    let done = run();
    batch.drain();
    done
}

/// Calls the wakers behind the current one before this thread sleeps: one of them may wake this thread.
#[cold]
pub(crate) fn call_those_behind() {
    // SAFETY: as in `append`.
    let Some(outer) = (unsafe { outer().as_ref() }) else { return };
    outer.drain();
    if let Some(unsettled) = outer.unsettled.take() {
        // SAFETY: the operation that made the batch borrows the semaphore, further down this thread's stack.
        unsafe { unsettled.as_ref() }.go_on();
        outer.drain();
    }
}
