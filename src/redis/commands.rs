//! The connection for commands: made when it is needed, dropped when it breaks.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Cmd, ErrorKind as Kind, FromRedisValue, PushInfo, PushKind, RedisError,
    ServerErrorKind,
};

use crate::counter::Counter;
use crate::runtime::Runtime;
use crate::sync::Mutex;

use super::error::Error;
use super::scripts::Script;
use super::server::Server;
use super::timeouts::Timeouts;
use super::tokio_runtime::TokioRuntime;

/// Sends commands; all callers share one connection.
pub(super) struct Commands {
    server: Server,
    timeouts: Timeouts,
    runtime: TokioRuntime,
    current: Arc<Mutex<Current>>,
    /// Connections that were made in the place of one that had stood.
    reconnects: Arc<Counter>,
    /// Held by whoever makes a connection; the others wait for it instead of making their own.
    connecting: tokio::sync::Mutex<()>,
}

/// How often a command went out before its reply came. After the second time it may have run twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Once,
    Twice,
}

/// What is to be run.
#[derive(Clone, Copy)]
enum Request<'a> {
    Command(&'a Cmd),
    Script { script: &'a Script, keys: &'a [&'a str], args: &'a [&'a str] },
}

impl<'a> Request<'a> {
    /// As it is sent first.
    fn command(self) -> Cow<'a, Cmd> {
        match self {
            Self::Command(command) => Cow::Borrowed(command),
            Self::Script { script, keys, args } => Cow::Owned(script.evalsha(keys, args)),
        }
    }
}

#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    /// What the server calls it, as far as it says so.
    session: Option<Session>,
    /// Connections that were given up. What was sent over them may still be on its way.
    given_up: Vec<Session>,
    /// Counts the attempts to connect. Says which connection a failure was met on, so that a late one does not throw the
    /// next connection away; and which attempt a waiting caller has seen fail.
    attempt: u64,
    failure: Option<RedisError>,
    /// There was a connection before.
    stood: bool,
}

/// How the server calls a connection. Both parts are needed: another server, or this one after a restart, counts from one again.
#[derive(Clone, Debug)]
struct Session {
    id: String,
    address: String,
}

impl Session {
    async fn of(connection: &mut MultiplexedConnection) -> Option<Self> {
        // Before 6.2, and to some users, it says nothing.
        let info: String = ::redis::cmd("CLIENT").arg("INFO").query_async(connection).await.ok()?;
        let field = |name| info.split(' ').find_map(|field| field.strip_prefix(name)).map(str::to_owned);
        Some(Self { id: field("id=")?, address: field("addr=")? })
    }

    /// From then on nothing that was sent over it runs any more. A release that nobody waits for must not come when its owner has
    /// the lock anew.
    async fn end(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        let mut kill = ::redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(&self.id).arg("ADDR").arg(&self.address);
        match kill.query_async::<usize>(connection).await {
            Err(error) if error.is_io_error() || error.is_unrecoverable_error() => Err(error),
            // Also if the user may not do it: there is no help for that.
            _ => Ok(()),
        }
    }
}

impl Commands {
    pub(super) fn new(
        server: Server,
        timeouts: Timeouts,
        runtime: TokioRuntime,
        reconnects: Arc<Counter>,
    ) -> Self {
        let connecting = tokio::sync::Mutex::default();
        Self { server, timeouts, runtime, current: Arc::default(), reconnects, connecting }
    }

    /// Sees to it that there is a connection.
    pub(super) async fn connect(&self) -> Result<(), Error> {
        self.connection().await.map(|_| ())
    }

    /// Runs a script that leaves the same behind when it runs again; if the connection breaks before the reply, it is sent once
    /// more.
    pub(super) async fn eval<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[&str],
        args: &[&str],
    ) -> Result<(T, Sent), Error> {
        self.eval_within(self.timeouts.response, script, keys, args).await
    }

    /// As [`eval`](Self::eval), for a caller who cannot wait as long for a reply.
    pub(super) async fn eval_within<T: FromRedisValue>(
        &self,
        limit: Duration,
        script: &Script,
        keys: &[&str],
        args: &[&str],
    ) -> Result<(T, Sent), Error> {
        self.run_or_rerun(limit, Request::Script { script, keys, args }).await
    }

    /// Runs a script once at most.
    pub(super) async fn eval_once<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[&str],
        args: &[&str],
    ) -> Result<T, Error> {
        let request = Request::Script { script, keys, args };
        let reply = self.run(self.timeouts.response, request).await?;
        reply.map_err(|error| self.failed(request, error))
    }

    /// Runs a command that only reads; if the connection breaks before the reply, it is sent once more.
    pub(super) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        Ok(self.run_or_rerun(self.timeouts.response, Request::Command(command)).await?.0)
    }

    async fn run_or_rerun<T: FromRedisValue>(
        &self,
        limit: Duration,
        request: Request<'_>,
    ) -> Result<(T, Sent), Error> {
        let lost = match self.run(limit, request).await? {
            Ok(reply) => return Ok((reply, Sent::Once)),
            // Not after a reply that only did not come in time: the caller has waited long enough, and the first one may be
            // in the server's buffer still, to run after the second.
            Err(error) if error.is_connection_dropped() => error,
            Err(error) => return Err(self.failed(request, error)),
        };
        match self.run(limit, request).await {
            Ok(Ok(reply)) => Ok((reply, Sent::Twice)),
            // Whatever was met the second time, the first one may have run.
            Ok(Err(_)) | Err(_) => Err(self.failed(request, lost)),
        }
    }

    /// A server that does not know a script is sent its text. For the errors see [`send`](Self::send).
    async fn run<T: FromRedisValue>(
        &self,
        limit: Duration,
        request: Request<'_>,
    ) -> Result<Result<T, RedisError>, Error> {
        match self.send(limit, &request.command()).await? {
            Err(error) if error.kind() == Kind::Server(ServerErrorKind::NoScript) => {
                let Request::Script { script, keys, args } = request else { return Ok(Err(error)) };
                self.send(limit, &script.eval(keys, args)).await
            }
            reply => Ok(reply),
        }
    }

    fn failed(&self, request: Request<'_>, error: RedisError) -> Error {
        Error::command(self.server.address(), &request.command(), error)
    }

    /// The outer error: there is no connection. The inner one: what was met on it.
    async fn send<T: FromRedisValue>(
        &self,
        limit: Duration,
        command: &Cmd,
    ) -> Result<Result<T, RedisError>, Error> {
        let (mut connection, attempt) = self.connection().await?;
        let patience = self.runtime.sleep_until(self.runtime.now() + limit);
        let reply = self.runtime.inside(async {
            tokio::select! {
                biased;
                reply = command.query_async(&mut connection) => reply,
                () = patience => Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut))),
            }
        });
        let reply = reply.await;
        if let Err(error) = &reply {
            // A reply that did not come in time as well: the link may be cut without anyone having told us, and a connection that is
            // kept would let every later command wait as long.
            if error.is_io_error() || error.is_unrecoverable_error() {
                drop_connection(&self.current, attempt);
            }
        }
        Ok(reply)
    }

    async fn connection(&self) -> Result<(MultiplexedConnection, u64), Error> {
        let seen = {
            let current = self.current.lock();
            if let Some(connection) = &current.connection {
                return Ok((connection.clone(), current.attempt));
            }
            current.attempt
        };
        let _turn = self.connecting.lock().await;
        let attempt = {
            let mut current = self.current.lock();
            if let Some(connection) = &current.connection {
                return Ok((connection.clone(), current.attempt));
            }
            // An attempt that ended while we waited for our turn speaks for us too. Otherwise, of many callers that wait before a
            // server that is gone, the last would have to sit through the failures of all before it.
            if current.attempt > seen
                && let Some(failure) = &current.failure
            {
                return Err(self.not_connected(failure.clone()));
            }
            current.attempt += 1;
            current.attempt
        };
        let connected = self.establish(attempt).await?;
        match connected {
            Ok((connection, session, ended)) => {
                {
                    let mut current = self.current.lock();
                    current.connection = Some(connection.clone());
                    current.session = session;
                    current.given_up.drain(..ended);
                    current.failure = None;
                    if std::mem::replace(&mut current.stood, true) {
                        self.reconnects.add_one();
                    }
                }
                event!(DEBUG, server = self.server.address(), attempt, "connected");
                Ok((connection, attempt))
            }
            Err(error) => {
                self.current.lock().failure = Some(error.clone());
                let error = self.not_connected(error);
                event!(WARN, error = &error as &dyn std::error::Error, attempt, "cannot connect");
                Err(error)
            }
        }
    }

    fn not_connected(&self, error: RedisError) -> Error {
        Error::connection(self.server.address(), error, self.server.password())
    }

    /// The connection, and how many of those that were given up have ended by it.
    async fn establish(
        &self,
        attempt: u64,
    ) -> Result<Result<(MultiplexedConnection, Option<Session>, usize), RedisError>, Error> {
        let given_up = self.current.lock().given_up.clone();
        let current = Arc::downgrade(&self.current);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeouts.connect))
            .set_response_timeout(Some(self.timeouts.response))
            // Told at once when an idle connection breaks, so that the next command does not have to find out.
            .set_push_sender(move |push: PushInfo| -> Result<(), ()> {
                if let (PushKind::Disconnection, Some(current)) = (push.kind, current.upgrade()) {
                    drop_connection(&current, attempt);
                }
                Ok(())
            });
        let server = self.server.clone();
        // On our own runtime: the connection's task lives where it is made, and the caller's may be a shorter-lived one.
        let made = async move {
            let mut connection = server.connect(&config).await?;
            let session = Session::of(&mut connection).await;
            for session in &given_up {
                session.end(&mut connection).await?;
            }
            Ok((connection, session, given_up.len()))
        };
        self.runtime.handle.spawn(made).await.map_err(|_| Error::runtime_ended())
    }
}

/// Forgets the connection that `attempt` made, unless a later one has taken its place.
fn drop_connection(current: &Mutex<Current>, attempt: u64) {
    let lost = {
        let mut current = current.lock();
        if current.attempt == attempt {
            let session = current.session.take();
            current.given_up.extend(session);
            current.connection.take()
        } else {
            None
        }
    };
    if lost.is_some() {
        event!(WARN, attempt, "connection for commands lost");
    }
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commands")
            .field("address", &self.server.address())
            .field("connected", &self.current.lock().connection.is_some())
            .finish_non_exhaustive()
    }
}
