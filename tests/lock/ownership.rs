//! Ownership beyond the suite for every backend, on both backends: unpolled waiters, losses, labels.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use latchwork::{Guard, Lease, Lock, LockClient, LockError, LockOptions, LossReason};
use latchwork_testkit::Bell;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::stage::begun;
use crate::stores::{Store, on_each_store};

const SOON: Duration = Duration::from_secs(10);
crate::waiting::waiting_for!(SOON);
/// Default limit for which an unpolled waiter may keep the lock from others.
const UNPOLLED: Duration = Duration::from_secs(2);

on_each_store! {
    unpolled_head_keeps_no_other_process_out
    waiting_task_notices_a_foreign_forced_unlock_within_seconds
    holder_by_hand_off_is_told_the_loss
    extended_lease_lasts
    holder_is_told_with_its_label
    longest_hold_costs_no_commands_and_ends_in_time
    waiter_does_not_overtake_by_trying
}

fn waiter(lock: &Lock) -> JoinHandle<Guard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await.unwrap() })
}

/// The store has granted the lock and replied, but no task here has read the reply.
async fn unpolled_head_keeps_no_other_process_out(store: &Store) {
    let [client, other] = store.two_clients().await;
    let lock = client.get_lock("a").unwrap();
    let mut kept = Box::pin(lock.lock());
    let bell = Bell::default();
    let begun = Instant::now();
    if let Poll::Ready(guard) = kept.as_mut().poll(&mut Context::from_waker(&bell.waker())) {
        // A store in memory answers within the first poll.
        return guard.unwrap().unlock().await.unwrap();
    }
    let theirs = other.get_lock("a").unwrap();
    let guard = timeout(UNPOLLED + Duration::from_secs(1), theirs.lock()).await.expect("kept out").unwrap();
    assert!(begun.elapsed() <= UNPOLLED + Duration::from_millis(500), "{:?}", begun.elapsed());
    assert!(bell.take(), "expected a wake-up of the waiter");
    drop(kept);
    guard.ensure_held().await.expect("the superseded waiter leaves the lock of another alone");
    guard.unlock().await.unwrap();
}

async fn waiting_task_notices_a_foreign_forced_unlock_within_seconds(store: &Store) {
    let [client, other] = store.two_clients().await;
    let lock = client.get_lock("a").unwrap();
    let guard = lock.lock_with_lease(Duration::from_secs(3600)).await.unwrap();
    let waits = waiter(&lock);
    eventually("the next one's place", async || lock.waiters() == 1).await;
    assert!(other.get_lock("a").unwrap().force_unlock().await.unwrap());
    // Leases with waiters are verified once a second.
    let next = timeout(Duration::from_secs(3), waits)
        .await
        .expect("the released lock is requested within three seconds")
        .unwrap();
    assert_eq!(soon("the notice", guard.lost()).await, LossReason::Gone);
    next.unlock().await.unwrap();
}

async fn holder_by_hand_off_is_told_the_loss(store: &Store) {
    let options = LockOptions::default().tenure(Duration::from_secs(3600));
    let (client, other) = (store.client_with(&options).await, store.client().await);
    let lock = client.get_lock("a").unwrap();
    let held = lock.lock().await.unwrap();
    let waits = waiter(&lock);
    eventually("the next one's place", async || lock.waiters() == 1).await;
    held.unlock().await.unwrap();
    let guard = soon("the hand-off", waits).await.unwrap();
    assert_eq!(lock.stats().hand_offs, 1);
    assert!(guard.is_held() && guard.remaining() > Duration::from_secs(20));
    guard.ensure_held().await.unwrap();
    assert!(other.get_lock("a").unwrap().force_unlock().await.unwrap());
    assert!(guard.ensure_held().await.unwrap_err().is_lost());
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert_eq!(guard.lost().await, LossReason::Gone);
    assert!(guard.unlock().await.unwrap_err().is_lost());
}

async fn extended_lease_lasts(store: &Store) {
    let [client, other] = store.two_clients().await;
    let lock = client.get_lock("a").unwrap();
    let mut guard = lock.lock_with_lease(Duration::from_secs(2)).await.unwrap();
    guard.extend(Duration::from_secs(60)).await.unwrap();
    assert!(guard.remaining() > Duration::from_secs(50));
    let left = other.get_lock("a").unwrap().remaining().await.unwrap().unwrap();
    assert!(left > Duration::from_secs(50), "{left:?}");
    // `extend` does not shorten the lease.
    guard.extend(Duration::from_secs(5)).await.unwrap();
    assert!(guard.remaining() > Duration::from_secs(50));
    assert!(matches!(guard.extend(Duration::ZERO).await, Err(LockError::Lease(_))));
    guard.unlock().await.unwrap();
}

async fn holder_is_told_with_its_label(store: &Store) {
    let (client, other) =
        (store.client_with(&LockOptions::default().label("host-7:worker")).await, store.client().await);
    let (lock, theirs) = (client.get_lock("a").unwrap(), other.get_lock("a").unwrap());
    assert_eq!(theirs.holder().await.unwrap(), None);
    let guard = lock.lock().await.unwrap();
    let holder = theirs.holder().await.unwrap().expect("the lock is held");
    let id = holder.id.expect("the holder is a client of this crate");
    assert_eq!((id.client_id().as_str(), id.label()), (client.id(), Some("host-7:worker")));
    assert!(holder.left > Duration::from_secs(20) && holder.left <= Duration::from_secs(30));
    guard.unlock().await.unwrap();
    let guard = theirs.lock().await.unwrap();
    assert_eq!(lock.holder().await.unwrap().unwrap().id.unwrap().label(), None);
    guard.unlock().await.unwrap();
}

async fn longest_hold_costs_no_commands_and_ends_in_time(store: &Store) {
    let limit = Duration::from_millis(300);
    let options = LockOptions::default().max_hold(limit).tenure(Duration::from_secs(3600));
    let client = store.client_with(&options).await;
    let lock = client.get_lock("a").unwrap();
    let guard = lock.lock().await.unwrap();
    let next = waiter(&lock);
    assert_eq!(soon("the limit", guard.lost()).await, LossReason::HeldTooLong);
    let next = soon("the next one", next).await.unwrap();
    assert_eq!((client.metrics().renewals_sent, lock.stats().hand_offs), (0, 1));
    drop(guard);
    next.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

async fn waiter_does_not_overtake_by_trying(store: &Store) {
    let client = store.client().await;
    let lock = client.get_lock("a").unwrap();
    let held = lock.lock().await.unwrap();
    let waits = begun(lock.lock());
    drop(held);
    assert!(lock.try_lock().await.unwrap().is_none(), "expected no lock for a newcomer beside the waiter");
    soon("its turn", waits).await.unwrap().unlock().await.unwrap();
    let late = lock.try_lock_for(Duration::from_millis(20), Lease::Watched).await.unwrap();
    late.expect("the lock is free").unlock().await.unwrap();
}

/// With half an id, two of four billion clients would collide.
#[test]
fn each_half_of_a_clients_id_is_drawn() {
    let ids = [(); 2].map(|()| LockClient::local().id().to_owned());
    // Of 36 characters, 60 random bits before the variant and 60 bits after.
    assert_ne!(ids[0][..18], ids[1][..18]);
    assert_ne!(ids[0][20..], ids[1][20..]);
}
