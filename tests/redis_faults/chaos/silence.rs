//! Silent links: sockets stay open, and no bytes come through.

use std::time::{Duration, Instant};

use latchwork::{Lease, LockError, LossReason};
use latchwork_testkit::{Afterwards, Way};

use crate::day::{Day, NAME, assert_unknown, eventually, soon, until_renewed};

/// Delay of commands where a test compares the clocks of client and server.
const DELAY: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_learns_it_before_its_lease_ends() {
    holder_learns_it(Way::ToServer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_whose_renewals_arrive_but_are_not_answered_learns_it() {
    holder_learns_it(Way::ToClient).await;
}

async fn holder_learns_it(way: Way) {
    let day = Day::begin();
    let watchdog = Duration::from_millis(1800);
    let client = day.client_with(watchdog).await;
    let lock = client.get_lock(NAME).unwrap();
    let guard = lock.lock().await.unwrap();
    until_renewed(&guard).await;
    day.proxy.delay(Way::ToServer, DELAY);
    until_renewed(&guard).await;
    day.proxy.silence(way);
    assert_eq!(soon("the loss", guard.lost()).await, LossReason::Unreachable);
    // The server's lease lasts longer than the client's.
    let left: i64 = day.run(&format!("PTTL {NAME}")).await;
    assert!(left > 0, "expected the notice of the loss before the server's lease ended");
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);

    day.proxy.heal();
    // The renewal held back arrives now; the loss is final nevertheless.
    eventually("the end of the lease", async || day.run::<usize>("DBSIZE").await == 0).await;
    assert_eq!(guard.lost().await, LossReason::Unreachable);
    let other = day.bystander().await;
    let theirs = other.get_lock(NAME).unwrap().try_lock().await.unwrap().expect("the lock is free");
    // This command may be the first to notice the silent connection.
    match guard.unlock().await.unwrap_err() {
        error if error.is_not_held() => {}
        error => assert_unknown(&error),
    }
    assert!(other.get_lock(NAME).unwrap().is_held_by(theirs.owner()).await.unwrap());
    theirs.unlock().await.unwrap();
    day.end(&[&client, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_over_a_silent_link_ends_in_time_and_leaves_nothing() {
    let day = Day::begin();
    let client = day.client().await;
    let lock = client.get_lock(NAME).unwrap();
    day.another_holds_it().await;
    let wait = Duration::from_millis(700);
    let before = Instant::now();
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.try_lock_for(wait, Lease::Watched).await.map(|guard| guard.is_some()) }
    });
    day.proxy.wait_for("SUBSCRIBE", 1);
    day.proxy.silence(Way::ToServer);
    day.proxy.silence(Way::ToClient);
    let ended = soon("the end of the wait", waiter).await.unwrap();
    assert!(matches!(ended, Ok(false)), "{ended:?}");
    assert!((wait..wait * 4).contains(&before.elapsed()), "{:?}", before.elapsed());

    let before = Instant::now();
    let ended = soon("the end of the wait", lock.try_lock_for(wait, Lease::Watched)).await;
    assert!(matches!(ended, Err(LockError::NoAnswer { .. } | LockError::Backend { .. })), "{ended:?}");
    assert!(before.elapsed() < wait * 4, "{:?}", before.elapsed());
    day.proxy.heal();
    let () = day.run(&format!("DEL {NAME}")).await;
    day.end(&[&client]).await;
}

/// Releases of leases of an hour, during six silent seconds and more: an unlock, a dropped guard, and an
/// attempt whose time limit ends during its command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_are_repeated_until_the_silence_is_over() {
    const HOUR: Duration = Duration::from_secs(3600);
    let day = Day::begin();
    let client = day.client().await;
    let [dropped, unlocked, tried] =
        ["dropped", "unlocked", "tried"].map(|name| client.get_lock(name).unwrap());
    let guards = [&dropped, &unlocked].map(|lock| lock.lock_with_lease(HOUR));
    let [first, second] = guards;
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    let begun = Instant::now();
    // Commands arrive and replies do not, so outcomes are unknown.
    day.proxy.silence(Way::ToClient);
    let tries = tried.try_lock_for(Duration::from_millis(100), HOUR).await;
    assert!(matches!(tries, Err(LockError::NoAnswer { .. })), "{tries:?}");
    day.proxy.silence(Way::ToServer);
    drop(first);
    let ended = soon("the end of an unlock", second.unlock()).await;
    assert_unknown(&ended.unwrap_err());
    let long = Duration::from_secs(6);
    eventually("six seconds of silence", async || begun.elapsed() >= long).await;
    let metrics = client.metrics();
    assert!(metrics.releases_failed >= 2 && metrics.releases_pending == 3, "{metrics:?}");
    day.proxy.heal();
    eventually("the end of the releases", async || client.metrics().releases_pending == 0).await;
    day.end(&[&client]).await;
}

/// The lock becomes free before the subscription stands, and no message tells the waiters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscription_confirmed_late_wakes_unconfirmed_waiters() {
    let day = Day::begin();
    let client = day.client().await;
    day.another_holds_it().await;
    // Each SUBSCRIBE is given up after most of a second, and repeated over another link.
    for _ in 0..5 {
        day.proxy.lose_reply("SUBSCRIBE", Afterwards::Silence);
    }
    // After a second the waiter has asked once more, without a subscription.
    let waiter = day.waiter(&client).await;
    let () = day.run(&format!("DEL {NAME}")).await;
    let guard = soon("the wake-up", waiter).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
    day.end(&[&client]).await;
}
