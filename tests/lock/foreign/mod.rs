//! Foreign code that panics or blocks: wakers, a backend, a runtime and a `tracing` subscriber.

mod backend;
mod outcomes;
mod runtime;
mod subscriber;
pub(crate) mod told;
pub(crate) mod wakers;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use latchwork::backend::Backend;
use latchwork::local::ThreadRuntime;
use latchwork::{Guard, Lock, LockClient};
use latchwork_testkit::waker;

use crate::polled::{poll, ready};

pub(crate) fn waker_that_panics() -> Waker {
    waker(|| panic!("on purpose"))
}

pub(crate) fn waker_that_panics_when_dropped() -> Waker {
    struct Dropped;
    impl Wake for Dropped {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Dropped {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "on purpose");
        }
    }
    Waker::from(Arc::new(Dropped))
}

/// Counts calls, and panics at some of them.
#[derive(Clone, Default)]
struct PanicsAt {
    calls: Arc<AtomicUsize>,
    at: Arc<Mutex<Range<usize>>>,
}

impl PanicsAt {
    fn call(&self) {
        // Ordering: SeqCst here and below for simplicity; a test needs no less.
        let call = self.calls.fetch_add(1, SeqCst);
        let panics = self.at.lock().unwrap().contains(&call);
        assert!(!panics, "on purpose");
    }

    /// Returns the count of calls by `act`, with panics at those in `at`.
    fn calls_of(&self, at: Range<usize>, act: impl FnOnce()) -> usize {
        self.calls.store(0, SeqCst);
        *self.at.lock().unwrap() = at;
        act();
        *self.at.lock().unwrap() = 0..0;
        self.calls.load(SeqCst)
    }
}

/// Repeats `run`, which returns its count of calls, with a panic at each call in turn.
fn at_each_call(run: impl Fn(Range<usize>) -> usize) {
    let calls = run(0..0);
    assert!(calls > 50, "{calls} calls");
    for at in 0..calls {
        run(at..at + 1);
    }
}

fn lock_of(client: &LockClient, fair: bool) -> Lock {
    if fair { client.get_fair_lock("orders") } else { client.get_lock("orders") }.unwrap()
}

/// Asserts that the name is free for each client, and that the watched lock is renewed.
fn assert_alive(place: &str, clients: [&LockClient; 2], fair: bool, clock: &ThreadRuntime, watched: &Guard) {
    for client in clients {
        let tried = ready(lock_of(client, fair).try_lock()).unwrap();
        assert!(tried.is_some(), "{place}: expected the free lock, and the name is dead");
    }
    for _ in 0..3 {
        clock.advance(Duration::from_secs(20));
        assert!(watched.is_held(), "{place}: expected a renewed lease");
        ready(watched.ensure_held()).unwrap_or_else(|error| panic!("{place}: {error}"));
    }
}

fn attempt_ready<F: Future>(future: F) -> Option<F::Output> {
    attempt_poll(pin!(future))
}

fn attempt_poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match poll(future) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Uses one name from two clients, beside a watched lock, over a backend whose calls may panic.
fn act(backend: &(impl Backend + Clone), clock: &ThreadRuntime, fair: bool, client: &LockClient) {
    // A panic in a constructor reaches the caller.
    let Ok(other) = catch_unwind(AssertUnwindSafe(|| LockClient::new(backend.clone()))) else {
        return told::caller_is_told();
    };
    let get =
        |client: &LockClient| if fair { client.get_fair_lock("orders") } else { client.get_lock("orders") };
    // `get_lock` fails if the backend panics while asked for supported modes.
    let (Ok(lock), Ok(theirs)) = (get(client), get(&other)) else { return };
    // Force only now, with nothing held: later a forced unlock would hide leaked leases.
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
