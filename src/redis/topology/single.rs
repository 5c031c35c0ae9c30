//! Connects to one server; and [`Fixed`]: a server at a fixed address.

use std::sync::Arc;

use ::redis::{RedisResult, cmd};
use tokio::sync::watch;

use super::super::connection::{
    Address, Boxed, Common, ConnectOptions, Dialer, Error, Known, Meaning, MultiplexedConnection, Push,
    Server, ServerEpoch, out_of_step,
};
use super::router::{Node, Topology};
use super::url;

pub(super) async fn connect(
    url: &str,
    introduction: ConnectOptions,
    common: &Arc<Common>,
) -> Result<Arc<dyn Topology>, Error> {
    let dialer = Dialer::new(url::parse(url)?, introduction, common)?;
    connect_to(Arc::new(Fixed::new(Arc::new(dialer), None)), common).await
}

pub(super) async fn connect_to(
    server: Arc<dyn Server>,
    common: &Arc<Common>,
) -> Result<Arc<dyn Topology>, Error> {
    let node = Node::new(0, Arc::clone(&server), server, common);
    node.commands.live().await?;
    Ok(Arc::new(node))
}

/// A server at a fixed address. Each connection looks the name up anew.
#[derive(Clone)]
pub(super) struct Fixed {
    dialer: Arc<Dialer>,
    at: Option<Address>,
    known: Arc<watch::Sender<Known>>,
    /// The heartbeat's command, and the function that sends it.
    heartbeat: (&'static str, Heartbeat),
}

pub(super) type Heartbeat = fn(&mut MultiplexedConnection) -> Boxed<'_, RedisResult<()>>;

impl Fixed {
    /// `at`: the server's address, if it differs from the URL's.
    pub(super) fn new(dialer: Arc<Dialer>, at: Option<Address>) -> Self {
        let address = at.as_ref().map_or_else(|| dialer.address(), |at| at.to_string().into());
        let known = Arc::new(watch::Sender::new(Some(address)));
        Self { dialer, at, known, heartbeat: ("PING", |connection| Box::pin(ping(connection))) }
    }

    #[allow(dead_code, reason = "Cluster need not be built in")]
    pub(super) fn asked(&self, command: &'static str, heartbeat: Heartbeat) -> Self {
        Self { heartbeat: (command, heartbeat), ..self.clone() }
    }
}

async fn ping(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    match cmd("PING").query_async::<String>(connection).await {
        Ok(reply) if reply == "PONG" => Ok(()),
        Ok(_) => Err(out_of_step()),
        // The server replies: commands will find out if it serves them.
        Err(error) if Meaning::of(&error) == Meaning::NotServing => Ok(()),
        Err(error) => Err(error),
    }
}

impl Server for Fixed {
    fn address(&self) -> Arc<str> {
        self.known.borrow().clone().unwrap_or_default()
    }

    fn dial(&self, push: Push) -> Boxed<'_, Result<(MultiplexedConnection, ServerEpoch), Error>> {
        Box::pin(async move {
            let standing = self.epoch();
            let mut connection = self.dialer.dial(self.at.as_ref(), push).await?;
            let (command, heartbeat) = self.heartbeat;
            let answered = heartbeat(&mut connection).await;
            answered.map_err(|error| Error::greeting(&self.address(), command, error))?;
            Ok((connection, standing))
        })
    }

    fn heartbeat<'a>(&'a self, connection: &'a mut MultiplexedConnection) -> Boxed<'a, RedisResult<()>> {
        (self.heartbeat.1)(connection)
    }

    fn known(&self) -> &watch::Sender<Known> {
        &self.known
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::support::sync::atomic::{AtomicBool, Ordering};

    use super::super::super::connection::{Common, Dialer, Server, Timing};
    use super::super::super::fake::Fake;
    use super::{Fixed, Meaning};
    use crate::support::runtime::TokioRuntime;

    fn server_at(port: u16) -> Fixed {
        let common = Arc::new(Common::new(Timing::default(), TokioRuntime::current()));
        Fixed::new(Arc::new(Dialer::plain(format!("redis://127.0.0.1:{port}"), &common)), None)
    }

    #[tokio::test]
    async fn answering_server_can_be_dialled_even_if_it_does_not_serve() {
        for answer in
            ["+PONG\r\n", "-LOADING Redis is loading the dataset in memory\r\n", "-BUSY a script\r\n"]
        {
            let fake = Fake::start(|_| answer.to_owned()).await;
            assert!(server_at(fake.port).dial(Arc::new(|_| {})).await.is_ok(), "{answer}");
        }
    }

    /// A lost reply would shift every later reply to the wrong command.
    #[tokio::test]
    async fn answer_to_something_else_ends_the_connection() {
        let right = Arc::new(AtomicBool::new(true));
        let fake = Fake::start({
            let right = Arc::clone(&right);
            // Ordering: Relaxed, the connection orders both accesses.
            move |_| if right.load(Ordering::Relaxed) { "+PONG\r\n" } else { "+OK\r\n" }.to_owned()
        })
        .await;
        let server = server_at(fake.port);
        let (mut connection, _) = server.dial(Arc::new(|_| {})).await.unwrap();
        assert!(server.heartbeat(&mut connection).await.is_ok());
        // Ordering: Relaxed, as above.
        right.store(false, Ordering::Relaxed);
        let error = server.heartbeat(&mut connection).await.unwrap_err();
        assert_eq!(Meaning::of(&error), Meaning::Lost);
    }

    #[tokio::test]
    async fn wrong_server_is_left_once_by_all_connections() {
        let server = server_at(1);
        let (standing, other) = (server.epoch(), server.epoch());
        server.invalidate(&standing);
        assert!(standing.has_ended() && other.has_ended());
        let next = server.epoch();
        server.invalidate(&other);
        assert!(!next.has_ended());
    }

    #[tokio::test]
    async fn connection_to_a_server_left_during_the_dial_does_not_stand() {
        let mut fake = Fake::silent().await;
        let server = server_at(fake.port);
        let dial = async {
            let (_, standing) = server.dial(Arc::new(|_| {})).await.unwrap();
            assert!(standing.has_ended());
        };
        let is_left = async {
            server.invalidate(&server.epoch());
            fake.answer(|_| "+PONG\r\n".to_owned());
        };
        tokio::join!(biased; dial, is_left);
    }
}
