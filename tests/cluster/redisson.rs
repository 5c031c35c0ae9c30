//! Redisson and latchwork wake each other in a Cluster, by sharded messages.

use latchwork::redis::ShardedMessages;
use latchwork_testkit::RedisCluster;
use redis::{AsyncConnectionConfig, PushKind};
use tokio::sync::mpsc;

use crate::nodes::{client, eventually, keys, name_at, soon, subscribers};

#[tokio::test]
async fn redisson_and_ours_hear_each_others_sharded_messages() {
    let cluster = RedisCluster::start_with(&[]);
    let name = name_at(&cluster, 2, "turns");
    let channel = format!("redisson_lock__channel:{{{name}}}");
    let (push, mut messages) = mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new().set_push_sender(push);
    let redisson = redis::Client::open(format!("{}?protocol=resp3", cluster.nodes()[2].url())).unwrap();
    let mut redisson = redisson.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    redis::cmd("SSUBSCRIBE").arg(&channel).exec_async(&mut redisson).await.unwrap();
    let client = client(&cluster, ShardedMessages::Auto).await;
    let lock = client.get_lock(&name).unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    soon("our message", async {
        while messages.recv().await.expect("connected").kind != PushKind::SMessage {}
    })
    .await;

    let () = cluster.ask(2, &["HSET", &name, "8743c9c0-0795-4907-87fd-6c719a6b4586:7", "1"]);
    let waiter = tokio::spawn(async move { lock.lock().await });
    eventually("the subscription", async || subscribers(&cluster, &channel) == 2).await;
    let told = client.registry().stats().unlock_messages;
    let () = cluster.ask(2, &["DEL", &name]);
    let () = cluster.ask(2, &["SPUBLISH", &channel, "0"]);
    soon("the wake-up", waiter).await.unwrap().unwrap().unlock().await.unwrap();
    assert!(client.registry().stats().unlock_messages > told, "expected a wake-up by Redisson's message");
    assert_eq!(keys(&cluster), [""; 0]);
}
