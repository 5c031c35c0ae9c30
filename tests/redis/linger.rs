//! A channel stays subscribed for a while after its last waiter has left.

use std::time::Duration;

use crate::by_hand::{call_channel, calls_in, client, run};
use latchwork::{Guard, LockClient};
use latchwork_testkit::RedisServer;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(10);
crate::waiting::waiting_for!(SOON);
const NAME: &str = "linger";

/// The channel on which the client is called.
fn channel(client: &LockClient) -> String {
    call_channel(client, NAME)
}

/// Releases `guard` to a waiter of `to` that is asleep.
async fn next(guard: Guard, to: &LockClient) -> Guard {
    let lock = to.get_lock(NAME).unwrap();
    let waits = tokio::spawn(async move { lock.lock().await.unwrap() });
    eventually("sleep", async || to.registry().join(&channel(to)).is_some_and(|look| look.waiters() == 1))
        .await;
    guard.unlock().await.unwrap();
    timeout(SOON, waits).await.expect("the lock").unwrap()
}

#[tokio::test]
async fn client_that_comes_back_soon_costs_three_commands_a_hand_off() {
    const ROUNDS: usize = 20;
    let server = RedisServer::start();
    // Default options: each client returns within the second that a channel lingers.
    let clients = [client(&server.url()).await, client(&server.url()).await];
    let mut guard = clients[0].get_lock(NAME).unwrap().lock().await.unwrap();
    for round in 1..=4 {
        guard = next(guard, &clients[round % 2]).await;
    }
    let () = run(&server, "CONFIG RESETSTAT").await;
    for round in 1..=ROUNDS {
        guard = next(guard, &clients[round % 2]).await;
    }
    let stats: String = run(&server, "INFO commandstats").await;
    let calls = |command| calls_in(&stats, command);
    // A release, a refused attempt, and a successful one.
    assert_eq!(calls("evalsha"), 3 * ROUNDS, "{stats}");
    assert_eq!((calls("subscribe"), calls("unsubscribe")), (0, 0), "{stats}");
    guard.unlock().await.unwrap();
}
