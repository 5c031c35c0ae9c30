//! [`Line`]: ids in the order in which they began to wait.

use latchwork::LeaseId;
use latchwork::backend::QueuePosition;

use super::{Time, nanos};

/// A place in a [`Line`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) id: LeaseId,
    /// When its waiter began to wait.
    pub(crate) since: Time,
    /// Until when it is kept.
    pub(crate) until: Time,
}

impl Place {
    pub(crate) fn new(id: &LeaseId, position: QueuePosition, now: Time) -> Self {
        Self { id: id.clone(), since: now - nanos(position.waited), until: now + nanos(position.kept) }
    }
}

/// Places, by when their waiters began to wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line(Vec<Place>);

impl Line {
    /// Puts an id behind all that began to wait before it. One that is there already keeps its place, for as
    /// long as this one says; `takes_earlier`: it has the earlier of both.
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

    /// Takes out the first that can be `told`. Not behind `not_behind`, nor that itself.
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

    /// Takes out the first that can be `told`, and all before it.
    pub(crate) fn take_first_told(&mut self, now: Time, told: &dyn Fn(&LeaseId) -> bool) -> Option<Place> {
        self.0.retain(|place| now < place.until);
        let at = self.0.iter().position(|place| told(&place.id));
        self.0.drain(..at.map_or(self.0.len(), |at| at + 1)).last().filter(|_| at.is_some())
    }

    /// Keeps all for so long at least, that are kept still.
    pub(crate) fn keep_all(&mut self, until: Time) {
        self.0.iter_mut().for_each(|place| place.until = place.until.max(until));
    }

    /// Those whose place is kept still, in order.
    pub(crate) fn kept(&self, now: Time) -> impl Iterator<Item = &Place> {
        self.0.iter().filter(move |place| now < place.until)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
