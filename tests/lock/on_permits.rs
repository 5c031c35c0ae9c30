//! Semaphores over a store in memory.

use latchwork::LockClient;
use latchwork::local::Local;

use crate::permits;

fn clients() -> [LockClient; 2] {
    let local = Local::new();
    [LockClient::new(local.clone()), LockClient::new(local)]
}

permits::over_two_clients! { ((), clients()) =>
    each_handle_keeps_its_own_capacity
    permits_are_listed_forced_and_forgotten
    client_waits_for_permits_at_its_end
    ended_leases_serve_all_waiters_that_fit
    forced_release_serves_all_waiters_that_fit
    waiters_are_served_in_order_and_whole
    waiter_that_leaves_lets_the_next_go_on
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn holds_never_exceed_the_capacity() {
    permits::holds_never_exceed_the_capacity(&clients(), 100, 50).await;
}

#[tokio::test]
async fn bad_requests_are_refused_before_anything_is_sent() {
    permits::bad_requests_are_refused_before_anything_is_sent(&clients()[0]).await;
}

#[tokio::test]
async fn unpolled_waiters_give_way() {
    permits::unpolled_waiters_give_way(&clients()[0], 100).await;
}

#[tokio::test]
async fn try_overtakes_no_waiter_behind_the_gate() {
    let [one, _] = clients();
    permits::try_overtakes_no_waiter_behind_the_gate(&one).await;
}
