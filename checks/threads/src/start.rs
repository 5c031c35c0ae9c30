//! [`Start`]: where threads spin until all are there, so that they begin within nanoseconds of each other.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::patience::spin_until;

/// std's barrier wakes its threads one after the other: on it, the published lost wake-up is not found in a
/// million rounds.
#[derive(Debug)]
pub struct Start {
    threads: usize,
    arrived: AtomicUsize,
}

impl Start {
    /// For so many threads.
    pub fn new(threads: usize) -> Self {
        Self { threads, arrived: AtomicUsize::new(0) }
    }

    /// Waits for the others; `round` counts from 0.
    ///
    /// # Errors
    ///
    /// If one does not come.
    pub fn line_up(&self, round: usize) -> Result<(), String> {
        // Ordering: Relaxed, here and below: what the threads do before and after is not to be ordered by the
        // way they start.
        self.arrived.fetch_add(1, Ordering::Relaxed);
        // Ordering: as above.
        spin_until(|| self.arrived.load(Ordering::Relaxed) >= (round + 1) * self.threads)
    }
}
