//! A clock that processes on one machine can compare.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970. Steady even if the system's clock is set while the process runs.
pub(crate) fn now() -> u64 {
    static START: LazyLock<(SystemTime, Instant)> = LazyLock::new(|| (SystemTime::now(), Instant::now()));
    let (wall, steady) = *START;
    let since_1970 = wall.duration_since(UNIX_EPOCH).unwrap_or_default() + steady.elapsed();
    // Fits until the year 2554.
    since_1970.as_nanos() as u64
}
