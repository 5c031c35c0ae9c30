//! The Redis backend under fault injection, with a server per test.

use std::error::Error as _;
use std::time::{Duration, Instant};

use crate::by_hand::{calls_in, connection};
use latchwork::redis::{Error, ErrorKind, Redis};
use latchwork::{Lease, Lock, LockClient, LockError, LockOptions, LossReason};
use latchwork_testkit::{ChaosProxy, RedisServer, Way};
use tokio::time::timeout;

/// Far less than the half-minute lease that a missed message would wait for.
const SOON: Duration = Duration::from_secs(10);

async fn run(server: &RedisServer, command: &[&str]) -> redis::Value {
    let (name, args) = command.split_first().unwrap();
    redis::cmd(name).arg(args).query_async(&mut connection(server).await).await.unwrap()
}

async fn client(server: &RedisServer) -> LockClient {
    LockClient::new(Redis::connect(&server.url()).await.unwrap())
}

/// A lock of another owner, and a task that waits for it, subscribed.
async fn waiter(server: &RedisServer) -> (LockClient, Lock, tokio::task::JoinHandle<Result<(), LockError>>) {
    let client = client(server).await;
    let lock = client.get_lock("faults").unwrap();
    run(server, &["HSET", "faults", "somebody:1", "1"]).await;
    run(server, &["PEXPIRE", "faults", "600000"]).await;
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await?.unlock().await }
    });
    until_subscribed(server, 1).await;
    (client, lock, waiter)
}

async fn until_subscribed(server: &RedisServer, wanted: usize) {
    let mut raw = connection(server).await;
    timeout(SOON, async {
        loop {
            let (_, subscribers): (String, usize) = redis::cmd("PUBSUB")
                .arg("NUMSUB")
                .arg("redisson_lock__channel:{faults}")
                .query_async(&mut raw)
                .await
                .unwrap();
            if subscribers == wanted {
                return;
            }
        }
    })
    .await
    .expect("the subscription did not come, or go");
}

fn cause(error: &LockError) -> &Error {
    error.backend_error().and_then(|error| error.downcast_ref()).expect("an error of the backend")
}

#[tokio::test]
async fn server_that_restarts_wakes_the_waiters() {
    let mut server = RedisServer::start();
    let (client, _, waiter) = waiter(&server).await;
    // The server restarts empty: the lock is free, and no process is left to publish a message.
    server.kill_9();
    server.restart();
    timeout(SOON, waiter).await.expect("slept through the restart").unwrap().unwrap();
    assert!(client.registry().is_empty());
}

#[tokio::test]
async fn message_lost_with_its_connection_is_made_up_for() {
    let server = RedisServer::start();
    let (_, _, waiter) = waiter(&server).await;
    // One transaction: the lock becomes free, without a message, before the client reconnects.
    let mut transaction = redis::pipe();
    transaction.atomic().cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]).del("faults");
    transaction.exec_async(&mut connection(&server).await).await.unwrap();
    timeout(SOON, waiter).await.expect("slept through the release").unwrap().unwrap();
}

#[tokio::test]
async fn wait_ends_in_time_though_the_server_is_gone() {
    let mut server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.get_lock("faults").unwrap();
    run(&server, &["HSET", "faults", "somebody:1", "1"]).await;
    let wait = Duration::from_millis(800);
    let before = Instant::now();
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.try_lock_for(wait, Lease::Watched).await.map(|guard| guard.is_some()) }
    });
    until_subscribed(&server, 1).await;
    server.kill_9();
    let ended = timeout(SOON, waiter).await.expect("hung").unwrap();
    assert!(matches!(ended, Ok(false) | Err(LockError::Backend { .. })), "{ended:?}");
    assert!(before.elapsed() < wait * 3, "{:?}", before.elapsed());
    assert!(client.registry().is_empty());

    // Without a time limit of the caller, a command's limit applies.
    let before = Instant::now();
    let error = lock.lock().await.unwrap_err();
    assert_eq!(cause(&error).kind(), ErrorKind::Connection, "{error:?}");
    assert!(before.elapsed() < Duration::from_secs(4), "{:?}", before.elapsed());
}

/// The runtime's timers fire at once, and no task may retry in a loop.
#[test]
fn command_under_way_when_the_runtime_ends_fails_at_once() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.port());
    let (theirs, ours) = (tokio::runtime::Runtime::new().unwrap(), tokio::runtime::Runtime::new().unwrap());
    let client = LockClient::new(theirs.block_on(Redis::connect(&proxy.url())).unwrap());
    proxy.silence(Way::ToServer);
    let waits = ours.spawn(async move { client.get_lock("faults").unwrap().lock().await.map(drop) });
    proxy.wait_until_held_back("EVALSHA");
    let begun = Instant::now();
    theirs.shutdown_background();
    let ended = ours.block_on(async { timeout(SOON, waits).await }).expect("hung").unwrap();
    assert!(matches!(ended, Err(LockError::RuntimeEnded)), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// Regardless of the requested lease: a third of an hour's lease would be twenty minutes.
#[tokio::test]
async fn extension_ends_within_the_command_limit_of_a_silent_server() {
    let server = RedisServer::start();
    let limit = Duration::from_millis(900);
    let redis = Redis::builder().response_timeout(limit).connect(&server.url()).await.unwrap();
    let lock = LockClient::new(redis).get_lock("faults").unwrap();
    let mut guard = lock.lock().await.unwrap();
    server.pause();
    let before = Instant::now();
    let extends = timeout(SOON, guard.extend(Duration::from_secs(3600)))
        .await
        .expect("the extension ends within its limit");
    assert!(matches!(extends, Err(LockError::Backend { .. })), "{extends:?}");
    assert!(before.elapsed() < limit * 3, "{:?}", before.elapsed());
    assert!(guard.is_held(), "expected the hold, as its lease lasts");
    server.resume();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn wait_ends_in_time_though_the_server_does_not_answer() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.get_lock("faults").unwrap();
    // From now on the server knows the scripts, and an attempt needs one command.
    lock.lock().await.unwrap().unlock().await.unwrap();
    server.pause();
    let wait = Duration::from_millis(300);
    let before = Instant::now();
    let error = lock.try_lock_for(wait, Lease::Watched).await.unwrap_err();
    assert!(matches!(error, LockError::NoAnswer { .. }), "{error:?}");
    assert!((wait..wait * 5).contains(&before.elapsed()), "{:?}", before.elapsed());
    // The command in the server's buffer runs now, and its lease must be released.
    server.resume();
    let mut raw = connection(&server).await;
    timeout(SOON, async {
        loop {
            let taken: i64 = redis::cmd("EXISTS").arg("faults").query_async(&mut raw).await.unwrap();
            let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut raw).await.unwrap();
            // Only releases send DEL; this is the second one.
            if taken == 0 && calls_in(&stats, "del") == 2 {
                return;
            }
        }
    })
    .await
    .expect("the abandoned attempt was not undone");
}

#[tokio::test]
async fn holder_learns_that_the_server_is_gone() {
    let mut server = RedisServer::start();
    let options = LockOptions::default().watchdog_timeout(Duration::from_millis(600));
    let client = LockClient::with_options(Redis::connect(&server.url()).await.unwrap(), &options).unwrap();
    let guard = client.get_lock("faults").unwrap().lock().await.unwrap();
    server.kill_9();
    let lost = timeout(SOON, guard.lost()).await.expect("not told");
    assert!(matches!(lost, LossReason::Unreachable | LossReason::Expired), "{lost:?}");
    assert!(!guard.is_held());
    assert!(guard.unlock().await.unwrap_err().is_lost());
}

#[tokio::test]
async fn holder_learns_that_the_server_forgot() {
    let mut server = RedisServer::start();
    let options = LockOptions::default().watchdog_timeout(Duration::from_secs(3));
    let client = LockClient::with_options(Redis::connect(&server.url()).await.unwrap(), &options).unwrap();
    let guard = client.get_lock("faults").unwrap().lock().await.unwrap();
    server.kill_9();
    server.restart();
    assert_eq!(timeout(SOON, guard.lost()).await.expect("not told"), LossReason::Gone);
    assert!(guard.unlock().await.unwrap_err().is_not_held());
}

#[tokio::test]
async fn commands_go_on_after_a_restart() {
    let mut server = RedisServer::start();
    let lock = client(&server).await.get_lock("faults").unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    server.kill_9();
    server.restart();
    // This command may be the first to notice the broken connection; the next one has a new connection.
    let _ = lock.is_locked().await;
    // The new server knows no script yet.
    lock.lock().await.unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn scripts_that_were_flushed_are_sent_again() {
    let server = RedisServer::start();
    let lock = client(&server).await.get_lock("faults").unwrap();
    for _ in 0..2 {
        run(&server, &["SCRIPT", "FLUSH"]).await;
        let guard = lock.lock().await.unwrap();
        run(&server, &["SCRIPT", "FLUSH"]).await;
        guard.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn user_without_subscribe_is_told() {
    let server = RedisServer::start();
    run(&server, &["ACL", "SETUSER", "mute", "on", ">secret", "~*", "+@all", "resetchannels"]).await;
    run(&server, &["HSET", "faults", "somebody:1", "1"]).await;
    let url = server.url().replace("redis://", "redis://mute:secret@");
    let client = LockClient::new(Redis::connect(&url).await.unwrap());
    let lock = client.get_lock("faults").unwrap();
    let error = timeout(SOON, lock.lock()).await.expect("the call fails without messages").unwrap_err();
    assert!(matches!(error, LockError::Subscribe(_)), "{error:?}");
    assert!(error.to_string().contains("permission"), "{error}");
    assert!(client.registry().is_empty());

    // A user without PUBLISH must not free the lock without a message to waiters.
    let free = client.get_lock("free").unwrap();
    let guard = free.lock().await.unwrap();
    let error = guard.unlock().await.unwrap_err();
    assert_eq!(cause(&error).kind(), ErrorKind::Refused, "{error:?}");
    assert!(free.is_locked().await.unwrap());
}

#[tokio::test]
async fn key_of_another_type_is_refused() {
    let server = RedisServer::start();
    run(&server, &["SET", "faults", "a string"]).await;
    let error = client(&server).await.get_lock("faults").unwrap().lock().await.unwrap_err();
    assert_eq!(cause(&error).kind(), ErrorKind::Refused);
    assert!(cause(&error).source().unwrap().to_string().contains("WRONGTYPE"), "{error:?}");
}
