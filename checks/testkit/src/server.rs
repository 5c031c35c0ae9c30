//! The server as its owner sees it.

use crate::clock::ServerClock;
use crate::port::Port;
use crate::run::{Run, Setup};
use crate::{StartError, find_server};

/// How often a start may lose its port to another process. Once is already rare.
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
    /// Starts a server; it answers when this returns.
    ///
    /// # Panics
    ///
    /// If it does not start, with the sentence of the [`StartError`].
    #[must_use]
    #[track_caller]
    pub fn start() -> RedisServer {
        RedisServer::start_with(&[])
    }

    /// Starts a server with additional arguments, such as `["--requirepass", "secret"]`. They come last, and
    /// so win over the harness's own; port, address, socket and directory are not to be changed.
    ///
    /// # Panics
    ///
    /// If it does not start, with the sentence of the [`StartError`].
    #[must_use]
    #[track_caller]
    pub fn start_with(args: &[&str]) -> RedisServer {
        // Not `unwrap_or_else`: a closure would hide the caller's line, which `track_caller` is to show.
        match RedisServer::try_start_with(args) {
            Ok(server) => server,
            Err(error) => panic!("{error}"),
        }
    }

    /// Like [`start`](RedisServer::start), for callers that want to word the failure themselves.
    ///
    /// # Errors
    ///
    /// If there is no server to run, or if it does not come up.
    pub fn try_start() -> Result<RedisServer, StartError> {
        RedisServer::try_start_with(&[])
    }

    /// Like [`start_with`](RedisServer::start_with), for callers that want to word the failure themselves.
    ///
    /// # Errors
    ///
    /// If there is no server to run, or if it does not come up.
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

    /// The process id of the server itself; another one after a restart.
    ///
    /// # Panics
    ///
    /// If the server is down after [`kill_9`](RedisServer::kill_9).
    #[must_use]
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.running().pid()
    }

    /// Kills the server with SIGKILL and reaps it: when this returns, its port refuses connections. Killing
    /// it again is harmless.
    pub fn kill_9(&mut self) {
        self.run = None;
    }

    /// Starts an empty server on the same port, with the same arguments; kills the running one first, if
    /// there is one.
    ///
    /// # Panics
    ///
    /// If it does not start, with the sentence of the [`StartError`].
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

    /// Stops the server with SIGSTOP: connections stay open, and nothing is answered until
    /// [`resume`](RedisServer::resume). It has stopped when this returns.
    ///
    /// # Panics
    ///
    /// If the server is down after [`kill_9`](RedisServer::kill_9).
    #[track_caller]
    pub fn pause(&self) {
        if let Err(error) = self.running().pause() {
            panic!("cannot pause the Redis server: {error}");
        }
    }

    /// Lets a paused server go on, with SIGCONT.
    ///
    /// # Panics
    ///
    /// If the server is down after [`kill_9`](RedisServer::kill_9).
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
    /// Starts a server by a clock of its own, which is right so far.
    ///
    /// # Panics
    ///
    /// If it does not start, with the sentence of the [`StartError`].
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
