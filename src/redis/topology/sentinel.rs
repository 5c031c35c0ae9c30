//! [`Sentinels`]: find the master, and follow a change of the master.
//!
//! ```text
//! connect: ask the Sentinels in turn ─► connect to the answer ─► ROLE says master ─► address known
//! follow:  subscribe to one Sentinel ─► `+switch-master`, or its answer once a second ─► address known
//! ```
//!
//! All connections watch the master's address. A connection stands until the address changes.

mod follow;
mod shared;
#[cfg(test)]
mod tests;
mod url;

use std::sync::Arc;

use ::redis::{ErrorKind as Kind, RedisResult, ServerErrorKind};
use tokio::sync::watch;

use super::super::connection::{
    Boxed, Common, ConnectOptions, Dialer, Error, Known, MultiplexedConnection, OwnedTask, Push, Server,
    ServerEpoch, TLS_IS_BUILT_IN,
};
use super::router::Topology;
use super::single;

use self::shared::{Shared, role};

pub(super) async fn connect(
    url: &str,
    introduction: ConnectOptions,
    common: &Arc<Common>,
) -> Result<Arc<dyn Topology>, Error> {
    let url = url::parse(url, TLS_IS_BUILT_IN)?;
    // The callback's credentials and the name are the server's.
    let to_sentinels =
        ConnectOptions { instead: url.credentials, credentials: None, name: None, ..introduction.clone() };
    let sentinel = |info| Dialer::new(info, to_sentinels.clone(), common);
    let sentinels = url.sentinels.into_iter().map(sentinel).collect::<Result<_, Error>>()?;
    let server = Dialer::new(url.server, introduction, common)?;
    let shared = Shared::new(url.master.into(), sentinels, server);
    single::connect_to(Arc::new(Sentinels::new(shared, common)), common).await
}

struct Sentinels {
    shared: Arc<Shared>,
    _follower: OwnedTask,
}

impl Sentinels {
    fn new(shared: Shared, common: &Arc<Common>) -> Self {
        let shared = Arc::new(shared);
        let follower = follow::follow(Arc::clone(&shared), Arc::clone(common));
        Self { shared, _follower: OwnedTask::spawn(&common.runtime, follower) }
    }
}

impl Server for Sentinels {
    /// Returns the master's address if known, or else the master's name.
    fn address(&self) -> Arc<str> {
        let known = self.shared.known.borrow().clone();
        known.unwrap_or_else(|| Arc::clone(&self.shared.name))
    }

    /// Connects to the server that the Sentinels name, if its ROLE is master.
    fn dial(&self, push: Push) -> Boxed<'_, Result<(MultiplexedConnection, ServerEpoch), Error>> {
        Box::pin(async move {
            loop {
                let before = self.shared.known.borrow().clone();
                let (address, connection) = self.shared.find(&push).await?;
                // An address that has arrived meanwhile is newer than this answer.
                self.shared.learn(&address, |known| *known == before);
                let mut known = self.shared.known.subscribe();
                if *known.borrow_and_update() == Some(address) {
                    return Ok((connection, ServerEpoch::until_moved(known)));
                }
            }
        })
    }

    /// Asks for the ROLE: a demoted master still answers a PING.
    fn heartbeat<'a>(&'a self, connection: &'a mut MultiplexedConnection) -> Boxed<'a, RedisResult<()>> {
        Box::pin(async move {
            if role(connection).await? == "master" {
                return Ok(());
            }
            Err((Kind::Server(ServerErrorKind::ReadOnly), "it is not the master any more").into())
        })
    }

    fn known(&self) -> &watch::Sender<Known> {
        &self.shared.known
    }

    fn invalidate(&self, standing: &ServerEpoch) {
        if !standing.has_ended() {
            self.shared.known.send_replace(None);
        }
    }
}
