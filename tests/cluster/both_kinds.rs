//! A client that publishes both kinds of messages, for a fleet that changes from one kind to the other.

use latchwork::LockClient;
use latchwork::redis::{Redis, ShardedMessages};
use latchwork_testkit::RedisCluster;

use crate::nodes::{call_channel, client, eventually, name_at, soon, subscribers};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publisher_of_both_kinds_wakes_listeners_of_either() {
    let cluster = RedisCluster::start_with(&[]);
    for own in [ShardedMessages::Off, ShardedMessages::On] {
        let builder = Redis::builder().sharded_messages(own).publish_both_kinds(true);
        let publishes = LockClient::new(builder.connect(&cluster.url()).await.unwrap());
        for listens in [ShardedMessages::Off, ShardedMessages::On] {
            let listener = client(&cluster, listens).await;
            let name = name_at(&cluster, 0, "both");
            let lock = publishes.get_lock(&name).unwrap();
            for forced in [false, true] {
                let guard = lock.lock().await.unwrap();
                let waiter = tokio::spawn({
                    let lock = listener.get_lock(&name).unwrap();
                    async move { lock.lock().await.unwrap().unlock().await }
                });
                let channel = call_channel(&listener, &name);
                eventually("the subscription", async || subscribers(&cluster, &channel) == 1).await;
                if forced {
                    assert!(lock.force_unlock().await.unwrap());
                    drop(guard);
                } else {
                    guard.unlock().await.unwrap();
                }
                soon("the wake-up", waiter).await.unwrap().unwrap();
                eventually("the end", async || subscribers(&cluster, &channel) == 0).await;
            }
        }
    }
}
