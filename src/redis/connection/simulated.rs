//! Connections in a simulation: the redis crate's, on the simulation's streams.

use std::sync::Arc;

use ::redis::{AsyncConnectionConfig, Client, RedisResult};
use futures_util::FutureExt;
use futures_util::future::{AbortHandle, abortable};

use crate::runtime::Runtime;

use super::multiplexed::Unlimited;
use crate::runtime::TokioRuntime;

/// The connection ends with its last clone, whatever is under way: so does the task that the redis crate
/// spawns itself.
pub(super) type Task = Option<Arc<OwnedTask>>;

/// A task that ends with this.
pub(super) struct OwnedTask(AbortHandle);

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// As in every other build, on a runtime that is not simulated.
pub(super) async fn dial(
    runtime: &TokioRuntime,
    client: &Client,
    config: AsyncConnectionConfig,
) -> RedisResult<(Unlimited, Task)> {
    let Some(surroundings) = runtime.surroundings() else {
        return Ok((client.get_multiplexed_async_connection_with_config(&config).await?, None));
    };
    let info = client.get_connection_info();
    let stream = surroundings.connect(&info.addr().to_string()).await?;
    // The crate would take its timer from tokio, which is not there.
    let config = config.set_connection_timeout(None);
    let (inner, driver) = Unlimited::new_with_config(info.redis_settings(), stream, config).await?;
    let (task, handle) = abortable(driver);
    runtime.spawn(task.map(drop));
    Ok((inner, Some(Arc::new(OwnedTask(handle)))))
}
