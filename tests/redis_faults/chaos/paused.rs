//! A process (this test binary, run again) is stopped for longer than the lease of the lock that it holds.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use latchwork::redis::Redis;
use latchwork::{Lock, LockClient, LockOptions};
use latchwork_testkit::{pause, resume};

use crate::day::{Day, NAME, eventually, soon};
use crate::rerun;

/// The server's URL; set for the second process only.
const HOLDER: &str = "LATCHWORK_TEST_HOLDER";
const FAIR: &str = "LATCHWORK_TEST_HOLDER_FAIR";

/// The body of the second process. Does nothing as a test of the first.
#[test]
fn holder() {
    let Some(url) = env::var_os(HOLDER) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(hold(url.to_str().unwrap()));
}

async fn hold(url: &str) {
    let options = LockOptions::default().watchdog_timeout(Duration::from_secs(1));
    let client = LockClient::with_options(Redis::connect(url).await.unwrap(), &options).unwrap();
    let guard = Arc::new(lock(&client, env::var_os(FAIR).is_some()).lock().await.unwrap());
    // On a new line: the harness's "test ... " has no line end yet.
    tell("\nheld");
    // Checks the lock all the time, as work under the lock would.
    let believed = thread::spawn({
        let guard = Arc::clone(&guard);
        move || {
            let mut believed = 0;
            loop {
                // Read the clock first: the thread trusted the lock until this time at least.
                let now = since_the_epoch();
                if !guard.is_held() {
                    return believed;
                }
                believed = now;
                thread::sleep(Duration::from_micros(200));
            }
        }
    });
    let lost = guard.lost().await;
    tell(&format!("lost {lost:?}"));
    let believed = believed.join().unwrap();
    tell(&format!("believed {believed}"));
    let guard = Arc::into_inner(guard).expect("the thread has ended");
    tell(&format!("held {}", guard.is_held()));
    tell(&format!("not held {}", guard.unlock().await.is_err_and(|error| error.is_not_held())));
}

fn lock(client: &LockClient, fair: bool) -> Lock {
    if fair { client.get_fair_lock(NAME).unwrap() } else { client.get_lock(NAME).unwrap() }
}

fn tell(what: &str) {
    println!("{what}");
    io::stdout().flush().unwrap();
}

fn since_the_epoch() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()
}

/// Killed at the end of the test.
struct Holder(Child, io::Lines<BufReader<std::process::ChildStdout>>);

impl Holder {
    fn start(url: &str, fair: bool) -> Holder {
        let mut command = rerun::command(module_path!(), "holder");
        command.env(HOLDER, url).stdout(Stdio::piped());
        if fair {
            command.env(FAIR, "");
        }
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Holder(child, lines)
    }

    /// Returns the rest of the process's next line with the prefix `word`.
    fn hear(&mut self, word: &str) -> String {
        let said = self.1.find_map(|line| Some(line.unwrap().strip_prefix(word)?.trim().to_owned()));
        said.unwrap_or_else(|| panic!("expected {word:?}, and the process ended before"))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_holder_does_not_trust_a_lost_lock() {
    let day = Day::begin();
    let other = day.bystander().await;
    let holder = Holder::start(&day.server.url(), false);
    learns_that_it_lost(day, other, holder, false).await;
}

/// The holder waited for a fair lock, and was granted the lock unasked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_holder_granted_unasked_does_not_trust_a_lost_lock() {
    let day = Day::begin();
    let other = day.bystander().await;
    let held = lock(&other, true).lock().await.unwrap();
    let holder = Holder::start(&day.server.url(), true);
    eventually("its waiting", async || {
        day.run::<usize>(&format!("ZCARD {NAME}:latchwork:{{{NAME}}}:fair_queue")).await == 1
    })
    .await;
    held.unlock().await.unwrap();
    learns_that_it_lost(day, other, holder, true).await;
}

async fn learns_that_it_lost(day: Day, other: LockClient, mut holder: Holder, fair: bool) {
    let lock = lock(&other, fair);
    holder.hear("held");
    pause(&holder.0).unwrap();
    // The holder does not release, so this waits for the end of its lease.
    let theirs = soon("the end of the lease", lock.lock()).await.unwrap();
    let taken = since_the_epoch();
    resume(&holder.0).unwrap();
    let lost = holder.hear("lost");
    assert!(lost == "Expired" || lost == "Gone", "{lost}");
    let believed: u128 = holder.hear("believed").parse().unwrap();
    assert!(
        believed <= taken,
        "expected no belief beside another holder, and the paused holder believed for {} us",
        believed - taken
    );
    assert_eq!(holder.hear("held"), "false");
    assert_eq!(holder.hear("not held"), "true");
    assert!(
        lock.is_held_by(theirs.owner()).await.unwrap(),
        "expected the other client's hold, and the paused holder's unlock released it"
    );
    theirs.unlock().await.unwrap();
    drop(holder);
    day.end(&[&other]).await;
}
