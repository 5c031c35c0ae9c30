use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::over_local::{Renewals, over};
use crate::polled::{poll, ready};
use latchwork::local::{Local, ThreadRuntime};
use latchwork::{Guard, LockClient};

#[test]
fn locks_that_were_taken_one_after_another_are_renewed_together() {
    const LOCKS: usize = 8000;
    let clock = ThreadRuntime::paused();
    let renewals = Renewals::default();
    let client = LockClient::new(over(&Local::with_runtime(clock.clone()), renewals.clone()));
    let guards: Vec<Guard> = (0..LOCKS)
        .map(|number| {
            clock.advance(Duration::from_millis(1));
            ready(client.get_lock(&format!("name:{number}")).unwrap().lock()).unwrap()
        })
        .collect();
    clock.advance(Duration::from_secs(60));
    assert!(guards.iter().all(Guard::is_held), "expected all leases renewed");
    let renewals = renewals.0.lock().unwrap();
    // Every third of a 30 s lease, up to a thirtieth early: at most eight renewals in 68 s.
    let (calls, leases): (usize, usize) = (renewals.len(), renewals.iter().map(|(leases, _)| leases).sum());
    assert!(calls <= 100, "{calls} calls");
    assert!((5 * LOCKS..=8 * LOCKS).contains(&leases), "{leases} of {LOCKS} leases");
}

/// The store is blocked during one renewal call.
#[test]
fn thousands_of_leases_are_renewed_by_several_calls() {
    const LOCKS: usize = 5000;
    let (clock, renewals) = (ThreadRuntime::paused(), Renewals::default());
    let client = LockClient::new(over(&Local::with_runtime(clock.clone()), renewals.clone()));
    let take = |number| ready(client.get_lock(&format!("name:{number}")).unwrap().lock()).unwrap();
    let _guards: Vec<Guard> = (0..LOCKS).map(take).collect();
    clock.advance(Duration::from_secs(11));
    let calls = renewals.0.lock().unwrap();
    assert_eq!(calls.iter().map(|(leases, _)| leases).sum::<usize>(), LOCKS, "{calls:?}");
    assert!(calls.iter().all(|(leases, _)| *leases <= 4096), "{calls:?}");
}

/// Visiting all waiters for each admission, supersession or loss would take minutes and starve other names.
#[test]
fn ten_thousand_readers_are_admitted_superseded_and_told_soon() {
    const READERS: usize = 30_000;
    let clock = ThreadRuntime::paused();
    let client = LockClient::new(Local::with_runtime(clock.clone()));
    let lock = client.get_read_write_lock("prices").unwrap();
    let begun = Instant::now();
    let writes = ready(lock.write().lock()).unwrap();
    // Half of the readers are not admitted with the first.
    let mut reads: Vec<Pin<Box<dyn Future<Output = _>>>> = (0..READERS)
        .map(|reader| match (1..READERS / 2).contains(&reader) {
            true => Box::pin(lock.read().lock_with_lease(Duration::from_secs(3600))) as _,
            false => Box::pin(lock.read().lock()) as _,
        })
        .collect();
    assert!(reads.iter_mut().all(|read| poll(read.as_mut()).is_pending()));
    drop(writes);
    assert!(poll(reads[0].as_mut()).is_ready(), "expected the first reader");
    clock.advance(Duration::from_secs(3));
    assert!(client.metrics().superseded as usize > READERS / 2, "{:?}", client.metrics().superseded);
    drop(reads);
    let guards: Vec<_> = (0..READERS).map(|_| ready(lock.read().lock()).unwrap()).collect();
    assert!(ready(lock.read().force_unlock()).unwrap());
    assert!(!guards.iter().any(Guard::is_held));
    drop(guards);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(60), "expected the end within a minute, and it took {took:?}");
}

#[test]
fn millisecond_wait_ends_in_time_beside_thousands_of_held_locks() {
    const LOCKS: usize = 30_000;
    let client = LockClient::local();
    let take = |number| ready(client.get_lock(&format!("name:{number}")).unwrap().lock()).unwrap();
    let guards: Vec<_> = (0..LOCKS).map(take).collect();
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let wait = |number| {
        let lock = client.get_lock(&format!("name:{number}")).unwrap();
        let begun = Instant::now();
        let tried = tokio.block_on(lock.try_lock_for(Duration::from_millis(10), Duration::from_secs(5)));
        assert!(tried.unwrap().is_none());
        begun.elapsed()
    };
    // A loaded machine may be late, but not ten times in a row.
    let quickest = (0..10).map(wait).min().unwrap();
    assert!(quickest < Duration::from_millis(250), "{quickest:?}");
    assert!(guards.iter().all(Guard::is_held));
}
