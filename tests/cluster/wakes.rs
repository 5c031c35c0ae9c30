//! Wake-ups from every node, and the kind of messages that carries them.

use latchwork::redis::ShardedMessages;
use latchwork_testkit::RedisCluster;

use crate::nodes::{call_channel, client, eventually, keys, name_at, soon, subscribers};

/// `kind`: the subcommand of PUBSUB that counts the subscribers.
async fn wakes_come_from_every_node(sharded: ShardedMessages, kind: &str) {
    let cluster = RedisCluster::start_with(&[]);
    let (holder, waiter) = (client(&cluster, sharded).await, client(&cluster, sharded).await);
    let mut waiting = Vec::new();
    for node in 0..3 {
        let name = name_at(&cluster, node, "wakes");
        let guard = holder.get_lock(&name).unwrap().lock().await.unwrap();
        let lock = waiter.get_lock(&name).unwrap();
        let wait = tokio::spawn(async move { lock.lock().await.unwrap().unlock().await });
        let channel = call_channel(&waiter, &name);
        eventually("the subscription", async || subscribers(&cluster, &channel) == 1).await;
        if kind == "SHARDNUMSUB" {
            let (_, at_the_master): (String, usize) = cluster.ask(node, &["PUBSUB", kind, &channel]);
            assert_eq!(at_the_master, 1, "{name}");
        }
        waiting.push((guard, wait));
    }
    for (guard, wait) in waiting {
        guard.unlock().await.unwrap();
        soon("the wake-up", wait).await.unwrap().unwrap();
    }
    assert!(waiter.registry().is_empty());
    assert_eq!(keys(&cluster), [""; 0]);
}

#[tokio::test]
async fn plain_messages_come_from_every_node() {
    wakes_come_from_every_node(ShardedMessages::Off, "NUMSUB").await;
}

/// Every server of the tests has sharded messages.
#[tokio::test]
async fn sharded_messages_are_taken_where_they_can_be_had() {
    wakes_come_from_every_node(ShardedMessages::Auto, "SHARDNUMSUB").await;
}
