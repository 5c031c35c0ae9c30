//! A clock that processes on one machine can compare, which `Instant` does not promise to be.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine was started, about.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // Fits for 584 years.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
