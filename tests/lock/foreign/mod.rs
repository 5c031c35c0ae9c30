//! Foreign code: wakers that panic or block wherever one is called, a backend and a runtime whose every call
//! panics in turn, and a subscriber of `tracing` that panics at each call in turn.

mod backend;
mod outcomes;
mod runtime;
mod subscriber;
pub(crate) mod told;
pub(crate) mod wakers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
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

/// What a future comes to, if it is ready.
fn attempt_ready<F: Future>(future: F) -> Option<F::Output> {
    attempt_poll(pin!(future))
}

fn attempt_poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match poll(future) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// What two clients do with one name, beside a watched lock of the first one, over a backend any call of
/// which may panic.
fn act(backend: &(impl Backend + Clone), clock: &ThreadRuntime, fair: bool, client: &LockClient) {
    // Nothing is made yet, and a constructor's panic is its caller's.
    let Ok(other) = catch_unwind(AssertUnwindSafe(|| LockClient::new(backend.clone()))) else {
        return told::caller_is_told();
    };
    let get =
        |client: &LockClient| if fair { client.get_fair_lock("orders") } else { client.get_lock("orders") };
    // Refused by a backend that panics where it is asked whether it keeps such locks.
    let (Ok(lock), Ok(theirs)) = (get(client), get(&other)) else { return };
    // Nothing is held yet, and later it would hide what is left behind.
    attempt_ready(lock.force_unlock());
    let held = attempt_ready(lock.lock()).and_then(Result::ok);
    let mut waits = Box::pin(lock.lock());
    let first = attempt_poll(waits.as_mut());
    let mut they_wait = Box::pin(theirs.lock());
    let they_first = attempt_poll(they_wait.as_mut());
    clock.advance(Duration::from_secs(11));
    if let Some(held) = held {
        attempt_ready(held.unlock());
    }
    clock.advance(Duration::from_millis(100));
    drop(first.or_else(|| attempt_poll(waits.as_mut())));
    drop(waits);
    clock.advance(Duration::from_millis(100));
    let they_hold = they_first.or_else(|| attempt_poll(they_wait.as_mut())).and_then(Result::ok);
    if let Some(they_hold) = &they_hold {
        attempt_ready(they_hold.ensure_held());
    }
    attempt_ready(lock.holder());
    client.metrics();
    attempt_ready(lock.try_lock_for(Duration::from_millis(10), Duration::from_secs(10)));
    drop(they_hold);
    drop(they_wait);
    drop((lock, theirs));
    drop(other);
}
