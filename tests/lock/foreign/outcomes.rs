//! Wakers that panic during a successful acquisition must not undo the acquisition.

use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use latchwork::backend::Mode;
use latchwork::local::{Local, ThreadRuntime};
use latchwork::{Lock, LockClient};

use super::told::told_of;
use super::{waker_that_panics, waker_that_panics_when_dropped};
use crate::over_local::{Nothing, over};
use crate::polled::{poll, poll_by, ready};
use crate::questions::{Stage, Waits, waits};
use crate::read_write_wakers::on_clone;
use crate::stage::begun_by;

const SECOND: Duration = Duration::from_secs(1);

fn stage() -> (ThreadRuntime, [Lock; 2]) {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(clock.clone());
    (clock, [(); 2].map(|()| LockClient::new(local.clone()).get_lock("orders").unwrap()))
}

/// The newcomer becomes queue head and finds the lease over, for which another client waits.
#[test]
fn waker_panic_at_an_expired_lease_does_not_stop_the_newcomer() {
    let (clock, [lock, theirs]) = stage();
    let _held = ready(lock.lock_with_lease(SECOND)).unwrap();
    let waits = begun_by(theirs.lock(), &waker_that_panics());
    clock.advance(SECOND);
    assert_eq!(told_of(|| drop(ready(lock.lock()).unwrap())), 1);
    drop(waits);
    assert!(ready(lock.try_lock()).unwrap().is_some(), "expected the free lock, and the name is dead");
}

/// Polled with a new waker; the old waker is dropped unused.
#[test]
fn waiter_that_is_told_of_its_turn_beside_a_panic_has_it() {
    // Within the tenure the waiter is granted the lock, and later becomes queue head.
    for held_for in [Duration::ZERO, SECOND] {
        let (clock, [lock, theirs]) = stage();
        let held = ready(lock.lock()).unwrap();
        let mut waits = waits(&lock);
        clock.advance(held_for);
        let waker = on_clone(move || {
            drop(held);
            waker_that_panics_when_dropped()
        });
        assert_eq!(told_of(|| drop(poll_by(waits.as_mut(), &waker))), 1);
        drop(waits);
        assert!(
            ready(theirs.try_lock()).unwrap().is_some(),
            "expected the lock for the other client after a hold of {held_for:?}"
        );
        assert!(
            ready(lock.try_lock()).unwrap().is_some(),
            "expected the free lock after a hold of {held_for:?}, and the name is dead"
        );
    }
}

/// The sleeper knows the previous holder's lease only, and no call reports the end of the new lease.
#[test]
fn end_of_an_own_lease_after_a_wait_wakes_another_client() {
    for (own_lease, panics) in [(true, None), (true, Some(waker_that_panics())), (false, None)] {
        let stage = Stage::new(Mode::Plain);
        let before = ready(Stage::lock(&stage.theirs, Mode::Plain).lock()).unwrap();
        let lock = LockClient::new(over(&stage.local, Nothing)).get_lock("orders").unwrap();
        let mut gets: Waits = Box::pin(async move {
            match own_lease {
                true => lock.lock_with_lease(SECOND).await,
                false => lock.lock().await,
            }
        });
        assert!(poll(gets.as_mut()).is_pending());
        let third = Stage::lock(&stage.client, Mode::Plain);
        let mut sleeps = pin!(third.lock());
        let waker = panics.as_ref().unwrap_or(Waker::noop());
        assert!(poll_by(sleeps.as_mut(), waker).is_pending());
        drop(before);
        let mut got = None;
        let told = told_of(|| got = Some(poll(gets.as_mut())));
        let Some(Poll::Ready(Ok(_held))) = got else { panic!("expected the waiter's turn") };
        assert_eq!(told, usize::from(panics.is_some()), "expected an event for each waker's panic");
        let asked = stage.asked_by(|| assert!(poll(sleeps.as_mut()).is_pending()));
        assert_eq!(
            asked,
            usize::from(own_lease),
            "expected a question only beside a lease that is not renewed"
        );
        if own_lease {
            stage.clock.advance(SECOND + Duration::from_millis(1));
            assert!(
                matches!(poll(sleeps.as_mut()), Poll::Ready(Ok(_))),
                "expected the waiter to acquire after the lease's end"
            );
        }
    }
}
