//! A subscriber of `tracing` that panics at each event in turn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use latchwork::local::{Local, ThreadRuntime};
use latchwork::{Guard, LockClient};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::{poll, ready};

/// One event panics.
struct Panics {
    events: Arc<AtomicUsize>,
    at: usize,
}

impl Subscriber for Panics {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "latchwork"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        // Ordering: SeqCst, for no reason but that it is a test.
        assert_ne!(self.events.fetch_add(1, Ordering::SeqCst), self.at, "on purpose");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// What two clients do with one name, beside watched locks of the first one.
fn act(clock: &ThreadRuntime, client: &LockClient, other: &LockClient) {
    let (lock, theirs) = (client.get_lock("orders").unwrap(), other.get_lock("orders").unwrap());
    let held = ready(lock.lock()).unwrap();
    let mut waits = Box::pin(lock.lock());
    assert!(poll(waits.as_mut(), Waker::noop()).is_pending());
    let mut they_wait = Box::pin(theirs.lock());
    assert!(poll(they_wait.as_mut(), Waker::noop()).is_pending());
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

/// How many events there were; and what holds, though one of them panicked.
fn run(at: usize) -> usize {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(clock.clone());
    let [client, other] = [(); 2].map(|()| LockClient::new(local.clone()));
    let names = ["one", "another", "a third"];
    let watched = names.map(|name| ready(client.get_lock(name).unwrap().lock()).unwrap());
    let events = Arc::default();
    let subscriber = Panics { events: Arc::clone(&events), at };
    let acted = tracing::subscriber::with_default(subscriber, || {
        catch_unwind(AssertUnwindSafe(|| act(&clock, &client, &other)))
    });
    assert!(acted.is_ok(), "event {at} ends what it tells of");
    clock.advance(Duration::from_secs(60));
    assert!(watched.iter().all(Guard::is_held), "event {at} costs a renewal");
    let free = ready(other.get_lock("orders").unwrap().try_lock()).unwrap().is_some();
    assert!(free, "event {at} leaves the name dead");
    // Ordering: as above.
    events.load(Ordering::SeqCst)
}

#[test]
fn subscriber_that_panics_at_any_event_costs_no_name_and_no_renewal() {
    let events = run(usize::MAX);
    // Those of this thread: some are told in a background thread or here, whichever is first.
    assert!(events > 5, "{events} events are not those of a lock's life");
    for at in 0..events {
        run(at);
    }
}
