//! [`Standing`]: whether a connection is still to the server that is meant.

use std::sync::Arc;

use tokio::sync::watch;

/// Where the server is, as far as is known.
pub(crate) type Known = Option<Arc<str>>;

/// Whether a connection is still to the server that is meant. Ends when another takes its place, or when it
/// turned out to be the wrong one; a connection that has ended so is not to be used any more, although it may
/// be in order.
#[derive(Clone, Debug)]
pub(crate) struct Standing(watch::Receiver<Known>);

impl Standing {
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
