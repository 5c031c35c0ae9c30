//! `one_process` in processes that are ended in every way, and robbed of the lock.

use std::process::Command;
use std::time::{Duration, Instant};

use latchwork::blocking::{Lock, LockClient};
use latchwork_testkit::RedisServer;
use rustix::process::Signal;

use crate::support::Process;

/// The recipe's lease: a process must not wait for so long if its predecessor has ended well.
const LEASE: Duration = Duration::from_secs(6);

fn start(server: &RedisServer, steps: &str) -> Process {
    let recipe = env!("CARGO_BIN_EXE_one_process");
    Process::start(Command::new(recipe).arg(steps).env("REDIS_URL", server.url()))
}

fn lock(server: &RedisServer) -> Lock {
    LockClient::connect(&server.url()).unwrap().get_lock("recipes:one_process").unwrap()
}

fn holder(lock: &Lock) -> String {
    lock.holder().unwrap().unwrap().id.unwrap().label().unwrap().to_owned()
}

#[test]
fn job_ends_cleanly_by_each_signal_and_at_the_end_of_main() {
    let server = RedisServer::start();
    let lock = lock(&server);
    for signal in [Some(Signal::INT), Some(Signal::TERM), None] {
        // An endless job for the signals, a short one for the end of `main`.
        let mut first = start(&server, if signal.is_some() { "100000" } else { "5" });
        first.wait_for("begun");
        assert_eq!(holder(&lock), format!("pid {}", first.pid()));
        let mut second = start(&server, "1");
        if let Some(signal) = signal {
            first.signal(signal);
        }
        let ended = Instant::now();
        first.wait_for("the lock is free");
        assert!(first.wait().success());
        second.wait_for("begun");
        assert!(
            ended.elapsed() < LEASE - Duration::from_secs(1),
            "expected the second run before the end of the lease"
        );
        assert!(second.wait().success());
        assert!(!lock.is_locked().unwrap());
    }
}

#[test]
fn job_is_aborted_on_loss_and_begun_anew_once_the_lock_is_free() {
    let server = RedisServer::start();
    let lock = lock(&server);
    let robbed = start(&server, "100000");
    robbed.wait_for("begun");
    // Another process takes the lock away, and holds it.
    lock.force_unlock().unwrap();
    let guard = lock.lock().unwrap();
    robbed.wait_for("aborted: ");
    assert!(!robbed.has_said("begun"));
    guard.unlock().unwrap();
    robbed.wait_for("begun");
}

#[test]
#[ignore = "waits for a lease to end; cargo xtask recipes runs it"]
fn job_is_taken_over_from_a_process_that_was_killed() {
    let server = RedisServer::start();
    let killed = start(&server, "100000");
    killed.wait_for("begun");
    let next = start(&server, "1");
    killed.signal(Signal::KILL);
    // Once the lease has expired.
    next.wait_for("done");
}
