//! [`Single`]: everything goes to one server; and [`Fixed`], a server whose address does not change.

use std::fmt;
use std::sync::Arc;

use ::redis::{RedisResult, cmd};
use tokio::sync::watch;

use super::super::connection::{
    Address, Boxed, Common, ConnectOptions, Connection, Dialer, Error, Known, Meaning, MultiplexedConnection,
    Push, Server, ServerEpoch, out_of_step,
};
use super::contract::{Node, Topology};
use super::url;

/// Everything goes to one server, however that is found.
pub(super) struct Single {
    node: Arc<Node>,
    common: Arc<Common>,
}

impl Single {
    /// To the server that `url` names.
    pub(super) async fn connect(
        url: &str,
        introduction: ConnectOptions,
        common: &Arc<Common>,
    ) -> Result<Arc<dyn Topology>, Error> {
        let dialer = Dialer::new(url::parse(url)?, introduction, common)?;
        Self::connect_to(Arc::new(Fixed::new(Arc::new(dialer), None)), common).await
    }

    pub(super) async fn connect_to(
        server: Arc<dyn Server>,
        common: &Arc<Common>,
    ) -> Result<Arc<dyn Topology>, Error> {
        let single = Self::of(server, common);
        single.node.commands.live().await?;
        Ok(Arc::new(single))
    }

    fn of(server: Arc<dyn Server>, common: &Arc<Common>) -> Self {
        let commands = Connection::new(Arc::clone(&server), common, None);
        let node = Arc::new(Node { number: 0, commands, listening: server });
        Self { node, common: Arc::clone(common) }
    }
}

impl Topology for Single {
    fn node(&self, _: &str) -> Option<Arc<Node>> {
        Some(Arc::clone(&self.node))
    }

    fn source(&self, _: &str) -> Option<Arc<Node>> {
        Some(Arc::clone(&self.node))
    }

    fn with_own_connections(&self) -> Arc<dyn Topology> {
        Arc::new(Self::of(Arc::clone(&self.node.listening), &self.common))
    }
}

impl fmt::Debug for Single {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.commands.fmt(f)
    }
}

/// A server whose address does not change. Its name may come to mean another one: each connection looks it up
/// anew.
pub(super) struct Fixed {
    dialer: Arc<Dialer>,
    at: Option<Address>,
    known: watch::Sender<Known>,
}

impl Fixed {
    /// `at`: where it is, if that is not what the URL names.
    pub(super) fn new(dialer: Arc<Dialer>, at: Option<Address>) -> Self {
        let address = at.as_ref().map_or_else(|| dialer.address(), |at| at.to_string().into());
        Self { dialer, at, known: watch::Sender::new(Some(address)) }
    }
}

impl Server for Fixed {
    fn address(&self) -> Arc<str> {
        self.known.borrow().clone().unwrap_or_default()
    }

    fn dial(&self, push: Push) -> Boxed<'_, Result<(MultiplexedConnection, ServerEpoch), Error>> {
        Box::pin(async move {
            let standing = self.moved();
            let mut connection = self.dialer.dial(self.at.as_ref(), push).await?;
            let answered = self.heartbeat(&mut connection).await;
            answered.map_err(|error| Error::greeting(&self.address(), "PING", error))?;
            Ok((connection, standing))
        })
    }

    fn heartbeat<'a>(&'a self, connection: &'a mut MultiplexedConnection) -> Boxed<'a, RedisResult<()>> {
        Box::pin(async move {
            match cmd("PING").query_async::<String>(connection).await {
                Ok(reply) if reply == "PONG" => Ok(()),
                Ok(_) => Err(out_of_step()),
                // It answers. What cannot be done with it just now is for commands to find out.
                Err(error) if Meaning::of(&error) == Meaning::NotServing => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    fn invalidate(&self, standing: &ServerEpoch) {
        if !standing.has_ended() {
            self.known.send_modify(|_| {});
        }
    }

    fn moved(&self) -> ServerEpoch {
        ServerEpoch::until_moved(self.known.subscribe())
    }
}
