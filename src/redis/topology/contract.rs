//! [`Topology`]: the contract for finding the connection of a key or a channel.

use std::sync::Arc;

use ::redis::RedisError;

use crate::backend::LockName;
use crate::lock::NameError;

use super::super::connection::{Common, Connection, Server};

pub(crate) trait Topology: Send + Sync + 'static {
    /// Returns the node of `key`, for commands; `None` if no node has the key's slot now.
    fn node(&self, key: &str) -> Option<Arc<Node>>;

    /// Returns the node that sends the messages of `channel`; `None` if no node has the channel's slot now.
    fn source(&self, channel: &str) -> Option<Arc<Node>>;

    fn messages(&self) -> Messages {
        Messages::Plain
    }

    /// True if the node of a channel's slot knows all subscribers of the channel.
    fn knows_all_listeners(&self) -> bool {
        true
    }

    /// Returns the key's slot. Keys of different slots never share a command.
    fn slot(&self, key: &str) -> u16 {
        let _ = key;
        0
    }

    /// Returns the next node for a command that `asked` redirected; `None`: do not follow.
    fn redirect(&self, asked: &Node, key: &str, error: &RedisError) -> Option<Hop> {
        let _ = (asked, key, error);
        None
    }

    /// Begins to look for the nodes, after a node did not answer or serve a command.
    fn refresh_in_background(&self) {}

    /// Fails if the keys of a lock of this name cannot be kept together.
    fn check_name(&self, name: &LockName) -> Result<(), NameError> {
        let _ = name;
        Ok(())
    }
}

/// A server, and the connection for commands to it.
pub(crate) struct Node {
    /// Unique among all nodes of this topology, past and present.
    pub(crate) number: u64,
    pub(crate) commands: Connection,
    pub(crate) listening: Arc<dyn Server>,
}

impl Node {
    /// `listening`: like `server`, for the connection that listens.
    pub(crate) fn new(
        number: u64,
        server: Arc<dyn Server>,
        listening: Arc<dyn Server>,
        common: &Arc<Common>,
    ) -> Arc<Self> {
        Arc::new(Self { number, commands: Connection::new(server, common, None), listening })
    }
}

pub(crate) struct Hop {
    pub(crate) node: Arc<Node>,
    /// True if the node is taking the key's slot over, and serves the slot only after ASKING.
    pub(crate) asking: bool,
}

/// The kind of messages that wake waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Messages {
    Plain,
    #[allow(dead_code, reason = "made by a Cluster, in builds with one")]
    Sharded,
}

impl Messages {
    pub(crate) fn publish(self) -> &'static str {
        match self {
            Self::Plain => "publish",
            Self::Sharded => "spublish",
        }
    }
}
