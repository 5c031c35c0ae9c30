//! [`MultiplexedConnection`]: the redis crate's, with a limit for replies.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::ConnectionLike;
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisConnectionInfo, RedisFuture, RedisResult, Value,
};
use futures_util::FutureExt;
use futures_util::future::{AbortHandle, abortable};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::runtime::{Runtime, TokioRuntime};

pub(super) use ::redis::aio::MultiplexedConnection as Unlimited;

/// The redis crate's connection. It makes a timer for each command that has a limit; so its own limits are
/// off, and those of commands are kept by [`Seats`](super::seats::Seats). For all else that is sent over
/// it, by tasks of the runtime, there is one limit. Clones are the same connection.
#[derive(Clone)]
pub(crate) struct MultiplexedConnection {
    inner: Unlimited,
    runtime: TokioRuntime,
    limit: Duration,
    _task: Task,
}

/// The task of a stream that is not the redis crate's own.
type Task = Option<Arc<OwnedTask>>;

/// A task that ends with this: a connection ends with its last clone, whatever is under way.
struct OwnedTask(AbortHandle);

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Makes a connection to the server of `client`. Its task lives on the runtime, in which the caller is.
/// `limit`: for replies.
pub(super) async fn dial(
    runtime: &TokioRuntime,
    client: &Client,
    config: AsyncConnectionConfig,
    limit: Duration,
) -> RedisResult<MultiplexedConnection> {
    let config = config.set_response_timeout(None);
    #[cfg(latchwork_simulation)]
    if let Some(surroundings) = runtime.surroundings() {
        let info = client.get_connection_info();
        let stream = surroundings.connect(&info.addr().to_string()).await?;
        return over(runtime, info.redis_settings(), stream, config, limit).await;
    }
    let inner = client.get_multiplexed_async_connection_with_config(&config).await?;
    Ok(MultiplexedConnection { inner, runtime: runtime.clone(), limit, _task: None })
}

/// Greets the server at the other end of `stream`. Otherwise as [`dial`].
#[allow(dead_code, reason = "for TLS, which need not be built in")]
pub(super) async fn over(
    runtime: &TokioRuntime,
    info: &RedisConnectionInfo,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    config: AsyncConnectionConfig,
    limit: Duration,
) -> RedisResult<MultiplexedConnection> {
    // The crate would take a timer for its own limits from the tokio runtime that it is in.
    let config = config.set_response_timeout(None).set_connection_timeout(None);
    let (inner, driver) = Unlimited::new_with_config(info, stream, config).await?;
    let (task, handle) = abortable(driver);
    runtime.spawn(task.map(drop));
    let _task = Some(Arc::new(OwnedTask(handle)));
    Ok(MultiplexedConnection { inner, runtime: runtime.clone(), limit, _task })
}

impl MultiplexedConnection {
    /// The same one, for a caller that keeps a limit itself. Not to be kept for longer than this one.
    pub(super) fn unlimited(&self) -> Unlimited {
        self.inner.clone()
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
        within(&self.runtime, self.limit, self.inner.subscribe(channel)).await
    }
}

async fn within<T>(
    runtime: &TokioRuntime,
    limit: Duration,
    reply: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    runtime.timeout(limit, reply).await.unwrap_or_else(|| Err(timed_out()))
}

/// A reply did not come within its limit.
pub(super) fn timed_out() -> ::redis::RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

impl ConnectionLike for MultiplexedConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        within(&self.runtime, self.limit, self.inner.send_packed_command(cmd)).boxed()
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let replies = self.inner.send_packed_commands(pipeline, offset, count);
        within(&self.runtime, self.limit, replies).boxed()
    }

    fn get_db(&self) -> i64 {
        self.inner.get_db()
    }
}
