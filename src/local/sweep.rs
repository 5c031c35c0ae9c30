//! [`Sweep`]: the time to clear a map of dead entries.

/// Decides when to sweep a map: once its size has doubled since the last sweep, so insertions pay for sweeps.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The size at which a sweep is due; at first 0, as an empty map is swept for free.
    at: usize,
    /// Entries dead and not revived. (An estimate where a name changes its kind or is freed by force.)
    dead: usize,
}

const FIRST: usize = 64;

impl Sweep {
    /// True if a map of `entries` must be cleared before an insertion.
    pub(super) fn is_due(&self, entries: usize) -> bool {
        entries >= self.at
    }

    /// Counts a dead entry. True if a sweep is due now: of many `entries`, more than half are dead.
    pub(super) fn adds_dead(&mut self, entries: usize) -> bool {
        self.dead += 1;
        entries > FIRST && self.dead > entries / 2
    }

    /// Counts a dead entry in use again.
    pub(super) fn revives(&mut self) {
        self.dead = self.dead.saturating_sub(1);
    }

    /// Records a sweep. Returns the size at which the next is due, which bounds the room needed until then.
    pub(super) fn swept(&mut self, left: usize) -> usize {
        self.dead = 0;
        self.at = FIRST.max(left * 2);
        self.at
    }
}
