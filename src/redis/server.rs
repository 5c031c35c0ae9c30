//! [`Server`]: whom the connections are made to.

use std::sync::Arc;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, RedisError};

use super::error::Error;
use super::given_up::GivenUp;
use super::reconnects::Reconnects;
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use super::standing::Standing;

/// Whom the connections are made to. The one place that knows how it is found.
#[derive(Clone)]
pub(super) struct Server {
    found: Found,
    given_up: GivenUp,
    reconnects: Reconnects,
}

#[derive(Clone)]
enum Found {
    At {
        client: Box<Client>,
        address: Arc<str>,
    },
    #[cfg(feature = "sentinel")]
    By(Arc<Sentinels>),
}

impl Server {
    pub(super) fn new(client: Client) -> Self {
        let address = client.get_connection_info().addr().to_string().into();
        Self::with(Found::At { client: Box::new(client), address })
    }

    /// Whoever the Sentinels say is the master.
    #[cfg(feature = "sentinel")]
    pub(super) fn found_by(sentinels: Sentinels) -> Self {
        Self::with(Found::By(Arc::new(sentinels)))
    }

    fn with(found: Found) -> Self {
        Self { found, given_up: GivenUp::default(), reconnects: Reconnects::default() }
    }

    /// The same server, whose connections count among those of others.
    #[cfg(feature = "cluster")]
    pub(super) fn counting_with(self, reconnects: Reconnects) -> Self {
        Self { reconnects, ..self }
    }

    pub(super) fn given_up(&self) -> &GivenUp {
        &self.given_up
    }

    pub(super) fn reconnects(&self) -> &Reconnects {
        &self.reconnects
    }

    /// For errors: host and port, or a socket's path.
    pub(super) fn address(&self) -> Arc<str> {
        match &self.found {
            Found::At { address, .. } => Arc::clone(address),
            #[cfg(feature = "sentinel")]
            Found::By(sentinels) => sentinels.address(),
        }
    }

    pub(super) async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, Standing), Error> {
        match &self.found {
            Found::At { client, address } => {
                let made = client.get_multiplexed_async_connection_with_config(config).await;
                let password = client.get_connection_info().redis_settings().password();
                let connection = made.map_err(|error| Error::connection(address, error, password))?;
                Ok((connection, Standing::for_ever()))
            }
            #[cfg(feature = "sentinel")]
            Found::By(sentinels) => sentinels.connect(config).await,
        }
    }

    /// Whether the server at the other end answers, and is still the one that is meant.
    pub(super) async fn heartbeat(
        &self,
        connection: &mut MultiplexedConnection,
        _standing: &Standing,
    ) -> Result<(), RedisError> {
        match &self.found {
            Found::At { .. } => ::redis::cmd("PING").exec_async(connection).await,
            #[cfg(feature = "sentinel")]
            Found::By(sentinels) => sentinels.heartbeat(connection, _standing).await,
        }
    }

    /// Whether a refusal means that the server is not the one that is meant, or not yet in order. The command did not run then; it is
    /// worth sending to who is found next.
    pub(super) fn is_wrong_one(&self, _refusal: &RedisError, _standing: &Standing) -> bool {
        match &self.found {
            Found::At { .. } => false,
            #[cfg(feature = "sentinel")]
            Found::By(sentinels) => sentinels.is_wrong_one(_refusal, _standing),
        }
    }

    /// Whether what cannot be connected to now may be found elsewhere in a moment.
    pub(super) fn may_move(&self, _error: &Error) -> bool {
        match &self.found {
            Found::At { .. } => false,
            #[cfg(feature = "sentinel")]
            Found::By(_) => _error.may_pass(),
        }
    }

    /// Ends when another server has taken this one's place, from now on.
    pub(super) fn moved(&self) -> Standing {
        match &self.found {
            Found::At { .. } => Standing::for_ever(),
            #[cfg(feature = "sentinel")]
            Found::By(sentinels) => sentinels.moved(),
        }
    }
}
