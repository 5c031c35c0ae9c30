//! Killed connections, and a server killed during a renewal.

use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{LockClient, LockOptions, LossReason};
use latchwork_testkit::{Cut, Way};

use crate::by_hand::{call_channel, subscribers};
use crate::day::{Day, NAME, eventually, soon};

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

/// A lost connection ends all subscriptions; a channel that lingers has to be confirmed again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channel_that_lingers_does_not_outlive_its_connection() {
    let day = Day::begin();
    let redis = Redis::builder().linger(Duration::from_secs(600)).connect(&day.proxy.url()).await.unwrap();
    let (client, bystander) = (LockClient::new(redis), day.bystander().await);
    let channel = call_channel(&client, NAME);
    for round in 0..2 {
        let held = bystander.get_lock(NAME).unwrap().lock().await.unwrap();
        let lock = client.get_lock(NAME).unwrap();
        let waits = tokio::spawn(async move { lock.lock().await.unwrap() });
        let sleeps = async || client.registry().join(&channel).is_some_and(|look| look.waiters() == 1);
        eventually("sleep", sleeps).await;
        held.unlock().await.unwrap();
        soon("the lock", waits).await.unwrap().unlock().await.unwrap();
        let transport = client.registry().transport();
        assert!(transport.is_active(&channel));
        if round == 0 {
            let () = day.run("CLIENT KILL TYPE pubsub").await;
            // The client reconnects, and subscribes to all its channels again.
            eventually("its end", async || client.metrics().reconnects == 1 && transport.is_active(&channel))
                .await;
            assert_eq!(subscribers(&day.server, &channel).await, 1);
        }
    }
}

/// One transaction: the lock becomes free, without a message, before the client reconnects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_lost_with_its_connection_is_made_up_for() {
    let day = Day::begin();
    let client = day.client().await;
    day.another_holds_it().await;
    let waiter = day.waiter(&client).await;
    let subscriptions = day.subscriptions();
    let () = day.run("CLIENT KILL TYPE pubsub").await;
    subscriptions.wait_for_end();
    // The waiter asks again after resubscribing, as messages may have been lost.
    eventually("looking again", async || client.registry().stats().resubscriptions >= 1).await;
    let mut transaction = redis::pipe();
    transaction.atomic().cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]).del(NAME);
    transaction.exec_async(&mut day.connection().await).await.unwrap();
    soon("the wake-up", waiter).await.unwrap().unwrap().unlock().await.unwrap();
    day.end(&[&client]).await;
}
