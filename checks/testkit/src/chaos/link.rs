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

    /// The index of the link in the proxy, from 0.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// True if neither side has ended the link, and the proxy has not cut it. A silent link is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.shared.lock().links[self.number].is_open()
    }

    /// The number of forwarded commands that contain `bytes`. Ignores case.
    #[must_use]
    pub fn count(&self, bytes: impl AsRef<[u8]>) -> usize {
        self.shared.lock().links[self.number].count(bytes.as_ref())
    }

    /// The number of bytes forwarded to the client.
    #[must_use]
    pub fn bytes_to_client(&self) -> usize {
        self.shared.lock().links[self.number].bytes_to_client
    }

    /// Cuts the link. Cutting it again is harmless.
    pub fn cut(&self, how: Cut) {
        self.shared.change(|state| state.links[self.number].cut(how));
    }

    /// Stops forwarding on this link alone; see [`ChaosProxy::silence`](super::ChaosProxy::silence).
    pub fn silence(&self, way: Way) {
        self.shared.change(|state| state.links[self.number].silent[way as usize] = true);
    }

    /// Waits until the link is no longer open. Panics after an unreasonably long time.
    #[track_caller]
    pub fn wait_for_end(&self) {
        let what = format!("the end of link {}", self.number);
        self.shared.wait_until(&what, |state| !state.links[self.number].is_open());
    }
}
