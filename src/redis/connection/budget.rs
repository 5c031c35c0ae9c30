//! The constants of the budget that a command has, from when there is room for it until its limit is over:
//! what dials, waits and sends again takes what is left of that.

use std::time::Duration;

/// How many commands of each line are under way at a time over one connection. Enough to keep a server busy
/// that is some milliseconds away; and a renewal, which passes both lines, comes behind no more than these.
pub(crate) const ROOM: usize = 256;

/// How long to wait before a server is dialled again.
pub(crate) const BETWEEN_DIALS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// How long to wait before a command that did not run is tried again.
pub(crate) const BETWEEN_TRIES: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(200));

/// Redirects that are followed at once. Nodes that do not agree send us to and fro.
pub(crate) const REDIRECTS: u32 = 4;

/// For so long a renewal is tried at least, however short the lease.
pub(crate) const SHORTEST_RENEWAL: Duration = Duration::from_millis(500);

/// The shortest and the longest time that one sending of a command is given, within its limit.
pub(super) const PATIENCE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(1));
