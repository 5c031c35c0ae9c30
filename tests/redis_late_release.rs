//! A release that comes late: nobody waits for it any more, and its owner has the lock anew.

use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{LockClient, LockOptions};
use latchwork_testkit::{ChaosProxy, RedisServer, Way};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_that_comes_late_does_not_free_the_owners_next_hold() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.port());
    let redis =
        Redis::builder().response_timeout(Duration::from_millis(300)).connect(&proxy.url()).await.unwrap();
    let options = LockOptions::default().watchdog_timeout(Duration::from_secs(30));
    let client = LockClient::with_options(redis, &options).unwrap();
    let me = client.owner();
    let lock = client.get_lock("late").unwrap().owned_by(&me);

    // So that the server knows the scripts.
    lock.lock().await.unwrap().unlock().await.unwrap();

    let first = lock.lock().await.unwrap();
    // The network holds the release back, and nobody waits for it longer than for a reply.
    let link = proxy.wait_for_link_of("EVAL");
    link.silence(Way::ToServer);
    assert!(first.unlock().await.is_err());
    let second = lock.lock().await.unwrap();
    assert!(lock.is_held_by(&me).await.unwrap());
    // Now it comes, over a connection that its client has closed long ago.
    proxy.heal();
    link.wait_for_end();
    assert!(second.is_held());
    assert!(lock.is_held_by(&me).await.unwrap(), "its guard believes in it, and the lock is free for others");
    second.unlock().await.unwrap();
}
