//! Faults in the middle of a hand-over from one waiter of a process to the next.

use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{Guard, LockClient};
use latchwork_testkit::{Afterwards, Way};
use tokio::task::JoinHandle;

use crate::day::{Day, EVAL, NAME, assert_unknown, eventually, soon};

/// A guard, and a task that waits behind it, asleep.
async fn one_behind_another(
    day: &Day,
    client: &LockClient<Redis>,
) -> (Guard<Redis>, JoinHandle<Guard<Redis>>) {
    let lock = client.get_lock(NAME).unwrap().fenced();
    let guard = lock.lock().await.unwrap();
    let waits = tokio::spawn(async move { lock.lock().await.unwrap() });
    let channel = format!("redisson_lock__channel:{{{NAME}}}");
    day.proxy.wait_for("SUBSCRIBE", 1);
    eventually("sleep", async || {
        client.registry().join(&channel).is_some_and(|look| look.latch().waiters() == 1)
    })
    .await;
    (guard, waits)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_counts_once() {
    let day = Day::begin();
    let client = day.client().await;
    let lock = client.get_lock(NAME).unwrap();
    let (guard, waits) = one_behind_another(&day, &client).await;
    let token = guard.fencing_token();
    day.proxy.lose_reply(EVAL, Afterwards::Reset);
    soon("an answer", guard.unlock()).await.unwrap();
    day.proxy.wait_until_replies_are_lost();
    let next = soon("the next one", waits).await.unwrap();
    assert!(next.fencing_token() > token);
    let minted: u64 = day.run(&format!("GET redisson_lock_token:{{{NAME}}}")).await;
    assert_eq!(next.fencing_token(), Some(minted), "a token was minted by the second sending");
    assert_eq!(lock.hold_count(next.owner()).await.unwrap(), 1);
    next.unlock().await.unwrap();
    let () = day.run(&format!("DEL redisson_lock_token:{{{NAME}}}")).await;
    day.end(&[&client]).await;
}

/// Neither knows whether it was done. The one is told so, and the other asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reply_that_never_comes_leaves_the_next_one_to_find_out() {
    let day = Day::begin();
    let redis = Redis::builder().response_timeout(Duration::from_millis(300));
    let client = LockClient::new(redis.connect(&day.proxy.url()).await.unwrap());
    let (guard, waits) = one_behind_another(&day, &client).await;
    day.proxy.lose_reply(EVAL, Afterwards::Silence);
    assert_unknown(&soon("an answer", guard.unlock()).await.unwrap_err());
    let next = soon("the next one", waits).await.unwrap();
    assert_eq!(client.get_lock(NAME).unwrap().hold_count(next.owner()).await.unwrap(), 1);
    next.unlock().await.unwrap();
    let () = day.run(&format!("DEL redisson_lock_token:{{{NAME}}}")).await;
    day.end(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_that_is_dropped_meanwhile_has_it_given_back() {
    for silent in [false, true] {
        let day = Day::begin();
        let redis = Redis::builder().response_timeout(Duration::from_millis(500));
        let client = LockClient::new(redis.connect(&day.proxy.url()).await.unwrap());
        let (guard, waits) = one_behind_another(&day, &client).await;
        let sent = day.proxy.count(EVAL);
        if silent {
            day.proxy.lose_reply(EVAL, Afterwards::Silence);
        } else {
            day.proxy.delay(Way::ToClient, Duration::from_millis(200));
        }
        let unlock = tokio::spawn(guard.unlock());
        day.proxy.wait_for(EVAL, sent + 1);
        waits.abort();
        assert!(waits.await.unwrap_err().is_cancelled());
        // Whatever became of the waiter, that it was let go of is known, unless nobody answered.
        assert_eq!(soon("an answer", unlock).await.unwrap().is_err(), silent);
        eventually("the undoing", async || {
            let taken: usize = day.run(&format!("EXISTS {NAME}")).await;
            taken == 0
        })
        .await;
        let () = day.run(&format!("DEL redisson_lock_token:{{{NAME}}}")).await;
        day.end(&[&client]).await;
    }
}

/// A server without memory mints no token, but it still lets a lock go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_hand_over_frees_the_lock() {
    let day = Day::begin();
    let client = day.client().await;
    let (guard, waits) = one_behind_another(&day, &client).await;
    let () = day.run("CONFIG SET maxmemory 1").await;
    let waits = async { tokio::join!(guard.unlock(), waits) };
    let (unlocked, waited) = soon("an end", waits).await;
    unlocked.unwrap();
    assert!(waited.unwrap_err().is_panic(), "no token could be had");
    let taken: usize = day.run(&format!("EXISTS {NAME}")).await;
    assert_eq!(taken, 0);
    let () = day.run("CONFIG SET maxmemory 0").await;
    let () = day.run(&format!("DEL redisson_lock_token:{{{NAME}}}")).await;
    day.end(&[&client]).await;
}
