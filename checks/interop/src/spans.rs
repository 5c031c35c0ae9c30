//! [`Spans`]: a set of moments.

/// Disjoint half-open intervals, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spans(Vec<(u64, u64)>);

impl Spans {
    /// The union of `spans`, which may overlap and be empty.
    pub(crate) fn union(spans: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut sorted: Vec<_> = spans.into_iter().filter(|(from, to)| from < to).collect();
        sorted.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (from, to) in sorted {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        Self(merged)
    }

    /// The moments that are not in `others`.
    pub(crate) fn without(&self, others: &Self) -> Self {
        let mut left = Vec::new();
        let mut others = others.0.iter().copied().peekable();
        for &(mut from, to) in &self.0 {
            while from < to {
                match others.peek().copied() {
                    Some((_, end)) if end <= from => _ = others.next(),
                    Some((begin, end)) if begin < to => {
                        if from < begin {
                            left.push((from, begin));
                        }
                        from = end;
                    }
                    _ => {
                        left.push((from, to));
                        break;
                    }
                }
            }
        }
        Self(left)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().copied()
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }

    /// The last interval that has a moment from `from` to `to`.
    pub(crate) fn last_within(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let after = self.0.partition_point(|(begin, _)| *begin <= to);
        self.0[..after].last().copied().filter(|(_, end)| *end >= from)
    }

    /// The first interval that has a moment from `from` to `to`.
    pub(crate) fn first_within(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let first = self.0.partition_point(|(_, end)| *end < from);
        self.0.get(first).copied().filter(|(begin, _)| *begin <= to)
    }
}

#[cfg(test)]
mod tests {
    use super::Spans;

    #[test]
    fn spans_are_joined_cut_and_found() {
        let spans = Spans::union([(40, 50), (5, 10), (0, 2), (2, 6), (20, 30), (4, 4)]);
        assert_eq!(spans.iter().collect::<Vec<_>>(), [(0, 10), (20, 30), (40, 50)]);
        assert_eq!(spans.total(), 30);
        let without = |others: &[(u64, u64)]| {
            spans.without(&Spans::union(others.iter().copied())).iter().collect::<Vec<_>>()
        };
        assert_eq!(without(&[(2, 3), (5, 25), (30, 60)]), [(0, 2), (3, 5), (25, 30)]);
        assert_eq!(without(&[(10, 20), (22, 23)]), [(0, 10), (20, 22), (23, 30), (40, 50)]);
        assert_eq!(spans.last_within(5, 25), Some((20, 30)));
        assert_eq!(spans.first_within(5, 25), Some((0, 10)));
        assert_eq!(spans.first_within(12, 45), Some((20, 30)));
        for (from, to) in [(12, 15), (60, 70)] {
            assert_eq!((spans.first_within(from, to), spans.last_within(from, to)), (None, None));
        }
    }
}
