//! Several names at once, over a server.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt as _;
use latchwork::redis::Redis;
use latchwork::{LockClient, LockError, LockOptions, LossReason};
use latchwork_testkit::RedisServer;

use crate::by_hand::{calls, client, run};
use crate::clashing::{self, set};

crate::waiting::waiting_for!(Duration::from_secs(60));

#[tokio::test]
async fn free_set_costs_two_commands_a_name() {
    let server = RedisServer::start();
    let names = set(&client(&server.url()).await, "a b c d e f g h");
    // The first call of each script sends its text.
    names.lock().await.unwrap().unlock().await.unwrap();
    let before = calls(&server, "evalsha").await;
    names.lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(calls(&server, "evalsha").await - before, 16);
    assert_eq!(run::<usize>(&server, "DBSIZE").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sets_of_two_clients_in_clashing_orders_finish() {
    let server = RedisServer::start();
    let clients = [client(&server.url()).await, client(&server.url()).await];
    soon("the end of all tasks", clashing::tasks(&clients, 40)).await;
    for client in &clients {
        client.shutdown(Duration::from_secs(60)).await.unwrap();
    }
}

/// The releases of the 65th name and those behind began only when the first 64 were answered.
#[tokio::test]
async fn unlock_that_is_polled_once_gives_all_names_back() {
    let server = RedisServer::start();
    let client = client(&server.url()).await;
    let locks: Vec<_> = (0..100).map(|number| client.get_lock(&number.to_string()).unwrap()).collect();
    let guard = client.get_multi_lock(&locks).unwrap().lock().await.unwrap();
    let mut unlock = pin!(guard.unlock());
    assert!(unlock.as_mut().now_or_never().is_none());
    eventually("all given back", async || run::<usize>(&server, "DBSIZE").await == 0).await;
    assert_eq!(client.held().len(), 0);
    soon("the answers", unlock).await.unwrap();
}

#[tokio::test]
async fn key_that_vanishes_ends_the_work_and_is_named() {
    let server = RedisServer::start();
    let options = LockOptions::default().watchdog_timeout(Duration::from_secs(3));
    let backend = Redis::connect(&server.url()).await.unwrap();
    let client = LockClient::with_options(backend, &options).unwrap();
    let names = set(&client, "a b c");
    let work = names.run(async {
        run::<usize>(&server, "DEL b").await;
        pending::<()>().await
    });
    match soon("the loss", work).await.unwrap_err() {
        LockError::Lost { name, reason, .. } => assert_eq!((name.as_str(), reason), ("b", LossReason::Gone)),
        other => panic!("expected a loss, and got {other:?}"),
    }
    eventually("all given back", async || run::<usize>(&server, "DBSIZE").await == 0).await;
}
