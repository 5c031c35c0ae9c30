//! A client whose server, or the way to it, is gone for a while comes back, patiently and without a storm.
//!
//! Options and timings are the defaults, so the results hold for users.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::by_hand::{another_holds, client, connection, run, subscribers};
use crate::day::refusing_server;
use latchwork::lock::Failure;
use latchwork::redis::{ErrorKind, Redis};
use latchwork::{Guard, Lease, LockClient, LockError};
use latchwork_testkit::{ChaosProxy, Cut, RedisServer, SentinelSet, Way};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Far less than the half-minute lease that a lost message would wait for.
const SOON: Duration = Duration::from_secs(12);
crate::waiting::waiting_for!(SOON);
/// Time limit of one command.
const LIMIT: Duration = Duration::from_secs(3);
const NAME: &str = "calm";

async fn waiter(client: &LockClient, server: &RedisServer) -> JoinHandle<Result<Guard, LockError>> {
    let lock = client.get_lock(NAME).unwrap();
    let waiter = tokio::spawn(async move { lock.lock().await });
    until_subscribed(server).await;
    waiter
}

async fn until_subscribed(server: &RedisServer) {
    let channel = format!("redisson_lock__channel:{{{NAME}}}");
    eventually("the subscription", async || subscribers(server, &channel).await == 1).await;
}

fn most_within(window: Duration, times: &[Instant]) -> usize {
    let until = |from: Instant| times.iter().filter(|time| (from..from + window).contains(*time)).count();
    times.iter().map(|from| until(*from)).max().unwrap_or(0)
}

// === The server that answers serves no commands ===

/// The address now leads to another server, and the old one became a replica. No link breaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn address_that_leads_to_the_new_master_is_followed() {
    let (former, new) = (RedisServer::start(), RedisServer::start());
    let proxy = ChaosProxy::start(former.port());
    let (ours, waits) = (client(&proxy.url()).await, client(&proxy.url()).await);
    ours.get_lock("before").unwrap().lock().await.unwrap().unlock().await.unwrap();
    another_holds(&former, NAME).await;
    another_holds(&new, NAME).await;
    let waiter = waiter(&waits, &former).await;

    let () = run(&former, &format!("REPLICAOF 127.0.0.1 {}", new.port())).await;
    proxy.lead_to(new.port());
    let begun = Instant::now();
    let guard = soon("the lock", ours.get_lock("after").unwrap().lock()).await.unwrap();
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    assert_eq!(run::<usize>(&new, "EXISTS after").await, 1);
    guard.unlock().await.unwrap();
    // A client that sends a command moves its subscriptions as well.
    assert!(waits.get_lock("waits too").unwrap().lock().await.is_ok());
    until_subscribed(&new).await;
    assert!(ours.get_lock(NAME).unwrap().force_unlock().await.unwrap());
    soon("the wake-up", waiter).await.unwrap().unwrap().unlock().await.unwrap();
}

/// Asserts that calls succeed that begin while the server, for a second, serves no commands.
async fn assert_calls_outlast(client: &LockClient, begin: impl AsyncFnOnce(), end: impl AsyncFnOnce()) {
    let guard = client.get_lock("held").unwrap().lock().await.unwrap();
    begin().await;
    let unlocks = tokio::spawn(guard.unlock());
    let [locks, tries] = ["locks", "tries"].map(|name| client.get_lock(name).unwrap());
    let locks = tokio::spawn(async move { locks.lock().await.map(drop) });
    let tries = tokio::spawn(async move { tries.try_lock().await.map(|got| got.is_some()) });
    sleep(Duration::from_secs(1)).await;
    end().await;
    soon("the unlock", unlocks).await.unwrap().unwrap();
    soon("the lock", locks).await.unwrap().unwrap();
    assert!(soon("a try", tries).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_within_the_limit_costs_no_error() {
    for stale in ["yes", "no"] {
        let server = RedisServer::start();
        let begin = async || {
            let () = run(&server, &format!("CONFIG SET replica-serve-stale-data {stale}")).await;
            let () = run(&server, "REPLICAOF 127.0.0.1 1").await;
        };
        let end = async || run(&server, "REPLICAOF NO ONE").await;
        assert_calls_outlast(&client(&server.url()).await, begin, end).await;
    }
}

/// After a failover a master without replicas refuses writes for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_without_replicas_for_a_moment_costs_no_error() {
    let server = RedisServer::start();
    let client = client(&server.url()).await;
    another_holds(&server, NAME).await;
    let waiter = waiter(&client, &server).await;
    let message = format!("PUBLISH redisson_lock__channel:{{{NAME}}} 0");
    let begin = async || {
        let () = run(&server, "CONFIG SET min-replicas-to-write 1").await;
        let () = run(&server, &message).await;
    };
    let end = async || run(&server, "CONFIG SET min-replicas-to-write 0").await;
    assert_calls_outlast(&client, begin, end).await;
    let () = run(&server, &format!("DEL {NAME}")).await;
    let () = run(&server, &message).await;
    soon("the wake-up", waiter).await.unwrap().unwrap().unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_is_busy_for_a_moment_costs_no_error() {
    let server = RedisServer::start();
    let client = client(&server.url()).await;
    let () = run(&server, "CONFIG SET lua-time-limit 1").await;
    let (mut raw, other) = (connection(&server).await, connection(&server).await);
    raw.set_response_timeout(SOON);
    let begin = async || {
        tokio::spawn(async move {
            let script = redis::cmd("EVAL").arg("while true do end").arg(0).exec_async(&mut raw).await;
            assert!(script.is_err(), "expected an error of the killed script");
        });
        eventually("a busy server", async || {
            let answer = redis::cmd("PING").exec_async(&mut other.clone()).await;
            answer.is_err_and(|error| error.code() == Some("BUSY"))
        })
        .await;
    };
    let mut killer = other.clone();
    let end = async || redis::cmd("SCRIPT").arg("KILL").query_async(&mut killer).await.unwrap();
    assert_calls_outlast(&client, begin, end).await;
    assert_eq!(client.metrics().reconnects, 0, "expected no reconnect to a busy server");
}

/// The server restarts, or the address moves to another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_refuses_connections_for_a_moment_costs_no_error() {
    let (server, gone) = (RedisServer::start(), refusing_server());
    let proxy = ChaosProxy::start(server.port());
    let client = client(&proxy.url()).await;
    let dropped = client.get_lock("dropped").unwrap().lock_with_lease(Duration::from_secs(3600)).await;
    let begin = async || {
        proxy.lead_to(gone.port());
        proxy.cut(Cut::Reset);
        drop(dropped.unwrap());
    };
    assert_calls_outlast(&client, begin, async || proxy.lead_to(server.port())).await;
    eventually("the end of all releases", async || run::<usize>(&server, "DBSIZE").await == 0).await;
}

// === The link is dead without a word ===

/// Silences the link of commands, as a NAT does when it forgets the link.
fn forget(proxy: &ChaosProxy) {
    let link = proxy.wait_for_link_of("EVAL");
    link.silence(Way::ToServer);
    link.silence(Way::ToClient);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_on_a_forgotten_link_uses_another_within_its_limit() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.port());
    let client = client(&proxy.url()).await;
    let lock = client.get_lock(NAME).unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    forget(&proxy);
    let begun = Instant::now();
    let guard = soon("the lock", lock.lock()).await.unwrap();
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    forget(&proxy);
    let begun = Instant::now();
    guard.unlock().await.unwrap();
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    assert_eq!(run::<usize>(&server, "DBSIZE").await, 0);
}

// === No storms ===

async fn connections_made(server: &RedisServer) -> usize {
    let stats: String = run(server, "INFO stats").await;
    let made = stats.split_once("total_connections_received:").unwrap().1;
    made.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn user_without_ping_is_told_so() {
    let server = RedisServer::start();
    let () = run(&server, "ACL SETUSER mute on >secret ~* &* +@all -ping").await;
    let before = connections_made(&server).await;
    let error = Redis::connect(&server.url().replace("redis://", "redis://mute:secret@")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    assert!(error.to_string().contains("PING") && error.to_string().contains("permission"), "{error}");
    // One of these connections counts the others.
    assert!(connections_made(&server).await <= before + 3);
}

#[tokio::test]
async fn user_that_loses_ping_keeps_the_connections() {
    let server = RedisServer::start();
    let client = client(&server.url()).await;
    let lock = client.get_lock(NAME).unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    let () = run(&server, "ACL SETUSER default -ping").await;
    let before = connections_made(&server).await;
    sleep(Duration::from_secs(4)).await;
    let made = connections_made(&server).await - before;
    assert!(made <= 3, "expected three connections at most in four seconds, and saw {made}");
    lock.lock().await.unwrap().unlock().await.unwrap();
}

/// The server accepts all connections, and cuts each one early.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_cuts_each_connection_is_dialled_calmly() {
    let server = RedisServer::start();
    let proxy = Arc::new(ChaosProxy::start(server.port()));
    let _client = client(&proxy.url()).await;
    let cuts = tokio::task::spawn_blocking({
        let proxy = Arc::clone(&proxy);
        move || {
            let until = Instant::now() + Duration::from_secs(6);
            while Instant::now() < until {
                proxy.cut(Cut::Close);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    cuts.await.unwrap();
    let last = Instant::now() - Duration::from_secs(3);
    let late = proxy.arrivals().into_iter().filter(|at| *at > last).count();
    assert!(late <= 15, "expected 15 connections at most in the last three seconds, and saw {late}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_forgot_the_master_are_asked_calmly() {
    let set = SentinelSet::start();
    let _client = client(&set.url()).await;
    for sentinel in &set.sentinels {
        let () = run(sentinel, &format!("SENTINEL REMOVE {}", SentinelSet::NAME)).await;
    }
    sleep(Duration::from_secs(3)).await;
    let made = async || {
        let mut all = 0;
        for sentinel in &set.sentinels {
            all += connections_made(sentinel).await;
        }
        all
    };
    let before = made().await;
    sleep(Duration::from_secs(3)).await;
    // Three of these connections do the counting.
    let made = made().await - before - set.sentinels.len();
    // Lost connections are dialled again after half a second to a second: at most seven rounds, to three
    // Sentinels. On a busy machine a heartbeat may be missed, and both connections are dialled.
    assert!(made <= 2 * 21, "expected 42 connections at most in three seconds, and saw {made}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stall_of_the_server_does_not_bring_all_clients_back_at_once() {
    const CLIENTS: usize = 40;
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.port());
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let client = client(&proxy.url()).await;
        client.get_lock(NAME).unwrap().lock().await.unwrap().unlock().await.unwrap();
        clients.push(client);
    }
    // Bring all clients to the same point of their heartbeats, as an earlier stall would.
    sleep(Duration::from_secs(2)).await;
    server.pause();
    let begun = Instant::now();
    let waits: Vec<_> = clients
        .iter()
        .map(|client| {
            let lock = client.get_lock(NAME).unwrap();
            tokio::spawn(async move { lock.try_lock_for(SOON, Lease::Watched).await.map(drop) })
        })
        .collect();
    sleep(Duration::from_millis(2500)).await;
    server.resume();
    for waits in waits {
        soon("the lock", waits).await.unwrap().unwrap();
    }
    let back: Vec<Instant> = proxy.arrivals().into_iter().filter(|at| *at > begun).collect();
    let most = most_within(Duration::from_millis(100), &back);
    // Each client lost both connections. (Spread out, about twenty fall into the window; stalls bunch some.)
    assert!(most <= CLIENTS, "{most} of {} within 100 ms", back.len());
}

// === Outages longer than a command may take ===

/// The holder is of the same client: no task of this process has asked the server for the lock before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_that_waits_for_its_own_client_outlasts_an_outage() {
    for fair in [false, true] {
        let mut server = RedisServer::start();
        let client = client(&server.url()).await;
        let lock = if fair { client.get_fair_lock(NAME).unwrap() } else { client.get_lock(NAME).unwrap() };
        // A lock with a fixed lease is released at the server, and not handed off.
        let held = lock.lock_with_lease(SOON).await.unwrap();
        let behind = tokio::spawn({
            let lock = lock.clone();
            async move { lock.fenced().lock().await }
        });
        eventually("its place in the queue", async || lock.waiters() == 1).await;
        server.kill_9();
        // The hold is over for its owner, whatever the result of the release.
        let _ = held.unlock().await;
        // Time for a release, and for an attempt afterwards.
        sleep(LIMIT * 2 + Duration::from_secs(1)).await;
        server.restart();
        soon("the lock", behind).await.unwrap().unwrap().unlock().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_lock_for_uses_its_whole_wait() {
    let mut server = RedisServer::start();
    let client = client(&server.url()).await;
    let lock = client.get_lock(NAME).unwrap();
    server.kill_9();
    let begins = tokio::spawn({
        let lock = lock.clone();
        async move { lock.try_lock_for(SOON, Lease::Watched).await }
    });
    sleep(LIMIT + Duration::from_secs(1)).await;
    server.restart();
    let guard = soon("the lock", begins).await.unwrap().unwrap().expect("the lock is free");
    guard.unlock().await.unwrap();

    server.kill_9();
    let wait = Duration::from_secs(4);
    let begun = Instant::now();
    let error = lock.try_lock_for(wait, Lease::Watched).await.unwrap_err();
    assert!((wait..wait + LIMIT / 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    // A command sent before the client noticed the broken link may have run.
    let LockError::Backend { failure, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(failure, Failure::Unreachable | Failure::Indeterminate), "{error:?}");
}

/// Regardless of the requested lease: a third of an hour's lease would be twenty minutes.
#[tokio::test]
async fn extension_ends_within_the_command_limit_of_a_silent_server() {
    let server = RedisServer::start();
    let limit = Duration::from_millis(900);
    let redis = Redis::builder().response_timeout(limit).connect(&server.url()).await.unwrap();
    let lock = LockClient::new(redis).get_lock(NAME).unwrap();
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

/// The Sentinels take longer to replace the master than a command may take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_lock_outlasts_a_failover() {
    let mut set = SentinelSet::start();
    let client = client(&set.url()).await;
    another_holds(&set.servers[0], NAME).await;
    let waiter = waiter(&client, &set.servers[0]).await;
    eventually("replication", async || run::<usize>(&set.servers[1], &format!("EXISTS {NAME}")).await == 1)
        .await;
    for (sentinel, after) in set.sentinels.iter().zip([5000, 5800, 6600]) {
        let slower = format!("SENTINEL SET {} down-after-milliseconds {after}", SentinelSet::NAME);
        let () = run(sentinel, &slower).await;
    }
    set.servers[0].kill_9();
    set.wait_for_master(1);
    let () = run(&set.servers[1], &format!("DEL {NAME}")).await;
    let () = run(&set.servers[1], &format!("PUBLISH redisson_lock__channel:{{{NAME}}} 0")).await;
    timeout(Duration::from_secs(32), waiter).await.expect("asleep").unwrap().unwrap().unlock().await.unwrap();
}

/// For two thirds of the default lease: longer than a command or a renewal may take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_are_tried_until_the_lease_is_over() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.port());
    let client = client(&proxy.url()).await;
    let guard = client.get_lock(NAME).unwrap().lock().await.unwrap();
    let begun = Instant::now();
    proxy.silence(Way::ToServer);
    proxy.silence(Way::ToClient);
    sleep(Duration::from_secs(25)).await;
    proxy.heal();
    sleep(Duration::from_secs(32).saturating_sub(begun.elapsed())).await;
    assert!(guard.is_held(), "{:?}", guard.lost().await);
    guard.unlock().await.unwrap();
}
