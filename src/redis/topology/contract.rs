//! [`Topology`]: the contract of what knows which connection a key or a channel goes to.

use std::fmt;
use std::sync::Arc;

use ::redis::RedisError;

use crate::backend::LockName;
use crate::lock::NameError;

use super::super::connection::{Boxed, Connection, Server};

/// The connections of keys and channels.
pub(crate) trait Topology: fmt::Debug + Send + Sync + 'static {
    /// The node of `key`, for commands; `None` if no node has it now.
    fn node(&self, key: &str) -> Option<Arc<Node>>;

    /// The node that messages on `channel` come from; `None` if no node has it now.
    fn source(&self, channel: &str) -> Option<Arc<Node>>;

    /// The kind of messages.
    fn messages(&self) -> Messages {
        Messages::Plain
    }

    /// True if the node of a channel's slot knows of all its subscribers.
    fn knows_all_listeners(&self) -> bool {
        true
    }

    /// Keys of different slots are not sent in one command.
    fn slot(&self, key: &str) -> u16 {
        let _ = key;
        0
    }

    /// Where a command is to go that `asked` says goes elsewhere. `None` if that is not for this topology to
    /// follow.
    fn redirect(&self, asked: &Node, key: &str, error: &RedisError) -> Option<Hop> {
        let _ = (asked, key, error);
        None
    }

    /// Looks anew where everything is, or begins to. A node did not serve a command.
    fn look_again(&self) -> Boxed<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// As [`look_again`](Self::look_again), while the caller goes on.
    fn refresh_in_background(&self) {}

    /// The same with connections of its own, for commands that keep others waiting.
    fn with_own_connections(&self) -> Arc<dyn Topology>;

    /// An error if the keys of a lock of this name cannot be kept together.
    fn check_name(&self, name: &LockName) -> Result<(), NameError> {
        let _ = name;
        Ok(())
    }
}

/// A server, and the connection for commands to it.
pub(crate) struct Node {
    /// Tells it from all others of this topology, past and present.
    pub(crate) number: u64,
    pub(crate) commands: Connection,
    /// The same server as one that is subscribed at sees it.
    pub(crate) listening: Arc<dyn Server>,
}

/// The next node of a command.
pub(crate) struct Hop {
    pub(crate) node: Arc<Node>,
    /// The node is just taking the key's slot over, and serves it only after ASKING.
    pub(crate) asking: bool,
}

/// A kind of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Messages {
    /// To all servers of the topology.
    Plain,
    /// To the node that has the channel's slot.
    Sharded,
}

impl Messages {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Plain => Self::Sharded,
            Self::Sharded => Self::Plain,
        }
    }

    /// The command that publishes one.
    pub(crate) fn publish(self) -> &'static str {
        match self {
            Self::Plain => "publish",
            Self::Sharded => "spublish",
        }
    }
}
