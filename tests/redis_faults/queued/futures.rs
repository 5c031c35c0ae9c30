//! Futures that are dropped with their client, or polled once and then kept.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use super::kind::sides;
use super::stage::{
    AT_ONCE, Side, end, lock, pairs, serve, side_of, sleeps, until_queued, waiter, waiter_of, within,
};
use crate::day::{Day, NAME, eventually};

pub(super) fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
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
