//! Calling foreign code: wakers, callbacks, and what a backend, its runtime and its transport do.
//!
//! Foreign code may panic, block, or call this crate again. One rule holds wherever it is called:
//!
//! 1. It is called when the state is consistent, and while no mutex of this crate is locked.
//! 2. It is called through this module, which catches its panic, so that the rest of the work is done
//!    nevertheless: other waiters are woken, releases are sent, leases are renewed.
//! 3. The panic goes on in the call that caused it, once the rest is done: [`Panics::resume`]. Where no call
//!    did, as in a timer or in a task of the background, it is reported: [`Panics::report`]. std's panic hook
//!    has printed it in either case. Code of other crates is not made for it: tasks of the redis crate and
//!    timers of tokio would end by it. They get a waker that reports the panic
//!    (`redis/shield.rs`, `redis/connection/seats.rs`).
//!    What a subscriber of `tracing` is told has happened by then, so its panic goes on nowhere
//!    (`trace.rs`).
//! 4. A waker that wakes others has them called by the outermost call of its thread, so that the stack does
//!    not grow with their number.
//! 5. A call that asks a store which publishes by the call, and then tells the state what that has said, does
//!    both before wakers are called ([`wakes_at_the_end`]): one that waits for this very name finds it as it
//!    is. (One that waits there for a lock that the call has taken waits for itself.)
//! 6. What runs in the background does not depend on a waker's return: the watchdog hands wakers to a task of
//!    their own, and the threads of [`ThreadRuntime`](crate::local::ThreadRuntime) replace the one that is
//!    inside of a waker.
//!
//! A semaphore keeps the same rule by a batch of its own (`semaphore/wakes.rs`), as a release must not
//! allocate.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::task::Waker;
#[cfg(feature = "lock")]
use std::{future::poll_fn, pin::pin, task::Poll};

use crate::fault::fault;
use crate::sync::thread_cell;

/// The first panic of the foreign code that an operation has called.
#[derive(Default)]
#[must_use = "a panic is to go on, or to be reported"]
pub(crate) struct Panics(Option<Box<dyn Any + Send>>);

impl Panics {
    pub(crate) const NONE: Self = Self(None);

    /// Calls foreign code. `None` if it panics.
    pub(crate) fn catch<T>(&mut self, foreign: impl FnOnce() -> T) -> Option<T> {
        panic::catch_unwind(AssertUnwindSafe(foreign)).map_err(|payload| self.keep(payload)).ok()
    }

    fn keep(&mut self, payload: Box<dyn Any + Send>) {
        match self.0 {
            None => self.0 = Some(payload),
            // Dropping it is foreign code once more.
            Some(_) => mem::forget(payload),
        }
    }

    /// Goes on with the first panic, if there was one. For the call that caused it, when the rest of its work
    /// is done.
    pub(crate) fn resume(mut self) {
        // A second panic would end the process.
        if !std::thread::panicking()
            && let Some(payload) = self.0.take()
        {
            panic::resume_unwind(payload);
        }
    }

    /// Whether there was one.
    #[cfg(feature = "lock")]
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Reports the first panic, if there was one. For work that no call waits for; `_work` says which it is.
    #[cfg(feature = "lock")]
    pub(crate) fn report(self, _work: &'static str) {
        if let Some(_payload) = &self.0 {
            event!(ERROR, work = _work, panic = message(_payload.as_ref()), "panicked");
        }
    }
}

/// Dropping a payload is foreign code.
impl Drop for Panics {
    fn drop(&mut self) {
        mem::forget(self.0.take());
    }
}

impl fmt::Debug for Panics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Panics").field(&self.0.is_some()).finish()
    }
}

/// What was said with a panic.
#[cfg(any(feature = "redis", all(feature = "lock", feature = "tracing")))]
pub(crate) fn message(payload: &(dyn Any + Send)) -> &str {
    let said = payload.downcast_ref::<&str>().copied();
    said.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or_default()
}

/// Awaits foreign code. Its panic is the error.
#[cfg(feature = "lock")]
pub(crate) async fn caught<F: Future>(future: F) -> Result<F::Output, Panics> {
    let mut future = pin!(future);
    poll_fn(|context| {
        let mut panics = Panics::NONE;
        match panics.catch(|| future.as_mut().poll(context)) {
            Some(polled) => polled.map(Ok),
            None => Poll::Ready(Err(panics)),
        }
    })
    .await
}

/// Wakers that the outermost call of a thread has to call.
struct Calls {
    deferred: RefCell<VecDeque<Waker>>,
    panics: RefCell<Panics>,
    /// Of `wakes_at_the_end`.
    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "only the lock asks a store"))]
    at_the_end: bool,
}

// Those of this thread, while it is inside of a waker, or of `wakes_at_the_end`.
thread_cell!(CALLING: Cell<*const Calls> = Cell::new(ptr::null()));

/// Those of a [`wakes_at_the_end`] that has none yet. So it allocates nothing before there is one.
const NONE_YET: *const Calls = ptr::dangling();

/// Calls wakers, and those that they defer; or, inside of a waker, defers them to the outermost call of this
/// thread. Then goes on with the first panic.
pub(crate) fn wake(wakers: impl IntoIterator<Item = Waker>) {
    wake_after(Panics::NONE, wakers);
}

/// As [`wake`], after foreign code that may have panicked.
pub(crate) fn wake_after(panics: Panics, wakers: impl IntoIterator<Item = Waker>) {
    let outer = CALLING.with(Cell::get);
    if outer == NONE_YET {
        let deferred: VecDeque<_> = wakers.into_iter().collect();
        if !deferred.is_empty() {
            let calls = Box::new(Calls { at_the_end: true, ..Calls::new(deferred, Panics::NONE) });
            CALLING.with(|calling| calling.set(Box::into_raw(calls)));
        }
        return panics.resume();
    }
    // SAFETY: null, or made further down this thread's stack, by the call below or by `wakes_at_the_end`.
    // They take it out before they return, and only shared references to it are around.
    if let Some(outer) = unsafe { outer.as_ref() } {
        outer.deferred.borrow_mut().extend(wakers);
        return panics.resume();
    }
    // Those behind the first one are where `flush` finds them.
    let mut wakers = wakers.into_iter();
    let first = wakers.next();
    let calls = Calls::new(wakers.collect(), panics);
    CALLING.with(|calling| calling.set(&raw const calls));
    first.into_iter().for_each(|waker| calls.call(waker));
    calls.call_deferred();
    CALLING.with(|calling| calling.set(ptr::null()));
    calls.panics.into_inner().resume();
}

/// Calls the wakers that wait behind the one that this thread is in, for the thread is about to sleep: the
/// task that is to wake it may be among them. False if there are none.
pub(crate) fn flush() -> bool {
    let outer = CALLING.with(Cell::get);
    if outer == NONE_YET {
        return false;
    }
    // SAFETY: as in `wake_after`.
    let Some(outer) = (unsafe { outer.as_ref() }) else { return false };
    outer.call_deferred()
}

/// Runs `run`, which asks a store and then tells the state what that has said, and calls the wakers that it
/// comes to once it has returned; those of semaphores if they are left to this (`LeftToTheEnd`). A store in
/// memory publishes by the call, so one that blocks there would wait for what its own thread has not told
/// yet. Inside of another waker, they are called behind that one. If one panics, what `run` has come to is
/// dropped, and the panic goes on: what has no destructor is for the caller to give back.
#[cfg(feature = "lock")]
#[inline(always)]
pub(crate) fn wakes_at_the_end<T>(run: impl FnOnce() -> T) -> T {
    struct End {
        before: *const Calls,
    }
    impl Drop for End {
        #[inline(always)]
        fn drop(&mut self) {
            let calls = CALLING.with(|calling| calling.replace(self.before));
            if calls != NONE_YET {
                call_at_the_end(calls);
            }
        }
    }
    let before = CALLING.with(Cell::get);
    if is_at_the_end(before) {
        return run();
    }
    CALLING.with(|calling| calling.set(NONE_YET));
    let end = End { before };
    let done = run();
    drop(end);
    done
}

#[cfg(feature = "lock")]
#[cold]
#[inline(never)]
fn call_at_the_end(calls: *const Calls) {
    // SAFETY: it was none yet, and is a box of `wake_after`'s since, taken out by the caller.
    let calls = unsafe { Box::from_raw(calls.cast_mut()) };
    wake_after(calls.panics.into_inner(), calls.deferred.into_inner());
}

#[cfg(feature = "lock")]
#[inline(always)]
fn is_at_the_end(calls: *const Calls) -> bool {
    // SAFETY: as in `wake_after`.
    !calls.is_null() && (calls == NONE_YET || unsafe { &*calls }.at_the_end)
}

impl Calls {
    fn new(deferred: VecDeque<Waker>, panics: Panics) -> Self {
        Self { deferred: RefCell::new(deferred), panics: RefCell::new(panics), at_the_end: false }
    }

    fn call(&self, waker: Waker) {
        if fault!(PanicEndsWakes) && self.panics.borrow().0.is_some() {
            return;
        }
        let mut panics = Panics::NONE;
        // `wake` consumes the waker, so its being dropped is in here as well.
        panics.catch(|| waker.wake());
        if let Some(payload) = panics.0.take() {
            self.panics.borrow_mut().keep(payload);
        }
    }

    /// False if there are none.
    fn call_deferred(&self) -> bool {
        let next = || self.deferred.borrow_mut().pop_front();
        let mut is_any = false;
        while let Some(waker) = next() {
            self.call(waker);
            is_any = true;
        }
        is_any
    }
}
