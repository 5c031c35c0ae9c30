//! [`MultiplexedConnection`]: the redis crate's. In a simulation it stands on the simulation's timers and
//! streams.

#[cfg(not(latchwork_simulation))]
use std::time::Duration;

#[cfg(not(latchwork_simulation))]
use ::redis::{AsyncConnectionConfig, Client, RedisResult};

#[cfg(not(latchwork_simulation))]
use super::runtime::TokioRuntime;

#[cfg(not(latchwork_simulation))]
pub(crate) use ::redis::aio::MultiplexedConnection;

#[cfg(latchwork_simulation)]
pub(crate) use super::simulated::{MultiplexedConnection, dial};

/// Makes a connection to the server of `client`, with a limit for replies that is in `config`, too. Its task
/// lives on the runtime, in which the caller is.
#[cfg(not(latchwork_simulation))]
pub(super) async fn dial(
    _: &TokioRuntime,
    client: &Client,
    config: AsyncConnectionConfig,
    _limit: Duration,
) -> RedisResult<MultiplexedConnection> {
    client.get_multiplexed_async_connection_with_config(&config).await
}
