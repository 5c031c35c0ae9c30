//! `drain_on_sigterm` ended by a real signal, while jobs run and wait.

use std::process::Command;

use latchwork::blocking::LockClient;
use latchwork_testkit::RedisServer;
use rustix::process::Signal;

use crate::support::Process;

#[test]
fn jobs_under_way_end_and_no_other_begins() {
    let server = RedisServer::start();
    let recipe = env!("CARGO_BIN_EXE_drain_on_sigterm");
    let mut worker = Process::start(Command::new(recipe).env("REDIS_URL", server.url()));
    worker.wait_for("job 0 is done");
    worker.signal(Signal::TERM);
    for line in ["draining", "all jobs are done", "all locks are free"] {
        worker.wait_for(line);
    }
    assert!(worker.wait().success());
    let client = LockClient::connect(&server.url()).unwrap();
    for account in ["recipes:account:0", "recipes:account:1"] {
        assert!(!client.get_lock(account).unwrap().is_locked().unwrap(), "expected {account} to be free");
    }
}
