//! What a guard believes of its lease, and what the store keeps: several leases of one owner inside of each other, at once, and unanswered.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use latchwork::local::Local;
use latchwork::redis::Redis;
use latchwork::{Backend, FairBackend, Guard, Lease, Lock, LockClient, LossReason, ReadWriteBackend};
use latchwork_testkit::{ChaosProxy, RedisServer, Way};
use tokio::time::timeout;

/// Far longer than anything here takes, and far shorter than what a lease lasts that is left behind.
const SOON: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);
/// What the store rounds, and a command takes.
const LITTLE: Duration = Duration::from_secs(2);

async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    timeout(SOON, future).await.unwrap_or_else(|_| panic!("{what}: not within {SOON:?}"))
}

/// A lock of each kind that one owner has alone.
fn kinds<B: FairBackend + ReadWriteBackend>(client: &LockClient<B>, name: &str) -> [Lock<B>; 3] {
    [
        client.get_lock(&format!("{name}:plain")).unwrap(),
        client.fair_lock(&format!("{name}:fair")).unwrap(),
        client.read_write(&format!("{name}:write")).unwrap().write().clone(),
    ]
}

/// Runs a test for each kind of lock, in memory and on a server, with two clients.
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
);

/// The store keeps the lock at least as long as the guard says.
async fn assert_kept<B: Backend>(lock: &Lock<B>, guard: &Guard<B>) {
    let believed = guard.remaining();
    let kept = lock.remaining().await.unwrap().expect("it is held");
    assert!(kept + LITTLE >= believed, "believed in for {believed:?}, kept for {kept:?}");
    assert!(guard.is_held());
}

async fn store_keeps_what_is_believed_beside_a_fenced_re_entry<B: FairBackend + ReadWriteBackend>(
    [client, other]: [LockClient<B>; 2],
) {
    for round in 0..8 {
        let name = format!("fenced:{round}");
        for (lock, theirs) in kinds(&client, &name).into_iter().zip(kinds(&other, &name)) {
            let lock = lock.owned_by(&client.owner());
            let mut outer = lock.lock_with_lease(Duration::from_secs(4)).await.unwrap();
            let fenced = lock.fenced();
            // Both are under way at once, the one first or the other.
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

async fn store_keeps_what_is_believed_beside_an_inner_lease<B: FairBackend + ReadWriteBackend>(
    [client, _]: [LockClient<B>; 2],
) {
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

async fn inner_lease_ends_at_the_store_when_the_outer_hold_is_left<B: FairBackend + ReadWriteBackend>(
    [client, other]: [LockClient<B>; 2],
) {
    for (lock, theirs) in kinds(&client, "left").into_iter().zip(kinds(&other, "left")) {
        let lock = lock.owned_by(&client.owner());
        let outer = lock.lock().await.unwrap();
        let inner = lock.lock_with_lease(Duration::from_millis(500)).await.unwrap();
        outer.unlock().await.unwrap();
        assert!(inner.remaining() <= Duration::from_millis(500));
        assert_eq!(soon("the end of the lease", inner.lost()).await, LossReason::Expired);
        // Not only when the lease is over that the outer hold had: no guard believes in that.
        soon("the lock", theirs.lock()).await.unwrap().unlock().await.unwrap();
        assert!(inner.unlock().await.unwrap_err().is_lost());
    }
}

/// Polls a future once, and drops it. Whether it was ready.
async fn poll_once<F: Future>(future: F) -> bool {
    let mut future = pin!(future);
    poll_fn(|task| Poll::Ready(future.as_mut().poll(task).is_ready())).await
}

/// What is asked for has its effect at the store, and no answer comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extension_that_is_given_up_keeps_the_lock_from_no_other_client() {
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

async fn shutdown_sees_leases_end<B: FairBackend + ReadWriteBackend>([client, _]: [LockClient<B>; 2]) {
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
