//! A faulty network before one node.

use std::time::{Duration, Instant};

use latchwork::LockClient;
use latchwork::backend::{Backend as _, LeaseKey, LockName, Mode};
use latchwork::redis::Redis;
use latchwork_testkit::{Afterwards, ChaosProxy, RedisCluster, Way};

use crate::nodes::{keys, name_at, soon};

/// The cluster announces a proxy as the first node's address.
fn behind_proxy() -> (RedisCluster, ChaosProxy) {
    let cluster = RedisCluster::start_with(&[]);
    let proxy = ChaosProxy::start(cluster.nodes()[0].port());
    cluster.announce(0, proxy.port());
    (cluster, proxy)
}

async fn client(cluster: &RedisCluster) -> LockClient {
    let seed = format!("redis-cluster://127.0.0.1:{}", cluster.nodes()[1].port());
    LockClient::new(Redis::connect(&seed).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_replies_count_once() {
    let (cluster, proxy) = behind_proxy();
    let client = client(&cluster).await;
    let lock = client.get_lock(&name_at(&cluster, 0, "lost")).unwrap();
    // The first time the node does not know the scripts.
    lock.lock().await.unwrap().unlock().await.unwrap();

    proxy.lose_reply("EVALSHA", Afterwards::Reset);
    let guard = soon("the lock", lock.lock()).await.unwrap();
    proxy.wait_until_replies_are_lost();
    assert_eq!(lock.hold_count(guard.owner()).await.unwrap(), 1);

    // The first release frees the lock; the second finds nothing, and reports no loss.
    proxy.lose_reply("EVALSHA", Afterwards::Reset);
    soon("the release", guard.unlock()).await.unwrap();
    proxy.wait_until_replies_are_lost();
    assert_eq!(keys(&cluster), [""; 0]);

    // A force unlock must not be sent twice.
    let guard = lock.lock().await.unwrap();
    let before = proxy.count("EVALSHA") + proxy.count("EVAL\r\n");
    proxy.lose_reply("EVAL", Afterwards::Reset);
    soon("an error", lock.force_unlock()).await.unwrap_err();
    assert_eq!(proxy.count("EVALSHA") + proxy.count("EVAL\r\n"), before + 1);
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_of_many_slots_do_not_wait_for_each_other() {
    const DELAY: Duration = Duration::from_millis(40);
    const LEASES: u32 = 100;
    let (cluster, proxy) = behind_proxy();
    let client = client(&cluster).await;
    let leases: Vec<LeaseKey> = (0..LEASES)
        .map(|number| {
            let name = name_at(&cluster, 0, &format!("slow:{number}"));
            let id = format!("8743c9c0-0795-4907-87fd-6c719a6b4586:{number}").parse().unwrap();
            LeaseKey { name: LockName::new(&name).unwrap(), id }
        })
        .collect();
    for key in &leases {
        let () = cluster.ask(0, &["HSET", key.name.as_str(), &key.id.to_string(), "1"]);
        let () = cluster.ask(0, &["PEXPIRE", key.name.as_str(), "20000"]);
    }
    for way in [Way::ToServer, Way::ToClient] {
        proxy.delay(way, DELAY);
    }
    let before = Instant::now();
    let renewed = client
        .backend::<Redis>()
        .unwrap()
        .renew(Mode::Plain, &leases, Duration::from_secs(30))
        .await
        .unwrap();
    // One after the other, with a round trip each, they would take twice this time at least.
    assert!(before.elapsed() < DELAY * LEASES, "{:?}", before.elapsed());
    assert!(renewed.iter().all(|held| *held));
}
