//! A guard's view of a lease against the store's: nested, concurrent and unanswered leases of one owner.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use latchwork::local::Local;
use latchwork::{Lock, LockClient, LockOptions, LossReason};

use crate::stores::{Store, on_each_store};

/// Far longer than any step here, and far shorter than a leaked lease.
const SOON: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);
crate::waiting::waiting_for!(SOON);

fn kinds(client: &LockClient, name: &str) -> [Lock; 3] {
    [
        client.get_lock(&format!("{name}:plain")).unwrap(),
        client.get_fair_lock(&format!("{name}:fair")).unwrap(),
        client.get_read_write_lock(&format!("{name}:write")).unwrap().write().clone(),
    ]
}

on_each_store! {
    inner_lease_ends_at_the_store_when_the_outer_hold_is_left
    shutdown_sees_leases_end
    guard_that_is_granted_lasts
}

async fn inner_lease_ends_at_the_store_when_the_outer_hold_is_left(store: &Store) {
    let [client, other] = store.two_clients().await;
    for (lock, theirs) in kinds(&client, "left").into_iter().zip(kinds(&other, "left")) {
        let lock = lock.owned_by(&client.owner());
        let outer = lock.lock().await.unwrap();
        let inner = lock.lock_with_lease(Duration::from_millis(500)).await.unwrap();
        outer.unlock().await.unwrap();
        assert!(inner.remaining() <= Duration::from_millis(500));
        assert_eq!(soon("the end of the lease", inner.lost()).await, LossReason::Expired);
        // The lock becomes free well before the outer hold's lease ends, on which no guard relies.
        soon("the lock", theirs.lock()).await.unwrap().unlock().await.unwrap();
        assert!(inner.unlock().await.unwrap_err().is_lost());
    }
}

async fn shutdown_sees_leases_end(store: &Store) {
    let client = store.client().await;
    let mut kept = Vec::new();
    for lock in kinds(&client, "shut down") {
        let lock = lock.owned_by(&client.owner());
        let lease = Duration::from_millis(400);
        kept.push(lock.lock_with_lease(lease).await.unwrap());
        lock.lock_with_lease(lease).await.unwrap().forget();
    }
    soon("the end of the leases", client.shutdown(SOON * 2)).await.unwrap();
    assert!(kept.iter().all(|guard| !guard.is_held()));
}

/// Granted beside another hold, and polled only after its own lease, the waiter still gets a live guard.
async fn guard_that_is_granted_lasts(store: &Store) {
    let client = store.client().await;
    for lock in kinds(&client, "granted") {
        let owned = lock.owned_by(&client.owner());
        let first = lock.lock().await.unwrap();
        let mut watched = pin!(owned.lock());
        let mut brief = pin!(owned.lock_with_lease(Duration::from_millis(100)));
        poll_fn(|task| {
            assert!(watched.as_mut().poll(task).is_pending() && brief.as_mut().poll(task).is_pending());
            Poll::Ready(())
        })
        .await;
        first.unlock().await.unwrap();
        let watched = soon("its turn", watched).await.unwrap();
        let over = tokio::time::Instant::now() + Duration::from_millis(150);
        tokio::time::sleep_until(over).await;
        let brief = soon("its turn", brief).await.unwrap();
        assert!(brief.is_held());
        drop((brief, watched));
    }
}

#[tokio::test]
async fn longest_hold_is_that_of_watched_holds() {
    let options = LockOptions::default().max_hold(Duration::from_millis(300));
    let client = LockClient::with_options(Local::new(), &options).unwrap();
    for lock in kinds(&client, "longest") {
        let lock = lock.owned_by(&client.owner());
        // A short lease before a watched hold does not reduce `max_hold`, and a lease beside one is not cut.
        let short = lock.lock_with_lease(Duration::from_millis(100)).await.unwrap();
        let watched = lock.lock().await.unwrap();
        drop(short);
        assert_eq!(soon("the end of the longest hold", watched.lost()).await, LossReason::HeldTooLong);
        let watched = lock.lock().await.unwrap();
        let own = lock.lock_with_lease(HOUR).await.unwrap();
        drop(watched);
        assert_eq!(own.lost_timeout(Duration::from_millis(500)).await, None);
    }
}

/// An inner hold, since given back, has made the lease long; renewals still come at the usual interval.
#[tokio::test]
async fn holder_with_a_long_lease_learns_of_a_forced_unlock_in_time() {
    let options = LockOptions::default().watchdog_timeout(Duration::from_secs(3));
    let store = Local::new();
    let client = LockClient::with_options(store.clone(), &options).unwrap();
    let other = LockClient::new(store);
    for (lock, theirs) in kinds(&client, "forced").into_iter().zip(kinds(&other, "forced")) {
        let lock = lock.owned_by(&client.owner());
        let outer = lock.lock().await.unwrap();
        lock.lock_with_lease(HOUR).await.unwrap().unlock().await.unwrap();
        assert!(theirs.force_unlock().await.unwrap());
        assert_eq!(soon("the loss", outer.lost()).await, LossReason::Gone);
    }
}
