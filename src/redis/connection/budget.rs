//! The constants of a command's budget of time, which begins when the command has room: dials, pauses and
//! repetitions use up the rest of it.

use std::time::Duration;

/// The commands of each line that are under way at a time over one connection: enough to keep a server busy
/// that is some milliseconds away. A renewal, which passes both lines, comes behind twice as many.
pub(crate) const ROOM: usize = 256;

/// The time that a caller which was called in from a line has before another caller is called in its place.
pub(super) const INVITED: Duration = Duration::from_millis(100);

/// How long to wait before a server is dialled again.
pub(crate) const BETWEEN_DIALS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// How long to wait before a command that did not run is tried again.
pub(crate) const BETWEEN_TRIES: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(200));

/// The redirects that are followed without a pause: nodes that disagree send a command to and fro.
pub(crate) const REDIRECTS: u32 = 4;

/// The shortest time for which a renewal is tried, however short the lease.
pub(crate) const SHORTEST_RENEWAL: Duration = Duration::from_millis(500);

/// The shortest and the longest time that one sending of a command is given, within its limit.
pub(super) const PATIENCE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(1));
