use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use latchwork::local::{Local, ThreadRuntime};
use latchwork::{Guard, LockClient};
use tracing::span::{Attributes, Id};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, registry};

use super::{PanicsAt, at_each_call};
use crate::over_local::{Nothing, over};
use crate::polled::ready;
use crate::stage::begun;

struct Panics(PanicsAt);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Panics {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // `sometimes`: ask on every event, not once per process.
        if metadata.target() == "latchwork" { Interest::sometimes() } else { Interest::never() }
    }

    fn enabled(&self, _: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.0.call();
        true
    }

    fn on_new_span(&self, _: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        self.0.call();
    }

    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        self.0.call();
    }

    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        self.0.call();
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        self.0.call();
    }

    fn on_close(&self, _: Id, _: Context<'_, S>) {
        self.0.call();
    }
}

fn act(clock: &ThreadRuntime, client: &LockClient, other: &LockClient) {
    let (lock, theirs) = (client.get_lock("orders").unwrap(), other.get_lock("orders").unwrap());
    let held = ready(lock.lock()).unwrap();
    let waits = begun(lock.lock());
    let they_wait = begun(theirs.lock());
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
fn run(at: Range<usize>) -> usize {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(clock.clone());
    let backend = over(&local, Nothing);
    let [client, other] = [(); 2].map(|()| LockClient::new(backend.clone()));
    let names = ["one", "another", "a third"];
    let watched = names.map(|name| ready(client.get_lock(name).unwrap().lock()).unwrap());
    let panics = PanicsAt::default();
    let subscriber = registry().with(Panics(panics.clone()));
    let calls = panics.calls_of(at.clone(), || {
        let acted = tracing::subscriber::with_default(subscriber, || {
            catch_unwind(AssertUnwindSafe(|| act(&clock, &client, &other)))
        });
        assert!(acted.is_ok(), "expected the panic of call {at:?} to leave the reported work alone");
    });
    clock.advance(Duration::from_secs(3));
    let free = ready(LockClient::new(local).get_lock("orders").unwrap().try_lock()).unwrap().is_some();
    assert!(free, "expected a free lock after the panic of call {at:?}, and the name is dead");
    clock.advance(Duration::from_secs(60));
    assert!(watched.iter().all(Guard::is_held), "expected renewed leases after the panic of call {at:?}");
    calls
}

/// Counts events of this thread only; some occur here or in a background thread, by chance.
#[test]
fn subscriber_panic_at_any_call_costs_no_name_and_no_renewal() {
    at_each_call(run);
}

/// The report of a panic is an event, too.
#[test]
fn subscriber_that_panics_at_each_call_costs_no_name() {
    run(0..usize::MAX);
}
