//! Semaphores over a server.

use std::time::Duration;

use futures_util::future::join_all;
use latchwork::{LockClient, NamedSemaphore};
use latchwork_testkit::RedisServer;

use crate::by_hand::{calls, client, run};
use crate::permits;

crate::waiting::waiting_for!(Duration::from_secs(60));

async fn clients() -> (RedisServer, [LockClient; 2]) {
    let server = RedisServer::start();
    let clients = [client(&server.url()).await, client(&server.url()).await];
    (server, clients)
}

async fn keys(server: &RedisServer) -> usize {
    run(server, "DBSIZE").await
}

permits::over_two_clients! { clients().await }

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn holds_never_exceed_the_capacity() {
    let (server, clients) = clients().await;
    permits::holds_never_exceed_the_capacity(&clients, 100, 10).await;
    assert_eq!(keys(&server).await, 0);
}

/// Runs `rounds` holds of one permit in each task.
async fn holds_for(jobs: &[NamedSemaphore], tasks: usize, rounds: usize) {
    let tasks = (0..tasks).map(|task| {
        let jobs = jobs[task % jobs.len()].clone();
        tokio::spawn(async move {
            for _ in 0..rounds {
                jobs.run(tokio::time::sleep(Duration::from_millis(1))).await.unwrap();
            }
        })
    });
    soon("the end of all tasks", join_all(tasks.collect::<Vec<_>>())).await;
}

#[tokio::test]
async fn hold_costs_two_commands_with_and_without_a_wait() {
    let (server, [one, other]) = clients().await;
    let jobs = [&one, &other].map(|client| client.get_semaphore("jobs", 3).unwrap());
    // Keeps the channels subscribed to, and the scripts known.
    holds_for(&jobs, 10, 3).await;
    // In the holds before, a grant may come before its waiter listens, and wakes another one.
    let spurious = || [&one, &other].map(|client| client.metrics().wakes_spurious);
    let (before, spurious_before, holds) = (calls(&server, "evalsha").await, spurious(), 1000);
    holds_for(&jobs, 100, 10).await;
    let cost = (calls(&server, "evalsha").await - before) as f64 / f64::from(holds);
    assert!(cost <= 2.1, "{cost} commands a hold");
    assert_eq!(spurious(), spurious_before, "expected each message to wake the waiter of its grant");
}

#[tokio::test]
async fn semaphore_of_redissons_is_refused_with_advice() {
    let (server, [one, _]) = clients().await;
    run::<String>(&server, "SET jobs 3").await;
    let jobs = one.get_semaphore("jobs", 3).unwrap();
    let error = jobs.acquire().await.unwrap_err();
    assert!(!error.is_retryable(), "{error}");
    assert_eq!(run::<String>(&server, "GET jobs").await, "3");
    println!("{error}");
}

/// A waiter with a lease of its own asks once more after its grant, and its client's other waiters do not.
#[tokio::test]
async fn own_leases_after_a_wait_cost_three_commands() {
    const TASKS: u64 = 50;
    let (server, [one, _]) = clients().await;
    let jobs = one.get_semaphore("jobs", 1).unwrap();
    let turn = async |jobs: NamedSemaphore| {
        let lease = Duration::from_secs(30);
        let permit = jobs.try_acquire_for(Duration::from_secs(60), lease).await.unwrap().expect("a turn");
        tokio::time::sleep(Duration::from_millis(1)).await;
        permit.release().await.unwrap();
    };
    join_all((0..10).map(|_| turn(jobs.clone()))).await;
    let before = calls(&server, "evalsha").await;
    soon("all turns", join_all((0..TASKS).map(|_| turn(jobs.clone())))).await;
    let cost = (calls(&server, "evalsha").await - before) as f64 / TASKS as f64;
    assert!(cost <= 3.1, "{cost} commands a hold");
}

/// Each look at all leases takes time, during which the server serves nobody else.
#[tokio::test]
async fn leases_that_end_one_after_another_are_looked_at_in_steps() {
    const LEASES: usize = 500;
    let (server, [one, other]) = clients().await;
    let [ours, theirs] = [&one, &other].map(|client| client.get_semaphore("jobs", 1000).unwrap());
    for _ in 0..LEASES {
        ours.try_acquire_for(Duration::ZERO, Duration::from_secs(2)).await.unwrap().expect("free").forget();
    }
    let before = calls(&server, "hgetall").await;
    eventually("the end of all leases", async || {
        theirs.acquire().await.unwrap().release().await.unwrap();
        theirs.try_acquire_many(1000).await.unwrap().is_some()
    })
    .await;
    let looks = calls(&server, "hgetall").await - before;
    assert!(looks < 100, "expected a look at each 64th of the leases' time, and the server made {looks}");
}

/// A position that is left behind would keep later waiters from the permits, for ten seconds.
#[tokio::test]
async fn waiter_that_gives_up_beside_a_lock_of_the_name_leaves_no_position() {
    let (server, [one, other]) = clients().await;
    let jobs = one.get_semaphore("jobs", 1).unwrap();
    let _lost = jobs.acquire().await.unwrap();
    let waiter = tokio::spawn({
        let jobs = jobs.clone();
        async move { jobs.acquire().await.map(drop) }
    });
    eventually("a position", async || keys(&server).await == 3).await;
    run::<()>(&server, "DEL jobs").await;
    let lock = other.get_lock("jobs").unwrap().lock().await.unwrap();
    waiter.abort();
    let leaves = eventually("the end of the position", async || keys(&server).await == 1);
    tokio::time::timeout(Duration::from_secs(5), leaves)
        .await
        .expect("the waiter's position ends with the wait");
    lock.unlock().await.unwrap();
}
