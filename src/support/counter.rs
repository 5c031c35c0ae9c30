//! [`Counter`]: a number that says how often something happened.

use crate::support::sync::atomic::{AtomicUsize, Ordering};

/// A count for observation alone; nothing is decided by it, and it wraps around.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicUsize);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.add(1);
    }

    /// One less of what is there now.
    pub(crate) fn subtract_one(&self) {
        self.add(1_usize.wrapping_neg());
    }

    pub(crate) fn add(&self, more: usize) {
        // To the model checker each step on an atomic is one more fork in the road, and this one leads
        // nowhere.
        if !cfg!(latchwork_loom) {
            // Ordering: Relaxed, a figure to look at; nothing is read through it.
            self.0.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        // Ordering: Relaxed, as above.
        self.0.load(Ordering::Relaxed) as u64
    }
}
