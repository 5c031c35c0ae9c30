//! Semaphores over a store in memory.

use latchwork::LockClient;
use latchwork::local::Local;

use crate::permits;

fn clients() -> [LockClient; 2] {
    let local = Local::new();
    [LockClient::new(local.clone()), LockClient::new(local)]
}

permits::over_two_clients! { ((), clients()) =>
    bad_requests_are_refused_before_anything_is_sent
    client_waits_for_permits_at_its_end
    ended_leases_serve_all_waiters_that_fit
    permits_are_listed_forced_and_forgotten
    try_overtakes_no_waiter_behind_the_gate
    unpolled_waiters_give_way
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn holds_never_exceed_the_capacity() {
    permits::holds_never_exceed_the_capacity(&clients(), 100, 50).await;
}
