//! Calling foreign code: wakers, callbacks, and what a backend, its runtime and its transport do.
//!
//! Foreign code may panic, block, or call this crate again. One rule holds wherever it is called:
//!
//! 1. It is called when the state is consistent, and while no mutex and no stripe of this crate is locked.
//! 2. It is called through this module, which catches its panic and reports it ([`on_foreign_panic`]). The
//!    panic goes on in no caller: what the caller has come to stays as it was decided, other waiters are
//!    woken, releases are sent, leases are renewed. A command of a backend that panics is one that was not
//!    answered ([`Failure::Indeterminate`](crate::backend::Failure::Indeterminate)).
//! 3. Wakers that a waker wakes are called by the outermost call of the thread, so that the stack does not
//!    grow with their number.
//! 4. A call that asks a store which publishes by the call, and then tells the state what that has said, does
//!    both before wakers are called ([`wakes_at_the_end`]): one that waits for this very name finds it as it
//!    is. (One that waits there for a lock that the call has taken waits for itself.)
//! 5. The watchdog hands wakers to a task of their own, so that a waker that blocks there delays no renewal
//!    on a runtime that has another thread.
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
use std::sync::OnceLock;
use std::task::Waker;
#[cfg(feature = "lock")]
use std::{future::poll_fn, pin::pin, task::Poll};

use crate::sync::thread_cell;

/// A panic of a waker, a callback, a subscriber of `tracing`, a backend, its runtime or its transport. This
/// crate has caught it: no call returns by it, and nothing that was decided is undone.
///
/// # Examples
///
/// ```
/// use latchwork::{AsyncSemaphore, ForeignPanic, on_foreign_panic};
///
/// on_foreign_panic(|panic: &ForeignPanic<'_>| assert_eq!(panic.message(), "on purpose"));
/// # struct Panics;
/// # impl std::task::Wake for Panics { fn wake(self: std::sync::Arc<Self>) { panic!("on purpose") } }
/// # let waker = std::task::Waker::from(std::sync::Arc::new(Panics));
/// # let mut context = std::task::Context::from_waker(&waker);
/// let semaphore = AsyncSemaphore::new(0);
/// let mut waits = std::pin::pin!(semaphore.acquire());
/// assert!(waits.as_mut().poll(&mut context).is_pending());
/// // Its waker panics: the permit is added, and given to the waiter, all the same.
/// semaphore.add_permits(1);
/// assert!(waits.poll(&mut context).is_ready());
/// assert_eq!(latchwork::foreign_panics(), 1);
/// ```
#[non_exhaustive]
pub struct ForeignPanic<'a> {
    /// The work that the code was called for, such as `"a waker"`.
    pub work: &'static str,
    /// What it has panicked with.
    pub payload: &'a (dyn Any + Send),
}

impl ForeignPanic<'_> {
    /// The text, if it has panicked with one; else empty.
    pub fn message(&self) -> &str {
        message(self.payload)
    }
}

impl fmt::Debug for ForeignPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignPanic").field("work", &self.work).field("message", &self.message()).finish()
    }
}

type Hook = Box<dyn Fn(&ForeignPanic<'_>) + Send + Sync>;

static HOOK: OnceLock<Hook> = OnceLock::new();

/// Has `hook` called for each [`ForeignPanic`] of this process, by the thread that has caught it, after std's
/// panic hook has printed it. False if there is a hook already, which stays.
///
/// An application may end the process there, as code that panics elsewhere may do to it. The same is an event
/// of the level ERROR with the feature `tracing`, and counted by [`foreign_panics`]. A panic of the
/// hook itself is caught and not reported.
///
/// # Examples
///
/// ```
/// assert!(latchwork::on_foreign_panic(|panic| {
///     eprintln!("{} has panicked: {}", panic.work, panic.message());
///     std::process::abort();
/// }));
/// ```
pub fn on_foreign_panic(hook: impl Fn(&ForeignPanic<'_>) + Send + Sync + 'static) -> bool {
    HOOK.set(Box::new(hook)).is_ok()
}

/// Panics that were caught, since the start of the process.
static PANICS: std::sync::Mutex<u64> = std::sync::Mutex::new(0);

/// How many [`ForeignPanic`]s there were in this process, for a page of metrics: other than zero is a fault
/// of the application or of a library.
///
/// # Examples
///
/// ```
/// let line = format!("latchwork_foreign_panics_total {}", latchwork::foreign_panics());
/// # assert_eq!(line, "latchwork_foreign_panics_total 0");
/// ```
pub fn foreign_panics() -> u64 {
    *PANICS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Calls foreign code. `None` if it panics, which is reported then.
#[inline]
pub(crate) fn call<T>(work: &'static str, foreign: impl FnOnce() -> T) -> Option<T> {
    if cfg!(latchwork_loom) {
        // A model's assertions stand in foreign code, and loom's own findings come by panics.
        return Some(foreign());
    }
    panic::catch_unwind(AssertUnwindSafe(foreign)).map_err(|payload| report(work, payload)).ok()
}

/// Reports a panic that was caught.
#[cold]
pub(crate) fn report(work: &'static str, payload: Box<dyn Any + Send>) {
    *PANICS.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += 1;
    #[cfg(feature = "lock")]
    event!(ERROR, work, panic = message(payload.as_ref()), "panicked");
    if let Some(hook) = HOOK.get() {
        let report = ForeignPanic { work, payload: payload.as_ref() };
        let hooked = panic::catch_unwind(AssertUnwindSafe(|| hook(&report)));
        hooked.unwrap_or_else(mem::forget);
    }
    // Dropping it is foreign code once more.
    mem::forget(payload);
}

/// The text that was panicked with.
pub(crate) fn message(payload: &(dyn Any + Send)) -> &str {
    let said = payload.downcast_ref::<&str>().copied();
    said.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or_default()
}

/// Awaits foreign code. `None` if it panics, which is reported then.
#[cfg(feature = "lock")]
pub(crate) async fn run<F: Future>(work: &'static str, future: F) -> Option<F::Output> {
    caught(future).await.map_err(|payload| report(work, payload)).ok()
}

/// Awaits foreign code whose panic is an answer. The error is its payload.
#[cfg(feature = "lock")]
pub(crate) async fn caught<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|context| match panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(polled) => polled.map(Ok),
        Err(payload) => Poll::Ready(Err(payload)),
    })
    .await
}

/// Wakers that the outermost call of a thread has to call.
struct Calls {
    deferred: RefCell<VecDeque<Waker>>,
    /// Of `wakes_at_the_end`.
    at_the_end: bool,
}

// Those of this thread, while it is inside of a waker, or of `wakes_at_the_end`.
thread_cell!(CALLING: Cell<*const Calls> = Cell::new(ptr::null()));

/// Those of a [`wakes_at_the_end`] that has none yet. So it allocates nothing before there is one.
const NONE_YET: *const Calls = ptr::dangling();

/// Calls wakers, and those that they defer; or, inside of a waker, defers them to the outermost call of this
/// thread.
pub(crate) fn wake(wakers: impl IntoIterator<Item = Waker>) {
    let outer = CALLING.with(Cell::get);
    if outer == NONE_YET {
        let deferred: VecDeque<_> = wakers.into_iter().collect();
        if !deferred.is_empty() {
            let calls = Box::new(Calls { at_the_end: true, ..Calls::new(deferred) });
            CALLING.with(|calling| calling.set(Box::into_raw(calls)));
        }
        return;
    }
    // SAFETY: null, or made further down this thread's stack, by the call below or by `wakes_at_the_end`.
    // They take it out before they return, and only shared references to it are around.
    if let Some(outer) = unsafe { outer.as_ref() } {
        return outer.deferred.borrow_mut().extend(wakers);
    }
    // `flush` finds all wakers but the first in the thread's queue. (Collected by reference: std 1.95 makes a
    // `VecDeque` of an exhausted `vec::IntoIter` whose next `pop_front` hands out freed memory.)
    let mut wakers = wakers.into_iter();
    let first = wakers.next();
    let calls = Calls::new(wakers.by_ref().collect());
    CALLING.with(|calling| calling.set(&raw const calls));
    first.into_iter().for_each(|waker| calls.call(waker));
    calls.call_deferred();
    CALLING.with(|calling| calling.set(ptr::null()));
}

/// Calls the wakers that wait behind the one that this thread is in, for the thread is about to sleep: the
/// task that is to wake it may be among them. False if there are none.
pub(crate) fn flush() -> bool {
    let outer = CALLING.with(Cell::get);
    if outer == NONE_YET {
        return false;
    }
    // SAFETY: as in `wake`.
    let Some(outer) = (unsafe { outer.as_ref() }) else { return false };
    outer.call_deferred()
}

/// Runs `run`, which asks a store and then tells the state what that has said, and calls the wakers that it
/// comes to once it has returned; those of semaphores if they are left to this (`LeftToTheEnd`). A store in
/// memory publishes by the call, so one that blocks there would wait for what its own thread has not told
/// yet. Inside of another waker, the wakers are called behind that waker.
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

#[cold]
#[inline(never)]
fn call_at_the_end(calls: *const Calls) {
    // SAFETY: it was none yet, and is a box of `wake`'s since, taken out by the caller.
    let calls = unsafe { Box::from_raw(calls.cast_mut()) };
    wake(calls.deferred.into_inner());
}

#[inline(always)]
fn is_at_the_end(calls: *const Calls) -> bool {
    // SAFETY: as in `wake`.
    !calls.is_null() && (calls == NONE_YET || unsafe { &*calls }.at_the_end)
}

impl Calls {
    fn new(deferred: VecDeque<Waker>) -> Self {
        Self { deferred: RefCell::new(deferred), at_the_end: false }
    }

    fn call(&self, waker: Waker) {
        // `wake` consumes the waker, so its being dropped is in here as well.
        call("a waker", || waker.wake());
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
