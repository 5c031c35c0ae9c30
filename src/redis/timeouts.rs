//! How long the connections wait.

use std::time::Duration;

/// How long the connections wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// For a connection, the greeting included.
    pub(super) connect: Duration,
    /// For a reply. A connection that kept us waiting longer is given up and made again.
    pub(super) response: Duration,
    /// For somebody to want a channel again before it is unsubscribed from.
    pub(super) linger: Duration,
}

impl Default for Timeouts {
    /// A second to connect, and three for a reply, as in Redisson. A second to linger: whoever comes back to a contended lock comes back
    /// sooner.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            response: Duration::from_secs(3),
            linger: Duration::from_secs(1),
        }
    }
}
