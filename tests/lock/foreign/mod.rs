//! Foreign code: wakers that panic or block wherever one is called, a backend and a runtime whose every call
//! panics in turn, and a subscriber of `tracing` that panics at each call in turn.

mod backend;
mod outcomes;
mod runtime;
mod subscriber;
pub(crate) mod told;
pub(crate) mod wakers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use latchwork::LockClient;
use latchwork::backend::Backend;
use latchwork::local::ThreadRuntime;

use crate::polled::poll;

pub(crate) fn waker_that_panics() -> Waker {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    Waker::from(Arc::new(Panics))
}

pub(crate) fn waker_that_panics_when_dropped() -> Waker {
    struct Dropped;
    impl Wake for Dropped {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Dropped {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    Waker::from(Arc::new(Dropped))
}

/// What `act` comes to, if it does not panic.
fn attempt<T>(act: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(act)).map_err(|_| told::caller_is_told()).ok()
}

/// What a future comes to, if it is ready and does not panic.
fn attempt_ready<F: Future>(future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let polled = attempt_poll(future.as_mut());
    attempt(|| drop(future));
    polled
}

fn attempt_poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match attempt(|| poll(future)) {
        Some(Poll::Ready(output)) => Some(output),
        _ => None,
    }
}

/// What two clients do with one name, beside a watched lock of the first one, over a backend any call of
/// which may panic.
fn act(backend: &(impl Backend + Clone), clock: &ThreadRuntime, fair: bool, client: &LockClient) {
    let Some(other) = attempt(|| LockClient::new(backend.clone())) else { return };
    let get = |client: &LockClient| {
        attempt(|| if fair { client.get_fair_lock("orders") } else { client.get_lock("orders") }.unwrap())
    };
    let (Some(lock), Some(theirs)) = (get(client), get(&other)) else { return };
    // Nothing is held yet, and later it would hide what is left behind.
    attempt_ready(lock.force_unlock());
    let held = attempt_ready(lock.lock()).and_then(Result::ok);
    let mut waits = Box::pin(lock.lock());
    let first = attempt_poll(waits.as_mut());
    let mut they_wait = Box::pin(theirs.lock());
    let they_first = attempt_poll(they_wait.as_mut());
    attempt(|| clock.advance(Duration::from_secs(11)));
    if let Some(held) = held {
        attempt_ready(held.unlock());
    }
    attempt(|| clock.advance(Duration::from_millis(100)));
    attempt(|| drop(first.or_else(|| attempt_poll(waits.as_mut()))));
    attempt(|| drop(waits));
    attempt(|| clock.advance(Duration::from_millis(100)));
    let they_hold = they_first.or_else(|| attempt_poll(they_wait.as_mut())).and_then(Result::ok);
    if let Some(they_hold) = &they_hold {
        attempt_ready(they_hold.ensure_held());
    }
    attempt_ready(lock.holder());
    attempt(|| client.metrics());
    attempt_ready(lock.try_lock_for(Duration::from_millis(10), Duration::from_secs(10)));
    attempt(|| drop(they_hold));
    attempt(|| drop(they_wait));
    attempt(|| drop((lock, theirs)));
    attempt(|| drop(other));
}
