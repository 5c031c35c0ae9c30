//! Hand-off of ownership in memory, on both backends: releases, drains, unpolled waiters, losses.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use latchwork::backend::Backend;
use latchwork::local::Local;
use latchwork::redis::Redis;
use latchwork::{Guard, Lease, LockClient, LockError, LockOptions, LossReason};
use latchwork_testkit::RedisServer;
use tokio::time::timeout;

use crate::polled::poll;

const SOON: Duration = Duration::from_secs(10);
crate::waiting::waiting_for!(SOON);
/// Default limit for which an unpolled waiter may keep the lock from others.
const UNPOLLED: Duration = Duration::from_secs(2);

/// Clients of one store, as in different processes.
trait Store {
    type Backend: Backend;
    async fn client_with(&self, options: &LockOptions) -> LockClient;

    async fn client(&self) -> LockClient {
        self.client_with(&LockOptions::default()).await
    }
}

struct InMemory(Local);

impl Store for InMemory {
    type Backend = Local;

    async fn client_with(&self, options: &LockOptions) -> LockClient {
        LockClient::with_options(self.0.clone(), options).unwrap()
    }
}

struct OnServer(RedisServer);

impl Store for OnServer {
    type Backend = Redis;

    async fn client_with(&self, options: &LockOptions) -> LockClient {
        LockClient::with_options(Redis::connect(&self.0.url()).await.unwrap(), options).unwrap()
    }
}

macro_rules! of_both {
    ($($test:ident)*) => {
        mod local {
            use super::*;
            $(
                #[tokio::test]
                async fn $test() {
                    super::$test(&InMemory(Local::new())).await;
                }
            )*
        }
        mod on_a_server {
            use super::*;
            $(
                #[tokio::test]
                async fn $test() {
                    super::$test(&OnServer(RedisServer::start())).await;
                }
            )*
        }
    };
}

of_both! {
    shutdown_waits_for_releases_and_refuses_newcomers
    shutdown_names_what_is_held_still
    shutdown_ends_waits
    head_polled_once_is_superseded
    granted_unpolled_waiter_is_superseded
    unpolled_head_keeps_no_other_process_out
    superseded_waiter_queues_anew_when_it_is_polled
    unlock_by_name_tells_a_guard_of_the_last_hold
    waiting_task_notices_a_foreign_forced_unlock_within_seconds
    holder_by_hand_off_is_told_the_loss
    extended_lease_lasts
    lost_lease_is_not_extended
    fenced_inner_hold_in_an_unfenced_outer_one_has_a_token
    holder_is_told_with_its_label
    longest_hold_costs_no_commands_and_ends_in_time
    hold_of_the_owner_of_a_guard_is_reentered
    owner_of_another_client_has_nothing_whatever_its_number
    holds_ended_by_a_foreign_forced_unlock_do_not_count
    waiter_does_not_overtake_by_trying
    errors_say_what_can_be_done
}

/// A waker that only counts, as `select!` does for a branch not looked at.
#[derive(Default)]
pub(crate) struct Counts(pub(crate) AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        // Ordering: Relaxed, only a counter.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

async fn shutdown_waits_for_releases_and_refuses_newcomers<S: Store>(store: &S) {
    let (client, other) = (store.client().await, store.client().await);
    let lock = client.get_lock("a").unwrap();
    drop(lock.lock_with_lease(Duration::from_secs(3600)).await.unwrap());
    client.shutdown(SOON).await.unwrap();
    assert!(
        !other.get_lock("a").unwrap().is_locked().await.unwrap(),
        "expected a free lock after the release"
    );
    let error = lock.lock().await.unwrap_err();
    assert!(matches!(error, LockError::ShutDown) && error.is_shut_down(), "{error:?}");
    assert!(lock.try_lock().await.unwrap_err().is_shut_down());
    client.shutdown(Duration::ZERO).await.unwrap();
}

async fn shutdown_names_what_is_held_still<S: Store>(store: &S) {
    let client = store.client().await;
    let guard = client.get_lock("held").unwrap().lock().await.unwrap();
    let error = client.shutdown(Duration::from_millis(20)).await.unwrap_err();
    assert_eq!(error.held(), [guard.name().clone()]);
    assert!(error.releasing().is_empty() && error.to_string().contains("held"));
    let drained = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown(SOON).await }
    });
    guard.unlock().await.unwrap();
    soon("the drain", drained).await.unwrap().unwrap();
}

async fn shutdown_ends_waits<S: Store>(store: &S) {
    let (client, other) = (store.client().await, store.client().await);
    let held = other.get_lock("a").unwrap().lock().await.unwrap();
    let lock = client.get_lock("a").unwrap();
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.lock().await.map(drop) })
        })
        .collect();
    eventually("two behind the queue head", async || lock.waiters() == 2).await;
    client.shutdown(SOON).await.unwrap();
    for waiter in waiters {
        assert!(soon("the end of the wait", waiter).await.unwrap().unwrap_err().is_shut_down());
    }
    held.unlock().await.unwrap();
}

async fn head_polled_once_is_superseded<S: Store>(store: &S) {
    let (client, other) = (store.client().await, store.client().await);
    let held = other.get_lock("a").unwrap().lock().await.unwrap();
    let lock = client.get_lock("a").unwrap();
    let mut kept = Box::pin(lock.lock());
    assert!(poll(kept.as_mut()).is_pending());
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    });
    eventually("the next one's place", async || lock.waiters() == 1).await;
    let begun = Instant::now();
    held.unlock().await.unwrap();
    let guard = timeout(UNPOLLED + Duration::from_secs(1), next).await.expect("kept from the lock").unwrap();
    assert!(begun.elapsed() <= UNPOLLED, "{:?}", begun.elapsed());
    assert!(client.metrics().superseded >= 1);
    // Polled again, the waiter queues behind the holder.
    let unlock = async {
        eventually("its place in the queue", async || lock.waiters() == 1).await;
        guard.unlock().await.unwrap();
    };
    let (kept, ()) = soon("its turn", async { tokio::join!(kept, unlock) }).await;
    kept.unwrap().unlock().await.unwrap();
    eventually("the lock's becoming free", async || !lock.is_locked().await.unwrap()).await;
}

async fn granted_unpolled_waiter_is_superseded<S: Store>(store: &S) {
    let client = store.client_with(&LockOptions::default().tenure(Duration::from_secs(3600))).await;
    let lock = client.get_lock("a").unwrap();
    let held = lock.lock().await.unwrap();
    let mut kept = Box::pin(lock.lock());
    assert!(poll(kept.as_mut()).is_pending());
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    });
    eventually("the next one's place", async || lock.waiters() == 2).await;
    let begun = Instant::now();
    held.unlock().await.unwrap();
    let guard = timeout(UNPOLLED + Duration::from_secs(1), next).await.expect("kept from the lock").unwrap();
    assert!(begun.elapsed() <= UNPOLLED, "{:?}", begun.elapsed());
    assert_eq!(client.metrics().superseded, 1);
    drop(kept);
    guard.ensure_held().await.unwrap();
    guard.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

/// The store has granted the lock and replied, but no task here has read the reply.
async fn unpolled_head_keeps_no_other_process_out<S: Store>(store: &S) {
    let (client, other) = (store.client().await, store.client().await);
    let lock = client.get_lock("a").unwrap();
    let mut kept = Box::pin(lock.lock());
    let counts = Arc::new(Counts::default());
    let waker = Waker::from(Arc::clone(&counts));
    let begun = Instant::now();
    if let Poll::Ready(guard) = kept.as_mut().poll(&mut Context::from_waker(&waker)) {
        // A store in memory answers within the first poll.
        return guard.unwrap().unlock().await.unwrap();
    }
    let theirs = other.get_lock("a").unwrap();
    let guard = timeout(UNPOLLED + Duration::from_secs(1), theirs.lock()).await.expect("kept out").unwrap();
    assert!(begun.elapsed() <= UNPOLLED + Duration::from_millis(500), "{:?}", begun.elapsed());
    // Ordering: Relaxed, as above.
    assert!(counts.0.load(Ordering::Relaxed) > 0, "expected a wake-up of the waiter");
    drop(kept);
    guard.ensure_held().await.expect("the superseded waiter leaves the lock of another alone");
    guard.unlock().await.unwrap();
}

async fn superseded_waiter_queues_anew_when_it_is_polled<S: Store>(store: &S) {
    let options = LockOptions::default().unpolled_limit(Duration::from_millis(50));
    let client = store.client_with(&options).await;
    let lock = client.get_lock("a").unwrap();
    let held = lock.lock().await.unwrap();
    let mut kept = Box::pin(lock.lock());
    assert!(poll(kept.as_mut()).is_pending());
    held.unlock().await.unwrap();
    eventually("its being superseded", async || client.metrics().superseded == 1).await;
    eventually("the lock's becoming free", async || !lock.is_locked().await.unwrap()).await;
    let guard = soon("its turn", kept).await.unwrap();
    guard.ensure_held().await.unwrap();
    guard.unlock().await.unwrap();
}

async fn unlock_by_name_tells_a_guard_of_the_last_hold<S: Store>(store: &S) {
    let client = store.client().await;
    let me = client.owner();
    let lock = client.get_lock("a").unwrap();
    let mine = lock.owned_by(&me);
    let guard = mine.lock().await.unwrap();
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    });
    eventually("the next one's place", async || lock.waiters() == 1).await;
    mine.unlock(&me).await.unwrap();
    let next = soon("the next one's turn", next).await.unwrap();
    assert!(!guard.is_held(), "expected the former guard to have lost its hold");
    assert_eq!(soon("the notice", guard.lost()).await, LossReason::GivenBack);
    assert!(guard.unlock().await.unwrap_err().is_lost());
    next.ensure_held().await.unwrap();
    next.unlock().await.unwrap();
}

async fn waiting_task_notices_a_foreign_forced_unlock_within_seconds<S: Store>(store: &S) {
    let (client, other) = (store.client().await, store.client().await);
    let lock = client.get_lock("a").unwrap();
    let guard = lock.lock_with_lease(Duration::from_secs(3600)).await.unwrap();
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    });
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

async fn holder_by_hand_off_is_told_the_loss<S: Store>(store: &S) {
    let options = LockOptions::default().tenure(Duration::from_secs(3600));
    let (client, other) = (store.client_with(&options).await, store.client().await);
    let lock = client.get_lock("a").unwrap();
    let held = lock.lock().await.unwrap();
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    });
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

async fn extended_lease_lasts<S: Store>(store: &S) {
    let (client, other) = (store.client().await, store.client().await);
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

async fn lost_lease_is_not_extended<S: Store>(store: &S) {
    let (client, other) = (store.client().await, store.client().await);
    let lock = client.get_lock("a").unwrap();
    let mut guard = lock.lock().await.unwrap();
    assert!(other.get_lock("a").unwrap().force_unlock().await.unwrap());
    let theirs = other.get_lock("a").unwrap().lock().await.unwrap();
    assert!(guard.extend(Duration::from_secs(60)).await.unwrap_err().is_lost());
    assert!(!guard.is_held());
    drop(guard);
    theirs.ensure_held().await.unwrap();
    theirs.unlock().await.unwrap();
}

async fn fenced_inner_hold_in_an_unfenced_outer_one_has_a_token<S: Store>(store: &S) {
    let client = store.client().await;
    let lock = client.get_lock("a").unwrap().owned_by(&client.owner());
    let before = lock.fenced().lock().await.unwrap();
    let last = before.fencing_token();
    before.unlock().await.unwrap();
    let outer = lock.lock().await.unwrap();
    let inner = lock.fenced().lock().await.unwrap();
    assert!(outer.fencing_token().is_none() && inner.fencing_token() > last);
    let again = lock.fenced().lock().await.unwrap();
    assert_eq!(again.fencing_token(), inner.fencing_token());
    for guard in [outer, inner, again] {
        guard.unlock().await.unwrap();
    }
    let after = lock.fenced().lock().await.unwrap();
    assert!(after.fencing_token() > last);
    after.unlock().await.unwrap();
}

async fn holder_is_told_with_its_label<S: Store>(store: &S) {
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

async fn longest_hold_costs_no_commands_and_ends_in_time<S: Store>(store: &S) {
    let limit = Duration::from_millis(300);
    let options = LockOptions::default().max_hold(limit).tenure(Duration::from_secs(3600));
    let client = store.client_with(&options).await;
    let lock = client.get_lock("a").unwrap();
    let guard = lock.lock().await.unwrap();
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    });
    assert_eq!(soon("the limit", guard.lost()).await, LossReason::HeldTooLong);
    let next = soon("the next one", next).await.unwrap();
    assert_eq!((client.metrics().renewals_sent, lock.stats().hand_offs), (0, 1));
    drop(guard);
    next.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

async fn hold_of_the_owner_of_a_guard_is_reentered<S: Store>(store: &S) {
    let client = store.client().await;
    let lock = client.get_lock("a").unwrap();
    let outer = lock.lock().await.unwrap();
    let inner = soon("re-entry", lock.owned_by(outer.owner()).lock()).await.unwrap();
    assert_eq!(lock.hold_count(outer.owner()).await.unwrap(), 2);
    outer.unlock().await.unwrap();
    assert!(inner.is_held());
    inner.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

async fn owner_of_another_client_has_nothing_whatever_its_number<S: Store>(store: &S) {
    let (client, other) = (store.client().await, store.client().await);
    // Owners get equal numbers, as each is its client's first.
    let (me, stranger) = (client.owner(), other.owner());
    let lock = client.get_lock("a").unwrap();
    let guard = lock.owned_by(&me).lock().await.unwrap();
    assert!(
        matches!(lock.unlock(&stranger).await, Err(LockError::NotHeld { owner, .. }) if owner == stranger)
    );
    assert_eq!((lock.hold_count(&stranger).await.unwrap(), lock.hold_count(&me).await.unwrap()), (0, 1));
    guard.unlock().await.unwrap();
}

async fn holds_ended_by_a_foreign_forced_unlock_do_not_count<S: Store>(store: &S) {
    let (client, other) = (store.client().await, store.client().await);
    let me = client.owner();
    let lock = client.get_lock("a").unwrap().owned_by(&me);
    let guards = [lock.lock().await.unwrap(), lock.lock().await.unwrap()];
    assert_eq!(lock.hold_count(&me).await.unwrap(), 2);
    assert!(other.get_lock("a").unwrap().force_unlock().await.unwrap());
    assert_eq!(lock.hold_count(&me).await.unwrap(), 0);
    assert!(!guards.iter().any(Guard::is_held), "expected both guards to learn of the loss from the count");
}

async fn waiter_does_not_overtake_by_trying<S: Store>(store: &S) {
    let client = store.client().await;
    let lock = client.get_lock("a").unwrap();
    let held = lock.lock().await.unwrap();
    let mut waits = pin!(lock.lock());
    assert!(poll(waits.as_mut()).is_pending());
    drop(held);
    assert!(lock.try_lock().await.unwrap().is_none(), "expected no lock for a newcomer beside the waiter");
    soon("its turn", waits).await.unwrap().unlock().await.unwrap();
    let late = lock.try_lock_for(Duration::from_millis(20), Lease::Watched).await.unwrap();
    late.expect("the lock is free").unlock().await.unwrap();
}

async fn errors_say_what_can_be_done<S: Store>(store: &S) {
    let (client, other) = (store.client().await, store.client().await);
    let lock = client.get_lock("a").unwrap();
    let refused = lock.lock_with_lease(Duration::ZERO).await.unwrap_err();
    assert!(refused.is_refused() && !refused.is_retryable());
    let not_held = lock.unlock(&client.owner()).await.unwrap_err();
    assert!(not_held.is_not_held() && !not_held.is_lost());
    let guard = lock.lock().await.unwrap();
    assert!(other.get_lock("a").unwrap().force_unlock().await.unwrap());
    let lost = guard.unlock().await.unwrap_err();
    assert!(lost.is_lost() && lost.is_not_held() && !lost.is_retryable());
}
