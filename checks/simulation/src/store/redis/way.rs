//! [`Way`]: one direction of a link, without overtaking.

use std::collections::VecDeque;

use crate::world::Nanos;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parcel {
    Bytes(Vec<u8>),
    /// The sender has closed its end; no parcel follows.
    End,
    /// The link is broken, and the receiver learns so.
    Broken,
}

#[derive(Debug, Default)]
pub(super) struct Way {
    /// Parcels with their arrival times.
    parcels: VecDeque<(Nanos, Parcel)>,
    last: Nanos,
    /// Time before which nothing arrives.
    held_until: Nanos,
    /// Time from which nothing arrives, and the link counts as broken.
    given_up_at: Option<Nanos>,
    /// True once later parcels are discarded.
    is_cut: bool,
}

impl Way {
    /// Sends a parcel for arrival at `at`, or later if earlier parcels or a silence delay it. Returns the
    /// time of the next parcel to [take](Self::take).
    pub(super) fn send(&mut self, parcel: Parcel, at: Nanos) -> Option<Nanos> {
        if self.is_cut {
            return None;
        }
        self.last = at.max(self.last + 1);
        self.parcels.push_back((self.last, parcel));
        self.next()
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        self.first().map(|at| self.given_up_at.map_or(at, |limit| limit.min(at)))
    }

    /// Takes the next parcel, if arrived by `now`.
    pub(super) fn take(&mut self, now: Nanos) -> Option<Parcel> {
        if self.next()? > now {
            return None;
        }
        if self.given_up_at.is_some_and(|limit| self.first() > Some(limit)) {
            self.parcels.clear();
            self.is_cut = true;
            return Some(Parcel::Broken);
        }
        self.parcels.pop_front().map(|(_, parcel)| parcel)
    }

    /// Arrival time of the first parcel, were the way not given up.
    fn first(&self) -> Option<Nanos> {
        self.parcels.front().map(|(at, _)| (*at).max(self.held_until))
    }

    /// Breaks the way at `then`: parcels due later are lost, and the receiver learns of the break.
    pub(super) fn give_up_at(&mut self, then: Nanos) {
        self.given_up_at = Some(then);
    }

    pub(super) fn hold_until(&mut self, then: Nanos) {
        self.held_until = self.held_until.max(then);
    }

    /// Loses all parcels in flight except for the first `arrive`, and all later ones. The receiver learns of
    /// the cut at `told`, if present.
    pub(super) fn cut(&mut self, arrive: usize, told: Option<Nanos>) -> Option<Nanos> {
        if !self.is_cut {
            self.parcels.truncate(arrive);
            self.last = self.parcels.back().map_or(0, |(at, _)| *at);
            let next = told.and_then(|at| self.send(Parcel::Broken, at));
            self.is_cut = true;
            return next;
        }
        None
    }

    pub(super) fn under_way(&self) -> usize {
        self.parcels.iter().filter(|(_, parcel)| matches!(parcel, Parcel::Bytes(_))).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(byte: u8) -> Parcel {
        Parcel::Bytes(vec![byte])
    }

    #[test]
    fn nothing_overtakes() {
        let mut way = Way::default();
        assert_eq!(way.send(bytes(1), 10), Some(10));
        way.send(bytes(2), 5);
        way.hold_until(20);
        way.send(Parcel::End, 15);
        assert_eq!((way.take(19), way.next(), way.under_way()), (None, Some(20), 2));
        let taken: Vec<_> = std::iter::from_fn(|| way.take(20)).collect();
        assert_eq!(taken, [bytes(1), bytes(2), Parcel::End]);
    }

    #[test]
    fn nothing_arrives_after_it_was_given_up() {
        let mut way = Way::default();
        way.send(bytes(1), 10);
        way.send(bytes(2), 30);
        way.send(Parcel::End, 31);
        way.give_up_at(20);
        assert_eq!((way.take(10), way.take(19), way.next()), (Some(bytes(1)), None, Some(20)));
        assert_eq!((way.take(20), way.take(31), way.next()), (Some(Parcel::Broken), None, None));
    }

    #[test]
    fn cut_loses_what_has_not_arrived() {
        let mut way = Way::default();
        way.send(bytes(1), 10);
        way.send(bytes(2), 11);
        way.cut(1, Some(5));
        assert_eq!(way.send(bytes(3), 12), None);
        let taken: Vec<_> = std::iter::from_fn(|| way.take(20)).collect();
        assert_eq!(taken, [bytes(1), Parcel::Broken]);
    }
}
