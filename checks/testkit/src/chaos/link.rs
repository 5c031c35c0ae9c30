//! [`Link`]: one connection through the proxy.

use std::sync::Arc;

use super::state::Shared;
use super::{Cut, Way};

/// One connection through a [`ChaosProxy`](super::ChaosProxy).
#[derive(Clone, Debug)]
pub struct Link {
    shared: Arc<Shared>,
    number: usize,
}

impl Link {
    pub(super) fn new(shared: Arc<Shared>, number: usize) -> Link {
        Link { shared, number }
    }

    /// Which link of the proxy's it is: the first has 0.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Whether neither side has ended it, and it was not cut. A silent link is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.shared.lock().links[self.number].is_open()
    }

    /// How many commands with `bytes` in them have gone on to the server. Case is not told apart.
    #[must_use]
    pub fn count(&self, bytes: impl AsRef<[u8]>) -> usize {
        self.shared.lock().links[self.number].count(bytes.as_ref())
    }

    /// How many bytes have gone on to the client.
    #[must_use]
    pub fn bytes_to_client(&self) -> usize {
        self.shared.lock().links[self.number].bytes_to_client
    }

    /// Cuts it. Cutting it again is harmless.
    pub fn cut(&self, how: Cut) {
        self.shared.change(|state| state.links[self.number].cut(how));
    }

    /// Stops forwarding on this link alone; see [`ChaosProxy::silence`](super::ChaosProxy::silence).
    pub fn silence(&self, way: Way) {
        self.shared.change(|state| state.links[self.number].silent[way as usize] = true);
    }

    /// Waits until it is no longer open.
    ///
    /// # Panics
    ///
    /// If that takes unreasonably long; says what came over the links.
    #[track_caller]
    pub fn wait_for_end(&self) {
        let what = format!("the end of link {}", self.number);
        self.shared.wait_until(&what, |state| !state.links[self.number].is_open());
    }
}
