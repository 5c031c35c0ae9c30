use crate::support::sync::atomic::{AtomicUsize, Ordering};

/// A count for observation only, on which no decision depends. Wraps around.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicUsize);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.add(1);
    }

    pub(crate) fn subtract_one(&self) {
        self.add(1_usize.wrapping_neg());
    }

    pub(crate) fn add(&self, more: usize) {
        // A model checker forks at each atomic step, here without any gain.
        if !cfg!(latchwork_loom) {
            // Ordering: Relaxed, a figure for display; nothing is read through it.
            self.0.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        // Ordering: Relaxed, as above.
        self.0.load(Ordering::Relaxed) as u64
    }
}
