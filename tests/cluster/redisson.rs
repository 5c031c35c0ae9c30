//! A hand-written Redisson client alternates with ours in a Cluster.

use std::time::Duration;

use latchwork::redis::ShardedMessages;
use latchwork_testkit::RedisCluster;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::nodes::{client, keys, name_at, soon};

const ACQUIRE: &str = "
    if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
        redis.call('hincrby', KEYS[1], ARGV[2], 1)
        redis.call('pexpire', KEYS[1], ARGV[1])
        return nil
    end
    return redis.call('pttl', KEYS[1])";

const UNLOCK: &str = "
    if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
    if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
        redis.call('pexpire', KEYS[1], ARGV[2])
        return 0
    end
    redis.call('del', KEYS[1])
    redis.call(ARGV[4], KEYS[2], ARGV[1])
    return 1";

const LEASE: u64 = 30_000;

/// One thread of Redisson, connected to the master of its lock.
struct Redisson {
    connection: MultiplexedConnection,
    messages: mpsc::UnboundedReceiver<PushInfo>,
    owner: String,
    name: String,
    channel: String,
}

impl Redisson {
    async fn thread(url: &str, name: &str, number: u64) -> Self {
        let (push, messages) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new().set_push_sender(push);
        let client = redis::Client::open(format!("{url}?protocol=resp3")).unwrap();
        Self {
            connection: client.get_multiplexed_async_connection_with_config(&config).await.unwrap(),
            messages,
            owner: format!("8743c9c0-0795-4907-87fd-6c719a6b4586:{number}"),
            name: name.to_owned(),
            channel: format!("redisson_lock__channel:{{{name}}}"),
        }
    }

    async fn try_lock(&mut self) -> Option<u64> {
        let mut eval = redis::cmd("EVAL");
        eval.arg(ACQUIRE).arg(1).arg(&self.name).arg(LEASE).arg(&self.owner);
        eval.query_async(&mut self.connection).await.unwrap()
    }

    async fn lock(&mut self) {
        if self.try_lock().await.is_none() {
            return;
        }
        redis::cmd("SSUBSCRIBE").arg(&self.channel).exec_async(&mut self.connection).await.unwrap();
        while let Some(left) = self.try_lock().await {
            let message =
                async { while self.messages.recv().await.expect("connected").kind != PushKind::SMessage {} };
            let _ = timeout(Duration::from_millis(left), message).await;
        }
        redis::cmd("SUNSUBSCRIBE").arg(&self.channel).exec_async(&mut self.connection).await.unwrap();
    }

    async fn unlock(&mut self) -> Option<i64> {
        let mut eval = redis::cmd("EVAL");
        eval.arg(UNLOCK).arg(2).arg(&self.name).arg(&self.channel);
        eval.arg("0").arg(LEASE).arg(&self.owner).arg("spublish");
        eval.query_async(&mut self.connection).await.unwrap()
    }
}

#[tokio::test]
async fn both_take_turns() {
    const ROUNDS: u64 = 25;
    let cluster = RedisCluster::start_with(&[]);
    let name = name_at(&cluster, 2, "turns");
    let number = format!("{{{name}}}number");
    let url = cluster.nodes()[2].url();
    let mut tasks = Vec::new();
    for thread in 0..2 {
        let mut redisson = Redisson::thread(&url, &name, thread).await;
        let number = number.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                redisson.lock().await;
                add(&mut redisson.connection, &number).await;
                assert_eq!(redisson.unlock().await, Some(1));
            }
        }));
        let ours = client(&cluster, ShardedMessages::Auto).await;
        let mut raw = Redisson::thread(&url, &name, 9).await.connection;
        let (name, number) = (name.clone(), self::number(&name));
        tasks.push(tokio::spawn(async move {
            let lock = ours.get_lock(&name).unwrap();
            for _ in 0..ROUNDS {
                let guard = lock.lock().await.unwrap();
                add(&mut raw, &number).await;
                guard.unlock().await.unwrap();
            }
        }));
    }
    for task in tasks {
        soon("each waiter's turn", task).await.unwrap();
    }
    assert_eq!(cluster.ask::<u64>(2, &["GET", &number]), 4 * ROUNDS);
    assert_eq!(keys(&cluster), [number]);
}

fn number(name: &str) -> String {
    format!("{{{name}}}number")
}

/// Loses counts if two tasks run at a time.
async fn add(raw: &mut MultiplexedConnection, number: &str) {
    let read: Option<u64> = redis::cmd("GET").arg(number).query_async(raw).await.unwrap();
    redis::cmd("SET").arg(number).arg(read.unwrap_or(0) + 1).exec_async(raw).await.unwrap();
}
