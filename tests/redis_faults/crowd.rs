//! A crowd of waits begins at once: the existing connections serve the crowd, other calls are served
//! meanwhile, and nothing is left.
//!
//! Options and timings are the defaults. For a larger crowd, with figures:
//! `CROWD=200000 cargo test --release --all-features --test redis_faults crowd -- --nocapture`

use std::time::{Duration, Instant};

use crate::by_hand::{self, connection, run};
use latchwork::redis::Redis;
use latchwork::{Guard, LockClient, LockOptions};
use latchwork_testkit::{ChaosProxy, RedisServer, Way};
use tokio::task::JoinSet;

/// Enough for a busy machine, and for two hundred thousand waits.
const SOON: Duration = Duration::from_secs(120);
crate::waiting::waiting_for!(SOON);

fn crowd() -> usize {
    std::env::var("CROWD").map_or(3_000, |count| count.parse().expect("a number"))
}

fn peak_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<usize>().ok()).unwrap_or(0) / 1000
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// The number of tasks once both connections stand: `connect` does not await the subscriber's.
async fn tasks_at_rest(server: &RedisServer, client: &LockClient) -> usize {
    let lock = client.get_lock("subscribed").unwrap();
    run::<usize>(server, "HSET subscribed mode lock other:1 1").await;
    run::<usize>(server, "PEXPIRE subscribed 600000").await;
    let wait = tokio::spawn(async move { lock.lock().await });
    eventually("the subscription", async || run::<Vec<String>>(server, "PUBSUB CHANNELS *").await.len() == 1)
        .await;
    wait.abort();
    wait.await.unwrap_err();
    run::<usize>(server, "DEL subscribed").await;
    tasks()
}

async fn latency(client: &LockClient) -> Duration {
    let begun = Instant::now();
    let lock = client.get_lock("beside").unwrap();
    soon("a free lock", lock.lock()).await.unwrap().unlock().await.unwrap();
    begun.elapsed()
}

async fn client(server: &RedisServer) -> LockClient {
    by_hand::client(&server.url()).await
}

/// A client for servers and links that answer late: a busy machine adds its own delay.
async fn patient_client(url: &str, options: &LockOptions) -> LockClient {
    let backend = Redis::builder().response_timeout(SOON).connect(url).await.unwrap();
    LockClient::with_options(backend, options).unwrap()
}

type Takers = JoinSet<Result<Guard, latchwork::LockError>>;

fn takers(client: &LockClient, names: &str, count: usize) -> Takers {
    let mut takers = JoinSet::new();
    for number in 0..count {
        let lock = client.get_lock(&format!("{names}:{number}")).unwrap();
        takers.spawn(async move { lock.lock().await });
    }
    takers
}

async fn all_hold(mut takers: Takers) -> Vec<Guard> {
    let mut guards = Vec::new();
    while let Some(guard) = soon("a hold", takers.join_next()).await {
        guards.push(guard.unwrap().expect("each name is free"));
    }
    guards
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_of_waits_is_served_over_the_connections_that_there_are() {
    let (server, crowd) = (RedisServer::start(), crowd());
    let (client, held) = (client(&server).await, crowd / 4);
    let hold = "for i = 0, ARGV[1] - 1 do redis.call('hset', 'held:' .. i, 'mode', 'lock', 'other:1', 1) \
                redis.call('pexpire', 'held:' .. i, 600000) end";
    let mut by_hand = connection(&server).await;
    let () = redis::Script::new(hold).arg(held).invoke_async(&mut by_hand).await.unwrap();
    let calm = latency(&client).await;
    let (tasks_before, begun) = (tasks_at_rest(&server, &client).await, Instant::now());

    let mut waiters = takers(&client, "held", held);
    let takers = takers(&client, "free", crowd);
    let beside = latency(&client).await;
    let guards = all_hold(takers).await;
    let all_hold = begun.elapsed();
    let between = latency(&client).await;
    eventually("all are subscribed", async || client.metrics().subscriptions as usize == held).await;
    let all_wait = begun.elapsed();

    let begun = Instant::now();
    waiters.abort_all();
    while waiters.join_next().await.is_some() {}
    let after = latency(&client).await;
    let dropped = begun.elapsed();
    drop(guards);
    eventually("the releases", async || client.metrics().releases_pending == 0).await;
    let given_back = begun.elapsed();
    assert_eq!(run::<usize>(&server, "DBSIZE").await, held);
    eventually("the end of its tasks", async || tasks() <= tasks_before).await;
    let metrics = client.metrics();
    println!(
        "{crowd} hold after {all_hold:?}, and {held} wait after {all_wait:?}, {} MB at most; the waits were \
         dropped after {dropped:?}, and all was given back after {given_back:?}; a free lock took {calm:?} \
         before, {beside:?} and {between:?} beside them, {after:?} after the waits",
        peak_memory(),
    );
    assert_eq!((metrics.reconnects, metrics.releases_failed, metrics.commands_waiting), (0, 0, 0));
}

/// Rollbacks have a queue of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_of_waits_that_is_dropped_leaves_nothing_behind() {
    let (server, crowd) = (RedisServer::start(), crowd());
    let client = client(&server).await;
    let tasks_before = tasks_at_rest(&server, &client).await;
    let mut waits = takers(&client, "free", crowd);
    eventually("the line", async || client.metrics().commands_waiting > 0).await;
    let begun = Instant::now();
    waits.abort_all();
    while waits.join_next().await.is_some() {}
    let dropped = begun.elapsed();
    eventually("the rollbacks", async || client.metrics().releases_pending == 0).await;
    let (rolled_back, after) = (begun.elapsed(), latency(&client).await);
    eventually("the end of its tasks", async || tasks() <= tasks_before).await;
    let metrics = client.metrics();
    println!("dropped in {dropped:?}, rolled back after {rolled_back:?}; a free lock took {after:?} then");
    assert_eq!((metrics.reconnects, metrics.releases_failed, metrics.commands_waiting), (0, 0, 0));
    assert_eq!(run::<usize>(&server, "DBSIZE").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_goes_on_over_the_next_connection() {
    let (server, crowd) = (RedisServer::start(), crowd());
    let client = patient_client(&server.url(), &LockOptions::default()).await;
    let tasks_before = tasks_at_rest(&server, &client).await;
    let takers = takers(&client, "free", crowd);
    eventually("the line", async || client.metrics().commands_waiting > 0).await;
    run::<usize>(&server, "CLIENT KILL TYPE normal SKIPME yes").await;
    let guards = all_hold(takers).await;
    assert_eq!(run::<usize>(&server, "DBSIZE").await, crowd);
    drop(guards);
    eventually("the releases", async || client.metrics().releases_pending == 0).await;
    eventually("the end of its tasks", async || tasks() <= tasks_before).await;
    let metrics = client.metrics();
    assert_eq!((metrics.releases_failed, metrics.commands_waiting), (0, 0));
    // The connection for subscriptions may reconnect as well.
    assert!((1..=2).contains(&metrics.reconnects), "{metrics:?}");
    assert_eq!(run::<usize>(&server, "DBSIZE").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_of_waiters_is_subscribed_again() {
    let (server, crowd) = (RedisServer::start(), crowd() / 4);
    let (holder, client) = (client(&server).await, client(&server).await);
    let guards = all_hold(takers(&holder, "held", crowd)).await;
    let waits = takers(&client, "held", crowd);
    let channels = async || run::<Vec<String>>(&server, "PUBSUB CHANNELS *").await.len();
    eventually("all are subscribed", async || channels().await >= crowd).await;
    run::<usize>(&server, "CLIENT KILL TYPE pubsub").await;
    eventually("all are subscribed again", async || channels().await >= crowd).await;
    let begun = Instant::now();
    drop(guards);
    for guard in all_hold(waits).await {
        guard.unlock().await.unwrap();
    }
    println!("{crowd} that waited had their turn within {:?}", begun.elapsed());
    assert!(client.metrics().reconnects <= 1, "{:?}", client.metrics());
}

/// The time limits are three seconds, and the client notices the silence after one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_before_a_silent_server_fails_with_the_first_of_it() {
    let (server, crowd) = (RedisServer::start(), crowd());
    let client = client(&server).await;
    latency(&client).await;
    server.pause();
    let begun = Instant::now();
    let mut attempts = JoinSet::new();
    for number in 0..crowd {
        let lock = client.get_lock(&format!("free:{number}")).unwrap();
        attempts.spawn(async move { lock.try_lock().await });
    }
    while let Some(attempt) = soon("an error", attempts.join_next()).await {
        attempt.unwrap().expect_err("the server is silent");
    }
    let failed = begun.elapsed();
    server.resume();
    println!("{crowd} have failed after {failed:?}, and a free lock took {:?} then", latency(&client).await);
    // In turns of 256 commands the crowd would need 36 seconds.
    assert!(failed < Duration::from_secs(30), "{failed:?}");
    eventually("the rollbacks", async || client.metrics().releases_pending == 0).await;
    assert_eq!(client.metrics().commands_waiting, 0);
}

/// The crowd takes longer than a lease, over a slow connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_pass_a_crowd() {
    // Longer than a busy machine stops a task, and shorter than the crowd takes.
    const LEASE: Duration = Duration::from_secs(6);
    // A heartbeat's reply has 800 ms: a busy machine may double the delay.
    const DELAY: Duration = Duration::from_millis(300);

    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.port());
    let client = patient_client(&proxy.url(), &LockOptions::default().watchdog_timeout(LEASE)).await;
    let guard = client.get_lock("kept").unwrap().lock().await.unwrap();
    proxy.delay(Way::ToClient, DELAY);
    let (begun, mut waits) = (Instant::now(), JoinSet::new());
    for number in 0..3_000 {
        let lock = client.get_lock(&format!("free:{number}")).unwrap();
        waits.spawn(async move { lock.lock_with_lease(SOON).await.unwrap().forget() });
    }
    while let Some(waited) = soon("a hold", waits.join_next()).await {
        waited.unwrap();
    }
    assert!(begun.elapsed() > LEASE, "{:?}", begun.elapsed());
    guard.unlock().await.expect("the lease was renewed");
    assert_eq!((client.metrics().leases_lost, client.metrics().reconnects), (0, 0));
}

#[tokio::test]
async fn crowd_that_is_not_polled_lets_others_through() {
    use futures_util::FutureExt as _;

    let server = RedisServer::start();
    let client = client(&server).await;
    let locks: Vec<_> = (0..1000).map(|n| client.get_lock(&format!("kept:{n}")).unwrap()).collect();
    let mut kept: Vec<_> = locks.iter().map(|lock| Box::pin(lock.try_lock())).collect();
    for attempt in &mut kept {
        // With tokio's budget, most attempts would wait before they begin.
        assert!(tokio::task::unconstrained(attempt.as_mut()).now_or_never().is_none());
    }
    assert!(client.metrics().commands_waiting > 0, "expected commands that wait for a slot");
    latency(&client).await;
    for attempt in kept {
        attempt.await.unwrap().expect("no other task wants the lock").unlock().await.unwrap();
    }
    assert_eq!(client.metrics().reconnects, 0);
}

/// While the loop's body runs, the other futures of the set are not polled.
#[tokio::test]
async fn stream_of_acquisitions_goes_on_beside_a_body_that_locks() {
    use futures_util::StreamExt as _;
    use futures_util::stream::FuturesUnordered;

    let server = RedisServer::start();
    let client = client(&server).await;
    let locks: Vec<_> = (0..500).map(|n| client.get_lock(&format!("streamed:{n}")).unwrap()).collect();
    let mut all: FuturesUnordered<_> = locks.iter().map(|lock| lock.lock()).collect();
    let mut slow = 0;
    while let Some(guard) = all.next().await {
        slow += usize::from(latency(&client).await > Duration::from_secs(2));
        guard.unwrap().unlock().await.unwrap();
    }
    // Without progress each body would wait for a time limit; the machine may be busy.
    assert!(slow < 20, "{slow}");
}

/// The caller's thread has no runtime for a timer.
#[test]
fn crowd_of_blocking_calls_is_served() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let client = runtime.block_on(patient_client(&server.url(), &LockOptions::default()));
    let client = latchwork::blocking::LockClient::from_async(client);
    server.pause();
    std::thread::scope(|scope| {
        for number in 0..400 {
            let lock = client.get_lock(&format!("blocking:{number}")).unwrap();
            scope.spawn(move || lock.lock().unwrap().unlock().unwrap());
        }
        runtime.block_on(eventually("the line", async || client.metrics().commands_waiting > 0));
        server.resume();
    });
}

/// Each ending command frees its room for the next one, whose task has also ended.
#[test]
fn crowd_ends_with_its_runtime() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = client(&server).await;
        let mut waits = takers(&client, "free", crowd());
        eventually("the line", async || client.metrics().commands_waiting > 0).await;
        waits.detach_all();
    });
    drop(runtime);
}
