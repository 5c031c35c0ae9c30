//! [`Server`]: whom the connections are made to.

use std::sync::Arc;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, RedisError};

/// Whom the connections are made to. The one place that knows how it is found.
#[derive(Clone)]
pub(super) struct Server {
    client: Client,
    address: Arc<str>,
}

impl Server {
    pub(super) fn new(client: Client) -> Self {
        let address = client.get_connection_info().addr().to_string().into();
        Self { client, address }
    }

    /// For errors: host and port, or a socket's path.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// What must not be in an error's text.
    pub(super) fn password(&self) -> Option<&str> {
        self.client.get_connection_info().redis_settings().password()
    }

    pub(super) async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, RedisError> {
        self.client.get_multiplexed_async_connection_with_config(config).await
    }
}
