//! Waking, after all is settled: in batches, without recursion, and past wakers that panic.
//!
//! A waker is foreign code. It may come back into this very semaphore, and it may panic. So a thread that has handed permits
//! out first puts the wakers aside, and calls them when it has no permit in its hand. While it does, the thread has a *frame*:
//! a release inside of a waker finds it and puts its own wakers there, instead of calling them from within. So the stack does
//! not grow with the line of waiters, however their wakers release. If a waker goes to sleep by one of our blocking calls, all that is
//! put aside is called first.

use std::any::Any;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::task::Waker;

/// Wakers that are put aside before some must be called. Two for the model checker, so that it sees the border.
const BATCH: usize = if cfg!(any(latchwork_loom, latchwork_shuttle)) { 2 } else { 32 };

/// What a waker that panicked left.
pub(super) type Panic = Box<dyn Any + Send>;

// The innermost frame of this thread.
crate::sync::thread_cell!(INNERMOST: Cell<*const Frame> = Cell::new(ptr::null()));

/// Where a release in progress on this thread puts wakers aside.
pub(super) struct Frame {
    /// A queue of wakers in place, as a release must not allocate: `len` of them from `first` on, round the end.
    wakers: [Cell<MaybeUninit<Waker>>; BATCH],
    first: Cell<usize>,
    len: Cell<usize>,
    /// Permits that a release inside of one of our wakers could not hand out, because there was no room for the wakers.
    left_over: Cell<usize>,
    /// Whether the semaphore is to be closed, or to be closed further.
    close: Cell<bool>,
    /// Whose permits those are: the queue's address.
    semaphore: *const (),
    outer: Cell<*const Frame>,
}

impl Frame {
    #[inline]
    pub(super) fn new(semaphore: *const ()) -> Self {
        Self {
            wakers: [const { Cell::new(MaybeUninit::uninit()) }; BATCH],
            first: Cell::new(0),
            len: Cell::new(0),
            left_over: Cell::new(0),
            close: Cell::new(false),
            semaphore,
            outer: Cell::new(ptr::null()),
        }
    }

    /// The innermost frame of this thread, if it is inside of a waker that one calls.
    pub(super) fn with_innermost<R>(f: impl FnOnce(Option<&Frame>) -> R) -> R {
        // SAFETY: a frame is innermost only within `wake_all`, which holds it on the stack below us and takes it out before it
        // returns; so it is alive, and only shared references to it are around.
        f(unsafe { INNERMOST.with(Cell::get).as_ref() })
    }

    /// The frame of this thread's that belongs to `semaphore`, this one or one further out.
    pub(super) fn of(&self, semaphore: *const ()) -> Option<&Frame> {
        let mut frame = Some(self);
        while let Some(here) = frame {
            if here.semaphore == semaphore {
                return Some(here);
            }
            // SAFETY: an outer frame is further down the same stack, within its own `wake_all`, and outlives us.
            frame = unsafe { here.outer.get().as_ref() };
        }
        None
    }

    /// Shows all frames of this thread, the innermost first.
    pub(super) fn for_each(show: impl Fn(&Frame)) {
        let mut frame = INNERMOST.with(Cell::get);
        // SAFETY: a frame is in the list only within `wake_all`, which holds it on the stack below us.
        while let Some(here) = unsafe { frame.as_ref() } {
            frame = here.outer.get();
            show(here);
        }
    }

    pub(super) fn semaphore(&self) -> *const () {
        self.semaphore
    }

    /// Moves all that is put aside or left over to another frame, which must be empty.
    pub(super) fn hand_over(&self, other: &Frame) {
        while let Some(waker) = self.take() {
            other.put(waker);
        }
        other.leave_over(self.take_left_over());
        if self.take_close() {
            other.leave_close();
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.len.get() == BATCH
    }

    /// Puts a waker aside. There must be room.
    #[inline]
    pub(super) fn put(&self, waker: Waker) {
        assert!(!self.is_full(), "no room for a waker; it would never be called");
        let len = self.len.get();
        self.wakers[(self.first.get() + len) % BATCH].set(MaybeUninit::new(waker));
        self.len.set(len + 1);
    }

    pub(super) fn leave_over(&self, permits: usize) {
        self.left_over.set(self.left_over.get() + permits);
    }

    pub(super) fn take_left_over(&self) -> usize {
        self.left_over.take()
    }

    pub(super) fn leave_close(&self) {
        self.close.set(true);
    }

    pub(super) fn take_close(&self) -> bool {
        self.close.take()
    }

    /// Whether nothing is left to be done, nor anybody to be woken.
    pub(super) fn is_worked_off(&self) -> bool {
        self.left_over.get() == 0 && !self.close.get() && self.len.get() == 0
    }

    #[inline]
    fn take(&self) -> Option<Waker> {
        let left = self.len.get().checked_sub(1)?;
        self.len.set(left);
        let slot = self.first.get();
        self.first.set((slot + 1) % BATCH);
        // SAFETY: the slot is within `first..first + len` as it was, so it was written, and has not been read since.
        Some(unsafe { self.wakers[slot].replace(MaybeUninit::uninit()).assume_init() })
    }

    /// Calls all wakers, those included that are put aside meanwhile. Of those that panic, keeps the first one's payload.
    #[inline]
    pub(super) fn wake_all(&self, panicked: &mut Option<Panic>) {
        if self.len.get() == 0 {
            return;
        }
        self.outer.set(INNERMOST.with(|innermost| innermost.replace(self)));
        while let Some(waker) = self.take() {
            // `wake` consumes the waker, so its being dropped is in here as well.
            if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                match panicked {
                    None => *panicked = Some(payload),
                    // Dropping it is foreign code once more.
                    Some(_) => std::mem::forget(payload),
                }
            }
        }
        INNERMOST.with(|innermost| innermost.set(self.outer.get()));
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        debug_assert!(self.is_worked_off(), "something was left over and never done");
    }
}
