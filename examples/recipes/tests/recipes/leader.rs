//! `leader` in processes that are killed, paused and ended.

use std::process::Command;

use latchwork::blocking::{Lock, LockClient};
use latchwork_testkit::{RedisServer, pause, resume};
use rustix::process::Signal;

use crate::support::Process;

fn start(server: &RedisServer) -> Process {
    Process::start(Command::new(env!("CARGO_BIN_EXE_leader")).env("REDIS_URL", server.url()))
}

/// The leading process, as followers see it, and its printed term: greater than `before`.
fn leader(lock: &Lock, processes: &mut Vec<Process>, before: u64) -> (Process, u64) {
    loop {
        let holder = lock.holder().unwrap().and_then(|holder| holder.id?.label().map(str::to_owned));
        let led = |process: &Process| holder == Some(format!("pid {}", process.pid()));
        if let Some(leads) = processes.iter().position(led) {
            let leader = processes.swap_remove(leads);
            let term = leader.wait_for("leads in term ").parse().unwrap();
            assert!(term > before, "expected a term above {before}, and got {term}");
            return (leader, term);
        }
        std::thread::yield_now();
    }
}

#[test]
#[ignore = "waits for leases to end; cargo xtask recipes runs it"]
fn one_leads_after_the_other_however_each_ends() {
    let server = RedisServer::start();
    let lock = LockClient::connect(&server.url()).unwrap().get_lock("recipes:leader").unwrap();
    let mut followers: Vec<Process> = (0..4).map(|_| start(&server)).collect();

    let (killed, term) = leader(&lock, &mut followers, 0);
    for follower in &followers {
        follower.wait_for(&format!("follows pid {}", killed.pid()));
    }
    killed.signal(Signal::KILL);

    let (paused, term) = leader(&lock, &mut followers, term);
    pause(&paused.child).unwrap();
    let (mut resigned, term) = leader(&lock, &mut followers, term);
    resume(&paused.child).unwrap();
    paused.wait_for("deposed: ");

    resigned.signal(Signal::TERM);
    resigned.wait_for("resigned");
    assert!(resigned.wait().success());
    // The paused process is now a follower like the others.
    followers.push(paused);
    let (mut last, _) = leader(&lock, &mut followers, term);
    last.signal(Signal::INT);
    last.wait_for("resigned");
    assert!(last.wait().success());
}
