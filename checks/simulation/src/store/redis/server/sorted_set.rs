//! [`SortedSet`]: members by score.

/// Sorted. A plain vector suffices: queues are short, or slow on a real server too.
#[derive(Clone, Debug, Default)]
pub(super) struct SortedSet(Vec<Member>);

/// Score and name.
pub(super) type Member = (f64, Vec<u8>);

impl SortedSet {
    pub(super) fn members(&self) -> &[Member] {
        &self.0
    }

    pub(super) fn score(&self, name: &[u8]) -> Option<f64> {
        self.0.iter().find_map(|(score, its)| (its == name).then_some(*score))
    }

    /// Returns true if the member is new.
    pub(super) fn set(&mut self, name: &[u8], score: f64) -> bool {
        let was_there = self.remove(name);
        let before =
            |(its, other): &Member| its.total_cmp(&score).then_with(|| other.as_slice().cmp(name)).is_lt();
        self.0.insert(self.0.partition_point(before), (score, name.to_vec()));
        !was_there
    }

    /// Returns true if the member existed.
    pub(super) fn remove(&mut self, name: &[u8]) -> bool {
        let at = self.0.iter().position(|(_, its)| its == name);
        at.map(|at| self.0.remove(at)).is_some()
    }
}
