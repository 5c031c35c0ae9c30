//! [`Sharers`]: who has the lock by one lease. One owner; of a shared lock, any number.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::moment::Moment;

use super::super::request::{LossReason, Request};
use super::Lease;

/// An owner that has the lock.
#[derive(Debug)]
pub(super) struct Sharer {
    pub(super) owner: u64,
    /// Its guards, its grants that nobody has claimed yet, and its forgotten holds.
    pub(super) count: u32,
    pub(super) guards: u32,
    pub(super) unclaimed: u32,
    /// Guards for which the lease is renewed.
    pub(super) watched: u32,
    /// For how long it may have it.
    pub(super) limit: Moment,
    /// When its own leases are over, though the one that it shares may be renewed for others; never, while it is renewed for this one. Of a lock
    /// that one has, that is the lease's end itself, and this is never.
    pub(super) ends: Moment,
}

impl Sharer {
    /// With one hold, which is a guard's, or is to be claimed.
    #[inline]
    pub(super) fn new(request: &Request, claimed: bool, max_hold: Option<Duration>, now: Moment) -> Self {
        let (watched, guards) = (u32::from(claimed && request.is_watched()), u32::from(claimed));
        let limit = max_hold.filter(|_| request.is_watched()).map_or(Moment::NEVER, |limit| now + limit);
        let ends = Moment::NEVER;
        Self { owner: request.owner, count: 1, guards, unclaimed: 1 - guards, watched, limit, ends }
    }

    #[inline]
    pub(super) fn add_guard(&mut self, watched: bool) {
        self.guards += 1;
        self.watched += u32::from(watched);
    }

    #[inline]
    pub(super) fn drop_guard(&mut self, watched: bool) {
        self.guards -= 1;
        self.watched -= u32::from(watched);
    }

    /// When it is over at the latest, as far as that is its own affair.
    #[inline]
    pub(super) fn due(&self) -> Moment {
        self.limit.min(self.ends)
    }

    /// Whether one of its holds has neither a guard nor a grant.
    pub(super) fn is_forgotten(&self) -> bool {
        self.count > self.guards + self.unclaimed
    }

    /// Why it is over at `now`.
    pub(super) fn loss(&self, lease: &Lease, now: Moment) -> Option<LossReason> {
        if self.limit <= now && self.limit <= lease.deadline {
            return Some(LossReason::HeldTooLong);
        }
        match (lease.is_over(now), self.ends <= now) {
            (false, false) => None,
            (true, _) if lease.unanswered => Some(LossReason::Unreachable),
            (true, _) | (false, true) => Some(LossReason::Expired),
        }
    }
}

/// By their holds' serials. The first one is apart, so that a lock of one owner allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Sharers {
    first: Option<(u64, Sharer)>,
    #[expect(clippy::box_collection, reason = "a lock of one owner has a pointer of it, to be moved about")]
    more: Option<Box<BTreeMap<u64, Sharer>>>,
}

impl Sharers {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.as_ref().is_none_or(|more| more.is_empty())
    }

    #[inline]
    pub(super) fn has(&self, serial: u64) -> bool {
        self.get(serial).is_some()
    }

    #[inline]
    pub(super) fn get(&self, serial: u64) -> Option<&Sharer> {
        match &self.first {
            Some((first, sharer)) if *first == serial => Some(sharer),
            _ => self.more.as_ref()?.get(&serial),
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, serial: u64) -> Option<&mut Sharer> {
        match &mut self.first {
            Some((first, sharer)) if *first == serial => Some(sharer),
            _ => self.more.as_mut()?.get_mut(&serial),
        }
    }

    #[inline]
    pub(super) fn add(&mut self, serial: u64, sharer: Sharer) {
        if self.first.is_none() && self.more.is_none() {
            self.first = Some((serial, sharer));
        } else {
            self.more.get_or_insert_default().insert(serial, sharer);
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, serial: u64) -> Option<Sharer> {
        match &self.first {
            Some((first, _)) if *first == serial => self.first.take().map(|(_, sharer)| sharer),
            _ => self.more.as_mut()?.remove(&serial),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Sharer)> {
        let first = self.first.as_ref().map(|(serial, sharer)| (*serial, sharer));
        first
            .into_iter()
            .chain(self.more.iter().flat_map(|more| more.iter()).map(|(serial, sharer)| (*serial, sharer)))
    }

    /// Whether it is so of somebody.
    #[inline]
    pub(super) fn any(&self, is_so: impl Fn(&Sharer) -> bool) -> bool {
        self.first.as_ref().is_some_and(|(_, sharer)| is_so(sharer))
            || self.more.as_ref().is_some_and(|more| more.values().any(is_so))
    }

    pub(super) fn into_each(self, mut each: impl FnMut(u64, Sharer)) {
        let more = self.more.map(|more| *more).unwrap_or_default();
        self.first.into_iter().chain(more).for_each(|(serial, sharer)| each(serial, sharer));
    }

    /// Where the owner has the lock.
    pub(super) fn of_owner(&self, owner: u64) -> Option<(u64, &Sharer)> {
        self.iter().find(|(_, sharer)| sharer.owner == owner)
    }
}
