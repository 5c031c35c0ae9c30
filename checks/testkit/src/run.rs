//! One life of a server process: from its start until it is killed and reaped.
//!
//! Three processes take part. The *owner* is the process that runs this code. The *server* is its child. The
//! *guardian* is another child, a shell that blocks reading a pipe whose other end only the owner holds.
//! However the owner ends, the kernel closes that end, and the guardian wakes, kills the server and removes
//! its directory.
//!
//! The guardian kills by process id, so the id must not pass to another process while the guardian lives. The
//! kernel reuses an id only after its process is reaped: hence nothing here reaps the server before the
//! guardian has ended.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tempfile::TempDir;

use crate::StartError;
use crate::clock::ServerClock;
use crate::port::Port;
use crate::process;
use crate::ready;

/// Waits for a line, then becomes the server under the same process id. If the owner dies before the guardian
/// runs, the pipe closes instead, and no server ever starts.
const STARTER: &str = r#"read -r go && exec "$@" </dev/null"#;

/// Nothing is ever written to the pipe: `read` returns when the owner is gone, or drops its end.
const GUARDIAN: &str = r#"trap '' HUP INT QUIT TERM; read -r never; kill -9 "$1"; rm -rf "$2""#;

const SOCKET: &str = "server.sock";
const LOG: &str = "log";
const CONFIG: &str = "server.conf";

/// Far longer than a start takes, even on a busy machine: the limit for a server that never answers.
const START_DEADLINE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(2);

/// The settings of a server; the same for each of its lives.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    pub(crate) args: Vec<String>,
    /// The text of a configuration file in the server's own directory: a Sentinel rewrites its file.
    pub(crate) config: Option<String>,
    /// A settable clock, instead of the machine's.
    pub(crate) clock: Option<ServerClock>,
    /// Reserved for the bus of the server's cluster.
    pub(crate) _bus: Option<Port>,
}

#[derive(Debug)]
pub(crate) struct Run {
    server: Child,
    guardian: Child,
    /// Also removed by the guardian, which alone is left to do so after a SIGKILL.
    dir: TempDir,
}

impl Run {
    pub(crate) fn start(program: &Path, port: u16, setup: &Setup) -> Result<Run, StartError> {
        let mut run = Run::spawn(program, port, setup)?;
        // The guardian runs: now the starter may become the server.
        run.server
            .stdin
            .take()
            .expect("the starter was spawned with a pipe")
            .write_all(b"go\n")
            .map_err(StartError::io("tell the starter to become the Redis server"))?;
        run.wait_until_ready(port)
    }

    fn spawn(program: &Path, port: u16, setup: &Setup) -> Result<Run, StartError> {
        let dir = tempfile::Builder::new()
            .prefix("latchwork-redis-")
            .tempdir()
            .map_err(StartError::io("make a working directory for the Redis server"))?;
        let log =
            File::create(dir.path().join(LOG)).map_err(StartError::io("make the Redis server's log"))?;
        if let Some(config) = &setup.config {
            fs::write(dir.path().join(CONFIG), config)
                .map_err(StartError::io("write the Redis server's configuration"))?;
        }
        let log_too = log.try_clone().map_err(StartError::io("share the Redis server's log"))?;

        let mut server = Command::new("sh")
            .args(["-c", STARTER, "latchwork-starter"])
            .arg(program)
            // Redis reads a configuration file from the first argument only.
            .args(setup.config.as_ref().map(|_| CONFIG))
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--unixsocket", SOCKET])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no", "--jemalloc-bg-thread", "no"])
            .args(&setup.args)
            .envs(setup.clock.as_ref().map(|clock| ("LD_PRELOAD", clock.library())))
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(log_too)
            // Ctrl-C goes to the owner's whole process group; the owner decides about its server.
            .process_group(0)
            .spawn()
            .map_err(StartError::io("run `sh`, which starts the Redis server"))?;

        let guardian = Command::new("sh")
            .args(["-c", GUARDIAN, "latchwork-guardian"])
            .arg(server.id().to_string())
            .arg(dir.path())
            .current_dir("/")
            .stdin(Stdio::piped())
            // An inherited output, or a pipe behind it, would stay open for as long as the guardian lives.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // The owner's Ctrl-C must not kill the guardian.
            .process_group(0)
            .spawn();

        match guardian {
            Ok(guardian) => Ok(Run { server, guardian, dir }),
            Err(source) => {
                // `wait` closes the starter's pipe, and the starter ends without becoming a server.
                let _ = server.wait();
                Err(StartError::Io { doing: "run `sh`, which guards the Redis server", source })
            }
        }
    }

    fn wait_until_ready(mut self, port: u16) -> Result<Run, StartError> {
        let socket = self.dir.path().join(SOCKET);
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if ready::answers(&socket, left).map_err(StartError::io("reach the Redis server's socket"))? {
                return Ok(self);
            }
            if self.has_ended().map_err(StartError::io("look after the Redis server"))? {
                let log = self.log_tail();
                // Every version of Redis and Valkey logs this English sentence.
                if log.contains("Address already in use") {
                    return Err(StartError::PortTaken { port });
                }
                let status = self.end().map_err(StartError::io("reap the Redis server"))?;
                return Err(StartError::Ended { status, log });
            }
            if left.is_zero() {
                return Err(StartError::Silent { seconds: START_DEADLINE.as_secs(), log: self.log_tail() });
            }
            thread::sleep(POLL);
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.id()
    }

    pub(crate) fn pause(&self) -> io::Result<()> {
        process::pause(&self.server)
    }

    pub(crate) fn resume(&self) -> io::Result<()> {
        process::resume(&self.server)
    }

    /// True if the server has ended by itself. Leaves the server unreaped, unlike [`Child::try_wait`].
    fn has_ended(&self) -> io::Result<bool> {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.server_pid()), ended)?.is_some())
    }

    fn server_pid(&self) -> Pid {
        Pid::from_child(&self.server)
    }

    fn log_tail(&self) -> String {
        let log = fs::read(self.dir.path().join(LOG)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        if log.is_empty() {
            return "(nothing)".to_owned();
        }
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    /// Kills the server, dismisses the guardian and reaps both, the server last (see the top of this file).
    fn end(&mut self) -> io::Result<ExitStatus> {
        let killed = self.server.kill();
        // `wait` closes the pipe first.
        let guardian = self.guardian.wait();
        let status = self.server.wait()?;
        killed.and(guardian).and(Ok(status))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // After `end` both processes are reaped already, and this does nothing. Otherwise the call cannot
        // fail: a process may always kill and reap its own children.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::{Run, Setup};
    use crate::port::Port;
    use crate::{StartError, find_server};

    fn start(port: u16, args: &[&str]) -> Result<Run, StartError> {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Run::start(&find_server()?, port, &Setup { args, ..Setup::default() })
    }

    #[test]
    fn foreign_process_on_the_port_is_not_mistaken_for_our_server() {
        let reserved = Port::reserve().unwrap();
        let port = reserved.number();
        let stranger = start(port, &[]).unwrap();
        let error = start(port, &[]).unwrap_err();
        assert!(matches!(error, StartError::PortTaken { port: taken } if taken == port), "{error}");
        drop(stranger);
    }

    #[test]
    fn a_server_that_ends_at_once_says_why() {
        let error = start(Port::reserve().unwrap().number(), &["--no-such-setting", "1"]).unwrap_err();
        assert!(matches!(error, StartError::Ended { .. }), "{error}");
        assert!(error.to_string().contains("no-such-setting"), "{error}");
    }

    #[test]
    fn a_server_with_a_password_counts_as_ready() {
        start(Port::reserve().unwrap().number(), &["--requirepass", "secret"]).unwrap();
    }
}
