//! Futures polled once and then kept or dropped: they hold up no other call, and their work is finished.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{Lock, LockClient, LockOptions};
use latchwork_testkit::{ChaosProxy, RedisServer, Way};
use tokio::time::timeout;

/// Less than the time limit of a reply.
const SOON: Duration = Duration::from_secs(2);

async fn client(url: &str) -> LockClient {
    LockClient::new(Redis::connect(url).await.unwrap())
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.unwrap_or_else(|_| panic!("{what} took too long"))
}

async fn until_free(lock: &Lock) {
    soon("the release", async { while lock.is_locked().await.unwrap() {} }).await;
}

#[tokio::test]
async fn many_unpolled_attempts_let_others_through() {
    let server = RedisServer::start();
    let client = client(&server.url()).await;
    let locks: Vec<_> = (0..200).map(|n| client.get_lock(&format!("kept:{n}")).unwrap()).collect();
    let mut kept: Vec<_> = locks.iter().map(|lock| Box::pin(lock.try_lock())).collect();
    for attempt in &mut kept {
        assert!(poll(attempt.as_mut()).is_pending());
    }
    let other = client.get_lock("other").unwrap();
    let guard = soon("the attempt of another", other.try_lock()).await.unwrap().expect("the lock is free");
    soon("its release", guard.unlock()).await.unwrap();
    for attempt in kept {
        attempt.await.unwrap().expect("no other task wants the lock").unlock().await.unwrap();
    }
}

#[tokio::test]
async fn connection_serves_all_although_its_first_caller_is_unpolled() {
    let mut server = RedisServer::start();
    let client = client(&server.url()).await;
    let [first, other] = ["first", "other"].map(|name| client.get_lock(name).unwrap());
    server.kill_9();
    assert!(other.is_locked().await.is_err());
    server.restart();
    let mut kept = pin!(first.try_lock());
    assert!(poll(kept.as_mut()).is_pending());
    let guard = soon("the attempt of another", other.try_lock()).await.unwrap().expect("the lock is free");
    guard.unlock().await.unwrap();
    kept.await.unwrap().expect("the lock is free").unlock().await.unwrap();
}

#[tokio::test]
async fn unpolled_release_lets_its_owner_go_on() {
    let server = RedisServer::start();
    let lock = client(&server.url()).await.get_lock("owned").unwrap();
    let guard = lock.lock().await.unwrap();
    let owner = *guard.owner();
    let mut kept = pin!(guard.unlock());
    assert!(poll(kept.as_mut()).is_pending());
    // The server did not know the script. The client sends the full script without the caller's polls.
    let again = timeout(2 * SOON, lock.owned_by(&owner).lock()).await.expect("kept by an unpolled release");
    again.unwrap().unlock().await.unwrap();
    kept.await.unwrap();
}

#[tokio::test]
async fn unpolled_release_reaches_the_waiters() {
    let server = RedisServer::start();
    // The lease does not go back to the server between two turns, however slow they are.
    let options = LockOptions::default().tenure(Duration::from_secs(3600));
    let client = LockClient::with_options(Redis::connect(&server.url()).await.unwrap(), &options).unwrap();
    let lock = client.get_lock("wanted").unwrap();
    let guard = lock.lock().await.unwrap();
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap().unlock().await.unwrap() }
    });
    soon("the waiter's place", async {
        while lock.waiters() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut kept = pin!(guard.unlock());
    // A hand-off in memory is immediate.
    assert!(poll(kept.as_mut()).is_ready());
    soon("the hand-off", waiter).await.unwrap();
    assert_eq!(lock.stats().hand_offs, 1);
}

/// With one thread, nothing is sent between poll and drop, so the attempt may be dropped unsent.
#[tokio::test]
async fn attempt_dropped_after_its_first_poll_leaves_nothing() {
    let server = RedisServer::start();
    let lock = client(&server.url()).await.get_lock("dropped").unwrap();
    assert!(poll(pin!(lock.try_lock())).is_pending());
    until_free(&lock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_dropped_when_it_has_been_sent_is_undone() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.port());
    let lock = client(&proxy.url()).await.get_lock("dropped").unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    proxy.forget();
    proxy.silence(Way::ToClient);
    {
        let mut attempt = pin!(lock.try_lock());
        assert!(poll(attempt.as_mut()).is_pending());
        proxy.wait_for("EVALSHA", 1);
    }
    proxy.heal();
    until_free(&lock).await;
}

#[tokio::test]
async fn release_dropped_after_its_first_poll_is_finished() {
    let server = RedisServer::start();
    let lock = client(&server.url()).await.get_lock("dropped").unwrap();
    let guard = lock.lock().await.unwrap();
    assert!(poll(pin!(guard.unlock())).is_pending());
    until_free(&lock).await;
}

#[test]
fn end_of_the_runtime_is_an_error_and_not_a_panic() {
    let server = RedisServer::start();
    let connections = tokio::runtime::Runtime::new().unwrap();
    let client = connections.block_on(client(&server.url()));
    let [held, begun, dropped] = ["held", "begun", "dropped"].map(|name| client.get_lock(name).unwrap());
    let guard = connections.block_on(held.lock()).unwrap();
    server.pause();
    let mut begun = pin!(begun.try_lock());
    let mut dropped = Box::pin(dropped.try_lock());
    assert!(poll(begun.as_mut()).is_pending() && poll(dropped.as_mut()).is_pending());
    drop(connections);
    server.resume();
    drop(dropped);
    let elsewhere = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    elsewhere.block_on(async {
        assert!(soon("an attempt that was under way", begun).await.is_err());
        assert!(soon("a new attempt", held.try_lock()).await.is_err());
        assert!(soon("a release", guard.unlock()).await.is_err());
    });
}

/// A sleeping waiter, a queued one, a guard, and threads: each one polled elsewhere gets an error.
#[test]
fn end_of_the_runtime_ends_every_wait() {
    let server = RedisServer::start();
    let connections = tokio::runtime::Runtime::new().unwrap();
    let (client, other) =
        connections.block_on(async { (client(&server.url()).await, client(&server.url()).await) });
    let theirs = connections.block_on(other.get_lock("held").unwrap().lock()).unwrap();
    let lock = client.get_lock("held").unwrap();
    let waits: Vec<_> = (0..3)
        .map(|_| {
            let lock = latchwork::blocking::Lock::from_async(lock.clone());
            std::thread::spawn(move || lock.lock().map(drop))
        })
        .collect();
    let begun = std::time::Instant::now();
    while lock.waiters() < 2 || client.registry().is_empty() {
        assert!(begun.elapsed() < SOON, "expected both threads to wait");
        std::thread::yield_now();
    }
    drop(connections);
    for wait in waits {
        let error = wait.join().expect("a panic").unwrap_err();
        assert!(error.is_shut_down() || error.is_unreachable() || error.is_indeterminate(), "{error:?}");
    }
    // The lease is not renewed, and no timer fires: blocking calls return at once.
    let blocking = latchwork::blocking::Guard::from_async(theirs);
    assert!(blocking.lost_timeout(Duration::from_millis(10)).is_some());
    assert!(begun.elapsed() < SOON * 2, "{:?}", begun.elapsed());
    assert!(blocking.unlock().is_err());
}
