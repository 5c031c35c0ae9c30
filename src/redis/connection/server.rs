//! [`Server`]: the other end of a connection; and [`ServerEpoch`]: the time for which that end stays the
//! same.

use std::pin::Pin;
use std::sync::Arc;

use ::redis::{PushInfo, RedisResult};
use tokio::sync::watch;

use super::error::Error;
use super::live::MultiplexedConnection;

/// A future of a trait object's. All of them are about connections, of which there are few.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Hears all that a server sends without being asked, and the end of the connection. Runs on the connection's
/// task.
pub(crate) type Push = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// The other end of a connection, and the one place that knows how to find the server.
pub(crate) trait Server: Send + Sync + 'static {
    /// For errors: host and port, or a socket's path.
    fn address(&self) -> Arc<str>;

    /// Makes a connection, if the node that answers is the server that is meant and lets the user do what
    /// [`heartbeat`](Self::heartbeat) does.
    fn dial(&self, push: Push) -> Boxed<'_, Result<(MultiplexedConnection, ServerEpoch), Error>>;

    /// Whether the server at the other end answers, and can be used.
    fn heartbeat<'a>(&'a self, connection: &'a mut MultiplexedConnection) -> Boxed<'a, RedisResult<()>>;

    /// The node that was connected to with `standing` is not the server that is meant, or not yet: no other
    /// caller is to go on as if it were.
    fn invalidate(&self, standing: &ServerEpoch);

    /// Ends when another server has taken this one's place, from now on.
    fn moved(&self) -> ServerEpoch;
}

/// Where the server is, as far as is known.
pub(crate) type Known = Option<Arc<str>>;

/// Whether a connection is still to the server that is meant. Ends when another takes its place, or when it
/// turned out to be the wrong one; a connection that has ended so is not to be used any more, although it may
/// be in order.
#[derive(Clone, Debug)]
pub(crate) struct ServerEpoch(watch::Receiver<Known>);

impl ServerEpoch {
    /// Until what `known` has seen last is not so any more.
    pub(crate) fn until_moved(known: watch::Receiver<Known>) -> Self {
        Self(known)
    }

    pub(crate) fn has_ended(&self) -> bool {
        // An error: the sender, which would say so, is gone, as in `ended`.
        self.0.has_changed().unwrap_or(false)
    }

    pub(crate) async fn ended(mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn epoch_ends_when_another_server_is_known_and_not_when_none_can_be_told_any_more() {
        let known = watch::Sender::new(Some("host:1".into()));
        let epoch = || ServerEpoch::until_moved(known.subscribe());
        let (moved, mut ends) = (epoch(), Box::pin(epoch().ended()));
        assert!(!moved.has_ended() && ends.as_mut().now_or_never().is_none());
        known.send_replace(None);
        assert!(moved.has_ended() && ends.as_mut().now_or_never().is_some());
        let (lasts, mut never_ends) = (epoch(), Box::pin(epoch().ended()));
        drop(known);
        assert!(!lasts.has_ended() && never_ends.as_mut().now_or_never().is_none());
    }
}
