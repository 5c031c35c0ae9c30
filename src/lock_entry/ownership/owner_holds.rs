//! [`OwnerHolds`]: the owners that hold the lock by one lease; more than one only if the lock is shared.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::moment::Moment;

use super::super::events::{LossReason, Request};
use super::StoreLease;

#[derive(Debug)]
pub(super) struct Sharer {
    pub(super) owner: u64,
    pub(super) since: Moment,
    pub(super) count: u32,
    pub(super) guards: u32,
    pub(super) unclaimed: u32,
    /// Count of guards and grants for which the client renews the lease.
    pub(super) watched: u32,
    /// End by `max_hold`, counted from the start of renewals for this owner.
    held_too_long: Moment,
    /// Ends of the leases of all other guards and grants.
    own_ends: OwnEnds,
    forgotten: OwnEnds,
}

/// Multiset of the ends of leases that are not renewed. A single end allocates nothing.
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
    /// Returns a sharer with one hold: a guard's if `claimed`, watched if there is no `own_end`.
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

    /// Restarts the time of `max_hold`: the lease is renewed for this owner from `now` on.
    pub(super) fn limit_hold(&mut self, max_hold: Option<Duration>, now: Moment) {
        self.held_too_long = max_hold.map_or(Moment::NEVER, |limit| now + limit);
    }

    pub(super) fn add_end(&mut self, own_end: Option<Moment>) {
        match own_end {
            None => self.watched += 1,
            Some(ends) => self.own_ends.add(ends),
        }
    }

    pub(super) fn remove_end(&mut self, own_end: Option<Moment>) {
        match own_end {
            None => self.watched -= 1,
            Some(ends) => self.own_ends.remove(ends),
        }
    }

    pub(super) fn add_forgotten(&mut self, ends: Moment) {
        self.forgotten.add(ends);
    }

    pub(super) fn remove_forgotten(&mut self) {
        self.forgotten.remove_earliest();
    }

    /// Latest end: by `max_hold` if the lease is renewed for the owner, and by the owner's own leases.
    #[inline]
    pub(super) fn due(&self) -> Moment {
        let own = || self.own_ends.latest().max(self.forgotten.latest());
        if self.watched > 0 {
            self.held_too_long.max(own().unwrap_or(self.held_too_long))
        } else {
            own().unwrap_or(Moment::NEVER)
        }
    }

    pub(super) fn is_forgotten(&self) -> bool {
        self.count > self.guards + self.unclaimed
    }

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

/// Sharers by the serials of their holds. A single owner allocates nothing.
#[derive(Debug, Default)]
pub(super) struct OwnerHolds {
    first: Option<(u64, Sharer)>,
    more: Option<Box<More>>,
}

#[derive(Debug, Default)]
struct More {
    by_serial: BTreeMap<u64, Sharer>,
    /// Serials by owner, for a fast search. An owner that asked the store twice has two serials.
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
