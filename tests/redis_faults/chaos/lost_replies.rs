//! The server ran a command, and the reply is lost.

use std::time::Duration;

use latchwork::Lease;
use latchwork_testkit::Afterwards;

use crate::day::{Day, EVAL, NAME, eventually, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_an_acquisition_leaves_one_hold() {
    let day = Day::begin();
    let client = day.client().await;
    let lock = client.get_lock(NAME).unwrap();
    day.proxy.lose_reply(EVAL, Afterwards::Reset);
    let guard = soon("an answer", lock.lock()).await.unwrap();
    day.proxy.wait_until_replies_are_lost();
    assert_eq!(lock.hold_count(guard.owner()).await.unwrap(), 1);
    guard.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
    lock.lock().await.unwrap().unlock().await.unwrap();
    day.end(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_over_a_silent_link_rolls_the_acquisition_back() {
    let day = Day::begin();
    let client = day.client().await;
    let lock = client.get_lock(NAME).unwrap();
    day.proxy.lose_reply(EVAL, Afterwards::Silence);
    let wait = Duration::from_millis(300);
    let error = soon("the end", lock.try_lock_for(wait, Lease::Watched)).await.unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    // The attempt is rolled back in the background.
    eventually("the undoing", async || {
        let taken: usize = day.run(&format!("EXISTS {NAME}")).await;
        taken == 0
    })
    .await;
    lock.lock().await.unwrap().unlock().await.unwrap();
    day.end(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_an_owners_acquisition_leaves_one_hold() {
    let day = Day::begin();
    let client = day.client().await;
    let me = client.owner();
    let lock = client.get_lock(NAME).unwrap().owned_by(&me);
    day.proxy.lose_reply(EVAL, Afterwards::Reset);
    let guard = soon("an answer", lock.lock()).await.unwrap();
    assert_eq!(lock.hold_count(&me).await.unwrap(), 1);
    guard.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
    day.end(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_an_attempt_within_a_wait_costs_no_turn() {
    let day = Day::begin();
    let client = day.client().await;
    day.another_holds_it().await;
    let waiter = day.waiter(&client).await;
    day.proxy.lose_reply("EVALSHA", Afterwards::Reset);
    let () = day.run(&format!("DEL {NAME}")).await;
    let () = day.run(&format!("PUBLISH redisson_lock__channel:{{{NAME}}} 0")).await;
    soon("an answer", waiter).await.unwrap().unwrap().unlock().await.unwrap();
    day.end(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_a_release_is_no_error() {
    let day = Day::begin();
    let client = day.client().await;
    let lock = client.get_lock(NAME).unwrap();
    let guard = lock.lock().await.unwrap();
    day.proxy.lose_reply(EVAL, Afterwards::Reset);
    soon("an answer", guard.unlock()).await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
    day.end(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_a_dropped_guards_release_frees_the_lock() {
    let day = Day::begin();
    let client = day.client().await;
    let lock = client.get_lock(NAME).unwrap();
    let guard = lock.lock().await.unwrap();
    day.proxy.lose_reply(EVAL, Afterwards::Reset);
    drop(guard);
    day.proxy.wait_until_replies_are_lost();
    // This command may be the first to notice the broken link.
    let _ = lock.is_locked().await;
    let next = lock.try_lock().await.unwrap().expect("the release did run");
    assert_eq!(lock.hold_count(next.owner()).await.unwrap(), 1);
    next.unlock().await.unwrap();
    day.end(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_replies_of_renewals_cost_no_lease() {
    let day = Day::begin();
    let client = day.client_with(Duration::from_millis(1500)).await;
    let lock = client.get_lock(NAME).unwrap();
    let guard = lock.lock().await.unwrap();
    for loss in [EVAL, "EVALSHA", "EVALSHA"] {
        let sent = day.proxy.count(loss);
        day.proxy.lose_reply(loss, Afterwards::Reset);
        // The renewal with the lost reply, and its repetition.
        day.proxy.wait_for(loss, sent + 1);
        day.proxy.wait_until_replies_are_lost();
        let sent = day.proxy.count("EVALSHA");
        day.proxy.wait_for("EVALSHA", sent + 1);
    }
    // More than two leases have passed.
    assert!(guard.is_held());
    assert_eq!(lock.hold_count(guard.owner()).await.unwrap(), 1);
    guard.unlock().await.unwrap();
    day.end(&[&client]).await;
}
