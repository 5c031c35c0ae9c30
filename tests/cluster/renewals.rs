//! Renewals of locks on all nodes while one node is dead.

use std::time::{Duration, Instant};

use latchwork::backend::{Backend as _, LeaseKey, LockName, Mode};
use latchwork::redis::{Redis, ShardedMessages};
use latchwork::{LockOptions, LossReason};
use latchwork_testkit::{ChaosProxy, RedisCluster, Way};

use crate::nodes::{calls, client_with, eventually, keys, name_at, slot, soon};
use latchwork_conformance::commands::Commands as _;

const WATCHDOG: Duration = Duration::from_secs(2);

/// A lease of each name.
fn leases(names: impl Iterator<Item = String>) -> Vec<LeaseKey> {
    let lease = |(number, name): (usize, String)| LeaseKey {
        name: LockName::new(&name).unwrap(),
        id: format!("8743c9c0-0795-4907-87fd-6c719a6b4586:{number}").parse().unwrap(),
    };
    names.enumerate().map(lease).collect()
}

async fn acquire(backend: &Redis, key: &LeaseKey) {
    let request = backend.request(&key.id, Duration::from_secs(10));
    backend.acquire(Mode::Plain, &key.name, &request).await.unwrap();
}

#[tokio::test]
async fn silent_node_costs_only_its_own_locks() {
    // The live nodes serve their slots, though a third of all slots is down.
    let cluster = RedisCluster::start_with(&["--cluster-require-full-coverage", "no"]);
    let options = LockOptions::default().watchdog_timeout(WATCHDOG);
    let client = client_with(&cluster, ShardedMessages::Off, &options).await;
    let mut guards = Vec::new();
    for node in 0..3 {
        // Different slots, and too many locks for one command per node.
        for number in 0..5 {
            let name = name_at(&cluster, node, &format!("renewals:{number}"));
            guards.push((node, client.get_lock(&name).unwrap().lock().await.unwrap()));
        }
    }
    cluster.nodes()[0].pause();
    let paused = Instant::now();
    // For two whole leases, losses included, no lock of a live node comes near the end of its lease.
    while paused.elapsed() < WATCHDOG * 2 {
        for (node, guard) in guards.iter().filter(|(node, _)| *node != 0) {
            let left: i64 = cluster.ask(*node, &["PTTL", guard.name().as_str()]);
            // Renewals are due with two thirds left; the rest is for a busy machine.
            assert!(left > i64::try_from(WATCHDOG.as_millis()).unwrap() / 6, "{left} ms at node {node}");
            assert!(guard.is_held());
        }
        tokio::task::yield_now().await;
    }
    for (node, guard) in guards {
        if node == 0 {
            assert_eq!(soon("the loss", guard.lost()).await, LossReason::Unreachable);
        } else {
            guard.unlock().await.unwrap();
        }
    }
    cluster.nodes()[0].resume();
    eventually("the last of them gone", async || keys(&cluster).is_empty()).await;
}

#[tokio::test]
async fn locks_of_one_slot_are_renewed_by_one_command() {
    const SHARED: usize = 150;
    const APART: usize = 20;
    let cluster = RedisCluster::start_with(&[]);
    let client = client_with(&cluster, ShardedMessages::Off, &LockOptions::default()).await;
    let (backend, lease) = (client.backend::<Redis>().unwrap(), Duration::from_secs(30));
    let shared = (0..SHARED).map(|number| format!("{{shared}}{number}"));
    let mut leases = leases(shared.chain((0..APART).map(|number| format!("apart:{number}"))));
    leases.sort_by_key(|key| key.name.as_str().chars().rev().collect::<String>());
    let held = |index: usize| !index.is_multiple_of(3);
    for (_, key) in leases.iter().enumerate().filter(|(index, _)| held(*index)) {
        acquire(backend, key).await;
    }
    // The first time a node may not know the script.
    for round in 0..2 {
        let scripts = || (0..3).map(|node| calls(&cluster, node, "evalsha")).sum::<usize>();
        let before = scripts();
        let renewed = backend.renew(Mode::Plain, &leases, lease).await.unwrap();
        assert!(renewed.iter().enumerate().all(|(index, renewed)| *renewed == held(index)), "{renewed:?}");
        // A hundred leases per command, as on a single server.
        assert!(round == 0 || scripts() - before == 2 + APART, "{} commands", scripts() - before);
    }
    for (index, key) in leases.iter().enumerate() {
        let left = backend.holder(Mode::Plain, &key.name).await.unwrap().map(|holder| holder.left);
        assert_eq!(left > Some(lease / 2), held(index));
    }
}

/// Both nodes refuse a command of several keys while the keys are apart, and a move may last long.
#[tokio::test]
async fn locks_of_a_slot_that_moves_are_renewed_where_they_are() {
    const FROM: usize = 0;
    const TO: usize = 1;
    const LOCKS: usize = 150;
    let cluster = RedisCluster::start_with(&[]);
    let client = client_with(&cluster, ShardedMessages::Off, &LockOptions::default()).await;
    let (backend, lease) = (client.backend::<Redis>().unwrap(), Duration::from_secs(30));
    let tag = name_at(&cluster, FROM, "moves");
    let slot = slot(&cluster, &tag);
    let leases = leases((0..LOCKS).map(|number| format!("{{{tag}}}{number}")));
    let held = |number: usize| !number.is_multiple_of(3);
    for (number, key) in leases.iter().enumerate() {
        if held(number) {
            acquire(backend, key).await;
        } else if number.is_multiple_of(2) {
            let () = cluster.ask(FROM, &["HSET", key.name.as_str(), "somebody:1", "1"]);
        }
    }
    let assert_renewed = async |state: &str| {
        let renewed = backend.renew(Mode::Plain, &leases, lease).await.unwrap();
        for (number, key) in leases.iter().enumerate() {
            assert_eq!(renewed[number], held(number), "{state}: {number}");
            let left = backend.holder(Mode::Plain, &key.name).await.unwrap().map(|holder| holder.left);
            assert!(!held(number) || left > Some(lease / 2), "{state}: {number}: {left:?}");
        }
    };
    cluster.begin_to_move(slot, FROM, TO);
    assert_renewed("none has moved").await;
    for key in leases.iter().step_by(2) {
        cluster.move_key(key.name.as_str(), FROM, TO);
    }
    assert_renewed("half have moved").await;
    for key in leases.iter().skip(1).step_by(2) {
        cluster.move_key(key.name.as_str(), FROM, TO);
    }
    assert_renewed("all have moved, and the slot has not").await;
    cluster.finish_to_move(slot, FROM, TO);
    assert_renewed("the slot has moved").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_of_many_slots_do_not_wait_for_each_other() {
    const DELAY: Duration = Duration::from_millis(40);
    const LEASES: u32 = 100;
    let cluster = RedisCluster::start_with(&[]);
    // The cluster announces a proxy as the first node's address.
    let proxy = ChaosProxy::start(cluster.nodes()[0].port());
    cluster.announce(0, proxy.port());
    let seed = format!("redis-cluster://127.0.0.1:{}", cluster.nodes()[1].port());
    let redis = Redis::connect(&seed).await.unwrap();
    let leases = leases((0..LEASES).map(|number| name_at(&cluster, 0, &format!("slow:{number}"))));
    for key in &leases {
        let () = cluster.ask(0, &["HSET", key.name.as_str(), &key.id.to_string(), "1"]);
        let () = cluster.ask(0, &["PEXPIRE", key.name.as_str(), "20000"]);
    }
    for way in [Way::ToServer, Way::ToClient] {
        proxy.delay(way, DELAY);
    }
    let before = Instant::now();
    let renewed = redis.renew(Mode::Plain, &leases, Duration::from_secs(30)).await.unwrap();
    // One after the other, with a round trip each, they would take twice this time at least.
    assert!(before.elapsed() < DELAY * LEASES, "{:?}", before.elapsed());
    assert!(renewed.iter().all(|held| *held));
}
