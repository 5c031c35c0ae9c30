//! A channel stays subscribed for a while after its last waiter has left.

use std::time::Duration;

use crate::by_hand::{calls_in, connection};
use latchwork::redis::Redis;
use latchwork::{Guard, LockClient};
use latchwork_testkit::{ChaosProxy, RedisServer};
use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(10);
crate::waiting::waiting_for!(SOON);
const NAME: &str = "linger";

/// The channel on which the client is called.
fn channel(client: &LockClient) -> String {
    format!("linger:latchwork:{{linger}}:call:{}", client.id())
}

async fn subscribers(connection: &mut MultiplexedConnection, channel: &str) -> usize {
    let (_, subscribers): (String, usize) =
        redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).query_async(connection).await.unwrap();
    subscribers
}

async fn client(url: &str, linger: Duration) -> LockClient {
    let redis = Redis::builder().linger(linger).connect(url).await.unwrap();
    LockClient::new(redis)
}

/// Releases `guard` to a waiter of `to` that is asleep.
async fn next(guard: Guard, to: &LockClient) -> Guard {
    let lock = to.get_lock(NAME).unwrap();
    let waits = tokio::spawn(async move { lock.lock().await.unwrap() });
    eventually("sleep", async || to.registry().join(&channel(to)).is_some_and(|look| look.waiters() == 1))
        .await;
    guard.unlock().await.unwrap();
    timeout(SOON, waits).await.expect("the lock").unwrap()
}

#[tokio::test]
async fn client_that_comes_back_soon_costs_three_commands_a_hand_off() {
    const ROUNDS: usize = 20;
    let server = RedisServer::start();
    // Default options: each client returns within the second that a channel lingers.
    let by_default = async || LockClient::new(Redis::connect(&server.url()).await.unwrap());
    let clients = [by_default().await, by_default().await];
    let mut guard = clients[0].get_lock(NAME).unwrap().lock().await.unwrap();
    let mut raw = connection(&server).await;
    for round in 1..=4 {
        guard = next(guard, &clients[round % 2]).await;
    }
    let () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut raw).await.unwrap();
    for round in 1..=ROUNDS {
        guard = next(guard, &clients[round % 2]).await;
    }
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut raw).await.unwrap();
    let calls = |command| calls_in(&stats, command);
    // A release, a refused attempt, and a successful one.
    assert_eq!(calls("evalsha"), 3 * ROUNDS, "{stats}");
    assert_eq!((calls("subscribe"), calls("unsubscribe")), (0, 0), "{stats}");
    guard.unlock().await.unwrap();
}

/// A lost connection ends all subscriptions; the lingering channel has to be confirmed again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channel_that_lingers_does_not_outlive_its_connection() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.port());
    let (holder, waiter) =
        (client(&server.url(), Duration::ZERO).await, client(&proxy.url(), Duration::from_secs(600)).await);
    let guard = holder.get_lock(NAME).unwrap().lock().await.unwrap();
    let guard = next(guard, &waiter).await;
    let (transport, channel) = (waiter.registry().transport(), channel(&waiter));
    assert!(transport.is_active(&channel));
    let mut raw = connection(&server).await;
    let () = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub").query_async(&mut raw).await.unwrap();
    // The client reconnects, and subscribes to all its channels again.
    eventually("its end", async || waiter.metrics().reconnects == 1 && transport.is_active(&channel)).await;
    assert_eq!(subscribers(&mut raw, &channel).await, 1);
    let guard = next(guard, &holder).await;
    let guard = next(guard, &waiter).await;
    guard.unlock().await.unwrap();
}
