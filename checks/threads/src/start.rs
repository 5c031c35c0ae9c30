//! [`Start`]: threads spin there until all have arrived, to begin within nanoseconds of each other.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::patience::spin_until;

/// std's barrier wakes its threads one by one: a million rounds miss the published lost wake-up.
#[derive(Debug)]
pub struct Start {
    threads: usize,
    arrived: AtomicUsize,
}

impl Start {
    /// A start for this number of threads.
    pub fn new(threads: usize) -> Self {
        Self { threads, arrived: AtomicUsize::new(0) }
    }

    /// Waits for the others; `round` counts from 0. Fails if a thread does not arrive.
    pub fn line_up(&self, round: usize) -> Result<(), String> {
        // Ordering: Relaxed, here and below: the start must not order the threads' other accesses.
        self.arrived.fetch_add(1, Ordering::Relaxed);
        // Ordering: as above.
        spin_until(|| self.arrived.load(Ordering::Relaxed) >= (round + 1) * self.threads)
    }
}
