//! The connection for commands: made when it is needed, dropped when it breaks.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(feature = "cluster")]
use ::redis::Arg;
use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Cmd, ErrorKind as Kind, FromRedisValue, PushInfo, PushKind, RedisError,
    ServerErrorKind,
};

use crate::runtime::Runtime;
use crate::sync::Mutex;

use super::error::{Error, is_broken};
use super::given_up::{GivenUp, Session};
use super::replicas::{Replicated, Wait};
use super::scripts::Script;
use super::server::Server;
use super::standing::Standing;
use super::timeouts::Timeouts;
use super::tokio_runtime::TokioRuntime;

/// How long to wait before looking again for a server that is expected elsewhere, if nobody tells where.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Sends commands; all callers share one connection. Clones are the same one.
#[derive(Clone)]
pub(super) struct Commands {
    server: Server,
    timeouts: Timeouts,
    runtime: TokioRuntime,
    current: Arc<Mutex<Current>>,
    /// Held by whoever makes a connection; the others wait for it instead of making their own. Only tasks of our own do: a
    /// caller's future may be kept and not polled, and would keep everybody from the store.
    connecting: Arc<tokio::sync::Mutex<()>>,
}

/// How often a command went out before its reply came. After the second time it may have run twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Once,
    Twice,
}

/// What is to be run.
#[derive(Clone, Copy)]
pub(super) enum Request<'a> {
    #[cfg(feature = "cluster")]
    Command(&'a Cmd),
    Script {
        script: &'a Script,
        keys: &'a [&'a str],
        args: &'a [&'a str],
    },
}

impl<'a> Request<'a> {
    /// Its first key. A Cluster is sent nothing whose keys lie in different slots.
    #[cfg(feature = "cluster")]
    pub(super) fn key(self) -> Cow<'a, str> {
        match self {
            Self::Command(command) => match command.args_iter().nth(1) {
                Some(Arg::Simple(key)) => String::from_utf8_lossy(key),
                _ => Cow::Borrowed(""),
            },
            Self::Script { keys, .. } => keys.first().copied().unwrap_or_default().into(),
        }
    }

    /// As it is sent first.
    fn command(self) -> Cow<'a, Cmd> {
        match self {
            #[cfg(feature = "cluster")]
            Self::Command(command) => Cow::Borrowed(command),
            Self::Script { script, keys, args } => Cow::Owned(script.evalsha(keys, args)),
        }
    }
}

/// What was met on a connection.
enum Met<T> {
    Reply(Result<T, RedisError>),
    /// A refusal by a server that is not, or not yet, the one that is meant. The command did not run.
    WrongServer(RedisError),
}

impl<T> Met<T> {
    fn into_reply(self) -> Result<T, RedisError> {
        match self {
            Self::Reply(reply) => reply,
            Self::WrongServer(refusal) => Err(refusal),
        }
    }
}

/// How it is sent.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Plain,
    /// And then replicas are waited for. Meanwhile the server runs nothing else that comes over this connection.
    Replicated(Wait),
    /// To a node of a Cluster that is just taking the key's slot over, and serves it only to who asks.
    #[cfg(feature = "cluster")]
    Asking,
}

impl Way {
    async fn query<T: FromRedisValue>(
        self,
        command: &Cmd,
        connection: &mut MultiplexedConnection,
    ) -> Result<T, RedisError> {
        match self {
            Self::Plain => command.query_async(connection).await,
            Self::Replicated(wait) => wait.after(command, connection).await,
            #[cfg(feature = "cluster")]
            Self::Asking => super::cluster::ask(command, connection).await,
        }
    }
}

#[derive(Clone)]
struct Connection {
    inner: MultiplexedConnection,
    standing: Standing,
    /// As far as the server says so.
    session: Option<Session>,
    attempt: u64,
}

#[derive(Default)]
struct Current {
    connection: Option<Connection>,
    /// Counts the attempts to connect. Says which connection a failure was met on, so that a late one does not throw the
    /// next connection away; and which attempt a waiting caller has seen fail.
    attempt: u64,
    failure: Option<Error>,
    /// There was a connection before.
    stood: bool,
}

impl Current {
    fn usable(&self) -> Option<&Connection> {
        self.connection.as_ref().filter(|connection| !connection.standing.has_ended())
    }
}

impl Commands {
    pub(super) fn new(server: Server, timeouts: Timeouts, runtime: TokioRuntime) -> Self {
        Self { server, timeouts, runtime, current: Arc::default(), connecting: Arc::default() }
    }

    /// Sees to it that there is a connection.
    pub(super) async fn connect(&self) -> Result<(), Error> {
        self.connection().await.map(|_| ())
    }

    /// Runs a script that leaves the same behind when it runs again; if the connection breaks before the reply, it is sent once
    /// more.
    pub(super) fn eval<'a, T: FromRedisValue>(
        &'a self,
        script: &'a Script,
        keys: &'a [&'a str],
        args: &'a [&'a str],
    ) -> impl Future<Output = Result<(T, Sent), Error>> {
        self.eval_within(self.timeouts.response, script, keys, args)
    }

    /// As [`eval`](Self::eval), for a caller who cannot wait as long for a reply.
    pub(super) fn eval_within<'a, T: FromRedisValue>(
        &'a self,
        limit: Duration,
        script: &'a Script,
        keys: &'a [&'a str],
        args: &'a [&'a str],
    ) -> impl Future<Output = Result<(T, Sent), Error>> {
        self.run_or_rerun(Way::Plain, limit, Request::Script { script, keys, args })
    }

    /// As [`eval`](Self::eval), and waits for replicas to have what the script wrote. Meanwhile the server runs nothing else that
    /// comes over this connection.
    pub(super) async fn eval_replicated<T: FromRedisValue>(
        &self,
        wait: Wait,
        script: &Script,
        keys: &[&str],
        args: &[&str],
    ) -> Result<(Replicated<T>, Sent), Error> {
        let request = Request::Script { script, keys, args };
        self.run_or_rerun(Way::Replicated(wait), self.timeouts.response, request).await
    }

    /// Whether as many replicas have what was written as are to be waited for.
    pub(super) fn check(&self, wait: Wait, replicas: Result<usize, RedisError>) -> Result<(), Error> {
        match replicas {
            Ok(had) if had >= wait.replicas => Ok(()),
            Ok(had) => Err(Error::not_replicated(&self.server.address(), had, wait.replicas, None)),
            Err(error) => Err(Error::not_replicated(&self.server.address(), 0, wait.replicas, Some(error))),
        }
    }

    /// Runs a script once at most.
    pub(super) async fn eval_once<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[&str],
        args: &[&str],
    ) -> Result<T, Error> {
        let request = Request::Script { script, keys, args };
        let reply = self.run_as(Way::Plain, self.timeouts.response, request).await?;
        reply.map_err(|error| self.failed(request, error))
    }

    async fn run_or_rerun<T: FromRedisValue>(
        &self,
        way: Way,
        limit: Duration,
        request: Request<'_>,
    ) -> Result<(T, Sent), Error> {
        let mut lost = None;
        loop {
            match (self.run_as(way, limit, request).await, lost) {
                (Ok(Ok(reply)), None) => return Ok((reply, Sent::Once)),
                (Ok(Ok(reply)), Some(_)) => return Ok((reply, Sent::Twice)),
                // Whatever was met the second time, the first one may have run.
                (Ok(Err(_)) | Err(_), Some(first)) => return Err(self.failed(request, first)),
                // Not after a reply that only did not come in time: the caller has waited long enough, and the first one may be
                // in the server's buffer still, to run after the second.
                (Ok(Err(error)), None) if error.is_connection_dropped() => lost = Some(error),
                (Ok(Err(error)), None) => return Err(self.failed(request, error)),
                (Err(not_connected), None) => return Err(not_connected),
            }
        }
    }

    /// What did not run, because the server is about to be found elsewhere, is sent there, if that is found within the limit. For the
    /// errors see [`send`](Self::send).
    pub(super) async fn run_as<T: FromRedisValue>(
        &self,
        way: Way,
        limit: Duration,
        request: Request<'_>,
    ) -> Result<Result<T, RedisError>, Error> {
        let give_up = self.runtime.now() + limit;
        let did_not_run = match self.run_here(way, limit, request).await {
            Ok(Met::Reply(reply)) => return Ok(reply),
            Ok(Met::WrongServer(refusal)) => Ok(Err(refusal)),
            Err(error) if self.server.may_move(&error) => Err(error),
            Err(error) => return Err(error),
        };
        // Seldom, and so it takes no room in the futures of the others.
        Box::pin(async {
            if !self.found_again(give_up).await {
                return did_not_run;
            }
            let left = give_up.saturating_duration_since(self.runtime.now());
            Ok(self.run_here(way, left, request).await?.into_reply())
        })
        .await
    }

    /// Connects to the server wherever it is by then. False if it is not found until `give_up`.
    async fn found_again(&self, give_up: Instant) -> bool {
        let found = async {
            loop {
                let moved = self.server.moved();
                if self.connection().await.is_ok() {
                    return;
                }
                let look_again = self.runtime.sleep_until(self.runtime.now() + LOOK_AGAIN);
                tokio::select! {
                    () = moved.ended() => {}
                    () = look_again => {}
                }
            }
        };
        tokio::select! {
            () = found => true,
            () = self.runtime.sleep_until(give_up) => false,
        }
    }

    /// A server that does not know a script is sent its text. For the errors see [`send`](Self::send).
    async fn run_here<T: FromRedisValue>(
        &self,
        way: Way,
        limit: Duration,
        request: Request<'_>,
    ) -> Result<Met<T>, Error> {
        match self.send(way, limit, &request.command()).await? {
            Met::Reply(Err(error)) if error.kind() == Kind::Server(ServerErrorKind::NoScript) => {
                match request {
                    // Seldom, as above.
                    Request::Script { script, keys, args } => {
                        Box::pin(self.send(way, limit, &script.eval(keys, args))).await
                    }
                    #[cfg(feature = "cluster")]
                    Request::Command(_) => Ok(Met::Reply(Err(error))),
                }
            }
            met => Ok(met),
        }
    }

    pub(super) fn failed(&self, request: Request<'_>, error: RedisError) -> Error {
        Error::command(&self.server.address(), &request.command(), error)
    }

    /// The error: there is no connection. What was met on it is [`Met`].
    async fn send<T: FromRedisValue>(
        &self,
        way: Way,
        limit: Duration,
        command: &Cmd,
    ) -> Result<Met<T>, Error> {
        let Connection { inner: mut connection, standing, attempt, .. } = self.connection().await?;
        connection.set_response_timeout(limit);
        let query = way.query(command, &mut connection);
        let reply = match standing.can_end() {
            false => self.runtime.inside(query).await,
            true => {
                Box::pin(self.runtime.inside(async {
                    tokio::select! {
                        biased;
                        reply = query => reply,
                        // A reply from a server that another has taken the place of would mean nothing; nor need it ever come.
                        () = standing.clone().ended() => {
                            Err(RedisError::from(io::Error::from(io::ErrorKind::ConnectionAborted)))
                        }
                    }
                }))
                .await
            }
        };
        if let Err(error) = &reply {
            // A reply that did not come in time as well: the link may be cut without anyone having told us, and a connection that is
            // kept would let every later command wait as long.
            if is_broken(error) {
                drop_connection(&self.current, self.server.given_up(), attempt);
            }
        }
        Ok(match reply {
            Err(refusal) if self.server.is_wrong_one(&refusal, &standing) => Met::WrongServer(refusal),
            reply => Met::Reply(reply),
        })
    }

    /// One over which nothing runs before what was sent over those that were given up.
    async fn connection(&self) -> Result<Connection, Error> {
        let mut connection = self.any_connection().await?;
        if !self.server.given_up().is_empty() {
            let given_up = self.server.given_up();
            // Seldom, as above.
            Box::pin(self.runtime.inside(given_up.end(&mut connection.inner))).await.map_err(|error| {
                drop_connection(&self.current, self.server.given_up(), connection.attempt);
                Error::connection(&self.server.address(), error, None)
            })?;
        }
        Ok(connection)
    }

    async fn any_connection(&self) -> Result<Connection, Error> {
        let seen = {
            let current = self.current.lock();
            if let Some(connection) = current.usable() {
                return Ok(connection.clone());
            }
            current.attempt
        };
        // On our own runtime: the connection's task lives where it is made, and the caller's may be a shorter-lived one.
        let this = self.clone();
        let connected = self.runtime.handle.spawn(async move { this.connect_in_turn(seen).await });
        connected.await.unwrap_or_else(|_| Err(Error::runtime_ended()))
    }

    /// `seen`: how many attempts had been made when the caller came.
    async fn connect_in_turn(&self, seen: u64) -> Result<Connection, Error> {
        let _turn = self.connecting.lock().await;
        let attempt = {
            let mut current = self.current.lock();
            if let Some(connection) = current.usable() {
                return Ok(connection.clone());
            }
            // An attempt that ended while we waited for our turn speaks for us too. Otherwise, of many callers that wait before a
            // server that is gone, the last would have to sit through the failures of all before it.
            if current.attempt > seen
                && let Some(failure) = &current.failure
            {
                return Err(failure.clone());
            }
            current.attempt += 1;
            current.attempt
        };
        match self.establish(attempt).await {
            Ok(connection) => {
                {
                    let mut current = self.current.lock();
                    current.connection = Some(connection.clone());
                    current.failure = None;
                    if std::mem::replace(&mut current.stood, true) {
                        self.server.reconnects().add_one();
                    }
                }
                event!(DEBUG, server = &*self.server.address(), attempt, "connected");
                Ok(connection)
            }
            Err(error) => {
                self.current.lock().failure = Some(error.clone());
                event!(WARN, error = &error as &dyn std::error::Error, attempt, "cannot connect");
                Err(error)
            }
        }
    }

    async fn establish(&self, attempt: u64) -> Result<Connection, Error> {
        let (current, given_up) = (Arc::downgrade(&self.current), self.server.given_up().clone());
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeouts.connect))
            .set_response_timeout(Some(self.timeouts.response))
            // Whoever has been polled once has sent its command. With a bound, those that are kept and not polled would take up
            // all places in the queue before the connection, and nobody else would get through.
            .set_pipeline_buffer_size(tokio::sync::Semaphore::MAX_PERMITS)
            // Told at once when an idle connection breaks, so that the next command does not have to find out.
            .set_push_sender(move |push: PushInfo| -> Result<(), ()> {
                if let (PushKind::Disconnection, Some(current)) = (push.kind, current.upgrade()) {
                    drop_connection(&current, &given_up, attempt);
                }
                Ok(())
            });
        let (mut inner, standing) = self.server.connect(&config).await?;
        let session = Session::of(&mut inner).await;
        let session = session.map_err(|error| Error::connection(&self.server.address(), error, None))?;
        Ok(Connection { inner, standing, session, attempt })
    }
}

/// Forgets the connection that `attempt` made, unless a later one has taken its place.
fn drop_connection(current: &Mutex<Current>, given_up: &GivenUp, attempt: u64) {
    let lost = {
        let mut current = current.lock();
        let lost = if current.attempt == attempt { current.connection.take() } else { None };
        // Before anybody can find that there is no connection, and make another.
        lost.map(|lost| lost.session.into_iter().for_each(|session| given_up.add(session)))
    };
    if lost.is_some() {
        event!(WARN, attempt, "connection for commands lost");
    }
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commands")
            .field("address", &self.server.address())
            .field("connected", &self.current.lock().usable().is_some())
            .finish_non_exhaustive()
    }
}
