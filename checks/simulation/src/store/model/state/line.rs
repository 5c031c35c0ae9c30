//! [`Line`]: a queue of ids, by the time at which their waiters began to wait.

use latchwork::LeaseId;
use latchwork::backend::{Permits, QueuePosition};

use super::{Time, nanos};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) id: LeaseId,
    pub(crate) since: Time,
    /// End of the position's life.
    pub(crate) until: Time,
    /// The wanted permits of a semaphore.
    pub(crate) permits: Permits,
}

impl Place {
    pub(crate) fn until(id: &LeaseId, until: Time, now: Time) -> Self {
        Self { id: id.clone(), since: now, until, permits: Permits { count: 1, capacity: 1 } }
    }

    pub(crate) fn new(id: &LeaseId, position: QueuePosition, now: Time) -> Self {
        Self { since: now - nanos(position.waited), ..Self::until(id, now + nanos(position.kept), now) }
    }
}

/// Positions, by the time at which their waiters began to wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line(Vec<Place>);

impl Line {
    /// Inserts an id behind all earlier waiters. An id that is already queued keeps its position, with the
    /// new end; with `takes_earlier`, the id gets the earlier of both positions.
    pub(crate) fn put(&mut self, mut place: Place, now: Time, takes_earlier: bool) {
        self.0.retain(|there| there.id != place.id || now < there.until);
        if let Some(at) = self.0.iter().position(|there| there.id == place.id) {
            if !takes_earlier || self.0[at].since <= place.since {
                self.0[at].until = place.until;
                return;
            }
            place.since = self.0.remove(at).since.min(place.since);
        }
        let behind = self.0.partition_point(|there| there.since <= place.since);
        self.0.insert(behind, place);
    }

    pub(crate) fn remove(&mut self, id: &LeaseId) -> Option<Place> {
        let at = self.0.iter().position(|place| place.id == *id)?;
        Some(self.0.remove(at))
    }

    /// Removes the first id whose client can be `told`, searching only ahead of `not_behind`.
    pub(crate) fn take_first(
        &mut self,
        now: Time,
        not_behind: Option<&LeaseId>,
        told: &dyn Fn(&LeaseId) -> bool,
    ) -> Option<Place> {
        self.0.retain(|place| now < place.until);
        let before = self.0.iter().take_while(|place| Some(&place.id) != not_behind);
        let first = before.enumerate().find(|(_, place)| told(&place.id)).map(|(at, _)| at);
        first.map(|at| self.0.remove(at))
    }

    /// Takes the first place whose client hears, and drops all places before it.
    pub(crate) fn take_first_told(&mut self, now: Time, told: &dyn Fn(&LeaseId) -> bool) -> Option<Place> {
        self.0.retain(|place| now < place.until);
        let at = self.0.iter().position(|place| told(&place.id));
        self.0.drain(..at.map_or(self.0.len(), |at| at + 1)).next_back().filter(|_| at.is_some())
    }

    /// Lengthens all places to at least `until`.
    pub(crate) fn keep_all(&mut self, until: Time) {
        self.0.iter_mut().for_each(|place| place.until = place.until.max(until));
    }

    pub(crate) fn kept(&self, now: Time) -> impl Iterator<Item = &Place> {
        self.0.iter().filter(move |place| now < place.until)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
