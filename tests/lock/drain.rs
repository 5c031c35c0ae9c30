//! `LockClient::drain`: newcomers are refused, waiters are served, and holders finish.

use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use latchwork::local::Local;
use latchwork::{Guard, Lease, Lock, LockClient, LockError};
use latchwork_testkit::Bell;

use crate::polled::{poll, poll_by, ready};

const HOUR: Duration = Duration::from_secs(3600);

type Waiter<'a> = Pin<Box<dyn Future<Output = Result<Guard, LockError>> + 'a>>;

fn waits(lock: &Lock) -> Waiter<'_> {
    let mut waiter: Waiter<'_> = Box::pin(lock.lock());
    assert!(poll(waiter.as_mut()).is_pending(), "expected a waiter");
    waiter
}

fn granted(waiter: &mut Waiter<'_>) -> Guard {
    let Poll::Ready(guard) = poll(waiter.as_mut()) else { panic!("expected a grant") };
    guard.expect("expected a grant during the drain")
}

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
        let (mut first, mut second) = (waits(lock), waits(lock));
        let mut drain = pin!(client.drain(HOUR));
        assert!(poll(drain.as_mut()).is_pending(), "expected the drain to wait for the holder");
        for newcomer in [lock, &client.get_lock("another").unwrap()] {
            assert!(matches!(ready(newcomer.lock()), Err(LockError::ShutDown)));
            let limited = newcomer.try_lock_for(HOUR, Lease::Watched);
            assert!(matches!(ready(limited), Err(LockError::ShutDown)));
        }
        drop(held);
        let held = granted(&mut first);
        assert!(poll(drain.as_mut()).is_pending(), "expected the drain to wait for the second waiter");
        drop(held);
        let held = granted(&mut second);
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
    let mut drain = pin!(client.drain(HOUR));
    assert!(poll(drain.as_mut()).is_pending());
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
        let mut waiter = Box::pin(lock.try_lock_for(wait, Lease::Watched));
        assert!(poll(waiter.as_mut()).is_pending());
        let woken = Bell::default();
        let mut drain = pin!(client.drain(HOUR));
        assert!(poll_by(drain.as_mut(), &woken.waker()).is_pending());
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
    let mut waiter = waits(&lock);
    let error = latchwork::blocking::LockClient::from_async(client.clone())
        .drain(Duration::from_millis(20))
        .unwrap_err()
        .to_string();
    assert!(error.contains("orders"), "expected the name of the held lock, and found {error}");
    assert!(matches!(poll(waiter.as_mut()), Poll::Ready(Err(LockError::ShutDown))));
    drop(held);
    ready(client.drain(Duration::ZERO)).unwrap();
}
