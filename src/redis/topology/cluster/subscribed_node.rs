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

#[cfg(test)]
mod tests {
    use super::super::super::super::connection::{Address, Common, Dialer, ErrorKind, Timing};
    use super::super::super::super::fake::{Fake, alive, bulk};
    use super::*;
    use crate::runtime::TokioRuntime;
    use crate::sync::atomic::{AtomicBool, Ordering};

    fn info(state: &str) -> Option<String> {
        Some(bulk(&format!("cluster_enabled:1\r\ncluster_state:{state}\r\ncluster_slots_fail:0\r\n")))
    }

    /// A node that says so.
    async fn node(says: impl Fn() -> Option<String> + Send + Sync + 'static) -> (SubscribedNode, Fake) {
        let common = Arc::new(Common::new(Timing::unhurried(), TokioRuntime::current()));
        let mut fake = Fake::silent().await;
        fake.answer(alive(move |_| says()));
        let dialer = Dialer::plain("redis://a", &common);
        let at = Address { host: "127.0.0.1".into(), port: fake.port };
        (SubscribedNode::at(Arc::new(Fixed::new(Arc::new(dialer), Some(at)))), fake)
    }

    /// What becomes of a connection to a node that says so.
    async fn dialled(reply: Option<String>) -> Result<(SubscribedNode, ServerEpoch), Error> {
        let (node, fake) = node(move || reply.clone()).await;
        let dialled = node.dial(Arc::new(|_| {})).await;
        assert_eq!(fake.calls(), ["CLUSTER INFO"]);
        dialled.map(|(_, standing)| (node, standing))
    }

    #[tokio::test]
    async fn node_that_is_cut_off_is_not_subscribed_at() {
        assert!(dialled(info("ok")).await.is_ok());
        // It answers, which is all that can be known of it.
        assert!(dialled(Some("-NOPERM not allowed\r\n".into())).await.is_ok());
        for reply in [info("fail"), Some("-LOADING it begins\r\n".into()), None] {
            let Err(error) = dialled(reply.clone()).await else { panic!("{reply:?}") };
            assert_eq!(error.kind(), ErrorKind::Connection);
        }
    }

    /// Each heartbeat asks: it may be cut off at any time, and answers all the same.
    #[tokio::test]
    async fn node_that_is_cut_off_later_is_left_at_the_next_heartbeat() {
        let is_cut_off = Arc::new(AtomicBool::new(false));
        let says = {
            let is_cut_off = Arc::clone(&is_cut_off);
            // Ordering: Relaxed, a flag by itself.
            move || info(if is_cut_off.load(Ordering::Relaxed) { "fail" } else { "ok" })
        };
        let (node, _fake) = node(says).await;
        let (mut connection, _) = node.dial(Arc::new(|_| {})).await.unwrap_or_else(|error| panic!("{error}"));
        node.heartbeat(&mut connection).await.unwrap();
        // Ordering: Relaxed, as above.
        is_cut_off.store(true, Ordering::Relaxed);
        assert!(node.heartbeat(&mut connection).await.is_err());
    }

    /// Its name may lead to another server by now.
    #[tokio::test]
    async fn node_that_is_not_the_one_that_is_meant_is_dialled_anew() {
        let Ok((node, standing)) = dialled(info("ok")).await else { panic!("it answers") };
        assert!(!standing.has_ended());
        node.invalidate(&standing);
        assert!(standing.has_ended());
    }
}
