//! A live connection. [`MultiplexedConnection`]: the redis crate's, with a limit for replies; [`Session`]:
//! how the server calls it, so that it can be ended from another one; [`Server`]: the other end; and
//! [`ServerEpoch`]: the time for which that end stays the same.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::ConnectionLike;
use ::redis::io::tcp::socket2::SockRef;
use ::redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, Pipeline, PushInfo, RedisConnectionInfo,
    RedisError, RedisFuture, RedisResult, Value, cmd,
};
use futures_util::FutureExt;
use futures_util::future::{AbortHandle, abortable, select_ok};
use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::{Notify, watch};

use crate::support::runtime::{Runtime, TokioRuntime};
use crate::support::sync::atomic::{AtomicBool, Ordering};

use super::error::{Error, is_broken};
use super::timing::MAX_IN_FLIGHT;

pub(super) use ::redis::aio::MultiplexedConnection as Unlimited;

/// The redis crate's connection. It makes a timer for each command that has a limit; so its own limits are
/// off, and those of commands are kept by [`InFlight`](super::in_flight::InFlight). For all else that is sent
/// over it, by tasks of the runtime, there is one limit. Clones are the same connection.
#[derive(Clone)]
pub(crate) struct MultiplexedConnection {
    inner: Unlimited,
    runtime: TokioRuntime,
    limit: Duration,
    pub(super) reader: Arc<Reader>,
    _task: Arc<OwnedTask>,
}

/// A task that ends with this: a connection ends with its last clone, whatever is under way.
struct OwnedTask(AbortHandle);

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The task that writes a connection's commands and reads the replies. Behind a crowd of others its runtime
/// may not poll it for seconds, and then no server is silent.
#[derive(Default)]
pub(super) struct Reader {
    waker: AtomicWaker,
    polled: Notify,
    has_ended: AtomicBool,
}

impl Reader {
    /// Waits until the task has read the replies that there are.
    pub(super) async fn turn(&self) {
        let mut polled = pin!(self.polled.notified());
        polled.as_mut().enable();
        // Ordering: SeqCst, as in `end`.
        if !self.has_ended.load(Ordering::SeqCst) {
            self.waker.wake();
            polled.await;
        }
    }

    fn end(&self) {
        // Ordering: SeqCst; a turn that does not see the end here has enabled its notification before.
        self.has_ended.store(true, Ordering::SeqCst);
        self.polled.notify_waiters();
    }
}

/// Makes a connection to the server of `info`. Its task lives on the runtime, in which the caller is.
/// `limit`: for replies.
pub(super) async fn dial(
    runtime: &TokioRuntime,
    info: &ConnectionInfo,
    config: AsyncConnectionConfig,
    limit: Duration,
) -> RedisResult<MultiplexedConnection> {
    let settings = info.redis_settings();
    #[cfg(latchwork_simulation)]
    if let Some(surroundings) = runtime.surroundings() {
        let stream = surroundings.connect(&info.addr().to_string()).await?;
        return over(runtime, settings, stream, config, limit).await;
    }
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            over(runtime, settings, tcp(host, *port, info).await?, config, limit).await
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            over(runtime, settings, tokio::net::UnixStream::connect(path).await?, config, limit).await
        }
        _ => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
    }
}

/// To the first address of `host` that answers.
pub(super) async fn tcp(host: &str, port: u16, info: &ConnectionInfo) -> io::Result<TcpStream> {
    let addresses: Vec<_> = lookup_host((host, port)).await?.collect();
    if addresses.is_empty() {
        return Err(io::ErrorKind::AddrNotAvailable.into());
    }
    let dials = addresses.into_iter().map(|address| Box::pin(TcpStream::connect(address)));
    let (stream, _) = select_ok(dials).await?;
    let (socket, settings) = (SockRef::from(&stream), info.tcp_settings());
    socket.set_tcp_nodelay(settings.nodelay())?;
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(stream)
}

/// Greets the server at the other end of `stream`. Otherwise as [`dial`].
pub(super) async fn over(
    runtime: &TokioRuntime,
    info: &RedisConnectionInfo,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    config: AsyncConnectionConfig,
    limit: Duration,
) -> RedisResult<MultiplexedConnection> {
    // The crate would take a timer for its own limits from the tokio runtime that it is in.
    // Its queue has room for all that are under way, so that a wake-up of a command is the reply.
    let config = config.set_response_timeout(None).set_connection_timeout(None);
    let config = config.set_pipeline_buffer_size(4 * MAX_IN_FLIGHT);
    let (inner, driver) = Unlimited::new_with_config(info, stream, config).await?;
    let (reader, mut driver) = (Arc::<Reader>::default(), Box::pin(driver));
    let read = Arc::clone(&reader);
    let (task, handle) = abortable(poll_fn(move |task| {
        read.waker.register(task.waker());
        let polled = driver.as_mut().poll(task);
        read.polled.notify_waiters();
        polled
    }));
    let ended = Arc::clone(&reader);
    runtime.spawn(task.map(move |_| ended.end()));
    let _task = Arc::new(OwnedTask(handle));
    Ok(MultiplexedConnection { inner, runtime: runtime.clone(), limit, reader, _task })
}

impl MultiplexedConnection {
    /// The same one, for a caller that keeps a limit itself. Not to be kept for longer than this one.
    pub(super) fn unlimited(&self) -> Unlimited {
        self.inner.clone()
    }

    /// Replies to what is sent over this clone may take no longer.
    pub(super) fn limit(&mut self, limit: Duration) {
        self.limit = limit.min(self.limit);
    }

    /// To what is at the other end of the stream, which is not greeted.
    #[cfg(test)]
    pub(crate) async fn over(stream: tokio::io::DuplexStream, runtime: &TokioRuntime) -> Self {
        let info = ::redis::RedisConnectionInfo::default().set_skip_set_lib_name();
        let info = info.set_protocol(::redis::ProtocolVersion::RESP2);
        over(runtime, &info, stream, AsyncConnectionConfig::new(), Duration::MAX).await.unwrap()
    }

    /// What `asks` has from a server that answers with these lines, and then breaks off; and the words that
    /// the server was sent.
    #[cfg(test)]
    pub(super) async fn answered<T>(lines: &[&str], asks: impl AsyncFnOnce(&mut Self) -> T) -> (T, String) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let (ours, mut server) = tokio::io::duplex(1 << 16);
        let mut connection = Self::over(ours, &TokioRuntime::current()).await;
        let answers = async move {
            let mut sent = vec![0; 1 << 16];
            // In one piece, whatever it is.
            let length = server.read(&mut sent).await.unwrap();
            for line in lines {
                server.write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
            }
            String::from_utf8(sent[..length].to_vec()).unwrap()
        };
        let (had, sent) = tokio::join!(asks(&mut connection), answers);
        let words = sent.lines().filter(|line| !line.starts_with(['*', '$']));
        (had, words.collect::<Vec<_>>().join(" "))
    }

    #[allow(dead_code, reason = "only Sentinel subscribes here, which need not be built in")]
    pub(crate) async fn subscribe(&mut self, channel: &str) -> RedisResult<()> {
        within(&self.runtime, &self.reader, self.limit, self.inner.subscribe(channel)).await
    }
}

/// `reply`, unless it has not come within `limit` and the reader has looked for it.
async fn within<T>(
    runtime: &TokioRuntime,
    reader: &Reader,
    limit: Duration,
    reply: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    let mut reply = pin!(reply);
    // As for the commands of `InFlight`.
    for _ in 0..2 {
        if let Some(reply) = runtime.timeout(limit / 2, reply.as_mut()).await {
            return reply;
        }
        reader.turn().await;
    }
    reply.now_or_never().unwrap_or_else(|| Err(timed_out()))
}

/// A reply did not come within its limit.
pub(super) fn timed_out() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

impl ConnectionLike for MultiplexedConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        within(&self.runtime, &self.reader, self.limit, self.inner.send_packed_command(cmd)).boxed()
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let replies = self.inner.send_packed_commands(pipeline, offset, count);
        within(&self.runtime, &self.reader, self.limit, replies).boxed()
    }

    fn get_db(&self) -> i64 {
        self.inner.get_db()
    }
}

/// The server's name for a connection. Both parts are needed: another server, or this one after a restart,
/// counts from one again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    id: String,
    address: String,
}

impl Session {
    /// `None`: the server does not say, as before 6.2, or not to this user.
    pub(crate) async fn of(connection: &mut MultiplexedConnection) -> RedisResult<Option<Self>> {
        let info: String = match cmd("CLIENT").arg("INFO").query_async(connection).await {
            Ok(info) => info,
            Err(error) if is_broken(&error) => return Err(error),
            Err(_) => return Ok(None),
        };
        let field = |name| info.split(' ').find_map(|field| field.strip_prefix(name)).map(str::to_owned);
        Ok(field("id=").zip(field("addr=")).map(|(id, address)| Self { id, address }))
    }

    /// Has the server end it: from then on nothing that was sent over it runs any more.
    pub(crate) async fn end(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        let mut kill = cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(&self.id).arg("ADDR").arg(&self.address);
        kill.query_async::<usize>(connection).await.map(drop)
    }
}

/// A future of a trait object's. All of them are about connections, of which there are few.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Hears all that a server sends without being asked, and the end of the connection. Runs on the connection's
/// task.
pub(crate) type Push = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// The other end of a connection, and the one place that knows how to find the server.
pub(crate) trait Server: Send + Sync + 'static {
    /// For errors: host and port, or a socket's path.
    fn address(&self) -> Arc<str>;

    /// Makes a connection, if the node that answers is the server that is meant and lets the user do what
    /// [`heartbeat`](Self::heartbeat) does.
    fn dial(&self, push: Push) -> Boxed<'_, Result<(MultiplexedConnection, ServerEpoch), Error>>;

    /// Asks the server at the other end for a sign of life.
    fn heartbeat<'a>(&'a self, connection: &'a mut MultiplexedConnection) -> Boxed<'a, RedisResult<()>>;

    /// The node that was connected to with `standing` is not the server that is meant, or not yet: no other
    /// caller is to go on as if it were.
    fn invalidate(&self, standing: &ServerEpoch);

    /// Ends when another server has taken this one's place, from now on.
    fn moved(&self) -> ServerEpoch;
}

/// The server's address, if it is known.
pub(crate) type Known = Option<Arc<str>>;

/// The time for which a connection is to the server that is meant. Ends when another server takes its place,
/// or when it turned out to be the wrong one; a connection that has ended so is not to be used any more,
/// although it may be in order.
#[derive(Clone, Debug)]
pub(crate) struct ServerEpoch(watch::Receiver<Known>);

impl ServerEpoch {
    /// Until what `known` has seen last is not so any more.
    pub(crate) fn until_moved(known: watch::Receiver<Known>) -> Self {
        Self(known)
    }

    pub(crate) fn has_ended(&self) -> bool {
        // An error: the sender, which would say so, is gone, as in `ended`.
        self.0.has_changed().unwrap_or(false)
    }

    pub(crate) async fn ended(mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session { id: "7".into(), address: "host:1".into() }
    }

    #[tokio::test]
    async fn session_is_what_the_server_says_and_unknown_to_a_user_that_may_not_ask() {
        let of = async |lines: &[&str]| MultiplexedConnection::answered(lines, Session::of).await;
        let (told, sent) = of(&["+id=7 addr=host:1 laddr=host:2 user=default"]).await;
        assert_eq!((told.unwrap(), &*sent), (Some(session()), "CLIENT INFO"));
        assert_eq!(of(&["-NOPERM it has no permissions"]).await.0.unwrap(), None);
        // What has no connection cannot know whether it may ask.
        assert!(of(&[]).await.0.is_err());
    }

    #[tokio::test]
    async fn session_is_ended_by_both_its_parts_and_a_refusal_is_no_broken_connection() {
        let end = async |lines: &[&str]| {
            let end = async |connection: &mut MultiplexedConnection| session().end(connection).await;
            MultiplexedConnection::answered(lines, end).await
        };
        let (told, sent) = end(&[":1"]).await;
        assert!(told.is_ok(), "{told:?}");
        assert_eq!(sent, "CLIENT KILL ID 7 ADDR host:1");
        let told = end(&["-NOPERM it has no permissions"]).await.0;
        assert!(!is_broken(&told.unwrap_err()));
        assert!(is_broken(&end(&[]).await.0.unwrap_err()));
    }

    #[test]
    fn epoch_ends_when_another_server_is_known_and_not_when_none_can_be_told_any_more() {
        let known = watch::Sender::new(Some("host:1".into()));
        let epoch = || ServerEpoch::until_moved(known.subscribe());
        let (moved, mut ends) = (epoch(), Box::pin(epoch().ended()));
        assert!(!moved.has_ended() && ends.as_mut().now_or_never().is_none());
        known.send_replace(None);
        assert!(moved.has_ended() && ends.as_mut().now_or_never().is_some());
        let (lasts, mut never_ends) = (epoch(), Box::pin(epoch().ended()));
        drop(known);
        assert!(!lasts.has_ended() && never_ends.as_mut().now_or_never().is_none());
    }
}
