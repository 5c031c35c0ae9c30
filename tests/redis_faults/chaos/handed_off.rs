//! Faults while the lock passes from one waiter of a process to the next.

use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{Guard, LockClient, LockOptions};
use latchwork_testkit::{Afterwards, Way};
use tokio::task::JoinHandle;

use crate::day::{Day, EVAL, NAME, eventually, soon};

async fn one_behind_another(client: &LockClient) -> (Guard, JoinHandle<Guard>) {
    let lock = client.get_lock(NAME).unwrap();
    let guard = lock.lock().await.unwrap();
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    });
    eventually("its place in the queue", async || lock.waiters() == 1).await;
    (guard, waits)
}

/// During the lease no task of this process needs the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_is_handed_off_while_the_server_is_silent() {
    let day = Day::begin();
    let options = LockOptions::default().tenure(Duration::from_secs(3600));
    let client = LockClient::with_options(Redis::connect(&day.proxy.url()).await.unwrap(), &options).unwrap();
    let (guard, waits) = one_behind_another(&client).await;
    day.proxy.silence(Way::ToServer);
    soon("the release", guard.unlock()).await.unwrap();
    let next = soon("the next one", waits).await.unwrap();
    assert!(next.is_held());
    day.proxy.heal();
    soon("the release", next.unlock()).await.unwrap();
    day.end(&[&client]).await;
}

/// The lease goes back to the server, and the reply is lost: the next waiter asks for a lease of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_a_return_lets_the_next_one_go_on() {
    for afterwards in [Afterwards::Reset, Afterwards::Silence] {
        let day = Day::begin();
        let options = LockOptions::default().tenure(Duration::ZERO);
        let redis = Redis::builder().response_timeout(Duration::from_millis(300));
        let client =
            LockClient::with_options(redis.connect(&day.proxy.url()).await.unwrap(), &options).unwrap();
        let (guard, waits) = one_behind_another(&client).await;
        day.proxy.lose_reply(EVAL, afterwards);
        soon("the release", guard.unlock()).await.unwrap();
        let next = soon("the next one", waits).await.unwrap();
        assert_eq!(client.get_lock(NAME).unwrap().hold_count(next.owner()).await.unwrap(), 1);
        next.unlock().await.unwrap();
        day.end(&[&client]).await;
    }
}
