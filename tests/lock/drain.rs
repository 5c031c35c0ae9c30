//! `LockClient::drain`: newcomers are refused, waiters are served, and holders finish.

use std::task::Poll;
use std::time::Duration;

use latchwork::local::Local;
use latchwork::{Lease, Lock, LockClient, LockError};
use latchwork_testkit::Bell;

use crate::polled::{poll, ready};
use crate::stage::{begun, begun_by};

const HOUR: Duration = Duration::from_secs(3600);

fn locks(client: &LockClient) -> [Lock; 4] {
    let rooms = client.get_read_write_lock("rooms").unwrap();
    let [plain, fair] = [client.get_lock("plain"), client.get_fair_lock("fair")].map(Result::unwrap);
    [plain, fair, rooms.write().clone(), rooms.read().clone()]
}

#[test]
fn drain_serves_waiters_refuses_newcomers_and_shuts_down() {
    for kind in 0..3 {
        let client = LockClient::local();
        let lock = &locks(&client)[kind];
        let held = ready(lock.lock()).unwrap();
        let (first, second) = (begun(lock.lock()), begun(lock.lock()));
        let mut drain = begun(client.drain(HOUR));
        for newcomer in [lock, &client.get_lock("another").unwrap()] {
            assert!(matches!(ready(newcomer.lock()), Err(LockError::ShutDown)));
            let limited = newcomer.try_lock_for(HOUR, Lease::Watched);
            assert!(matches!(ready(limited), Err(LockError::ShutDown)));
        }
        drop(held);
        let held = ready(first).unwrap();
        assert!(poll(drain.as_mut()).is_pending(), "expected the drain to wait for the second waiter");
        drop(held);
        let held = ready(second).unwrap();
        assert!(poll(drain.as_mut()).is_pending(), "expected the drain to wait for the last holder");
        ready(held.unlock()).unwrap();
        ready(drain).unwrap();
        assert!(matches!(ready(lock.lock()), Err(LockError::ShutDown)));
    }
}

#[test]
fn owner_that_holds_takes_its_lock_again_during_a_drain() {
    let client = LockClient::local();
    let (owner, other) = (client.owner(), client.owner());
    let [plain, _, write, read] = locks(&client).map(|lock| lock.owned_by(&owner));
    let outer = [ready(plain.lock()).unwrap(), ready(write.lock()).unwrap()];
    let mut drain = begun(client.drain(HOUR));
    let inner = [&plain, &write, &read].map(|lock| ready(lock.lock()).expect("expected an inner hold"));
    assert!(matches!(ready(plain.owned_by(&other).lock()), Err(LockError::ShutDown)));
    drop(outer);
    assert!(poll(drain.as_mut()).is_pending(), "expected the drain to wait for inner holds");
    drop(inner);
    ready(drain).unwrap();
}

#[test]
fn waiter_that_gives_up_ends_a_drain() {
    for (limited, forgotten) in [(false, false), (true, false), (false, true), (true, true)] {
        let client = LockClient::local();
        let lock = client.get_lock("orders").unwrap();
        let holder = match forgotten {
            true => client.clone(),
            false => LockClient::new(client.backend::<Local>().unwrap().clone()),
        };
        ready(holder.get_lock("orders").unwrap().lock()).unwrap().forget();
        let wait = if limited { Duration::from_millis(50) } else { HOUR };
        let mut waiter = begun(lock.try_lock_for(wait, Lease::Watched));
        let woken = Bell::default();
        let drain = begun_by(client.drain(HOUR), &woken.waker());
        if limited {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            assert!(runtime.block_on(waiter.as_mut()).unwrap().is_none());
        }
        drop(waiter);
        assert!(woken.take(), "expected the end of the wait to wake the drain");
        ready(drain).unwrap();
    }
}

#[test]
fn limit_ends_a_drain_and_then_the_waits() {
    let client = LockClient::local();
    let lock = client.get_lock("orders").unwrap();
    let held = ready(lock.lock()).unwrap();
    let mut waiter = begun(lock.lock());
    let error = latchwork::blocking::LockClient::from_async(client.clone())
        .drain(Duration::from_millis(20))
        .unwrap_err()
        .to_string();
    assert!(error.contains("orders"), "expected the name of the held lock, and found {error}");
    assert!(matches!(poll(waiter.as_mut()), Poll::Ready(Err(LockError::ShutDown))));
    drop(held);
    ready(client.drain(Duration::ZERO)).unwrap();
}
