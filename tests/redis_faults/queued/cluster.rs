//! A slot that moves between nodes under a convoy, and a master that fails under waiters.

use std::time::Duration;

use latchwork::LockClient;
use latchwork::redis::{Redis, ShardedMessages};
use latchwork_testkit::RedisCluster;

use super::kind::{channels, named, sides};
use super::stage::{AT_ONCE, Convoy, LIFE, LITTLE, assert_all_wait, poll_within, within};
use crate::day::eventually;
use crate::nodes::{keys, name_at, slot, subscribers};

async fn clients(cluster: &RedisCluster, sharded: ShardedMessages) -> Vec<LockClient> {
    let mut clients = Vec::new();
    for _ in 0..3 {
        let redis = Redis::builder().sharded_messages(sharded).connect(&cluster.url()).await.unwrap();
        clients.push(LockClient::new(redis));
    }
    clients
}

async fn assert_nothing_left(cluster: &RedisCluster, clients: &[LockClient]) {
    poll_within(LIFE + LITTLE, "an empty cluster", async || keys(cluster).is_empty()).await;
    for client in clients {
        eventually("the end of interest", async || client.registry().is_empty()).await;
    }
}

async fn convoy_goes_on_while_its_slot_moves(sharded: ShardedMessages) {
    let cluster = RedisCluster::start_with(&[]);
    let clients = clients(&cluster, sharded).await;
    let name = name_at(&cluster, 0, "moves");
    let (slot, mut at) = (slot(&cluster, &name), 0);
    let convoy = Convoy::of(&clients, &name, 2, 100);
    for _ in 0..6 {
        let to = (at + 1) % 3;
        cluster.begin_to_move(slot, at, to);
        // Long enough for each client to meet the move. The keys are at two nodes, so all clients wait.
        tokio::time::sleep(Duration::from_millis(200)).await;
        cluster.finish_to_move(slot, at, to);
        convoy.goes_on(20).await;
        at = to;
    }
    convoy.ends().await;
    assert_nothing_left(&cluster, &clients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn convoy_goes_on_while_its_slot_moves_with_either_kind_of_messages() {
    tokio::join!(
        convoy_goes_on_while_its_slot_moves(ShardedMessages::Off),
        convoy_goes_on_while_its_slot_moves(ShardedMessages::Auto)
    );
}

/// True if the first master's replica has all writes, by `INFO replication`.
fn is_replicated(cluster: &RedisCluster) -> bool {
    let info: String = cluster.ask(0, &["INFO", "replication"]);
    let number = |after: &str| -> u64 {
        let (_, rest) = info.split_once(after).unwrap_or_else(|| panic!("no {after:?} in {info:?}"));
        rest.split(|other: char| !other.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    number(",offset=") >= number("master_repl_offset:")
}

async fn waiters_go_on_at_the_replica(sharded: ShardedMessages) {
    let mut cluster = RedisCluster::start_replicated_with(&[]);
    let clients = clients(&cluster, sharded).await;
    let name = name_at(&cluster, 0, "fails");
    let held = named(&clients[0], &name).lock().await.unwrap();
    let mut waiters = Vec::new();
    // The last channel of each client.
    let channel = |client: usize| channels(&clients[client], &name).pop().expect("the client has a channel");
    for client in [1, 2] {
        // Waiters on different sides, where there are several: the side with precedence comes first anyway.
        let lock = sides(&clients[client], &name).into_iter().cycle().nth(client).expect("a way").lock;
        waiters.push(tokio::spawn(async move { lock.lock().await.unwrap() }));
        eventually("sleep", async || {
            clients[client].registry().join(&channel(client)).is_some_and(|look| look.waiters() > 0)
        })
        .await;
    }
    eventually("the replica's knowing", async || is_replicated(&cluster)).await;
    cluster.fail_over();
    for client in [1, 2] {
        let heard_by = [1, 2].into_iter().filter(|other| channel(*other) == channel(client)).count();
        eventually("listening", async || subscribers(&cluster, &channel(client)) == heard_by).await;
    }
    held.ensure_held().await.unwrap();
    assert_all_wait(&waiters);
    held.unlock().await.unwrap();
    for waiter in waiters {
        let guard = within(AT_ONCE, "the next turn, by when they came", waiter).await.unwrap();
        guard.ensure_held().await.unwrap();
        guard.unlock().await.unwrap();
    }
    assert_nothing_left(&cluster, &clients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_go_on_at_the_replica_with_either_kind_of_messages() {
    tokio::join!(
        waiters_go_on_at_the_replica(ShardedMessages::Off),
        waiters_go_on_at_the_replica(ShardedMessages::Auto)
    );
}
