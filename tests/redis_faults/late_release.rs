//! A release arrives late: its caller has gone, and its owner holds the lock again.

use crate::by_hand;
use latchwork::LockClient;
use latchwork::redis::Redis;
use latchwork_testkit::{ChaosProxy, RedisServer, Way};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_that_comes_late_does_not_free_the_owners_next_hold() {
    // If clients may kill connections, the release does not arrive at all.
    for rules in ["", "-client +client|info"] {
        comes_late(rules).await;
    }
}

async fn comes_late(rules: &str) {
    let server = RedisServer::start();
    let words = format!("ACL SETUSER user on >secret ~* &* +@all {rules}");
    let (command, args) = words.trim_end().split_once(' ').unwrap();
    let mut raw = by_hand::connection(&server).await;
    let () =
        redis::cmd(command).arg(args.split(' ').collect::<Vec<_>>()).query_async(&mut raw).await.unwrap();
    let proxy = ChaosProxy::start(server.port());
    let url = proxy.url().replace("redis://", "redis://user:secret@");
    let client = LockClient::new(Redis::connect(&url).await.unwrap());
    let me = client.owner();
    let lock = client.get_lock("late").unwrap().owned_by(&me);

    // From now on the server knows the scripts.
    lock.lock().await.unwrap().unlock().await.unwrap();

    let first = lock.lock().await.unwrap();
    // The network holds the release back, and the client sends it over another link.
    let link = proxy.wait_for_link_of("EVAL");
    link.silence(Way::ToServer);
    first.unlock().await.unwrap();
    let second = lock.lock().await.unwrap();
    assert!(lock.is_held_by(&me).await.unwrap());
    // The release arrives, over a connection that its client closed long ago.
    proxy.heal();
    link.wait_for_end();
    assert!(second.is_held());
    assert!(
        lock.is_held_by(&me).await.unwrap(),
        "expected the owner's lease at the server, and its guard believes in a free lock"
    );
    second.unlock().await.unwrap();
}
