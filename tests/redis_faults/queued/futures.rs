//! Futures that are dropped with their client.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use super::kind::sides;
use super::stage::{AT_ONCE, Side, end, lock, serve, side_of, sleeps, until_queued, waiter};
use crate::day::{Day, NAME, eventually};

pub(super) fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
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
