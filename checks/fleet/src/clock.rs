//! A monotonic clock that processes on one machine can compare, unlike `Instant`.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on the monotonic clock, shared by all processes; the same as Java's `System.nanoTime`.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither field is negative, and the sum fits for 584 years after boot.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CPU time of this process, so far.
pub fn of_process() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A duration in nanoseconds.
pub const fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// Seconds, for printing.
pub fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
