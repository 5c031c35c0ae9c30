//! Readers and writers take turns, and one of them is gone in the middle of its turn.

use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::future::join_all;
use latchwork::LockClient;
use latchwork_testkit::{Afterwards, ChaosProxy, Way};

use super::queued::stage::{
    AT_ONCE, LIFE, LITTLE, Waiter, end, lock, proxied, queued, serve, sleeps, taker, taker_of,
    until_listening, until_queued, waiter, waiter_of, within,
};
use super::readers::{leases, read};
use crate::day::{Day, EVAL, eventually, soon};

/// Clients that wait to read, each through a proxy of its own.
async fn readers(day: &Day, how_many: usize) -> Vec<(ChaosProxy, LockClient, Waiter)> {
    let mut all = Vec::new();
    for _ in 0..how_many {
        let (proxy, client) = proxied(&day.server).await;
        let waits = waiter_of(&client, &read(&client)).await;
        all.push((proxy, client, waits));
    }
    all
}

/// Those whose turn it is do not come. What they cost is a second, and theirs comes once they hear again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_do_not_come_when_it_is_their_turn_cost_a_second() {
    for how_many in [1, 3] {
        let day = Day::begin();
        let (holder, other) = (day.bystander().await, day.bystander().await);
        let held = lock(&holder).lock().await.unwrap();
        let absent = readers(&day, how_many).await;
        let next = waiter(&other).await;
        until_queued(&day.server, how_many + 1).await;
        for (proxy, ..) in &absent {
            proxy.silence(Way::ToClient);
            proxy.silence(Way::ToServer);
        }
        held.unlock().await.unwrap();
        let guard = within(LITTLE, "the writer's turn", next).await.unwrap().unwrap();
        for (proxy, ..) in &absent {
            proxy.heal();
        }
        until_queued(&day.server, how_many).await;
        assert!(absent.iter().all(|(.., waits)| !waits.is_finished()), "a reader beside a writer");
        guard.ensure_held().await.unwrap();
        guard.unlock().await.unwrap();
        let (absent, waits): (Vec<_>, Vec<_>) =
            absent.into_iter().map(|(proxy, client, waits)| ((proxy, client), waits)).unzip();
        join_all(waits.into_iter().map(|waits| serve(AT_ONCE, "a late turn", waits))).await;
        assert_eq!(queued(&day.server).await, 0);
        let mut all: Vec<_> = absent.iter().map(|(_, client)| client).collect();
        all.extend([&holder, &other]);
        end(day, &all).await;
    }
}

/// Some of those whose turn it is come, and one does not: the writer waits for those that came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_that_does_not_come_keeps_no_other_from_its_turn() {
    let day = Day::begin();
    let (holder, comes, other) = (day.bystander().await, day.bystander().await, day.bystander().await);
    let held = lock(&holder).lock().await.unwrap();
    let mut absent = readers(&day, 1).await;
    let reader = waiter_of(&comes, &read(&comes)).await;
    let next = waiter(&other).await;
    until_queued(&day.server, 3).await;
    let (proxy, client, waits) = absent.remove(0);
    proxy.silence(Way::ToServer);
    held.unlock().await.unwrap();
    let guard = within(LITTLE, "the reader's turn", reader).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!next.is_finished(), "a writer beside a reader");
    guard.ensure_held().await.unwrap();
    guard.unlock().await.unwrap();
    serve(LITTLE, "the writer's turn", next).await;
    proxy.heal();
    serve(AT_ONCE, "a late turn", waits).await;
    end(day, &[&holder, &comes, &other, &client]).await;
}

/// It was granted the lock, and never hears of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_whose_link_falls_silent_with_its_grant_costs_readers_one_life() {
    let day = Day::begin();
    let (proxy, first) = proxied(&day.server).await;
    let (holder, other) = (day.bystander().await, day.bystander().await);
    let held = lock(&holder).lock().await.unwrap();
    let cut_off = waiter(&first).await;
    until_listening(&day.server, &[&first]).await;
    proxy.silence(Way::ToClient);
    proxy.silence(Way::ToServer);
    held.unlock().await.unwrap();
    let reader = waiter_of(&other, &read(&other)).await;
    let guard = within(LIFE + LITTLE, "the reader's turn", reader).await.unwrap().unwrap();
    proxy.heal();
    until_queued(&day.server, 1).await;
    assert!(!cut_off.is_finished(), "a writer beside a reader");
    guard.ensure_held().await.unwrap();
    guard.unlock().await.unwrap();
    serve(AT_ONCE, "the writer's turn", cut_off).await;
    end(day, &[&holder, &first, &other]).await;
}

/// Readers wait behind a writer that waits. It leaves, and cannot say so: its link is dead, its
/// task is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_behind_a_waiting_writer_that_is_gone_reads_within_a_life() {
    let day = Day::begin();
    let (proxy, client) = proxied(&day.server).await;
    let (holder, other) = (day.bystander().await, day.bystander().await);
    let held = read(&holder).lock().await.unwrap();
    let writer = waiter(&client).await;
    let reader = waiter_of(&other, &read(&other)).await;
    proxy.silence(Way::ToServer);
    writer.abort();
    drop(writer.await);
    let guard = within(LIFE + LITTLE, "the reader's turn", reader).await.unwrap().unwrap();
    held.ensure_held().await.unwrap();
    proxy.heal();
    held.unlock().await.unwrap();
    guard.unlock().await.unwrap();
    end(day, &[&holder, &client, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forced_unlock_whose_reply_is_lost_frees_the_lock_of_all_its_readers() {
    for afterwards in [Afterwards::Reset, Afterwards::Silence] {
        let day = Day::begin();
        let forces = day.client().await;
        let (one, two, next) = (day.bystander().await, day.bystander().await, day.bystander().await);
        let guards = [
            read(&one).lock().await.unwrap(),
            read(&one).lock().await.unwrap(),
            read(&two).lock().await.unwrap(),
        ];
        let writer = waiter(&next).await;
        until_listening(&day.server, &[&next]).await;
        day.proxy.lose_reply(EVAL, afterwards);
        let forced = soon("an answer", lock(&forces).force_unlock()).await;
        assert!(forced.is_err_and(|error| error.is_retryable()), "its reply was lost");
        let writer = within(AT_ONCE, "the writer's turn", writer).await.unwrap().unwrap();
        assert_eq!(leases(&day.server).await, 0);
        for guard in &guards {
            assert!(guard.ensure_held().await.unwrap_err().is_not_held());
        }
        for guard in guards {
            assert!(guard.unlock().await.unwrap_err().is_not_held());
        }
        writer.ensure_held().await.unwrap();
        writer.unlock().await.unwrap();
        serve(AT_ONCE, "the next turn", taker(&one)).await;
        end(day, &[&forces, &one, &two, &next]).await;
    }
}

/// It is polled until it waits, and kept. A waiter behind it in the same client reads after one writer more,
/// at the latest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unpolled_reader_costs_those_behind_it_one_writer_at_most() {
    let day = Day::begin();
    let (holder, client, other) = (day.bystander().await, day.bystander().await, day.bystander().await);
    let held = lock(&holder).lock().await.unwrap();
    let first = read(&client);
    let mut kept = Box::pin(first.lock());
    eventually("sleep", async || {
        assert!(kept.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        sleeps(&client)
    })
    .await;
    let behind = taker_of(&first);
    eventually("waiting", async || first.waiters() == 1).await;
    let writer = waiter(&other).await;
    until_queued(&day.server, 2).await;
    held.unlock().await.unwrap();
    tokio::join!(
        serve(AT_ONCE, "the writer's turn", writer),
        serve(AT_ONCE, "the turn of the reader behind", behind),
    );
    // And it has its own when it is polled again.
    within(AT_ONCE, "a late turn", kept).await.unwrap().unlock().await.unwrap();
    end(day, &[&holder, &client, &other]).await;
}
