//! Slots that move while tasks hold locks, wait and renew.

use std::time::Duration;

use latchwork::LockOptions;
use latchwork::redis::ShardedMessages;
use latchwork_testkit::RedisCluster;

use crate::nodes::{
    call_channel, calls, client, client_with, eventually, keys, name_at, node_of, slot, soon, subscribers,
};
use crate::permits;

const FROM: usize = 0;
const TO: usize = 1;
/// A third of this is longer than a command takes on a busy machine.
const WATCHDOG: Duration = Duration::from_millis(1500);

/// Waits for two renewals at `node`; the second began after this call.
async fn renewals(cluster: &RedisCluster, node: usize) {
    let before = calls(cluster, node, "pexpire");
    eventually("renewals", async || calls(cluster, node, "pexpire") >= before + 2).await;
}

/// A process that only waits hears of the move by the end of its subscription alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_goes_along_with_its_slot() {
    // Redirects and the list of slots name a port only.
    let cluster = RedisCluster::start_with(&["--cluster-preferred-endpoint-type", "unknown-endpoint"]);
    let sharded = ShardedMessages::On;
    let (holder, other) = (client(&cluster, sharded).await, client(&cluster, sharded).await);
    let name = name_at(&cluster, FROM, "along");
    let slot = slot(&cluster, &name);
    let channel = call_channel(&other, &name);
    let guard = holder.get_lock(&name).unwrap().lock().await.unwrap();
    let lock = other.get_lock(&name).unwrap();
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap().unlock().await }
    });
    let subscribed_at = |node| cluster.ask::<(String, usize)>(node, &["PUBSUB", "SHARDNUMSUB", &channel]).1;
    eventually("the subscription", async || subscribed_at(FROM) == 1).await;
    // One script of the holder, two of the waiter.
    eventually("its being asleep", async || calls(&cluster, FROM, "evalsha") == 3).await;
    for (from, to) in [(FROM, TO), (TO, FROM)].repeat(2) {
        let looked = lock.stats().wakes_spurious;
        let before = other.registry().stats().resubscriptions;
        cluster.begin_to_move(slot, from, to);
        cluster.finish_to_move(slot, from, to);
        eventually("the subscription at the other node", async || subscribed_at(to) == 1).await;
        // A message may have been lost, so the waiter asks again.
        eventually("being told", async || other.registry().stats().resubscriptions > before).await;
        eventually("the look", async || lock.stats().wakes_spurious > looked).await;
    }
    guard.unlock().await.unwrap();
    soon("the wake-up", waiter).await.unwrap().unwrap();
    assert!(other.registry().is_empty());

    // A client that has not heard of the move is redirected.
    cluster.begin_to_move(slot, FROM, TO);
    cluster.finish_to_move(slot, FROM, TO);
    let subscription = other.registry().subscribe(&channel);
    soon("the subscription", subscription.subscribed()).await.unwrap();
    // The old node, which has not heard of the move yet, may have confirmed the lingering subscription.
    eventually("the subscription where the slot is", async || subscribed_at(TO) == 1).await;
}

/// During a move a slot has two nodes, and neither serves all of the slot's keys.
#[tokio::test]
async fn every_command_works_in_the_middle_of_a_move() {
    let cluster = RedisCluster::start_with(&[]);
    let options = LockOptions::default().watchdog_timeout(WATCHDOG);
    let client = client_with(&cluster, ShardedMessages::Off, &options).await;
    let tag = name_at(&cluster, FROM, "middle");
    let slot = slot(&cluster, &tag);
    let lock = |name: &str| client.get_lock(&format!("{{{tag}}}{name}")).unwrap();
    let (stays, goes) = (lock("stays"), lock("goes"));
    let (staying, going) = (stays.lock().await.unwrap(), goes.lock().await.unwrap());
    cluster.begin_to_move(slot, FROM, TO);
    cluster.move_key(goes.name().as_str(), FROM, TO);

    // A free lock is acquired at its new node, which does not know the scripts yet.
    let free = lock("free");
    let guard = free.lock().await.unwrap();
    assert!(cluster.ask::<Vec<String>>(TO, &["KEYS", "*free*"]).len() == 1);
    assert!(free.is_locked().await.unwrap());
    assert!(free.remaining().await.unwrap().is_some());
    // One command renews three locks of one slot, and neither node can run the command.
    renewals(&cluster, FROM).await;
    renewals(&cluster, TO).await;
    assert!(staying.is_held() && going.is_held() && guard.is_held());
    let other = self::client(&cluster, ShardedMessages::Off).await;
    let waiter = tokio::spawn({
        let lock = other.get_lock(goes.name().as_str()).unwrap();
        async move { lock.lock().await.unwrap().unlock().await }
    });
    let channel = format!("{}:latchwork:call:{}", goes.name(), other.id());
    eventually("the subscription", async || subscribers(&cluster, &channel) == 1).await;
    going.unlock().await.unwrap();
    soon("the wake-up", waiter).await.unwrap().unwrap();
    staying.unlock().await.unwrap();
    assert!(free.force_unlock().await.unwrap());
    assert!(guard.unlock().await.unwrap_err().is_not_held());

    // A lock and its token counter are two keys, so a fenced lock waits until the move is over.
    let fenced = tokio::spawn({
        let lock = lock("fenced").fenced();
        async move { lock.lock().await }
    });
    eventually("its being sent on", async || calls(&cluster, FROM, "evalsha") > 0).await;
    cluster.finish_to_move(slot, FROM, TO);
    let guard = soon("the fenced lock", fenced).await.unwrap().unwrap();
    assert_eq!(guard.fencing_token(), Some(1));
    guard.unlock().await.unwrap();
    assert!(client.registry().is_empty());
    assert_eq!(keys(&cluster), [format!("redisson_lock_token:{}", lock("fenced").name())]);
}

/// A semaphore has three keys: during a move neither node has them all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_in_use_are_at_most_the_capacity_while_their_slot_moves() {
    let cluster = RedisCluster::start_with(&[]);
    let clients = [client(&cluster, ShardedMessages::On).await, client(&cluster, ShardedMessages::On).await];
    let slot = slot(&cluster, "jobs");
    let from = node_of(slot);
    let to = (from + 1) % 3;
    let mut moves = 0;
    let moving = async {
        for (from, to) in [(from, to), (to, from)].into_iter().cycle() {
            let before = calls(&cluster, from, "evalsha");
            eventually("holds at the node", async || calls(&cluster, from, "evalsha") > before + 200).await;
            cluster.begin_to_move(slot, from, to);
            cluster.finish_to_move(slot, from, to);
            moves += 1;
        }
    };
    tokio::select! {
        () = permits::holds_never_exceed_the_capacity(&clients, 10, 100) => {}
        () = moving => {}
    }
    assert!(moves >= 2, "expected the slot to move and to come back, and saw {moves} moves");
    assert_eq!(keys(&cluster), [""; 0]);
}
