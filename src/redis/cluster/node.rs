//! [`Node`]: one server of the Cluster, and how it is reached.

use std::sync::Arc;

use ::redis::ConnectionInfo;

use super::super::builder::RedisBuilder;
use super::super::commands::Commands;
use super::super::error::Error;
use super::super::reconnects::Reconnects;
use super::super::server::Server;
use super::super::timeouts::Timeouts;
use super::super::tokio_runtime::TokioRuntime;
use super::address::Address;

/// One server of the Cluster. Its connection for commands is made when it is first needed.
pub(crate) struct Node {
    /// Tells it from all others of this Cluster, past and present.
    pub(super) number: u64,
    pub(super) address: Address,
    pub(super) server: Server,
    pub(super) commands: Commands,
}

/// What all nodes have in common.
pub(super) struct Common {
    pub(super) builder: RedisBuilder,
    /// A seed's: user, password, TLS and the settings of TCP.
    pub(super) info: ConnectionInfo,
    pub(super) timeouts: Timeouts,
    pub(super) runtime: TokioRuntime,
    pub(super) reconnects: Reconnects,
}

impl Common {
    pub(super) fn node(&self, number: u64, address: Address) -> Result<Arc<Node>, Error> {
        let server = Server::new(self.builder.client(address.clone().into_info(&self.info))?);
        let server = server.counting_with(self.reconnects.clone());
        let commands = Commands::new(server.clone(), self.timeouts, self.runtime.clone());
        Ok(Arc::new(Node { number, address, server, commands }))
    }
}
