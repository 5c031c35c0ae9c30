//! A server that forgets keys or scripts, restarts empty, or stalls.

use std::time::Duration;

use futures_util::future::join_all;
use latchwork::{Guard, LossReason};

use super::kind::{POSITIONS, QUEUE, sides};
use super::stage::{
    AT_ONCE, Convoy, LIFE, LITTLE, Side, Waiter, end, lock, queued, serve, taker, until_listening,
    until_queued, waiter, within,
};
use crate::day::{Day, NAME, eventually};

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
        assert!(
            others.iter().all(|waiter| !waiter.is_finished()),
            "expected one holder, and a waiter has the lock as well"
        );
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
async fn waiters_queue_anew_after_an_empty_restart() {
    waiters_queue_anew(async |day| {
        day.server.kill_9();
        day.server.restart();
    })
    .await;
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

/// The holder releases during the outage, and waiters of its own client are next: all keep waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_away_at_a_release_to_own_waiters_loses_no_waiter() {
    let mut day = Day::begin();
    let (client, other) = (day.bystander().await, day.bystander().await);
    let held = lock(&client).lock().await.unwrap();
    let mut waiters = vec![waiter(&other).await];
    for behind in 1..3 {
        waiters.push(taker(&client));
        eventually("waiting", async || lock(&client).waiters() == behind).await;
    }
    day.server.kill_9();
    // The hold is over for its owner, whatever the server would reply.
    let _ = within(AT_ONCE, "an answer", held.unlock()).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    for waiter in &mut waiters {
        if waiter.is_finished() {
            panic!("a wait has ended with the server away: {:?}", waiter.await.unwrap());
        }
    }
    day.server.restart();
    let turns = waiters.into_iter().map(|next| serve(LIFE + LITTLE, "each waiter's turn", next));
    join_all(turns).await;
    end(day, &[&client, &other]).await;
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
            assert!(
                rest.iter().all(|waiter| !waiter.is_finished()),
                "expected one holder, and a waiter has the lock as well"
            );
            guard.ensure_held().await.unwrap();
            guard.unlock().await.unwrap();
            waiters = rest;
        }
    }
    end(day, &[&holder, &one, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn convoy_goes_on_after_the_loss_of_scripts_only() {
    let day = Day::begin();
    let clients = [day.bystander().await, day.bystander().await, day.bystander().await];
    let convoy = Convoy::start(&clients, 2, 60);
    for _ in 0..20 {
        let () = day.run("SCRIPT FLUSH").await;
        convoy.goes_on(7).await;
    }
    convoy.ends().await;
    end(day, &clients.each_ref()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stall_of_five_seconds_costs_no_lease_and_no_position() {
    let day = Day::begin();
    let (holder, one, other) = (day.bystander().await, day.bystander().await, day.bystander().await);
    let held = lock(&holder).lock().await.unwrap();
    let (first, second) = (waiter(&one).await, waiter(&other).await);
    until_queued(&day.server, 2).await;
    day.server.pause();
    tokio::time::sleep(Duration::from_secs(5)).await;
    day.server.resume();
    held.ensure_held().await.unwrap();
    until_queued(&day.server, 2).await;
    until_listening(&day.server, &[&one, &other]).await;
    held.unlock().await.unwrap();
    let guard = within(AT_ONCE, "the first turn", first).await.unwrap().unwrap();
    assert!(!second.is_finished());
    guard.unlock().await.unwrap();
    let guard = within(AT_ONCE, "the second turn", second).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn convoy_goes_on_with_a_server_that_stands_still_for_moments() {
    let day = Day::begin();
    let clients = [day.bystander().await, day.bystander().await, day.bystander().await];
    let convoy = Convoy::start(&clients, 2, 60);
    for millis in [50, 300, 1100, 20, 700, 2500] {
        day.server.pause();
        tokio::time::sleep(Duration::from_millis(millis)).await;
        day.server.resume();
        convoy.goes_on(20).await;
    }
    convoy.ends().await;
    end(day, &clients.each_ref()).await;
}

/// Two may hold the lock until the former holder learns of its loss, so the test looks only at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn convoy_ends_with_a_server_that_is_flushed_again_and_again() {
    let day = Day::begin();
    let clients = [day.bystander().await, day.bystander().await, day.bystander().await];
    let mut tasks = Vec::new();
    for client in clients.iter().cycle().take(9) {
        let sides = sides(client, NAME).into_iter().cycle().take(40);
        tasks.push(tokio::spawn(async move {
            for Side { lock, .. } in sides {
                let guard = lock.lock().await.unwrap();
                tokio::task::yield_now().await;
                // The lock may be lost.
                let _ = guard.unlock().await;
            }
        }));
    }
    let flushes = tokio::spawn({
        let mut raw = day.connection().await;
        async move {
            loop {
                let () = redis::cmd("FLUSHALL").query_async(&mut raw).await.unwrap();
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    flushes.abort();
    for task in tasks {
        within(LIFE * 3, "a task's end", task).await.unwrap();
    }
    end(day, &clients.each_ref()).await;
}
