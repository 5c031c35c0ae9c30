//! [`SubscribedNode`]: a node as its subscribers see it. One that is cut off from the others hears no
//! messages.

use std::sync::Arc;

use ::redis::{ErrorKind as Kind, RedisError, RedisResult, cmd};

use super::super::super::connection::{
    Boxed, Error, Meaning, MultiplexedConnection, Push, Server, ServerEpoch,
};
use super::super::single::Fixed;

/// One node, to be subscribed at.
pub(super) struct SubscribedNode(Arc<Fixed>);

impl SubscribedNode {
    pub(super) fn at(node: Arc<Fixed>) -> Self {
        Self(node)
    }
}

impl Server for SubscribedNode {
    fn address(&self) -> Arc<str> {
        self.0.address()
    }

    fn dial(&self, push: Push) -> Boxed<'_, Result<(MultiplexedConnection, ServerEpoch), Error>> {
        Box::pin(async move {
            let (mut connection, standing) = self.0.dial(push).await?;
            let heard = in_touch(&mut connection).await;
            heard.map_err(|error| Error::connection(&self.address(), error))?;
            Ok((connection, standing))
        })
    }

    fn heartbeat<'a>(&'a self, connection: &'a mut MultiplexedConnection) -> Boxed<'a, RedisResult<()>> {
        Box::pin(in_touch(connection))
    }

    fn invalidate(&self, standing: &ServerEpoch) {
        self.0.invalidate(standing);
    }

    fn moved(&self) -> ServerEpoch {
        self.0.moved()
    }
}

/// An error if the node is cut off from the others: messages come to it by way of them.
pub(super) async fn in_touch(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    let info: String = match cmd("CLUSTER").arg("INFO").query_async(connection).await {
        Ok(info) => info,
        // Perhaps we may not ask. It does answer.
        Err(error) if Meaning::of(&error) == Meaning::Refused => return Ok(()),
        Err(error) => return Err(error),
    };
    if info.lines().any(|line| line.trim_end() == "cluster_state:fail") {
        return Err(RedisError::from((Kind::Io, "the node is cut off from its Cluster")));
    }
    Ok(())
}
