//! Calls of foreign code: wakers, callbacks, backends, their runtimes and transports. The rules of each call:
//!
//! 1. The state is consistent, and no mutex and no stripe of this crate is locked.
//! 2. This module makes the call, catches a panic and reports it ([`on_foreign_panic`]). No caller unwinds:
//!    its outcome stands, other waiters are woken, releases are sent, leases are renewed. A backend's command
//!    that panics counts as unanswered ([`Failure::Indeterminate`](crate::backend::Failure::Indeterminate)).
//! 3. The thread's outermost call calls wakers woken by wakers, so the stack does not grow with their number.
//! 4. The watchdog calls wakers in a task of their own, so that a blocking waker need not delay renewals.

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
pub(crate) use self::batch::{Unsettled, WakeBatch, call_those_behind, wake, wake_after, wake_one};

/// A caught panic of a waker, a callback, a subscriber of `tracing`, a backend, its runtime or its transport.
/// No call of this crate unwinds by the panic.
///
/// # Examples
///
/// ```
/// use latchwork::{AsyncSemaphore, ForeignPanic, on_foreign_panic};
/// on_foreign_panic(|panic: &ForeignPanic<'_>| assert_eq!(panic.message(), "on purpose"));
/// # struct Panics;
/// # impl std::task::Wake for Panics { fn wake(self: std::sync::Arc<Self>) { panic!("on purpose") } }
/// # let waker = std::task::Waker::from(std::sync::Arc::new(Panics));
/// # let mut context = std::task::Context::from_waker(&waker);
/// let semaphore = AsyncSemaphore::new(0);
/// let mut waits = std::pin::pin!(semaphore.acquire());
/// assert!(waits.as_mut().poll(&mut context).is_pending());
/// // The waker panics. The permit is added and granted all the same.
/// semaphore.add_permits(1);
/// assert!(waits.poll(&mut context).is_ready());
/// assert_eq!(latchwork::foreign_panics(), 1);
/// ```
#[non_exhaustive]
pub struct ForeignPanic<'a> {
    /// Purpose of the call, such as `"a waker"`.
    pub work: &'static str,
    /// The payload of the panic.
    pub payload: &'a (dyn Any + Send),
}

impl ForeignPanic<'_> {
    /// Returns the text of the payload; empty for another payload.
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

/// Sets the hook for each [`ForeignPanic`] of this process; false if a hook is set already, which stays. The
/// catching thread calls the hook, after std's. The hook may end the process; its own panic is caught and not
/// reported. Each panic is also counted by [`foreign_panics`], and an ERROR event (feature `tracing`).
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

static PANICS: std::sync::Mutex<u64> = std::sync::Mutex::new(0);

/// Count of [`ForeignPanic`]s in this process, for metrics: above zero, there is a bug in other code.
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

/// Calls foreign code; on a panic, reports it and returns `None`.
#[inline]
pub(crate) fn call<T>(work: &'static str, foreign: impl FnOnce() -> T) -> Option<T> {
    if cfg!(latchwork_loom) {
        // A model's assertions are foreign code, and loom reports its findings by panics.
        return Some(foreign());
    }
    panic::catch_unwind(AssertUnwindSafe(foreign)).map_err(|payload| report(work, payload)).ok()
}

/// Drops a foreign value, such as a clone of a task's waker; reports a panic of its drop.
#[inline]
pub(crate) fn discard<T>(value: T) {
    call("the drop of a waker or timer", || drop(value));
}

/// A foreign value, [discarded](discard) at its scope's end: a panic of its drop would lose the result.
#[cfg(feature = "lock")]
pub(crate) struct Discarded<T>(pub(crate) Option<T>);

#[cfg(feature = "lock")]
impl<T> Drop for Discarded<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            discard(value);
        }
    }
}

#[cold]
pub(crate) fn report(work: &'static str, payload: Box<dyn Any + Send>) {
    // A subscriber that panics at this event, too, is told of no further panic: that event would not end.
    #[cfg(all(feature = "lock", feature = "tracing"))]
    let told = panic::catch_unwind(AssertUnwindSafe(|| {
        let panic = message(payload.as_ref());
        ::tracing::event!(target: "latchwork", ::tracing::Level::ERROR, work, panic, "panicked");
    }));
    count(work, payload);
    #[cfg(all(feature = "lock", feature = "tracing"))]
    if let Err(payload) = told {
        count("a subscriber of tracing", payload);
    }
}

fn count(work: &'static str, payload: Box<dyn Any + Send>) {
    *PANICS.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += 1;
    if let Some(hook) = HOOK.get() {
        let report = ForeignPanic { work, payload: payload.as_ref() };
        let hooked = panic::catch_unwind(AssertUnwindSafe(|| hook(&report)));
        hooked.unwrap_or_else(mem::forget);
    }
    // Dropping the payload is foreign code, too.
    mem::forget(payload);
}

pub(crate) fn message(payload: &(dyn Any + Send)) -> &str {
    let said = payload.downcast_ref::<&str>().copied();
    said.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or_default()
}

/// Awaits foreign code; on a panic, reports it and returns `None`.
#[cfg(feature = "lock")]
pub(crate) async fn run<F: Future>(work: &'static str, future: F) -> Option<F::Output> {
    caught(future).await.map_err(|payload| report(work, payload)).ok()
}

/// Awaits foreign code. Returns the payload of a panic as the error.
#[cfg(feature = "lock")]
pub(crate) async fn caught<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|context| match panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(polled) => polled.map(Ok),
        Err(payload) => Poll::Ready(Err(payload)),
    })
    .await
}
