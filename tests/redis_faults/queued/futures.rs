//! Futures that are dropped, or polled once and then dropped or kept; runtimes and clients that end.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use latchwork::{Lock, LockClient};
use tokio::runtime::{Builder, Runtime};

use super::kind::sides;
use super::stage::{
    AT_ONCE, Convoy, LIFE, LITTLE, Side, end, listeners, lock, pairs, queued, serve, side_of, sleeps,
    taker_of, until_queued, waiter, waiter_of, within,
};
use crate::day::{Day, NAME, eventually};

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A task arrives, is polled for a while, and is dropped, again and again.
async fn come_and_go(client: LockClient, mut random: Rng, rounds: usize) {
    for Side { lock, .. } in sides(&client, NAME).into_iter().cycle().take(rounds) {
        let patience = Duration::from_micros(random.u64(..4000));
        if let Ok(guard) = tokio::time::timeout(patience, lock.lock()).await {
            let guard = guard.unwrap();
            match random.u8(..3) {
                0 => drop(guard),
                1 => {
                    let mut unlock = Box::pin(guard.unlock());
                    let _ = poll_once(unlock.as_mut());
                }
                _ => drop(guard.unlock()),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn convoy_goes_on_among_those_that_come_and_go() {
    let day = Day::begin();
    let clients = [day.bystander().await, day.bystander().await, day.bystander().await];
    let convoy = Convoy::start(&clients, 2, 60);
    let all: Vec<_> = (0..9)
        .map(|number| {
            tokio::spawn(come_and_go(clients[number % 3].clone(), Rng::with_seed(number as u64), 80))
        })
        .collect();
    convoy.ends().await;
    for one in all {
        within(LIFE * 3, "its end", one).await.unwrap();
    }
    end(day, &clients.each_ref()).await;
}

/// The releases of a convoy are polled once and then kept, so none is dropped either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unlocks_that_are_not_polled_again_are_done() {
    let day = Day::begin();
    let clients = [day.bystander().await, day.bystander().await];
    let mut kept = Vec::new();
    for (round, (ours, theirs)) in pairs(&clients[0], &clients[1]).into_iter().cycle().take(3).enumerate() {
        let guard = within(AT_ONCE, "the lock", ours.lock.lock()).await.unwrap();
        let theirs = waiter_of(&clients[1], &theirs.lock).await;
        let mut unlock = Box::pin(guard.unlock());
        let _ = poll_once(unlock.as_mut());
        kept.push(unlock);
        serve(AT_ONCE, "the other client's turn", theirs).await;
        assert_eq!(kept.len(), round + 1);
    }
    drop(kept);
    end(day, &clients.each_ref()).await;
}

/// Kept without another poll: the queue heads, and waiters behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unpolled_waiters_cost_the_others_one_life_at_most() {
    let day = Day::begin();
    let other = day.bystander().await;
    for (kept, next) in pairs(&other, &other) {
        unpolled_waiters_cost_one_life_at_most(&day, kept.is_shared, &other, &next.lock).await;
    }
    end(day, &[&other]).await;
}

async fn unpolled_waiters_cost_one_life_at_most(
    day: &Day,
    are_shared: bool,
    other: &LockClient,
    theirs: &Lock,
) {
    let (holder, clients) = (day.bystander().await, [day.bystander().await, day.bystander().await]);
    let held = lock(&holder).lock().await.unwrap();
    let mut kept = Vec::new();
    for client in &clients {
        let ours = side_of(client, are_shared);
        for _ in 0..2 {
            let lock = ours.clone();
            let mut wait = Box::pin(async move { lock.lock().await });
            // Until the wait has a position, or a place behind the queue head.
            let is_first = kept.len() % 2 == 0;
            eventually("waiting", async || {
                assert!(poll_once(wait.as_mut()).is_pending());
                if is_first { sleeps(client) } else { ours.waiters() == 1 }
            })
            .await;
            kept.push(wait);
        }
    }
    until_queued(&day.server, 2).await;
    let next = waiter_of(other, theirs).await;
    held.unlock().await.unwrap();
    serve(LIFE + LITTLE, "the turn of the one behind", next).await;
    for wait in kept {
        let guard = within(LIFE + LITTLE, "a late turn", wait).await.unwrap();
        guard.unlock().await.unwrap();
    }
    assert_eq!(queued(&day.server).await, 0);
}

/// Several clients in a runtime that will end while they wait.
fn runtime_with_waiters(day: &Day, clients: usize, are_shared: bool) -> (Runtime, Vec<LockClient>) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let waiting = (0..clients)
        .map(|_| {
            runtime.block_on(async {
                let client = day.bystander().await;
                let lock = side_of(&client, are_shared);
                for _ in 0..2 {
                    drop(taker_of(&lock));
                }
                eventually("sleep", async || sleeps(&client) && lock.waiters() == 1).await;
                client
            })
        })
        .collect();
    (runtime, waiting)
}

#[test]
fn runtime_that_ends_with_waiters_costs_the_next_nothing() {
    let own = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let day = Day::begin();
    let (holder, other) = own.block_on(async { (day.bystander().await, day.bystander().await) });
    for (dead, next) in pairs(&other, &other) {
        let held = own.block_on(lock(&holder).lock()).unwrap();
        let (runtime, clients) = runtime_with_waiters(&day, 3, dead.is_shared);
        let next = own.block_on(waiter_of(&other, &next.lock));
        runtime.shutdown_timeout(AT_ONCE);
        own.block_on(async {
            eventually("their end", async || listeners(&day.server).await == 1).await;
            held.unlock().await.unwrap();
            serve(AT_ONCE, "the turn of the one behind", next).await;
        });
        drop(clients);
    }
    own.block_on(end(day, &[&holder, &other]));
}

/// A grant is under way when the clients end.
#[test]
fn runtime_that_ends_with_a_grant_in_flight_costs_one_life() {
    let own = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let day = Day::begin();
    let (holder, other) = own.block_on(async { (day.bystander().await, day.bystander().await) });
    // (A reader at its turn has asked for a lease, which lasts as long as any other read lease.)
    for (_, next) in pairs(&other, &other).into_iter().filter(|(dead, _)| !dead.is_shared) {
        let held = own.block_on(lock(&holder).lock()).unwrap();
        let (runtime, clients) = runtime_with_waiters(&day, 3, false);
        let next = own.block_on(waiter_of(&other, &next.lock));
        let release = own.spawn(held.unlock());
        runtime.shutdown_background();
        own.block_on(async {
            within(AT_ONCE, "the release", release).await.unwrap().unwrap();
            serve(LIFE + LITTLE, "the turn of the one behind", next).await;
        });
        drop(clients);
    }
    own.block_on(end(day, &[&holder, &other]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_is_shut_down_takes_its_waiters_out_of_the_queue() {
    let day = Day::begin();
    let (holder, other) = (day.bystander().await, day.bystander().await);
    let cases = pairs(&other, &other).into_iter().flat_map(|pair| [(false, pair.clone()), (true, pair)]);
    for (at_grant, (leaving, next)) in cases {
        let held = lock(&holder).lock().await.unwrap();
        let leaves = day.bystander().await;
        let lock = side_of(&leaves, leaving.is_shared);
        let mut told = vec![waiter_of(&leaves, &lock).await];
        for behind in 1..4 {
            told.push(taker_of(&lock));
            eventually("waiting", async || lock.waiters() == behind).await;
        }
        let next = waiter_of(&other, &next.lock).await;
        let (release, still) =
            if at_grant { (Some(tokio::spawn(held.unlock())), None) } else { (None, Some(held)) };
        // A waiter that got the lock first and keeps it uses up the whole time limit.
        let ended = within(AT_ONCE, "the shutdown", leaves.shutdown(AT_ONCE - Duration::from_secs(1))).await;
        let mut got = Vec::new();
        for told in told {
            match within(AT_ONCE, "being told", told).await.unwrap() {
                Err(error) => assert!(error.is_shut_down(), "{error:?}"),
                Ok(guard) => got.push(guard),
            }
        }
        if got.is_empty() {
            ended.unwrap();
        }
        drop(got);
        match release {
            Some(release) => within(AT_ONCE, "the release", release).await.unwrap().unwrap(),
            None => until_queued(&day.server, 1).await,
        }
        if let Some(held) = still {
            held.unlock().await.unwrap();
        }
        serve(AT_ONCE, "the turn of the one behind", next).await;
        assert_eq!(queued(&day.server).await, 0);
    }
    end(day, &[&holder, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_are_dropped_with_their_client_leave_nothing() {
    let day = Day::begin();
    let (holder, other) = (day.bystander().await, day.bystander().await);
    let held = lock(&holder).lock().await.unwrap();
    for Side { is_shared, .. } in sides(&other, NAME).into_iter().cycle().take(6) {
        let client = day.bystander().await;
        let lock = side_of(&client, is_shared);
        let mut wait = pin!(lock.lock());
        eventually("sleep", async || {
            assert!(poll_once(wait.as_mut()).is_pending());
            sleeps(&client)
        })
        .await;
    }
    until_queued(&day.server, 0).await;
    let next = waiter(&other).await;
    held.unlock().await.unwrap();
    serve(AT_ONCE, "the turn of the one behind", next).await;
    end(day, &[&holder, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn convoy_goes_on_among_clients_that_are_shut_down() {
    let day = Day::begin();
    let clients = [day.bystander().await, day.bystander().await];
    let convoy = Convoy::start(&clients, 2, 400);
    for round in 0..20 {
        let leaves = day.bystander().await;
        let told: Vec<_> = (0..4)
            .map(|_| {
                let mut sides = sides(&leaves, NAME).into_iter().cycle();
                tokio::spawn(async move {
                    while let Some(Side { lock, .. }) = sides.next()
                        && let Ok(guard) = lock.lock().await
                    {
                        drop(guard);
                    }
                })
            })
            .collect();
        convoy.goes_on(2 + round % 7).await;
        within(AT_ONCE, "the shutdown", leaves.shutdown(AT_ONCE)).await.unwrap();
        for told in told {
            within(AT_ONCE, "being told", told).await.unwrap();
        }
    }
    convoy.ends().await;
    end(day, &clients.each_ref()).await;
}
