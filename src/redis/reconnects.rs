//! [`Reconnects`]: how often a connection was made in the place of one that had stood.

use std::sync::Arc;

use crate::sync::atomic::{AtomicU64, Ordering};

/// How often a connection was made in the place of one that had stood. Clones count together.
#[derive(Clone, Default)]
pub(super) struct Reconnects(Arc<AtomicU64>);

impl Reconnects {
    pub(super) fn add_one(&self) {
        // Ordering: Relaxed, a figure to look at; nothing is read through it.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        // Ordering: Relaxed, as above.
        self.0.load(Ordering::Relaxed)
    }
}
