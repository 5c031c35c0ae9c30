//! Futures polled once and then kept or dropped: they hold up no other call, and their work is finished.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::by_hand::client;
use latchwork::redis::Redis;
use latchwork::{LockClient, LockError, blocking};
use latchwork_testkit::{ChaosProxy, RedisServer, Way};
use tokio::time::timeout;

/// Less than the time limit of a reply.
const SOON: Duration = Duration::from_secs(2);
crate::waiting::waiting_for!(SOON);

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
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

#[test]
fn end_of_the_runtime_is_an_error_and_not_a_panic() {
    let server = RedisServer::start();
    let connections = tokio::runtime::Runtime::new().unwrap();
    let client = connections.block_on(client(&server.url()));
    let [held, kept, begun, dropped] =
        ["held", "kept", "begun", "dropped"].map(|name| client.get_lock(name).unwrap());
    let guard = connections.block_on(held.lock()).unwrap();
    let kept = connections.block_on(kept.lock()).unwrap();
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
    // The lease is not renewed, and no timer fires: blocking calls return at once.
    let kept = blocking::Guard::from_async(kept);
    let begun = Instant::now();
    assert!(kept.lost_timeout(Duration::from_millis(10)).is_some());
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert!(kept.unlock().is_err());
}

/// The runtime's timers fire at once, and no task may retry in a loop.
#[test]
fn command_under_way_when_the_runtime_ends_fails_at_once() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.port());
    let (theirs, ours) = (tokio::runtime::Runtime::new().unwrap(), tokio::runtime::Runtime::new().unwrap());
    let client = LockClient::new(theirs.block_on(Redis::connect(&proxy.url())).unwrap());
    proxy.silence(Way::ToServer);
    let waits = ours.spawn(async move { client.get_lock("under way").unwrap().lock().await.map(drop) });
    proxy.wait_until_held_back("EVALSHA");
    let begun = Instant::now();
    theirs.shutdown_background();
    let ended = ours.block_on(async { timeout(SOON, waits).await }).expect("hung").unwrap();
    assert!(matches!(ended, Err(LockError::RuntimeEnded)), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}
