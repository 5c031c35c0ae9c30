//! A clock that processes on one machine can compare, which `Instant` does not promise to be.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine was started, about.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // Fits for 584 years.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of this process, so far.
pub fn of_process() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
