//! A network that is slow, or delivers byte by byte, changes only the time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use latchwork::LockClient;
use latchwork_testkit::Way;

use crate::day::{Day, NAME, soon, until_renewed};

async fn take_turns(clients: [&LockClient; 2], times: usize) {
    let (inside, turns) = (AtomicBool::new(false), AtomicUsize::new(0));
    let take = async |client: &LockClient| {
        let lock = client.get_lock(NAME).unwrap();
        for _ in 0..times {
            let guard = lock.lock().await.unwrap();
            // Ordering: SeqCst, the strictest; the cost does not matter here.
            assert!(!inside.swap(true, Ordering::SeqCst), "expected one holder, and found two");
            tokio::task::yield_now().await;
            inside.store(false, Ordering::SeqCst);
            turns.fetch_add(1, Ordering::SeqCst);
            guard.unlock().await.unwrap();
        }
    };
    soon("taking turns", async { tokio::join!(take(clients[0]), take(clients[0]), take(clients[1])) }).await;
    // Ordering: as above.
    assert_eq!(turns.load(Ordering::SeqCst), 3 * times);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delays_change_nothing() {
    let day = Day::begin();
    let watchdog = Duration::from_millis(1200);
    let clients = [day.client_with(watchdog).await, day.client_with(watchdog).await];
    for way in [Way::ToServer, Way::ToClient] {
        day.proxy.delay(way, Duration::from_millis(40));
    }
    take_turns([&clients[0], &clients[1]], 3).await;
    for way in [Way::ToServer, Way::ToClient] {
        day.proxy.delay(way, Duration::from_millis(100));
    }
    let guard = clients[0].get_lock(NAME).unwrap().lock().await.unwrap();
    for _ in 0..3 {
        until_renewed(&guard).await;
    }
    guard.unlock().await.unwrap();
    day.end(&[&clients[0], &clients[1]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chopped_bytes_change_nothing() {
    let day = Day::begin();
    day.proxy.chop();
    // The greetings are chopped, too.
    let clients = [day.client().await, day.client().await];
    take_turns([&clients[0], &clients[1]], 20).await;
    day.end(&[&clients[0], &clients[1]]).await;
}

/// The first renewal is due a third of the lease after the command was sent, not after its reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_renewal_is_in_time_though_the_acquisition_took_long() {
    const THIRD: Duration = Duration::from_secs(1);
    let day = Day::begin();
    let client = day.client_with(THIRD * 3).await;
    let lock = client.get_lock(NAME).unwrap();
    day.proxy.delay(Way::ToClient, THIRD * 3 / 5);
    // Two round trips, as the server does not know the script yet: the renewal is overdue.
    let guard = lock.lock().await.unwrap();
    day.proxy.heal();
    let had = Instant::now();
    until_renewed(&guard).await;
    assert!(had.elapsed() < THIRD * 4 / 5, "{:?}", had.elapsed());
    guard.unlock().await.unwrap();
    day.end(&[&client]).await;
}
