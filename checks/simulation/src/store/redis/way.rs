//! [`Way`]: one direction of a link, on which nothing overtakes.

use std::collections::VecDeque;

use crate::world::Nanos;

/// What is under way.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parcel {
    Bytes(Vec<u8>),
    /// Nothing comes after it: the sender has closed its end.
    End,
    /// The link is broken, and the receiver is told so.
    Broken,
}

/// One direction of a link.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// By when each arrives.
    parcels: VecDeque<(Nanos, Parcel)>,
    last: Nanos,
    /// Nothing arrives before.
    held_until: Nanos,
    /// What has not arrived by then never does.
    given_up_at: Option<Nanos>,
    /// What is sent from now on goes nowhere.
    is_cut: bool,
}

impl Way {
    /// Sends a parcel that arrives at `at`, unless those before it, or a silence, make it later. Returns when
    /// there is something to [take](Self::take).
    pub(super) fn send(&mut self, parcel: Parcel, at: Nanos) -> Option<Nanos> {
        if self.is_cut {
            return None;
        }
        self.last = at.max(self.last + 1);
        self.parcels.push_back((self.last, parcel));
        self.next()
    }

    /// When there is something to take.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.first().map(|at| self.given_up_at.map_or(at, |limit| limit.min(at)))
    }

    /// What has arrived by now.
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

    /// When the first would arrive if it were not given up.
    fn first(&self) -> Option<Nanos> {
        self.parcels.front().map(|(at, _)| (*at).max(self.held_until))
    }

    /// What has not arrived by `then` is lost, and the receiver is told so instead.
    pub(super) fn give_up_at(&mut self, then: Nanos) {
        self.given_up_at = Some(then);
    }

    /// Nothing arrives before `then`.
    pub(super) fn hold_until(&mut self, then: Nanos) {
        self.held_until = self.held_until.max(then);
    }

    /// Loses all that is under way but the first so many parcels, and all that is sent from now on. If the
    /// receiver is told, it is so at `told`.
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

    /// How many parcels of bytes are under way.
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
