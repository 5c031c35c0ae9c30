//! A guard's view of a lease against the store's: nested, concurrent and unanswered leases of one owner.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use latchwork::local::Local;
use latchwork::redis::Redis;
use latchwork::{Guard, Lease, Lock, LockClient, LockOptions, LossReason};
use latchwork_testkit::{ChaosProxy, RedisServer, Way};
use tokio::time::timeout;

use crate::foreign::waker_that_panics;

/// Far longer than any step here, and far shorter than a leaked lease.
const SOON: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);
/// Tolerance for the store's rounding and a round trip.
const LITTLE: Duration = Duration::from_secs(2);

async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    timeout(SOON, future).await.unwrap_or_else(|_| panic!("expected within {SOON:?}: {what}"))
}

fn kinds(client: &LockClient, name: &str) -> [Lock; 3] {
    [
        client.get_lock(&format!("{name}:plain")).unwrap(),
        client.get_fair_lock(&format!("{name}:fair")).unwrap(),
        client.get_read_write_lock(&format!("{name}:write")).unwrap().write().clone(),
    ]
}

/// Runs each test for each kind of lock, in memory and on a server, with two clients.
macro_rules! for_each_store {
    ($($test:ident),* $(,)?) => {
        mod in_memory {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    let store = super::Local::new();
                    let clients = [super::LockClient::new(store.clone()), super::LockClient::new(store)];
                    super::$test(clients).await;
                }
            )*
        }

        mod on_a_server {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    let server = super::RedisServer::start();
                    let connect = async || super::Redis::connect(&server.url()).await.unwrap();
                    let clients = [
                        super::LockClient::new(connect().await),
                        super::LockClient::new(connect().await),
                    ];
                    super::$test(clients).await;
                }
            )*
        }
    };
}

for_each_store!(
    store_keeps_what_is_believed_beside_a_fenced_re_entry,
    store_keeps_what_is_believed_beside_an_inner_lease,
    inner_lease_ends_at_the_store_when_the_outer_hold_is_left,
    shutdown_sees_leases_end,
    guard_that_is_granted_lasts,
    panicking_waker_of_a_loss_leaves_the_name_alive,
);

/// Asserts that the store keeps the lock at least as long as the guard says.
async fn assert_kept(lock: &Lock, guard: &Guard) {
    let believed = guard.remaining();
    let kept = lock.remaining().await.unwrap().expect("the lock is held");
    assert!(
        kept + LITTLE >= believed,
        "expected a belief no longer than the store's {kept:?}, and the guard believed for {believed:?}"
    );
    assert!(guard.is_held());
}

async fn store_keeps_what_is_believed_beside_a_fenced_re_entry([client, other]: [LockClient; 2]) {
    for round in 0..8 {
        let name = format!("fenced:{round}");
        for (lock, theirs) in kinds(&client, &name).into_iter().zip(kinds(&other, &name)) {
            let lock = lock.owned_by(&client.owner());
            let mut outer = lock.lock_with_lease(Duration::from_secs(4)).await.unwrap();
            let fenced = lock.fenced();
            let inner = async {
                for _ in 0..round / 2 {
                    tokio::task::yield_now().await;
                }
                fenced.lock_with_lease(Duration::from_secs(1)).await.unwrap()
            };
            let (extended, inner) = match round % 2 {
                0 => tokio::join!(outer.extend(HOUR), inner),
                _ => {
                    let (inner, extended) = tokio::join!(inner, outer.extend(HOUR));
                    (extended, inner)
                }
            };
            extended.unwrap();
            assert!(inner.fencing_token().is_some());
            assert!(outer.remaining() > HOUR - SOON);
            assert_kept(&lock, &outer).await;
            assert!(theirs.try_lock().await.unwrap().is_none());
            drop((outer, inner));
        }
    }
}

async fn store_keeps_what_is_believed_beside_an_inner_lease([client, _]: [LockClient; 2]) {
    for lock in kinds(&client, "inner") {
        let lock = lock.owned_by(&client.owner());
        let outer = lock.lock().await.unwrap();
        let fenced = lock.fenced();
        let (long, short) = tokio::join!(lock.lock_with_lease(HOUR), fenced.lock_with_lease(LITTLE));
        let (long, short) = (long.unwrap(), short.unwrap());
        assert!(long.remaining() > HOUR - SOON);
        assert_kept(&lock, &long).await;
        assert!(outer.is_held() && short.is_held());
        drop((short, outer));
        assert_kept(&lock, &long).await;
        long.unlock().await.unwrap();
        assert!(!lock.is_locked().await.unwrap());
    }
}

async fn inner_lease_ends_at_the_store_when_the_outer_hold_is_left([client, other]: [LockClient; 2]) {
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

async fn poll_once<F: Future>(future: F) -> bool {
    let mut future = pin!(future);
    poll_fn(|task| Poll::Ready(future.as_mut().poll(task).is_ready())).await
}

async fn shutdown_sees_leases_end([client, _]: [LockClient; 2]) {
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
async fn guard_that_is_granted_lasts([client, _]: [LockClient; 2]) {
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

/// The event that reports the loss has further effects: a release, or the right to compete.
async fn panicking_waker_of_a_loss_leaves_the_name_alive([client, other]: [LockClient; 2]) {
    for (lock, theirs) in kinds(&client, "panics").into_iter().zip(kinds(&other, "panics")) {
        let me = client.owner();
        let owned = lock.owned_by(&me);
        let guard = owned.lock().await.unwrap();
        {
            let waker = waker_that_panics();
            let mut lost = pin!(guard.lost());
            assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            let by_name = tokio::spawn({
                let owned = owned.clone();
                async move { owned.unlock(&me).await }
            });
            soon("the unlock", by_name).await.unwrap().unwrap();
        }
        soon("the lock", theirs.lock()).await.unwrap().unlock().await.unwrap();
        soon("the lock", lock.lock()).await.unwrap().unlock().await.unwrap();
        drop(guard);
    }
}

/// The newcomer becomes queue head and finds another owner's hold over.
#[tokio::test]
async fn panicking_waker_of_a_loss_costs_no_newcomer_its_call() {
    let client = LockClient::new(Local::new());
    for lock in kinds(&client, "newcomer") {
        let guard = lock.lock_with_lease(Duration::from_millis(20)).await.unwrap();
        let waker = waker_that_panics();
        let mut lost = pin!(guard.lost());
        assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        while guard.is_held() {}
        let newcomer = lock.clone();
        tokio::spawn(async move { newcomer.lock().await.map(drop) }).await.unwrap().unwrap();
        soon("the lock", lock.lock()).await.unwrap().unlock().await.unwrap();
    }
}

mod needs_a_server {
    use super::*;

    /// The extension takes effect at the store, and the answer is lost.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn abandoned_extension_keeps_no_other_client_from_the_lock() {
        let server = RedisServer::start();
        let proxy = ChaosProxy::start(server.port());
        let client = LockClient::new(Redis::connect(&proxy.url()).await.unwrap());
        let other = LockClient::new(Redis::connect(&server.url()).await.unwrap());
        for (lock, theirs) in kinds(&client, "given up").into_iter().zip(kinds(&other, "given up")) {
            let lock = lock.owned_by(&client.owner());
            let mut guard = lock.lock_with_lease(Duration::from_millis(800)).await.unwrap();
            proxy.delay(Way::ToClient, Duration::from_millis(200));
            let fenced = lock.fenced();
            assert!(!poll_once(lock.try_lock_for(Duration::from_secs(1), HOUR)).await);
            assert!(!poll_once(fenced.try_lock_for(Duration::from_secs(1), Lease::For(HOUR))).await);
            assert!(!poll_once(guard.extend(HOUR)).await);
            proxy.heal();
            assert!(guard.remaining() < Duration::from_secs(1));
            soon("the loss", guard.lost()).await;
            soon("the lock", theirs.lock()).await.unwrap().unlock().await.unwrap();
            assert!(guard.unlock().await.is_err());
        }
    }

    /// The release is not answered; the store still has the lease.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn shutdown_waits_for_a_release_that_a_caller_waits_for() {
        let server = RedisServer::start();
        let proxy = ChaosProxy::start(server.port());
        let client = LockClient::new(Redis::connect(&proxy.url()).await.unwrap());
        let other = LockClient::new(Redis::connect(&server.url()).await.unwrap());
        // A client is shut down once, so only one kind of lock is tested.
        let (lock, theirs) = (client.get_fair_lock("end").unwrap(), other.get_fair_lock("end").unwrap());
        let guard = lock.lock().await.unwrap();
        proxy.silence(Way::ToServer);
        let mut unlock = pin!(guard.unlock());
        let is_pending = poll_fn(|task| Poll::Ready(unlock.as_mut().poll(task).is_pending())).await;
        assert!(is_pending);
        let error = client.shutdown(Duration::from_millis(200)).await.unwrap_err();
        assert_eq!(error.releasing(), [lock.name().clone()]);
        proxy.heal();
        let (ended, _) = tokio::join!(client.shutdown(SOON), unlock);
        ended.unwrap();
        assert!(!theirs.is_locked().await.unwrap());
    }

    /// An inner hold, since given back, has made the lease long; renewals still come at the usual interval.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn holder_with_a_long_lease_learns_of_a_forced_unlock_in_time() {
        let server = RedisServer::start();
        let options = LockOptions::default().watchdog_timeout(Duration::from_secs(3));
        let connect = async || Redis::connect(&server.url()).await.unwrap();
        let client = LockClient::with_options(connect().await, &options).unwrap();
        let other = LockClient::new(connect().await);
        for (lock, theirs) in kinds(&client, "forced").into_iter().zip(kinds(&other, "forced")) {
            let lock = lock.owned_by(&client.owner());
            let outer = lock.lock().await.unwrap();
            lock.lock_with_lease(HOUR).await.unwrap().unlock().await.unwrap();
            assert!(theirs.force_unlock().await.unwrap());
            assert_eq!(soon("the loss", outer.lost()).await, LossReason::Gone);
        }
    }
}
