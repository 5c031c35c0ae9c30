//! The server forgets the scripts between an acquisition, its renewals and its release.

use std::time::{Duration, Instant};

use crate::day::{Day, EVAL, NAME};

const WATCHDOG: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_script_is_sent_in_full_again() {
    let day = Day::begin();
    let client = day.client_with(WATCHDOG).await;
    let taken = Instant::now();
    let guard = client.get_lock(NAME).unwrap().lock().await.unwrap();
    let mut sent = day.proxy.count(EVAL);
    assert_eq!(sent, 1, "expected one script sent in full, as the server knows none at first");
    while taken.elapsed() < WATCHDOG * 2 {
        let () = day.run("SCRIPT FLUSH").await;
        sent += 1;
        day.proxy.wait_for(EVAL, sent);
        assert!(guard.is_held());
    }
    let () = day.run("SCRIPT FLUSH").await;
    guard.unlock().await.unwrap();
    assert!(day.proxy.count(EVAL) > sent);
    day.end(&[&client]).await;
}
