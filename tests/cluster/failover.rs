//! A master dies, and its replica takes over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use latchwork::redis::ShardedMessages;
use latchwork_testkit::RedisCluster;

use crate::nodes::{call_channel, client, eventually, keys, name_at, slot, soon, subscribers};

/// The first master's replica.
const REPLICA: usize = 3;

fn replicated() -> RedisCluster {
    RedisCluster::start_replicated_with(&[])
}

/// Plain messages come over one node of the client's choice, until `ends` ends that node.
async fn subscriptions_are_taken_elsewhere(ends: impl FnOnce(&mut RedisCluster, usize)) {
    let mut cluster = RedisCluster::start_with(&["--cluster-require-full-coverage", "no"]);
    let sharded = ShardedMessages::Off;
    let (holder, other) = (client(&cluster, sharded).await, client(&cluster, sharded).await);
    let mut waiting = Vec::new();
    for node in 0..3 {
        let name = name_at(&cluster, node, "elsewhere");
        let guard = holder.get_lock(&name).unwrap().lock().await.unwrap();
        let lock = other.get_lock(&name).unwrap();
        let waiter = tokio::spawn(async move { lock.lock().await.unwrap().unlock().await });
        let channel = call_channel(&other, &name);
        eventually("the subscription", async || subscribers(&cluster, &channel) == 1).await;
        waiting.push((guard, waiter, channel));
    }
    let has_it = |cluster: &RedisCluster, node, channel: &str| {
        cluster.ask::<(String, usize)>(node, &["PUBSUB", "NUMSUB", channel]).1 == 1
    };
    let theirs = (0..3).find(|node| has_it(&cluster, *node, &waiting[0].2)).unwrap();
    let (guard, waiter, _) = waiting.remove(theirs);
    guard.unlock().await.unwrap();
    soon("the wake-up", waiter).await.unwrap().unwrap();

    ends(&mut cluster, theirs);
    for (guard, waiter, channel) in waiting {
        let elsewhere = async || (0..3).any(|node| node != theirs && has_it(&cluster, node, &channel));
        eventually("the subscription at another node", elsewhere).await;
        guard.unlock().await.unwrap();
        soon("the wake-up", waiter).await.unwrap().unwrap();
    }
    assert!(other.registry().is_empty());
}

#[tokio::test]
async fn subscriptions_are_taken_from_a_node_that_dies() {
    subscriptions_are_taken_elsewhere(|cluster, node| cluster.node_mut(node).kill_9()).await;
}

/// A node that was reset answers, and delivers no message.
#[tokio::test]
async fn subscriptions_are_taken_from_a_node_that_is_cut_off() {
    subscriptions_are_taken_elsewhere(|cluster, node| cluster.ask(node, &["CLUSTER", "RESET"])).await;
}

#[tokio::test]
async fn failover_with_commands_running() {
    let mut cluster = replicated();
    let client = client(&cluster, ShardedMessages::Auto).await;
    let idle = self::client(&cluster, ShardedMessages::Auto).await;
    let name = name_at(&cluster, 0, "running");
    let over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..4)
        .map(|number| {
            let (lock, over) = (client.get_lock(&format!("{{{name}}}{number}")).unwrap(), Arc::clone(&over));
            tokio::spawn(async move {
                let mut done = 0_u32;
                while !over.load(Ordering::Relaxed) {
                    // A command that is under way when the master dies may or may not have run.
                    if let Ok(guard) = lock.lock().await {
                        done += u32::from(guard.unlock().await.is_ok());
                    }
                }
                done
            })
        })
        .collect();
    let cluster = tokio::task::spawn_blocking(move || {
        cluster.fail_over();
        cluster
    })
    .await
    .unwrap();
    for number in 0..4 {
        let lock = client.get_lock(&format!("{{{name}}}{number}")).unwrap();
        let guard = soon("the lock", lock.lock()).await.unwrap();
        guard.unlock().await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        assert!(soon("the end", task).await.unwrap() > 0);
    }
    assert_eq!(cluster.owner(1, slot(&cluster, &name)), Some(REPLICA));
    let guard = idle.get_lock(&name).unwrap().lock().await.expect("the first command after a failover");
    guard.unlock().await.unwrap();
    assert!(client.registry().is_empty());
    eventually("the last of them undone", async || keys(&cluster).is_empty()).await;
}
