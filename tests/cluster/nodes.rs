//! Helpers for tests with several nodes.

use std::time::Duration;

use latchwork::redis::{Redis, ShardedMessages};
use latchwork::{LockClient, LockOptions};
use latchwork_testkit::RedisCluster;

pub(crate) use crate::by_hand::call_channel;
use crate::by_hand::calls_in;

/// Far longer than any step here takes, and shorter than the leases that a lost wake-up would wait for.
pub(crate) const SOON: Duration = Duration::from_secs(12);
crate::waiting::waiting_for!(SOON);

pub(crate) async fn redis(cluster: &RedisCluster, sharded: ShardedMessages) -> Redis {
    Redis::builder()
        .sharded_messages(sharded)
        .linger(Duration::from_millis(20))
        .connect(&cluster.url())
        .await
        .unwrap()
}

pub(crate) async fn client(cluster: &RedisCluster, sharded: ShardedMessages) -> LockClient {
    client_with(cluster, sharded, &LockOptions::default()).await
}

pub(crate) async fn client_with(
    cluster: &RedisCluster,
    sharded: ShardedMessages,
    options: &LockOptions,
) -> LockClient {
    LockClient::with_options(redis(cluster, sharded).await, options).unwrap()
}

/// The number of subscriptions of both kinds to `channel`, over all nodes that are up.
pub(crate) fn subscribers(cluster: &RedisCluster, channel: &str) -> usize {
    let mut all = 0;
    for node in 0..cluster.nodes().len() {
        for kind in ["NUMSUB", "SHARDNUMSUB"] {
            let reply = cluster.try_ask::<(String, usize)>(node, &["PUBSUB", kind, channel]);
            all += reply.map_or(0, |(_, subscribers)| subscribers);
        }
    }
    all
}

pub(crate) fn slot(cluster: &RedisCluster, key: &str) -> u16 {
    cluster.ask(1, &["CLUSTER", "KEYSLOT", key])
}

/// The master that initially has a slot.
pub(crate) fn node_of(slot: u16) -> usize {
    usize::from(slot) * 3 / 16_384
}

/// A name that begins with `prefix` and initially lies with master `node`.
pub(crate) fn name_at(cluster: &RedisCluster, node: usize, prefix: &str) -> String {
    (0..)
        .map(|number| format!("{prefix}:{number}"))
        .find(|name| node_of(slot(cluster, name)) == node)
        .unwrap()
}

pub(crate) fn keys(cluster: &RedisCluster) -> Vec<String> {
    (0..cluster.nodes().len())
        .flat_map(|node| cluster.try_ask::<Vec<String>>(node, &["KEYS", "*"]).unwrap_or_default())
        .collect()
}

/// The number of times that a node has run `command`, scripts included.
pub(crate) fn calls(cluster: &RedisCluster, node: usize, command: &str) -> usize {
    let stats: String = cluster.ask(node, &["INFO", "commandstats"]);
    calls_in(&stats, command)
}
