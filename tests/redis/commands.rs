//! The commands of backend calls, and the meaning of the replies.

use std::time::Duration;

use latchwork::LockClient;
use latchwork::backend::{Backend as _, LeaseKey, LockName, Mode, ReleaseOutcome, Transport as _};
use latchwork::redis::Redis;
use latchwork_conformance::commands::{Commands as _, is_acquired};
use latchwork_testkit::RedisServer;
use redis::Client;

use crate::by_hand::{call_channel, calls, client, run};
use crate::scripts::stage::{LEASE, id};

crate::waiting::waiting_for!(Duration::from_secs(10));

#[tokio::test]
async fn leases_that_are_renewed_together_cost_a_command_a_hundred() {
    let server = RedisServer::start();
    let redis = Redis::connect(&server.url()).await.unwrap();
    let names: Vec<_> = (0..250).map(|number| LockName::new(&format!("many:{number}")).unwrap()).collect();
    let leases: Vec<_> = names.into_iter().map(|name| LeaseKey { name, id: id(1, 1) }).collect();
    for LeaseKey { name, id } in &leases[1..] {
        assert!(is_acquired(redis.acquire(Mode::Plain, name, &redis.request(id, LEASE)).await.unwrap()));
    }
    // The first time the server does not know the script.
    for _ in 0..2 {
        let () = run(&server, "CONFIG RESETSTAT").await;
        let renewed = redis.renew(Mode::Plain, &leases, LEASE).await.unwrap();
        assert!(!renewed[0] && renewed[1..].iter().all(|held| *held), "{renewed:?}");
    }
    assert_eq!(calls(&server, "evalsha").await, 3);
}

/// A list of many readers takes several commands, and shows no single moment.
#[tokio::test]
async fn query_costs_one_command_beside_many_readers() {
    let server = RedisServer::start();
    let redis = Redis::connect(&server.url()).await.unwrap();
    let name = LockName::new("asked:of:many").unwrap();
    for id in (1..=300).map(|number| id(1, number)) {
        assert!(is_acquired(redis.acquire(Mode::Read, &name, &redis.request(&id, LEASE)).await.unwrap()));
    }
    let client = LockClient::new(redis);
    let (me, both) = (client.owner(), client.get_read_write_lock(name.as_str()).unwrap());
    let guard = both.read().owned_by(&me).lock().await.unwrap();
    guard.ensure_held().await.unwrap();
    assert!(both.read().is_locked().await.unwrap());
    let () = run(&server, "CONFIG RESETSTAT").await;
    guard.ensure_held().await.unwrap();
    assert!(both.read().is_held_by(&me).await.unwrap());
    assert_eq!(calls(&server, "evalsha").await, 2, "expected a command for each query of the own lease");
    assert!(!both.write().is_locked().await.unwrap() && both.write().remaining().await.unwrap().is_none());
    assert_eq!(calls(&server, "evalsha").await, 4, "expected a command for each query of the writer");
    guard.unlock().await.unwrap();
}

/// Each client returns within the second that a channel stays subscribed after its last waiter has left.
#[tokio::test]
async fn client_that_comes_back_soon_costs_three_commands_a_hand_off() {
    const NAME: &str = "linger";
    const ROUNDS: usize = 20;
    let server = RedisServer::start();
    let clients = [client(&server.url()).await, client(&server.url()).await];
    let mut guard = clients[0].get_lock(NAME).unwrap().lock().await.unwrap();
    for round in 1..=4 + ROUNDS {
        if round == 5 {
            let () = run(&server, "CONFIG RESETSTAT").await;
        }
        let next = &clients[round % 2];
        let (lock, channel) = (next.get_lock(NAME).unwrap(), call_channel(next, NAME));
        let waits = tokio::spawn(async move { lock.lock().await.unwrap() });
        let sleeps = async || next.registry().join(&channel).is_some_and(|look| look.waiters() == 1);
        eventually("sleep", sleeps).await;
        guard.unlock().await.unwrap();
        guard = soon("the lock", waits).await.unwrap();
    }
    // A release, a refused attempt, and a successful one.
    for (command, times) in [("evalsha", 3 * ROUNDS), ("subscribe", 0), ("unsubscribe", 0)] {
        assert_eq!(calls(&server, command).await, times, "{command}");
    }
    guard.unlock().await.unwrap();
}

/// By this count a client knows if others wait for the lock.
#[tokio::test]
async fn release_counts_the_subscribers_of_other_processes_only() {
    const NAME: &str = "heard";
    const CHANNEL: &str = "redisson_lock__channel:{heard}";
    let server = RedisServer::start();
    let redis = Redis::connect(&server.url()).await.unwrap();
    let (name, id) = (LockName::new(NAME).unwrap(), id(1, 1));
    let heard = async || {
        assert!(is_acquired(redis.acquire(Mode::Plain, &name, &redis.request(&id, LEASE)).await.unwrap()));
        match redis.release(Mode::Plain, &name, &id, None).await.unwrap() {
            ReleaseOutcome::Released { receivers } => receivers,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(heard().await, 0);
    let other = Client::open(server.url()).unwrap();
    let mut other = other.get_async_pubsub().await.unwrap();
    other.subscribe(CHANNEL).await.unwrap();
    assert_eq!(heard().await, 1);
    let _interest = redis.registry().subscribe(CHANNEL);
    eventually("subscribe", async || redis.registry().transport().is_active(CHANNEL)).await;
    assert_eq!(heard().await, 1);
    other.unsubscribe(CHANNEL).await.unwrap();
    assert_eq!(heard().await, 0);
}
