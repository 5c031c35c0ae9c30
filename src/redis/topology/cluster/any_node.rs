//! [`AnyNode`]: where plain messages come from.

use std::sync::Arc;

use ::redis::RedisResult;
use tokio::sync::watch;

use super::super::super::connection::{
    Boxed, Error, Known, MultiplexedConnection, Push, Server, ServerEpoch,
};
use super::nodes::Nodes;
use super::subscribed_node::in_touch;

/// Another node for each connection: a plain message that is published at one is brought to all.
pub(super) struct AnyNode {
    nodes: Arc<Nodes>,
    last: watch::Sender<Known>,
}

impl AnyNode {
    pub(super) fn new(nodes: Arc<Nodes>) -> Self {
        Self { nodes, last: watch::Sender::new(None) }
    }
}

impl Server for AnyNode {
    fn address(&self) -> Arc<str> {
        self.last.borrow().clone().unwrap_or_else(|| "any node of the Cluster".into())
    }

    fn dial(&self, push: Push) -> Boxed<'_, Result<(MultiplexedConnection, ServerEpoch), Error>> {
        Box::pin(async move {
            let next = self.nodes.candidates(None).into_iter().next().ok_or_else(Error::no_node)?;
            self.last.send_replace(Some(next.listening.address()));
            let (connection, _) = next.listening.dial(push).await?;
            Ok((connection, self.moved()))
        })
    }

    fn heartbeat<'a>(&'a self, connection: &'a mut MultiplexedConnection) -> Boxed<'a, RedisResult<()>> {
        Box::pin(in_touch(connection))
    }

    fn invalidate(&self, _: &ServerEpoch) {}

    fn moved(&self) -> ServerEpoch {
        ServerEpoch::until_moved(self.last.subscribe())
    }
}
