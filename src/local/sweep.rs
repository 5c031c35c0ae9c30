/// Decides when to sweep a map of dead entries: once its size has doubled, so insertions pay for sweeps.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// Size at which a sweep is due; at first 0, as an empty map is swept for free.
    at: usize,
    /// Estimated count of dead entries: a name that changes its kind, or is freed by force, may be missed.
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
