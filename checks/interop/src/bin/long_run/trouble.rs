//! What a fault excuses, and for how long.

use std::time::Duration;

use crate::clock::nanos;
use crate::history::FaultKind;

impl FaultKind {
    /// How long after its end it can still be felt: until then no process is blamed for being late.
    pub(crate) fn recovery(self) -> u64 {
        nanos(match self {
            // Noticed at once; a new connection takes 20 ms and a few round trips.
            Self::CommandsKilled | Self::SubscriptionsKilled | Self::LinksCut => Duration::from_millis(300),
            Self::ScriptsFlushed | Self::Chopped | Self::ServerStalled => Duration::from_millis(300),
            // What came late has to be worked off.
            Self::Delay | Self::Paused | Self::Killed => Duration::from_secs(1),
            // A second to the next heartbeat and another to give up on it, and up to a second until the next
            // connection; or a reply that was waited for, and the next command over a dead connection.
            Self::Silence | Self::DeadLinks | Self::RepliesLost => Duration::from_millis(3500),
            Self::ServerKilled | Self::ServerPaused => Duration::from_millis(3500),
        })
    }

    /// Whether a command can be held back whose caller has gone, to take, prolong or free something
    /// later. (One that was sent again because its connection had broken was not: its end came with the
    /// connection's.)
    pub(crate) fn strands_commands(self) -> bool {
        match self {
            Self::Silence | Self::DeadLinks | Self::RepliesLost | Self::Delay => true,
            Self::Paused | Self::Killed | Self::ServerKilled | Self::ServerPaused => true,
            Self::CommandsKilled | Self::SubscriptionsKilled | Self::LinksCut => false,
            Self::ScriptsFlushed | Self::Chopped | Self::ServerStalled => false,
        }
    }

    /// Whether commands go on as if nothing had happened.
    pub(crate) fn spares_commands(self) -> bool {
        matches!(self, Self::SubscriptionsKilled | Self::ScriptsFlushed)
    }
}
