//! [`Surroundings`]: what a simulation puts in the place of tokio, the network and the system's randomness; and the redis crate's
//! connection on top of it. The crate takes timers from tokio, which is not there: its limits are kept here instead.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::aio::{ConnectionLike, MultiplexedConnection as Inner};
use ::redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisFuture, RedisResult, Value};
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite};

use super::runtime::{OwnedTask, TokioRuntime};

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A stream of bytes to a server and back.
pub trait Bytes: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Bytes for T {}

/// What a simulated process stands on.
pub trait Surroundings: fmt::Debug + Send + Sync + 'static {
    /// As [`Runtime::now`](crate::Runtime::now).
    fn now(&self) -> Instant;

    /// As [`Runtime::sleep_until`](crate::Runtime::sleep_until).
    fn sleep_until(&self, deadline: Instant) -> Boxed<()>;

    /// As [`Runtime::spawn`](crate::Runtime::spawn).
    fn spawn(&self, task: Boxed<()>);

    /// As [`Runtime::random`](crate::Runtime::random).
    fn random(&self) -> u64;

    /// Connects to the server at `address`, host and port.
    fn connect(&self, address: &str) -> Boxed<io::Result<Box<dyn Bytes>>>;
}

/// The redis crate's connection, with its limit kept by the simulation's clock. Clones are the same connection.
#[derive(Clone)]
pub(crate) struct MultiplexedConnection {
    inner: Inner,
    runtime: TokioRuntime,
    limit: Duration,
    /// The connection ends with its last clone, whatever is under way: so does the task that the redis crate spawns itself.
    _task: Option<Arc<OwnedTask>>,
}

/// As in every other build.
pub(crate) async fn dial(
    runtime: &TokioRuntime,
    client: &Client,
    config: AsyncConnectionConfig,
    limit: Duration,
) -> RedisResult<MultiplexedConnection> {
    let runtime = runtime.clone();
    let Some(surroundings) = runtime.surroundings() else {
        let inner = client.get_multiplexed_async_connection_with_config(&config).await?;
        return Ok(MultiplexedConnection { inner, runtime, limit, _task: None });
    };
    let info = client.get_connection_info();
    let stream = surroundings.connect(&info.addr().to_string()).await?;
    let config = config.set_connection_timeout(None).set_response_timeout(None);
    let (inner, driver) = Inner::new_with_config(info.redis_settings(), stream, config).await?;
    let task = Some(Arc::new(runtime.spawn_owned(driver)));
    Ok(MultiplexedConnection { inner, runtime, limit, _task: task })
}

impl MultiplexedConnection {
    pub(crate) fn set_response_timeout(&mut self, limit: Duration) {
        self.limit = limit;
        if self.runtime.surroundings().is_none() {
            self.inner.set_response_timeout(limit);
        }
    }

    #[cfg(feature = "sentinel")]
    pub(crate) async fn subscribe(&mut self, channel: &str) -> RedisResult<()> {
        let subscribed = self.inner.subscribe(channel);
        within(&self.runtime, self.limit, subscribed).await
    }
}

/// The redis crate keeps its limit itself where there is tokio.
async fn within<T>(
    runtime: &TokioRuntime,
    limit: Duration,
    reply: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    if runtime.surroundings().is_none() {
        return reply.await;
    }
    let timed_out = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
    runtime.timeout(limit, reply).await.unwrap_or_else(timed_out)
}

impl ConnectionLike for MultiplexedConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        within(&self.runtime, self.limit, self.inner.req_packed_command(cmd)).boxed()
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let replies = self.inner.req_packed_commands(pipeline, offset, count);
        within(&self.runtime, self.limit, replies).boxed()
    }

    fn get_db(&self) -> i64 {
        self.inner.get_db()
    }
}
