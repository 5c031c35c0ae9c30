//! A crowd of waits that begin at once: they are served over the connections that there are, others are
//! served beside them, and nothing of them is left.
//!
//! Options and timings are the default ones. With more of them, and figures:
//! `CROWD=200000 cargo test --release --all-features --test redis_faults crowd -- --nocapture`

use std::time::{Duration, Instant};

use crate::by_hand::{connection, run};
use latchwork::redis::Redis;
use latchwork::{Guard, LockClient};
use latchwork_testkit::RedisServer;
use tokio::task::JoinSet;

/// With room for a busy machine, and for two hundred thousand.
const SOON: Duration = Duration::from_secs(120);
crate::waiting::waiting_for!(SOON);

fn crowd() -> usize {
    std::env::var("CROWD").map_or(20_000, |count| count.parse().expect("a number"))
}

/// The most memory that this process has had, in MB.
fn peak_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<usize>().ok()).unwrap_or(0) / 1000
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// How long a free lock takes.
async fn latency(client: &LockClient) -> Duration {
    let begun = Instant::now();
    let lock = client.get_lock("beside").unwrap();
    soon("a free lock", lock.lock()).await.unwrap().unlock().await.unwrap();
    begun.elapsed()
}

async fn client(server: &RedisServer) -> LockClient {
    LockClient::new(Redis::connect(&server.url()).await.unwrap())
}

fn spawn_waits(
    waits: &mut JoinSet<Result<Guard, latchwork::LockError>>,
    client: &LockClient,
    names: &str,
    count: usize,
) {
    for number in 0..count {
        let lock = client.get_lock(&format!("{names}:{number}")).unwrap();
        waits.spawn(async move { lock.lock().await });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_of_waits_is_served_over_the_connections_that_there_are() {
    let (server, crowd) = (RedisServer::start(), crowd());
    let (client, held) = (client(&server).await, crowd / 4);
    let hold = "for i = 0, ARGV[1] - 1 do redis.call('hset', 'held:' .. i, 'other:1', 1) \
                redis.call('pexpire', 'held:' .. i, 600000) end";
    let mut by_hand = connection(&server).await;
    let () = redis::Script::new(hold).arg(held).invoke_async(&mut by_hand).await.unwrap();
    let calm = latency(&client).await;
    let (tasks_before, begun) = (tasks(), Instant::now());

    let (mut takers, mut waiters) = (JoinSet::new(), JoinSet::new());
    spawn_waits(&mut waiters, &client, "held", held);
    spawn_waits(&mut takers, &client, "free", crowd);
    let beside = latency(&client).await;
    let mut guards: Vec<Guard> = Vec::new();
    while let Some(guard) = soon("a hold", takers.join_next()).await {
        guards.push(guard.unwrap().expect("each name is free"));
    }
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

/// Their rollbacks wait in a line of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_of_waits_that_is_dropped_leaves_nothing_behind() {
    let (server, crowd) = (RedisServer::start(), crowd());
    let client = client(&server).await;
    latency(&client).await;
    let tasks_before = tasks();
    let mut waits = JoinSet::new();
    spawn_waits(&mut waits, &client, "free", crowd);
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

/// One that was given room, and is not polled, keeps it.
#[tokio::test]
async fn crowd_that_is_not_polled_lets_others_through() {
    use futures_util::FutureExt as _;

    let server = RedisServer::start();
    let client = client(&server).await;
    let locks: Vec<_> = (0..1000).map(|n| client.get_lock(&format!("kept:{n}")).unwrap()).collect();
    let mut kept: Vec<_> = locks.iter().map(|lock| Box::pin(lock.try_lock())).collect();
    for attempt in &mut kept {
        assert!(attempt.as_mut().now_or_never().is_none());
        // Without it tokio would have most of them wait before they begin.
        tokio::task::yield_now().await;
    }
    assert!(client.metrics().commands_waiting > 0, "they are more than there is room for");
    latency(&client).await;
    for attempt in kept {
        attempt.await.unwrap().expect("no other wants it").unlock().await.unwrap();
    }
    assert_eq!(client.metrics().reconnects, 0);
}

/// Each that ends gives its room to the next, whose task has ended as well.
#[test]
fn crowd_ends_with_its_runtime() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = client(&server).await;
        let mut waits = JoinSet::new();
        spawn_waits(&mut waits, &client, "free", crowd());
        eventually("the line", async || client.metrics().commands_waiting > 0).await;
        waits.detach_all();
    });
    drop(runtime);
}
