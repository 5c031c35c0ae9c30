//! A live connection ([`MultiplexedConnection`]), its [end](end_of), the [`Server`], and the time for which
//! the server stays the same ([`ServerEpoch`]).

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

use super::common::MAX_IN_FLIGHT;
use super::error::{Error, is_broken};

pub(super) use ::redis::aio::MultiplexedConnection as Unlimited;

/// The redis crate's connection, shared by all clones. The crate's own limits, with a timer for each command,
/// are off: [`InFlight`](super::in_flight::InFlight) limits lock commands; `limit` is for others.
#[derive(Clone)]
pub(crate) struct MultiplexedConnection {
    inner: Unlimited,
    runtime: TokioRuntime,
    limit: Duration,
    pub(super) reader: Arc<Reader>,
    _task: Arc<OwnedTask>,
}

/// Aborts the task when dropped: a connection ends with its last clone, with commands in flight or not.
pub(crate) struct OwnedTask(AbortHandle);

impl OwnedTask {
    pub(crate) fn spawn(runtime: &TokioRuntime, task: impl Future<Output = ()> + Send + 'static) -> Self {
        let (task, handle) = abortable(task);
        runtime.spawn(task.map(drop));
        Self(handle)
    }
}

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The task that writes commands and reads replies; a crowded runtime may not poll it for seconds.
#[derive(Default)]
pub(super) struct Reader {
    waker: AtomicWaker,
    polled: Notify,
    has_ended: AtomicBool,
}

impl Reader {
    /// Waits until the task has read the available replies.
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
        // Ordering: SeqCst; a turn that misses the flag has enabled its notification before.
        self.has_ended.store(true, Ordering::SeqCst);
        self.polled.notify_waiters();
    }
}

/// Connects to the server of `info`; `runtime` runs the connection's task. `limit`: for replies.
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

/// Connects to the first address of `host` that answers.
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

/// Like [`dial`], over an established `stream`.
pub(super) async fn over(
    runtime: &TokioRuntime,
    info: &RedisConnectionInfo,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    config: AsyncConnectionConfig,
    limit: Duration,
) -> RedisResult<MultiplexedConnection> {
    // The crate's own limits would use the timers of the current runtime. The crate's queue has room for
    // every command in flight, so that only a reply wakes the command's task.
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
    /// Returns the connection without a limit. Drop it before `self`, which owns the connection's task.
    pub(super) fn unlimited(&self) -> Unlimited {
        self.inner.clone()
    }

    pub(super) fn limit(&mut self, limit: Duration) {
        self.limit = limit.min(self.limit);
    }

    #[cfg(test)]
    pub(crate) async fn over(stream: tokio::io::DuplexStream, runtime: &TokioRuntime) -> Self {
        let info = ::redis::RedisConnectionInfo::default().set_skip_set_lib_name();
        let info = info.set_protocol(::redis::ProtocolVersion::RESP2);
        over(runtime, &info, stream, AsyncConnectionConfig::new(), Duration::MAX).await.unwrap()
    }

    /// Runs `asks` against a server that replies with `lines` and disconnects; also returns the words sent.
    #[cfg(test)]
    pub(super) async fn answered<T>(lines: &[&str], asks: impl AsyncFnOnce(&mut Self) -> T) -> (T, String) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let (ours, mut server) = tokio::io::duplex(1 << 16);
        let mut connection = Self::over(ours, &TokioRuntime::current()).await;
        let answers = async move {
            let mut sent = vec![0; 1 << 16];
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

/// Returns `reply`, or a timeout if `limit` has passed and the reader has run.
async fn within<T>(
    runtime: &TokioRuntime,
    reader: &Reader,
    limit: Duration,
    reply: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    let mut reply = pin!(reply);
    // Twice: see `in_flight`.
    for _ in 0..2 {
        if let Some(reply) = runtime.timeout(limit / 2, reply.as_mut()).await {
            return reply;
        }
        reader.turn().await;
    }
    reply.now_or_never().unwrap_or_else(|| Err(timed_out()))
}

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

/// Asks for the command by which the server closes the connection: no command sent over the connection runs
/// from then on. By id and address, as ids repeat on other servers and after a restart; client ports differ.
/// Returns `None` if the server is older than 6.2, or refuses this user.
pub(super) async fn end_of(connection: &mut MultiplexedConnection) -> RedisResult<Option<Cmd>> {
    let info: String = match cmd("CLIENT").arg("INFO").query_async(connection).await {
        Ok(info) => info,
        Err(error) if is_broken(&error) => return Err(error),
        Err(_) => return Ok(None),
    };
    let field = |name| info.split(' ').find_map(|field| field.strip_prefix(name));
    let end = |(id, address)| cmd("CLIENT").arg(&["KILL", "ID", id, "ADDR", address]).take();
    Ok(field("id=").zip(field("addr=")).map(end))
}

pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Called on the connection's task, for pushed messages and at the connection's end.
pub(crate) type Push = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// The server at the other end of a connection, and the way to find the server.
pub(crate) trait Server: Send + Sync + 'static {
    /// Returns host and port, or a socket's path, for errors.
    fn address(&self) -> Arc<str>;

    /// Connects. Fails if another server than the wanted one answers, or if the user lacks permission for the
    /// [`heartbeat`](Self::heartbeat).
    fn dial(&self, push: Push) -> Boxed<'_, Result<(MultiplexedConnection, ServerEpoch), Error>>;

    fn heartbeat<'a>(&'a self, connection: &'a mut MultiplexedConnection) -> Boxed<'a, RedisResult<()>>;

    /// The address, or whatever else names the server. Each change ends the epoch of all connections.
    fn known(&self) -> &watch::Sender<Known>;

    /// Reports that the server of epoch `standing` is the wrong one; ends the epoch for all callers.
    fn invalidate(&self, standing: &ServerEpoch) {
        if !standing.has_ended() {
            self.known().send_modify(|_| {});
        }
    }

    /// Returns an epoch that begins now, and ends when another server has taken this server's place.
    fn epoch(&self) -> ServerEpoch {
        ServerEpoch::until_moved(self.known().subscribe())
    }
}

pub(crate) type Known = Option<Arc<str>>;

/// The time for which a connection leads to the wanted server. The connection is out of use afterwards, even
/// if intact.
#[derive(Clone, Debug)]
pub(crate) struct ServerEpoch(watch::Receiver<Known>);

impl ServerEpoch {
    pub(crate) fn until_moved(known: watch::Receiver<Known>) -> Self {
        Self(known)
    }

    pub(crate) fn has_ended(&self) -> bool {
        // An error means that the sender is gone: no moves are reported any longer.
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

    #[tokio::test]
    async fn end_of_a_connection_is_by_id_and_address_or_unknown_without_rights() {
        let of = async |lines: &[&str]| MultiplexedConnection::answered(lines, end_of).await;
        let (told, sent) = of(&["+id=7 addr=host:1 laddr=host:2 user=default"]).await;
        assert_eq!(sent, "CLIENT INFO");
        let end = told.unwrap().expect("the server tells both");
        assert!(of(&["-NOPERM it has no permissions"]).await.0.unwrap().is_none());
        // Lost before the reply.
        assert!(of(&[]).await.0.is_err());
        let run = async |connection: &mut MultiplexedConnection| end.exec_async(connection).await;
        let (told, sent) = MultiplexedConnection::answered(&[":1"], run).await;
        assert!(told.is_ok(), "{told:?}");
        assert_eq!(sent, "CLIENT KILL ID 7 ADDR host:1");
    }

    #[test]
    fn epoch_ends_with_a_move_and_not_with_the_end_of_its_watch() {
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
