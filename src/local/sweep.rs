//! [`Sweep`]: when a map is cleared of what is over.

/// When a map is next cleared of entries that are over: when it has grown to twice the size after the last time, so that a sweep is paid for
/// by the entries added.
#[derive(Debug)]
pub(super) struct Sweep {
    at: usize,
}

const FIRST: usize = 64;

impl Default for Sweep {
    fn default() -> Self {
        Self { at: FIRST }
    }
}

impl Sweep {
    /// Whether a map with so many entries is to be cleared before another one is added.
    pub(super) fn is_due(&self, entries: usize) -> bool {
        entries >= self.at
    }

    /// So many are left.
    pub(super) fn is_done(&mut self, left: usize) {
        self.at = FIRST.max(left * 2);
    }
}
