//! [`Standing`]: whether a connection is still to the server that is meant.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;

/// Where the server is, as far as is known.
pub(super) type Address = Option<Arc<str>>;

/// Whether a connection is still to the server that is meant. Ends when another takes its place, or when it turned out to be
/// the wrong one; a connection that has ended so is not to be used any more, although it may be in order.
#[derive(Clone, Debug)]
pub(super) struct Standing(Option<watch::Receiver<Address>>);

impl Standing {
    /// To a server whose place no other can take.
    pub(super) fn for_ever() -> Self {
        Self(None)
    }

    /// Until what `address` has seen last is not so any more.
    #[cfg(feature = "sentinel")]
    pub(super) fn until_moved(address: watch::Receiver<Address>) -> Self {
        Self(Some(address))
    }

    pub(super) fn can_end(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn has_ended(&self) -> bool {
        // An error: who would say so is gone, as in `ended`.
        self.0.as_ref().is_some_and(|address| address.has_changed().unwrap_or(false))
    }

    pub(super) async fn ended(self) {
        let Some(mut address) = self.0 else { return pending().await };
        if address.changed().await.is_err() {
            pending().await
        }
    }
}
