//! The local backend under the suite for every backend.

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use latchwork::backend::{Backend, Runtime};
use latchwork::local::{Local, ThreadRuntime};
use latchwork::lock::{LockName, Mode};
use latchwork::{Lock, LockClient, LockOptions};
use latchwork_testkit::waker;

use crate::polled::{poll, poll_by};

latchwork_conformance::suite!(plain fair read_write permits: {
    let store = Local::new();
    move || store.clone()
});

/// Shared channels would deliver one lock's messages to waiters of another, whatever the names.
#[test]
fn channels_of_each_lock_are_its_own() {
    const CLIENT: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586";
    let local = Local::new();
    let mut names = vec!["orders".to_owned()];
    // Add names equal to channels of other names.
    for _ in 0..2 {
        for name in names.clone() {
            for mode in [Mode::Plain, Mode::Fair, Mode::Write, Mode::Read] {
                let channels = local.channels(mode, &LockName::new(&name).unwrap(), CLIENT);
                names.push(channels.own);
            }
        }
        names.sort();
        names.dedup();
    }
    let mut channels = HashMap::new();
    for name in &names {
        let of = |mode| local.channels(mode, &LockName::new(name).unwrap(), CLIENT);
        assert_eq!(of(Mode::Write).common.as_ref(), Some(&of(Mode::Read).own));
        for mode in [Mode::Plain, Mode::Fair, Mode::Write, Mode::Read] {
            if let Some(other) = channels.insert(of(mode).own, (name, mode)) {
                panic!("{name:?}, {mode}: that of {other:?}");
            }
        }
    }
}

/// Each message costs every waiting process a question.
#[test]
fn forced_unlock_of_a_free_lock_is_told_to_none() {
    let (local, name) = (Local::new(), LockName::new("orders").unwrap());
    let _listens = local.registry().subscribe(&local.channels(Mode::Plain, &name, "").own);
    assert!(matches!(poll(pin!(local.force_release(Mode::Plain, &name))), Poll::Ready(Ok(false))));
    assert_eq!(local.registry().stats().unlock_messages, 0);
}

/// The waiter is granted the lock but not polled, and the grant expires before the waiter reads the message.
#[test]
fn grant_that_was_slept_through_is_not_believed() {
    let runtime = ThreadRuntime::paused();
    let locks = Local::with_runtime(runtime.clone());
    let [one, other, third] =
        [(); 3].map(|()| LockClient::new(locks.clone()).get_fair_lock("tickets").unwrap());
    let now = |lock: &Lock| poll(pin!(lock.try_lock()));
    for rests in [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(11)] {
        let Poll::Ready(Ok(Some(held))) = now(&one) else { panic!("expected the free lock") };
        let mut waits = Box::pin(other.lock());
        assert!(poll(waits.as_mut()).is_pending());
        assert!(matches!(poll(pin!(held.unlock())), Poll::Ready(Ok(()))));
        runtime.advance(rests);
        let Poll::Ready(Ok(theirs)) = now(&third) else { panic!("a try waits") };
        assert_eq!(theirs.is_some(), rests > Duration::from_secs(1), "after {rests:?}");
        let waited = poll(waits.as_mut());
        assert_eq!(waited.is_ready(), theirs.is_none(), "after {rests:?}");
        drop((waits, waited, theirs));
    }
}

/// The waiter has a new position when it reads the message of the expired grant.
#[test]
fn message_of_a_grant_that_is_over_is_not_believed() {
    let runtime = ThreadRuntime::paused();
    let locks = Local::with_runtime(runtime.clone());
    // A position lasts 100 ms, less than the limit for unpolled waiters.
    let options = LockOptions::default().watchdog_timeout(Duration::from_millis(300));
    let [one, other, third] = [(); 3].map(|()| {
        LockClient::with_options(locks.clone(), &options).unwrap().get_fair_lock("tickets").unwrap()
    });
    let Poll::Ready(Ok(held)) = poll(pin!(one.lock())) else { panic!("expected the free lock") };
    let mut waits = Box::pin(other.lock());
    assert!(poll(waits.as_mut()).is_pending());
    assert!(matches!(poll(pin!(held.unlock())), Poll::Ready(Ok(()))));
    runtime.advance(Duration::from_millis(200));
    let Poll::Ready(Ok(theirs)) = poll(pin!(third.lock())) else { panic!("the grant is over") };
    for _ in 0..10 {
        assert!(poll(waits.as_mut()).is_pending(), "expected the waiter to wait for the holder");
        runtime.advance(Duration::from_millis(20));
    }
    assert!(matches!(poll(pin!(theirs.unlock())), Poll::Ready(Ok(()))));
    let Poll::Ready(Ok(guard)) = poll(waits.as_mut()) else { panic!("expected the waiter's turn") };
    assert!(guard.is_held());
}

/// A lease that is over would become valid again.
#[test]
fn paused_clock_that_a_waker_lets_go_on_does_not_go_back() {
    let (clock, second) = (ThreadRuntime::paused(), Duration::from_secs(1));
    let begun = clock.now();
    let mut sleep = clock.sleep_until(begun + second);
    let goes_on = clock.clone();
    let waker = waker(move || goes_on.advance(60 * second));
    assert!(poll_by(Pin::new(&mut sleep), &waker).is_pending());
    clock.advance(2 * second);
    assert_eq!(clock.now(), begun + 61 * second);
}
