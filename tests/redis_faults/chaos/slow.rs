//! A network that is slow, or delivers byte by byte, changes only the time.

use std::time::{Duration, Instant};

use latchwork_testkit::Way;

use crate::day::{Day, NAME, until_renewed};

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
