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
//! 4. The watchdog hands wakers to a task of their own, so that a waker that blocks there delays no renewal
//!    on a runtime that has another thread.
//!
//! A waker must not wait for its own caller. A store in memory publishes by the call, so a waker that blocks
//! on the name of the calling lock would wait for itself.

mod batch;

use std::any::Any;
use std::fmt;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::OnceLock;
#[cfg(feature = "lock")]
use std::{future::poll_fn, pin::pin, task::Poll};

#[cfg(any(test, latchwork_suspend))]
pub(crate) use self::batch::BATCH;
pub(crate) use self::batch::{Unsettled, WakeBatch, call_those_behind, wake, wake_after};

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
