//! Readers and writers take turns, and one of them disappears during its turn.

use std::task::{Context, Waker};

use latchwork_testkit::{Afterwards, Way};

use super::queued::stage::{
    AT_ONCE, LIFE, LITTLE, end, lock, proxied, serve, sleeps, taker, taker_of, until_listening, until_queued,
    waiter, waiter_of, within,
};
use super::readers::{leases, read};
use crate::day::{Day, EVAL, eventually, soon};

/// The writer is granted the lock, and never hears of the grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_cut_off_with_its_grant_delays_readers_by_one_life() {
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
    assert!(!cut_off.is_finished(), "expected no writer beside the reader");
    guard.ensure_held().await.unwrap();
    guard.unlock().await.unwrap();
    serve(AT_ONCE, "the writer's turn", cut_off).await;
    end(day, &[&holder, &first, &other]).await;
}

/// Readers wait behind a writer that leaves and cannot say so: its link is dead, its task is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_behind_a_vanished_waiting_writer_reads_within_a_life() {
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
async fn forced_unlock_with_a_lost_reply_removes_all_readers() {
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
        assert!(
            forced.is_err_and(|error| error.is_retryable()),
            "expected an error that may be retried, as the reply was lost"
        );
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

/// The reader waits, and is not polled again. A waiter behind it reads after one more writer at the latest.
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
    within(AT_ONCE, "a late turn", kept).await.unwrap().unlock().await.unwrap();
    end(day, &[&holder, &client, &other]).await;
}
