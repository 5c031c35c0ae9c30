//! A slot that moves from node to node while a convoy goes over its lock.

use std::time::Duration;

use latchwork::LockClient;
use latchwork::redis::{Redis, ShardedMessages};
use latchwork_testkit::RedisCluster;

use crate::day::{NAME, eventually};
use crate::stage::{Convoy, LIFE, LITTLE, within};

/// All keys of all nodes.
fn keys(cluster: &RedisCluster) -> Vec<String> {
    (0..cluster.nodes().len()).flat_map(|node| cluster.ask::<Vec<String>>(node, &["KEYS", "*"])).collect()
}

async fn convoy_goes_on_while_its_slot_moves(sharded: ShardedMessages) {
    const CLIENTS: usize = 3;
    let cluster = RedisCluster::start_with(&[]);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let redis = Redis::builder().sharded_messages(sharded).connect(&cluster.url()).await.unwrap();
        clients.push(LockClient::new(redis));
    }
    let slot: u16 = cluster.ask(0, &["CLUSTER", "KEYSLOT", NAME]);
    let mut at = cluster.owner(0, slot).expect("each slot is somewhere");
    let convoy = Convoy::start(&clients, 2, 100);
    for _ in 0..6 {
        let to = (at + 1) % 3;
        cluster.begin_to_move(slot, at, to);
        // Long enough for each client to meet it. The keys are at two nodes, so all wait.
        tokio::time::sleep(Duration::from_millis(200)).await;
        cluster.finish_to_move(slot, at, to);
        convoy.goes_on(20).await;
        at = to;
    }
    convoy.ends().await;
    within(LIFE + LITTLE, "an empty cluster", async {
        while !keys(&cluster).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    for client in &clients {
        eventually("the end of interest", async || client.registry().is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn convoy_goes_on_while_its_slot_moves_with_plain_messages() {
    convoy_goes_on_while_its_slot_moves(ShardedMessages::Off).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn convoy_goes_on_while_its_slot_moves_with_sharded_messages() {
    convoy_goes_on_while_its_slot_moves(ShardedMessages::Auto).await;
}
