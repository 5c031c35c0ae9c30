//! [`MultiplexedConnection`] in a simulation: the redis crate's, on the simulation's streams. The crate takes
//! timers from tokio, which is not there: its limits are kept here instead.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::{ConnectionLike, MultiplexedConnection as Inner};
use ::redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisFuture, RedisResult, Value};
use futures_util::FutureExt;
use futures_util::future::{AbortHandle, abortable};

use crate::runtime::Runtime;

use super::runtime::TokioRuntime;

/// The redis crate's connection, with its limit kept by the simulation's clock. Clones are the same
/// connection.
#[derive(Clone)]
pub(crate) struct MultiplexedConnection {
    inner: Inner,
    runtime: TokioRuntime,
    limit: Duration,
    /// The connection ends with its last clone, whatever is under way: so does the task that the redis crate
    /// spawns itself.
    _task: Option<Arc<OwnedTask>>,
}

/// A task that ends with this.
struct OwnedTask(AbortHandle);

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
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
    let (task, handle) = abortable(driver);
    runtime.spawn(task.map(drop));
    let task = Some(Arc::new(OwnedTask(handle)));
    Ok(MultiplexedConnection { inner, runtime, limit, _task: task })
}

impl MultiplexedConnection {
    pub(crate) fn set_response_timeout(&mut self, limit: Duration) {
        self.limit = limit;
        if self.runtime.surroundings().is_none() {
            self.inner.set_response_timeout(limit);
        }
    }

    pub(crate) async fn send_packed_command(&mut self, command: &Cmd) -> RedisResult<Value> {
        let sent = self.inner.send_packed_command(command);
        within(&self.runtime, self.limit, sent).await
    }

    #[allow(dead_code, reason = "only Sentinel subscribes here, which need not be built in")]
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
        self.send_packed_command(cmd).boxed()
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
