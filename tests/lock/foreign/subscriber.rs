use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use latchwork::local::{Local, ThreadRuntime};
use latchwork::{Guard, LockClient};
use tracing::span::{Attributes, Id};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, registry};

use crate::over_local::{Nothing, over};
use crate::polled::{poll, ready};

struct Panics {
    calls: Arc<AtomicUsize>,
    at: RangeInclusive<usize>,
}

impl Panics {
    fn call(&self) {
        // Ordering: SeqCst for simplicity; a test needs no less.
        assert!(!self.at.contains(&self.calls.fetch_add(1, Ordering::SeqCst)), "on purpose");
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Panics {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // `sometimes`: ask on every event, not once per process.
        if metadata.target() == "latchwork" { Interest::sometimes() } else { Interest::never() }
    }

    fn enabled(&self, _: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.call();
        true
    }

    fn on_new_span(&self, _: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        self.call();
    }

    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        self.call();
    }

    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        self.call();
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        self.call();
    }

    fn on_close(&self, _: Id, _: Context<'_, S>) {
        self.call();
    }
}

fn act(clock: &ThreadRuntime, client: &LockClient, other: &LockClient) {
    let (lock, theirs) = (client.get_lock("orders").unwrap(), other.get_lock("orders").unwrap());
    let held = ready(lock.lock()).unwrap();
    let mut waits = Box::pin(lock.lock());
    assert!(poll(waits.as_mut()).is_pending());
    let mut they_wait = Box::pin(theirs.lock());
    assert!(poll(they_wait.as_mut()).is_pending());
    clock.advance(Duration::from_secs(11));
    drop(held);
    drop(waits);
    let held = ready(they_wait).unwrap();
    assert!(ready(lock.force_unlock()).unwrap());
    clock.advance(Duration::from_secs(11));
    assert!(!held.is_held());
    ready(lock.lock_with_lease(Duration::from_secs(1))).unwrap().forget();
    clock.advance(Duration::from_secs(2));
    drop(ready(theirs.lock()).unwrap());
}

/// Runs `act` with panics at the calls `at`, checks the outcome, and returns the number of calls.
fn run(at: RangeInclusive<usize>) -> usize {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(clock.clone());
    let backend = over(&local, Nothing);
    let [client, other] = [(); 2].map(|()| LockClient::new(backend.clone()));
    let names = ["one", "another", "a third"];
    let watched = names.map(|name| ready(client.get_lock(name).unwrap().lock()).unwrap());
    let calls = Arc::default();
    let subscriber = registry().with(Panics { calls: Arc::clone(&calls), at: at.clone() });
    let acted = tracing::subscriber::with_default(subscriber, || {
        catch_unwind(AssertUnwindSafe(|| act(&clock, &client, &other)))
    });
    assert!(acted.is_ok(), "expected the panic of call {at:?} to leave the reported work alone");
    clock.advance(Duration::from_secs(3));
    let free = ready(LockClient::new(local).get_lock("orders").unwrap().try_lock()).unwrap().is_some();
    assert!(free, "expected a free lock after the panic of call {at:?}, and the name is dead");
    clock.advance(Duration::from_secs(60));
    assert!(watched.iter().all(Guard::is_held), "expected renewed leases after the panic of call {at:?}");
    // Ordering: SeqCst, as above.
    calls.load(Ordering::SeqCst)
}

#[test]
fn subscriber_panic_at_any_call_costs_no_name_and_no_renewal() {
    let calls = run(usize::MAX..=usize::MAX);
    // Events of this thread only; some occur here or in a background thread, by chance.
    assert!(calls > 50, "expected more than 50 calls in the life of a lock, and saw {calls}");
    for at in 0..calls {
        run(at..=at);
    }
}

/// The report of a panic is an event, too.
#[test]
fn subscriber_that_panics_at_each_call_costs_no_name() {
    run(0..=usize::MAX);
}
