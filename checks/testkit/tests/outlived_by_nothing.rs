//! A server ends with its owner, however the owner ends. The owner is this test binary, run again.

mod client;

use std::env;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use latchwork_testkit::RedisServer;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::client::Client;

/// Set for the second process only.
const IS_OWNER: &str = "LATCHWORK_TESTKIT_IS_OWNER";
const DEADLINE: Duration = Duration::from_secs(10);

/// Runs in the second process. Does nothing as a test of the first.
#[test]
fn owner() {
    if env::var_os(IS_OWNER).is_none() {
        return;
    }
    let server = RedisServer::start();
    // On a line of its own: the harness's "test owner ... " has not ended its line.
    println!("\nport {}", server.port());
    io::copy(&mut io::stdin(), &mut io::sink()).unwrap();
    // Runs no destructors: `server` is never dropped.
    process::exit(0);
}

struct Owner {
    process: Child,
    port: u16,
    server: Pid,
    dir: String,
}

impl Owner {
    fn start() -> Owner {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", "owner", "--nocapture"])
            .env(IS_OWNER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let port = BufReader::new(process.stdout.take().unwrap())
            .lines()
            .find_map(|line| line.unwrap().strip_prefix("port ")?.parse().ok())
            .expect("the owner says its server's port");
        let mut client = Client::connect(port);
        let server = Pid::from_raw(client.info("process_id").parse().unwrap()).unwrap();
        Owner { process, port, server, dir: client.working_directory() }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Waits for the owner's end, and then for its server's.
    #[track_caller]
    fn assert_takes_its_server_along(mut self) {
        // `wait` closes the owner's stdin first; an owner that still lives exits then.
        self.process.wait().unwrap();
        let deadline = Instant::now() + DEADLINE;
        while listens(self.port) || Path::new(&self.dir).exists() {
            assert!(
                Instant::now() < deadline,
                "expected the server's end with its owner, and port {} or {} is still there",
                self.port,
                self.dir
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn listens(port: u16) -> bool {
    match TcpStream::connect(("127.0.0.1", port)) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => false,
        // The server may die during the handshake.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => true,
        Err(error) => panic!("cannot see whether port {port} is open: {error}"),
    }
}

#[test]
fn server_ends_when_its_owner_is_killed() {
    let owner = Owner::start();
    kill_process(owner.pid(), Signal::KILL).unwrap();
    owner.assert_takes_its_server_along();
}

#[test]
fn server_ends_when_its_owners_process_group_is_killed() {
    let owner = Owner::start();
    kill_process_group(owner.pid(), Signal::KILL).unwrap();
    owner.assert_takes_its_server_along();
}

#[test]
fn server_ends_when_its_owner_is_interrupted() {
    let owner = Owner::start();
    kill_process_group(owner.pid(), Signal::INT).unwrap();
    owner.assert_takes_its_server_along();
}

#[test]
fn server_ends_when_its_owner_exits_without_dropping() {
    Owner::start().assert_takes_its_server_along();
}

#[test]
fn paused_server_ends_when_its_owner_is_killed() {
    let owner = Owner::start();
    kill_process(owner.server, Signal::STOP).unwrap();
    kill_process(owner.pid(), Signal::KILL).unwrap();
    owner.assert_takes_its_server_along();
}
