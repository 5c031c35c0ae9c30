//! [`Sweep`]: when a map is cleared of what is over.

/// When a map is next cleared of entries that are over: when it has grown to twice the size after the last
/// time, so that a sweep is paid for by the entries added.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// At first none: a map that is empty is swept for nothing.
    at: usize,
    /// Entries that were given up, and are not in use again. (Not exactly, where a name changes its kind or
    /// is freed by force; then a sweep is early or late.)
    dead: usize,
}

const FIRST: usize = 64;

impl Sweep {
    /// Whether a map with so many entries is to be cleared before another one is added.
    pub(super) fn is_due(&self, entries: usize) -> bool {
        entries >= self.at
    }

    /// An entry was given up. Whether the map, with so many of them, is to be cleared now: more than a few
    /// are there, and more than half of them are dead.
    pub(super) fn adds_dead(&mut self, entries: usize) -> bool {
        self.dead += 1;
        entries > FIRST && self.dead > entries / 2
    }

    /// An entry that was given up is in use again.
    pub(super) fn revives(&mut self) {
        self.dead = self.dead.saturating_sub(1);
    }

    /// So many are left. Says with how many the map is next cleared: for no more it needs room until then.
    pub(super) fn swept(&mut self, left: usize) -> usize {
        self.dead = 0;
        self.at = FIRST.max(left * 2);
        self.at
    }
}
