//! Semaphores: many leases of a [`Name`](super::name::Name), each for some permits, and one queue.

use std::time::Duration;

use latchwork::backend::{AcquireRequest, Permits};
use latchwork::{Holder, LeaseId, LockKind};

use super::line::Place;
use super::name::{Name, Step, Term, left};
use super::{NEVER, Time, nanos};

impl Name {
    pub(crate) fn holders_of_permits(&self, now: Time) -> Vec<Holder> {
        let alive = self.readers.iter().filter(|term| now < term.until);
        let holder = |term: &Term| Holder::new(Some(term.id.clone()), left(term.until, now));
        alive.map(|term| holder(term).permits(term.permits)).collect()
    }

    fn fits(&self, Permits { count, capacity }: Permits) -> bool {
        self.readers.iter().map(|term| term.permits).sum::<u32>() + count <= capacity
    }
}

impl Step<'_> {
    /// Removes expired leases before a command on a semaphore, and makes the name one.
    pub(crate) fn begin_permits(&mut self) -> Result<(), LockKind> {
        let now = self.now;
        if self.name.kind != LockKind::Semaphore {
            if self.name.held_as(now).is_some() {
                return Err(self.name.kind);
            }
            (self.name.kind, self.name.lease, self.name.shared_token) = (LockKind::Semaphore, None, None);
            (self.name.let_in, self.name.readers) = (None, Vec::new());
            self.name.to_come.clear();
        }
        self.name.readers.retain(|term| now < term.until);
        Ok(())
    }

    pub(crate) fn try_permits(&mut self, request: &AcquireRequest) -> Result<(), Duration> {
        let (id, permits) = (&request.id, request.permits.expect("an attempt says the wanted permits"));
        if self.renew_permits(id, request.lease) {
            self.grant_permits(None);
            return Ok(());
        }
        if let Some(position) = request.position {
            let place = Place { permits, ..Place::new(id, position, self.now) };
            self.name.permits.put(place, self.now, self.takes_earlier);
        }
        if self.grant_permits(Some(id)) {
            return Err(left(NEVER, self.now));
        }
        if !self.name.fits(permits) {
            return Err(self.left(self.name.free_from(self.now)));
        }
        self.name.permits.remove(id);
        let until = self.now + nanos(request.lease);
        self.name.readers.push(Term { permits: permits.count, ..Term::new(id, until) });
        Ok(())
    }

    pub(crate) fn renew_permits(&mut self, id: &LeaseId, lease: Duration) -> bool {
        let (now, is_it) = (self.now, self.name.kind == LockKind::Semaphore);
        let mut terms = self.name.readers.iter_mut();
        let term = terms.find(|term| is_it && term.id == *id && now < term.until);
        term.map(|term| term.until = term.until.max(now + nanos(lease))).is_some()
    }

    pub(crate) fn release_permits(&mut self, id: &LeaseId) -> bool {
        self.name.permits.remove(id);
        if self.begin_permits().is_err() {
            return false;
        }
        let before = self.name.readers.len();
        self.name.readers.retain(|term| term.id != *id);
        let had_it = self.name.readers.len() < before;
        self.grant_permits(None);
        had_it
    }

    pub(crate) fn force_release_permits(&mut self) -> bool {
        let was_held = !std::mem::take(&mut self.name.readers).is_empty();
        self.grant_permits(None);
        was_held
    }

    /// Grants permits to the first waiters ahead of `not_behind`. True if a waiter stays ahead.
    pub(crate) fn grant_permits(&mut self, not_behind: Option<&LeaseId>) -> bool {
        loop {
            let ahead = self.name.permits.kept(self.now).take_while(|it| Some(&it.id) != not_behind);
            let first = { ahead }.find(|it| (self.told)(&it.id)).cloned();
            let Some(Place { id, until, permits, .. }) = first else { return false };
            if !self.name.fits(permits) {
                return true;
            }
            self.name.permits.remove(&id);
            self.name.readers.push(Term { permits: permits.count, ..Term::new(&id, until) });
            self.news.granted.push(id);
        }
    }
}
