//! Killed connections, and a server killed during a renewal.

use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{LockClient, LockOptions, LossReason};
use latchwork_testkit::{Cut, Way};

use crate::day::{Day, NAME, eventually, soon};

const WATCHDOG: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_outlives_its_connections() {
    let day = Day::begin();
    let client = day.client_with(WATCHDOG).await;
    let guard = client.get_lock(NAME).unwrap().lock().await.unwrap();
    // Four rounds outlast the lease, so only renewals keep it.
    for _ in 0..4 {
        let (commands, sent) = (day.commands(), day.proxy.count("EVALSHA"));
        // Without waiters the other connection is of type `normal`, too.
        let () = day.run("CLIENT KILL TYPE normal").await;
        commands.wait_for_end();
        day.proxy.wait_for("EVALSHA", sent + 1);
        assert!(guard.is_held());
    }
    guard.unlock().await.unwrap();
    day.end(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_outlives_its_connections() {
    let day = Day::begin();
    let client = day.client().await;
    day.another_holds_it().await;
    let waiter = day.waiter(&client).await;
    for round in 1..=3 {
        let (commands, subscriptions) = (day.commands(), day.subscriptions());
        let () = day.run("CLIENT KILL TYPE normal").await;
        let () = day.run("CLIENT KILL TYPE pubsub").await;
        commands.wait_for_end();
        subscriptions.wait_for_end();
        // The waiter asks again after resubscribing, as messages may have been lost.
        eventually("looking again", async || client.registry().stats().resubscriptions >= round).await;
        assert_ne!(day.commands().number(), commands.number());
    }
    let () = day.run(&format!("DEL {NAME}")).await;
    let () = day.run(&format!("PUBLISH redisson_lock__channel:{{{NAME}}} 0")).await;
    let guard = soon("the wake-up", waiter).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
    day.end(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_killed_during_a_renewal_is_reported_as_a_loss() {
    let mut day = Day::begin();
    // The proxy must hold back the renewal, and not a heartbeat.
    let redis = Redis::builder().heartbeat(Duration::from_secs(60)).connect(&day.proxy.url()).await.unwrap();
    let options = LockOptions::default().watchdog_timeout(Duration::from_secs(6));
    let client = LockClient::with_options(redis, &options).unwrap();
    let other = day.client().await;
    let guard = client.get_lock(NAME).unwrap().lock().await.unwrap();
    day.commands().silence(Way::ToServer);
    day.proxy.wait_until_held_back("EVALSHA");
    day.server.kill_9();
    day.server.restart();
    day.proxy.heal();
    // The next renewal, well before the end of the lease, reaches a server without the lock.
    assert_eq!(soon("the loss", guard.lost()).await, LossReason::Gone);
    assert!(!guard.is_held());

    // This command may be the first to notice the broken connection.
    let _ = other.get_lock(NAME).unwrap().is_locked().await;
    let theirs = soon("the lock", other.get_lock(NAME).unwrap().lock()).await.unwrap();
    assert!(guard.unlock().await.unwrap_err().is_not_held());
    theirs.ensure_held().await.expect("another's lock was freed");
    theirs.unlock().await.unwrap();
    day.end(&[&client, &other]).await;
}

/// The connections die while the set waits for the second name with the first in hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_that_waits_outlives_its_connections() {
    let day = Day::begin();
    let (client, bystander) = (day.client().await, day.bystander().await);
    let held = bystander.get_lock("b").unwrap().lock().await.unwrap();
    let locks = ["a", "b", "c"].map(|name| client.get_lock(name).unwrap());
    let names = client.get_multi_lock(&locks).unwrap();
    let waits = tokio::spawn(async move { names.lock().await });
    eventually("the wait", async || locks[1].waiting() == 1 && !client.held().is_empty()).await;
    let commands = day.commands();
    day.proxy.cut(Cut::Reset);
    commands.wait_for_end();
    held.unlock().await.unwrap();
    let guard = soon("the set", waits).await.unwrap().unwrap();
    guard.ensure_held().await.unwrap();
    guard.unlock().await.unwrap();
    day.end(&[&client, &bystander]).await;
}
