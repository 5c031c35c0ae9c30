//! Lists of present holders and waiters: by this client, and as the store reports them.

use std::pin::pin;
use std::time::Duration;

use latchwork::local::{Local, ThreadRuntime};
use latchwork::lock::Mode;
use latchwork::{Lease, LockClient};

use crate::stage::begun;
use crate::stores::{Store, on_each_store};

const SOON: Duration = Duration::from_secs(10);
crate::waiting::waiting_for!(SOON);

on_each_store! { list_has_what_is_held_and_what_is_waited_for }

async fn list_has_what_is_held_and_what_is_waited_for(store: &Store) {
    let [client, other] = store.two_clients().await;
    assert!(client.held().is_empty() && client.waiting().is_empty());
    let me = client.owner();
    let orders = client.get_lock("orders").unwrap();
    let outer = orders.owned_by(&me).lock().await.unwrap();
    let inner = orders.owned_by(&me).lock().await.unwrap();
    let lease = Duration::from_secs(60);
    let tickets = client.get_fair_lock("tickets").unwrap().lock_with_lease(lease).await.unwrap();
    let waits = begun(orders.lock());

    let held = client.held();
    let told: Vec<_> =
        held.iter().map(|it| (it.name.as_str(), it.mode, it.owner, it.holds, it.waiters)).collect();
    let expected = [("orders", Mode::Plain, me, 2, 1), ("tickets", Mode::Fair, *tickets.owner(), 1, 0)];
    assert_eq!(told, expected);
    assert!(held[0].is_watched && !held[1].is_watched);
    assert!(held[1].left <= lease && held[1].left + held[1].held_for >= lease - SOON, "{held:?}");
    for (lock, held) in [&orders, &client.get_fair_lock("tickets").unwrap()].into_iter().zip(&held) {
        let holder = lock.holder().await.unwrap().expect("the lock is held");
        assert_eq!((holder.id.as_ref(), holder.mode), (Some(&held.lease), Some(held.mode)));
    }
    let waiting = client.waiting();
    assert_eq!((waiting.len(), waiting[0].waiters, waiting[0].competes_for), (1, 1, None), "{waiting:?}");
    let metrics = client.metrics();
    assert_eq!((metrics.held, metrics.waiting), (2, 1));
    assert_eq!(
        (orders.waiting(), orders.waiters()),
        (1, 1),
        "expected one waiter, behind a holder of its own client"
    );

    // The other client has no holds, and a queue head that waits.
    let theirs = other.get_lock("orders").unwrap();
    let mut competes = pin!(theirs.try_lock_for(SOON, Lease::Watched));
    tokio::select! {
        biased;
        _ = &mut competes => panic!("the lock is held"),
        () = eventually("it competes", async || other.waiting().iter().any(|it| it.competes_for.is_some())) => {}
    }
    assert!(other.held().is_empty());
    assert_eq!(
        (theirs.waiting(), theirs.waiters()),
        (1, 0),
        "expected the queue head to wait, and no waiter behind it"
    );

    // Another kind of handle still reports the mode under which the lock is held.
    let as_fair = client.get_fair_lock("orders").unwrap().holder().await.unwrap().unwrap();
    assert_eq!(as_fair.mode, Some(Mode::Plain));

    drop(waits);
    drop((outer, inner, tickets));
    let guard = competes.await.unwrap().expect("the lock was released");
    assert!(client.held().is_empty() && client.waiting().is_empty());
    assert_eq!((orders.waiting(), theirs.waiting()), (0, 0));
    drop(guard);
}

/// Operators recognize a stuck lock by these times.
#[tokio::test]
async fn list_says_for_how_long_it_is_held_and_for_how_long_yet() {
    let runtime = ThreadRuntime::paused();
    let local = Local::with_runtime(runtime.clone());
    let (client, other) = (LockClient::new(local.clone()), LockClient::new(local));
    let (lock, lease) = (client.get_lock("orders").unwrap(), Duration::from_secs(60));
    let guard = lock.lock_with_lease(lease).await.unwrap();
    runtime.advance(Duration::from_secs(2));
    let theirs = other.get_lock("orders").unwrap();
    let _competes = begun(theirs.lock());
    runtime.advance(Duration::from_secs(5));
    let held = &client.held()[0];
    assert_eq!((held.held_for, held.left), (Duration::from_secs(7), Duration::from_secs(53)));
    assert_eq!(other.waiting()[0].competes_for, Some(Duration::from_secs(5)));
    guard.unlock().await.unwrap();
}
