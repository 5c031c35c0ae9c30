//! Semaphores over a store in memory.

use latchwork::LockClient;
use latchwork::local::Local;

use crate::permits;

fn clients() -> [LockClient; 2] {
    let local = Local::new();
    [LockClient::new(local.clone()), LockClient::new(local)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn holds_never_exceed_the_capacity() {
    permits::holds_never_exceed_the_capacity(&clients(), 100, 50).await;
}

#[tokio::test]
async fn waiters_are_served_in_order_and_whole() {
    let [one, other] = clients();
    permits::waiters_are_served_in_order_and_whole(&one, &other).await;
}

#[tokio::test]
async fn each_handle_keeps_its_own_capacity() {
    let [one, other] = clients();
    permits::each_handle_keeps_its_own_capacity(&one, &other).await;
}

#[tokio::test]
async fn bad_requests_are_refused_before_anything_is_sent() {
    permits::bad_requests_are_refused_before_anything_is_sent(&clients()[0]).await;
}

#[tokio::test]
async fn waiter_that_leaves_lets_the_next_go_on() {
    let [one, other] = clients();
    permits::waiter_that_leaves_lets_the_next_go_on(&one, &other).await;
}

#[tokio::test]
async fn permits_are_listed_forced_and_forgotten() {
    let [one, other] = clients();
    permits::permits_are_listed_forced_and_forgotten(&one, &other).await;
}

#[tokio::test]
async fn unpolled_waiters_give_way() {
    permits::unpolled_waiters_give_way(&clients()[0], 100).await;
}

#[tokio::test]
async fn client_waits_for_permits_at_its_end() {
    let [one, other] = clients();
    permits::client_waits_for_permits_at_its_end(&one, &other).await;
}

#[tokio::test]
async fn ended_leases_serve_all_waiters_that_fit() {
    let [one, other] = clients();
    permits::ended_leases_serve_all_waiters_that_fit(&one, &other).await;
}

#[tokio::test]
async fn forced_release_serves_all_waiters_that_fit() {
    let [one, other] = clients();
    permits::forced_release_serves_all_waiters_that_fit(&one, &other).await;
}

#[tokio::test]
async fn try_overtakes_no_waiter_behind_the_gate() {
    let [one, _] = clients();
    permits::try_overtakes_no_waiter_behind_the_gate(&one).await;
}
