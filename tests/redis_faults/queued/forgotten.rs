//! A server that forgets keys or scripts, restarts empty, or stalls.

use std::time::Duration;

use latchwork::{Guard, LossReason};

use super::kind::{POSITIONS, QUEUE};
use super::stage::{
    AT_ONCE, LIFE, LITTLE, Waiter, assert_all_wait, end, lock, queued, until_listening, until_queued, waiter,
    within,
};
use crate::day::{Day, NAME};

/// Pause between two arrivals. A position counts the time waited when its command reaches the server: waiters
/// of the same moment may swap places when both ask again.
const APART: Duration = Duration::from_millis(300);

/// The server forgets a holder and three waiters.
async fn waiters_queue_anew(forgets: impl AsyncFnOnce(&mut Day)) {
    let mut day = Day::begin();
    let holder = day.bystander().await;
    let clients = [day.bystander().await, day.bystander().await, day.bystander().await];
    let held = lock(&holder).lock().await.unwrap();
    let mut waiters = Vec::new();
    for client in &clients {
        waiters.push(waiter(client).await);
        tokio::time::sleep(APART).await;
    }
    until_queued(&day.server, 3).await;
    forgets(&mut day).await;
    // The first waiter to ask gets the lock, and the others wait.
    let (mut guard, mut rest, first) = within(LIFE + LITTLE, "a waiter's turn", first_of(waiters)).await;
    until_queued(&day.server, 2).await;
    let others: Vec<_> = (0..3).filter(|client| *client != first).map(|client| &clients[client]).collect();
    until_listening(&day.server, &others).await;
    // In the order of their waits, and not of their attempts.
    for turn in 0..2 {
        guard.ensure_held().await.unwrap();
        guard.unlock().await.unwrap();
        let (next, others, which) = within(AT_ONCE, "the next turn", first_of(rest)).await;
        assert_eq!(which, 0, "expected the waiter that began first");
        assert_all_wait(&others);
        (guard, rest) = (next, others);
        assert_eq!(queued(&day.server).await, 1 - turn);
    }
    let told = within(LIFE + LITTLE, "notice of the loss", held.lost()).await;
    assert_eq!(told, LossReason::Gone);
    assert!(held.unlock().await.unwrap_err().is_not_held());
    guard.ensure_held().await.unwrap();
    guard.unlock().await.unwrap();
    let [one, two, three] = &clients;
    end(day, &[&holder, one, two, three]).await;
}

/// The guard of the waiter served, the other waiters in order, and the index of the one served.
async fn first_of(mut waiters: Vec<Waiter>) -> (Guard, Vec<Waiter>, usize) {
    loop {
        if let Some(at) = waiters.iter().position(|waiter| waiter.is_finished()) {
            let guard = waiters.remove(at).await.unwrap().unwrap();
            return (guard, waiters, at);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_queue_anew_after_a_flush() {
    waiters_queue_anew(async |day| day.run("FLUSHALL").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_queue_anew_after_an_outage_and_an_empty_restart() {
    waiters_queue_anew(async |day| {
        day.server.kill_9();
        tokio::time::sleep(Duration::from_secs(3)).await;
        day.server.restart();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_queue_anew_after_the_loss_of_the_queue_alone() {
    let day = Day::begin();
    let (holder, one, other) = (day.bystander().await, day.bystander().await, day.bystander().await);
    for key in [QUEUE, POSITIONS] {
        let held = lock(&holder).lock().await.unwrap();
        let mut waiters = vec![waiter(&one).await, waiter(&other).await];
        until_queued(&day.server, 2).await;
        let () = day.run(&format!("DEL {NAME}:latchwork:{{{NAME}}}:{key}")).await;
        held.unlock().await.unwrap();
        for _ in 0..2 {
            let (guard, rest, _) = within(AT_ONCE, "a turn", first_of(waiters)).await;
            assert_all_wait(&rest);
            guard.ensure_held().await.unwrap();
            guard.unlock().await.unwrap();
            waiters = rest;
        }
    }
    end(day, &[&holder, &one, &other]).await;
}

/// With a release under way: all positions are expired when the server resumes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stall_of_a_positions_life_costs_no_turn() {
    let day = Day::begin();
    let (holder, one, other) = (day.bystander().await, day.bystander().await, day.bystander().await);
    let held = lock(&holder).lock().await.unwrap();
    let waiters = vec![waiter(&one).await, waiter(&other).await];
    until_queued(&day.server, 2).await;
    day.server.pause();
    let release = tokio::spawn(held.unlock());
    tokio::time::sleep(LIFE + Duration::from_secs(1)).await;
    day.server.resume();
    let (guard, mut rest, _) = within(AT_ONCE, "a waiter's turn", first_of(waiters)).await;
    until_queued(&day.server, 1).await;
    guard.ensure_held().await.unwrap();
    guard.unlock().await.unwrap();
    let guard = within(AT_ONCE, "the other one's turn", rest.remove(0)).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
    // The release may have been given up, and repeated.
    if let Err(error) = within(AT_ONCE, "the release", release).await.unwrap() {
        assert!(error.is_release_pending(), "{error:?}");
    }
    end(day, &[&holder, &one, &other]).await;
}
