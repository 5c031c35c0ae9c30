//! [`OwnerHolds`]: the owners that have the lock by one lease. One owner; of a shared lock, any number.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::moment::Moment;

use super::super::request::{LossReason, Request};
use super::StoreLease;

/// An owner that has the lock.
#[derive(Debug)]
pub(super) struct Sharer {
    pub(super) owner: u64,
    /// When it began to hold.
    pub(super) since: Moment,
    /// Its guards, its grants that are not claimed yet, and its forgotten holds.
    pub(super) count: u32,
    pub(super) guards: u32,
    pub(super) unclaimed: u32,
    /// Guards and grants for which the lease is renewed.
    pub(super) watched: u32,
    /// When it has held for as long as `max_hold` allows: counted from when the lease began to be renewed for
    /// it. Leases of its own count for themselves.
    held_too_long: Moment,
    /// When the leases of its other guards and grants are over.
    own_ends: OwnEnds,
    /// When its forgotten holds are.
    forgotten: OwnEnds,
}

/// Moments, each as often as it was added: when the leases are over that are not renewed. The first is apart,
/// so that a single one allocates nothing; the others are in a box, so that a sharer without them is small.
#[derive(Debug, Default)]
struct OwnEnds {
    first: Option<Moment>,
    #[expect(clippy::box_collection, reason = "a third of the size where there are none, as nearly always")]
    more: Option<Box<BTreeMap<Moment, u32>>>,
}

impl OwnEnds {
    fn add(&mut self, ends: Moment) {
        if self.first.is_none() {
            self.first = Some(ends);
        } else {
            *self.more.get_or_insert_default().entry(ends).or_default() += 1;
        }
    }

    fn remove(&mut self, ends: Moment) {
        if self.first == Some(ends) {
            self.first = None;
        } else if let Some(more) = &mut self.more
            && let Some(count) = more.get_mut(&ends)
        {
            *count -= 1;
            if *count == 0 {
                more.remove(&ends);
            }
        }
    }

    fn latest(&self) -> Option<Moment> {
        match &self.more {
            None => self.first,
            Some(more) => self.first.max(more.last_key_value().map(|(ends, _)| *ends)),
        }
    }

    fn earliest(&self) -> Option<Moment> {
        let more = self.more.iter().filter_map(|more| more.keys().next().copied());
        self.first.into_iter().chain(more).min()
    }

    fn remove_earliest(&mut self) {
        if let Some(earliest) = self.earliest() {
            self.remove(earliest);
        }
    }
}

impl Sharer {
    /// With one hold, which is a guard's, or is to be claimed, and ends then unless it is watched.
    #[inline]
    pub(super) fn new(
        request: &Request,
        claimed: bool,
        own_end: Option<Moment>,
        max_hold: Option<Duration>,
        now: Moment,
    ) -> Self {
        let (watched, guards) = (u32::from(own_end.is_none()), u32::from(claimed));
        let held_too_long = max_hold.map_or(Moment::NEVER, |limit| now + limit);
        let own_ends = OwnEnds { first: own_end, more: None };
        Self {
            owner: request.owner,
            since: now,
            count: 1,
            guards,
            unclaimed: 1 - guards,
            watched,
            held_too_long,
            own_ends,
            forgotten: OwnEnds::default(),
        }
    }

    /// The lease is renewed for it from now on.
    pub(super) fn limit_hold(&mut self, max_hold: Option<Duration>, now: Moment) {
        self.held_too_long = max_hold.map_or(Moment::NEVER, |limit| now + limit);
    }

    /// One hold more, which ends then unless it is watched.
    pub(super) fn add_end(&mut self, own_end: Option<Moment>) {
        match own_end {
            None => self.watched += 1,
            Some(ends) => self.own_ends.add(ends),
        }
    }

    /// One hold less.
    pub(super) fn remove_end(&mut self, own_end: Option<Moment>) {
        match own_end {
            None => self.watched -= 1,
            Some(ends) => self.own_ends.remove(ends),
        }
    }

    /// A hold is forgotten, and ends then.
    pub(super) fn add_forgotten(&mut self, ends: Moment) {
        self.forgotten.add(ends);
    }

    /// The forgotten hold is given back that would end first, if there is one.
    pub(super) fn remove_forgotten(&mut self) {
        self.forgotten.remove_earliest();
    }

    /// When it is over at the latest, as far as that is its own affair: once it has held for too long, or all
    /// leases of its own are over and none is renewed for it.
    #[inline]
    pub(super) fn due(&self) -> Moment {
        let own = || self.own_ends.latest().max(self.forgotten.latest());
        if self.watched > 0 {
            self.held_too_long.max(own().unwrap_or(self.held_too_long))
        } else {
            own().unwrap_or(Moment::NEVER)
        }
    }

    /// Whether one of its holds has neither a guard nor a grant.
    pub(super) fn is_forgotten(&self) -> bool {
        self.count > self.guards + self.unclaimed
    }

    /// Why it is over at `now`.
    pub(super) fn loss(&self, lease: &StoreLease, now: Moment) -> Option<LossReason> {
        if self.watched > 0 && self.due() <= now && self.due() <= lease.sure_until {
            return Some(LossReason::HeldTooLong);
        }
        match (lease.is_over(now), self.due() <= now) {
            (false, false) => None,
            (true, _) if lease.renewal_unanswered => Some(LossReason::Unreachable),
            (true, _) | (false, true) => Some(LossReason::Expired),
        }
    }
}

/// By their holds' serials. The first one is apart, so that a lock of one owner allocates nothing.
#[derive(Debug, Default)]
pub(super) struct OwnerHolds {
    first: Option<(u64, Sharer)>,
    more: Option<Box<More>>,
}

#[derive(Debug, Default)]
struct More {
    by_serial: BTreeMap<u64, Sharer>,
    /// Owners with their serials: a newcomer is looked for among thousands. (An owner may have two, each
    /// asked for while it had none.)
    by_owner: BTreeSet<(u64, u64)>,
}

impl OwnerHolds {
    #[inline]
    pub(super) fn of_one(serial: u64, sharer: Sharer) -> Self {
        Self { first: Some((serial, sharer)), more: None }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.as_ref().is_none_or(|more| more.by_serial.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.as_ref().map_or(0, |more| more.by_serial.len())
    }

    #[inline]
    pub(super) fn has(&self, serial: u64) -> bool {
        self.get(serial).is_some()
    }

    #[inline]
    pub(super) fn get(&self, serial: u64) -> Option<&Sharer> {
        match &self.first {
            Some((first, sharer)) if *first == serial => Some(sharer),
            _ => self.more.as_ref()?.by_serial.get(&serial),
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, serial: u64) -> Option<&mut Sharer> {
        match &mut self.first {
            Some((first, sharer)) if *first == serial => Some(sharer),
            _ => self.more.as_mut()?.by_serial.get_mut(&serial),
        }
    }

    #[inline]
    pub(super) fn add(&mut self, serial: u64, sharer: Sharer) {
        if self.first.is_none() {
            self.first = Some((serial, sharer));
        } else {
            let more = self.more.get_or_insert_default();
            more.by_owner.insert((sharer.owner, serial));
            more.by_serial.insert(serial, sharer);
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, serial: u64) -> Option<Sharer> {
        match &self.first {
            Some((first, _)) if *first == serial => self.first.take().map(|(_, sharer)| sharer),
            _ => {
                let more = self.more.as_mut()?;
                let sharer = more.by_serial.remove(&serial)?;
                more.by_owner.remove(&(sharer.owner, serial));
                Some(sharer)
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Sharer)> {
        let (first, more) = (self.first.iter(), self.more.iter().flat_map(|more| &more.by_serial));
        first.map(|(serial, sharer)| (*serial, sharer)).chain(more.map(|(serial, sharer)| (*serial, sharer)))
    }

    pub(super) fn into_each(self, mut each: impl FnMut(u64, Sharer)) {
        let more = self.more.map(|more| more.by_serial).unwrap_or_default();
        self.first.into_iter().chain(more).for_each(|(serial, sharer)| each(serial, sharer));
    }

    /// Where the owner has the lock.
    pub(super) fn of_owner(&self, owner: u64) -> Option<(u64, &Sharer)> {
        if let Some((serial, sharer)) = &self.first
            && sharer.owner == owner
        {
            return Some((*serial, sharer));
        }
        let more = self.more.as_ref()?;
        let (_, serial) = more.by_owner.range((owner, 0)..=(owner, u64::MAX)).next()?;
        Some((*serial, more.by_serial.get(serial)?))
    }
}
