//! The server as its owner sees it.

use crate::clock::ServerClock;
use crate::port::Port;
use crate::run::{Run, Setup};
use crate::{StartError, find_server};

/// Number of attempts to start on another port. Losing a port is rare.
const PORTS_TO_TRY: u32 = 20;

/// A Redis (or Valkey) server on a loopback port of its own, empty at every start, killed on drop.
#[derive(Debug)]
pub struct RedisServer {
    port: Port,
    setup: Setup,
    /// `None` between [`kill_9`](RedisServer::kill_9) and [`restart`](RedisServer::restart).
    run: Option<Run>,
}

impl RedisServer {
    /// Starts a server, which answers when this returns. Panics with the text of the [`StartError`].
    #[must_use]
    #[track_caller]
    pub fn start() -> RedisServer {
        RedisServer::start_with(&[])
    }

    /// Starts a server with additional arguments, such as `["--requirepass", "secret"]`. They override the
    /// harness's own; do not change port, address, socket or directory. Panics as [`start`](Self::start).
    #[must_use]
    #[track_caller]
    pub fn start_with(args: &[&str]) -> RedisServer {
        // Not `unwrap_or_else`: a closure would hide the caller's line from `track_caller`.
        match RedisServer::try_start_with(args) {
            Ok(server) => server,
            Err(error) => panic!("{error}"),
        }
    }

    /// Like [`start`](RedisServer::start), for callers that word the failure themselves.
    pub fn try_start() -> Result<RedisServer, StartError> {
        RedisServer::try_start_with(&[])
    }

    /// Like [`start_with`](RedisServer::start_with), for callers that word the failure themselves.
    pub fn try_start_with(args: &[&str]) -> Result<RedisServer, StartError> {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        RedisServer::set_up(Setup { args, ..Setup::default() })
    }

    pub(crate) fn set_up(setup: Setup) -> Result<RedisServer, StartError> {
        let program = find_server()?;
        let mut tries = 0;
        loop {
            tries += 1;
            let port = Port::reserve().map_err(StartError::io("find a free port on 127.0.0.1"))?;
            match Run::start(&program, port.number(), &setup) {
                Ok(run) => return Ok(RedisServer { port, setup, run: Some(run) }),
                Err(StartError::PortTaken { .. }) if tries < PORTS_TO_TRY => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// `redis://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port.number())
    }

    /// The port: the same for the whole life of this value, restarts included.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The process id, which a restart changes. Panics after [`kill_9`](RedisServer::kill_9).
    #[must_use]
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.running().pid()
    }

    /// Kills the server with SIGKILL and reaps it: its port refuses connections when this returns.
    pub fn kill_9(&mut self) {
        self.run = None;
    }

    /// Starts an empty server on the same port, with the same arguments, after killing the running server if
    /// there is one. Panics as [`start`](Self::start).
    #[track_caller]
    pub fn restart(&mut self) {
        self.kill_9();
        match find_server()
            .map_err(StartError::from)
            .and_then(|it| Run::start(&it, self.port.number(), &self.setup))
        {
            Ok(run) => self.run = Some(run),
            Err(error) => panic!("cannot restart the Redis server: {error}"),
        }
    }

    /// Stops the server with SIGSTOP: connections stay open, and the server answers nothing until
    /// [`resume`](RedisServer::resume). Panics after [`kill_9`](RedisServer::kill_9).
    #[track_caller]
    pub fn pause(&self) {
        if let Err(error) = self.running().pause() {
            panic!("cannot pause the Redis server: {error}");
        }
    }

    /// Resumes a paused server with SIGCONT. Panics after [`kill_9`](RedisServer::kill_9).
    #[track_caller]
    pub fn resume(&self) {
        if let Err(error) = self.running().resume() {
            panic!("cannot resume the Redis server: {error}");
        }
    }

    #[track_caller]
    fn running(&self) -> &Run {
        let Some(run) = &self.run else {
            panic!("the Redis server is down: it was killed and not restarted")
        };
        run
    }
}

impl ServerClock {
    /// Starts a server with a clock of its own, correct at first. Panics as [`RedisServer::start`].
    #[must_use]
    #[track_caller]
    pub fn start_server() -> (RedisServer, ServerClock) {
        match ServerClock::try_start_server() {
            Ok(both) => both,
            Err(error) => panic!("{error}"),
        }
    }

    fn try_start_server() -> Result<(RedisServer, ServerClock), StartError> {
        let clock = ServerClock::build()?;
        let server = RedisServer::set_up(Setup { clock: Some(clock.clone()), ..Setup::default() })?;
        Ok((server, clock))
    }
}
