//! Read-write locks: the steps of [`Name`](super::name::Name) by which readers and writers take turns.

use std::time::Duration;

use latchwork::backend::{AcquireRequest, Message, Mode, NextWaiter, QueuePosition, ReleaseOutcome};
use latchwork::{Holder, LeaseId, LockKind};

use super::line::Place;
use super::name::{Name, Step, Term, left};
use super::{NEVER, READERS_TURN, Time, nanos};

impl Name {
    /// True if the lock is free, and no reader is still to come.
    fn is_free(&self, now: Time) -> bool {
        self.lease.is_none() && self.readers.is_empty() && self.turn_until(now).is_none()
    }

    /// Returns the end of the readers' turn, which excludes writers, if readers are still to come.
    pub(crate) fn turn_until(&self, now: Time) -> Option<Time> {
        let is_on =
            |at: &Time| (*at..at + READERS_TURN).contains(&now) && self.to_come.kept(now).next().is_some();
        self.let_in.filter(is_on).map(|at| at + READERS_TURN)
    }

    pub(crate) fn holders_of_both(&self, mode: Mode, now: Time) -> Vec<Holder> {
        let holder = |term: &Term| Holder::new(Some(term.id.clone()), left(term.until, now));
        let is_alive = |term: &&Term| now < term.until;
        match mode {
            Mode::Read => self.readers.iter().filter(is_alive).map(holder).collect(),
            _ => self.lease.iter().filter(is_alive).map(holder).collect(),
        }
    }
}

impl Step<'_> {
    /// Removes expired leases before a command on a read-write lock, and makes the name one.
    pub(crate) fn begin_read_write(&mut self) -> Result<(), LockKind> {
        let now = self.now;
        if self.name.kind != LockKind::ReadWrite {
            if self.name.held_as(now).is_some() {
                return Err(self.name.kind);
            }
            (self.name.kind, self.name.lease, self.name.shared_token) = (LockKind::ReadWrite, None, None);
        }
        // A turn in the future, after the clock was set back, counts as over.
        if !self.scripted_turns && self.name.let_in.is_none_or(|at| at + READERS_TURN <= now || now < at) {
            self.name.to_come.clear();
            self.name.let_in = None;
        }
        self.name.readers.retain(|reader| now < reader.until);
        if self.name.lease.take_if(|writer| writer.until <= now).is_some() && !self.scripted_turns {
            self.let_in();
        }
        Ok(())
    }

    // === To write ===

    pub(crate) fn try_write(
        &mut self,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        position: Option<QueuePosition>,
    ) -> Result<u64, Duration> {
        let until = self.now + nanos(lease);
        match &mut self.name.lease {
            Some(writer) if writer.id == *id => {
                writer.until = writer.until.max(until);
            }
            _ => {
                if let Some(position) = position {
                    self.name.writers.put(Place::new(id, position, self.now), self.now, self.takes_earlier);
                }
                if !self.name.is_free(self.now) || self.grant_first(Some(id)) {
                    return Err(self.left(self.name.held_until(self.now)));
                }
                self.lease_to_write(id, until);
            }
        }
        if tokens > 0 {
            // Readers need a token greater than this writer's.
            self.name.shared_token = None;
        }
        Ok(self.reserve(tokens))
    }

    pub(crate) fn release_write(&mut self, id: &LeaseId, next: Option<&NextWaiter>) -> ReleaseOutcome {
        let place = self.name.writers.remove(id);
        if self.name.lease.take_if(|writer| writer.id == *id).is_none() {
            if self.name.is_free(self.now) {
                self.grant_first(None);
            }
            if let Some(place) = place {
                self.tell_readers_behind(&place);
            }
            return ReleaseOutcome::NotHeld;
        }
        if let Some(next) = next {
            self.name.writers.put(
                Place::new(&next.id, next.position, self.now),
                self.now,
                self.takes_earlier,
            );
        }
        if self.let_in() || self.grant_first(next.map(|next| &next.id)) {
            return ReleaseOutcome::Released { receivers: 0 };
        }
        let Some(next) = next else {
            self.news.message = Some(Message::Unlock);
            return ReleaseOutcome::Released { receivers: 0 };
        };
        self.lease_to_write(&next.id, self.now + nanos(next.lease));
        ReleaseOutcome::GrantedToNext { last_token: self.reserve(next.tokens) }
    }

    pub(crate) fn renew_write(&mut self, id: &LeaseId, lease: Duration) -> bool {
        let (now, is_it) = (self.now, self.name.kind == LockKind::ReadWrite);
        let writer =
            self.name.lease.as_mut().filter(|writer| is_it && writer.id == *id && now < writer.until);
        writer.map(|writer| writer.until = writer.until.max(now + nanos(lease))).is_some()
    }

    // === To read ===

    pub(crate) fn try_read(&mut self, read: &AcquireRequest) -> Result<u64, Duration> {
        let id = &read.id;
        if !self.renew_read(id, read.lease) {
            let invited = self.name.to_come.remove(id).is_some();
            // A reader without a position is behind all waiters.
            let since = read.position.map_or(NEVER, |position| self.now - nanos(position.waited));
            let admitted = match &self.name.lease {
                Some(writer) if read.under.as_ref() == Some(&writer.id) => Ok(()),
                Some(writer) => Err(left(writer.until, self.now)),
                None if invited => Ok(()),
                None => self.may_read(since),
            };
            if let Err(left) = admitted {
                if let Some(position) = read.position {
                    let place = Place::new(id, position, self.now);
                    self.name.waiting_readers.put(place, self.now, self.takes_earlier);
                }
                return Err(left);
            }
            self.name.waiting_readers.remove(id);
            self.name.readers.push(Term::new(id, self.now + nanos(read.lease)));
        }
        if read.tokens == 0 {
            return Ok(0);
        }
        if self.name.shared_token.is_none() {
            self.name.shared_token = Some(self.reserve(1));
        }
        Ok(self.name.shared_token.unwrap_or_default())
    }

    pub(crate) fn renew_read(&mut self, id: &LeaseId, lease: Duration) -> bool {
        let (now, is_it) = (self.now, self.name.kind == LockKind::ReadWrite);
        let mut readers = self.name.readers.iter_mut();
        let reader = readers.find(|reader| is_it && reader.id == *id && now < reader.until);
        reader.map(|reader| reader.until = reader.until.max(now + nanos(lease))).is_some()
    }

    pub(crate) fn release_read(&mut self, id: &LeaseId) -> bool {
        self.name.waiting_readers.remove(id);
        let (reading, is_turn) = (self.name.readers.len(), self.name.turn_until(self.now).is_some());
        self.name.readers.retain(|reader| reader.id != *id);
        let came = self.name.to_come.remove(id).is_some();
        let did_read = self.name.readers.len() < reading;
        self.pass_on(did_read || is_turn && came);
        did_read
    }

    pub(crate) fn force_release_read_write(&mut self) -> bool {
        let did_read = !std::mem::take(&mut self.name.readers).is_empty();
        let did_write = self.name.lease.take().is_some();
        if !did_write || !self.let_in() {
            self.pass_on(did_read || did_write);
        }
        did_read || did_write
    }

    // === Turns ===

    /// Gives waiting readers their turn after a writer. False if no reader waits or reads.
    fn let_in(&mut self) -> bool {
        let is_waited_for = self.name.waiting_readers.kept(self.now).next().is_some();
        if is_waited_for {
            self.name.to_come = std::mem::take(&mut self.name.waiting_readers);
        }
        if is_waited_for || !self.scripted_turns {
            self.name.let_in = Some(self.now);
        }
        if self.name.is_free(self.now) {
            return false;
        }
        self.news.message = Some(Message::ReadUnlock);
        true
    }

    /// Succeeds if a reader that has waited since `since` may read, while no writer holds the lock. Fails
    /// with the time after which to ask again.
    fn may_read(&mut self, since: Time) -> Result<(), Duration> {
        if self.name.let_in.is_some_and(|at| since <= at) {
            return Ok(());
        }
        let Some(kept) =
            self.first_writer().filter(|writer| writer.since <= since).map(|writer| writer.until)
        else {
            return Ok(());
        };
        if self.name.is_free(self.now) {
            return match self.grant_first(None) {
                true => Err(self.left(self.name.held_until(self.now))),
                false => Ok(()),
            };
        }
        // The writer may also disappear silently.
        Err(self.left(self.name.held_until(self.now).map(|until| until.min(kept))))
    }

    /// Grants the lock, if free, to the first writer, or else announces that the lock came free just now.
    pub(crate) fn pass_on(&mut self, came_free: bool) {
        if !self.name.is_free(self.now) || self.grant_first(None) || !came_free {
            return;
        }
        let readers_wait = self.name.waiting_readers.kept(self.now).next().is_some();
        self.news.message = Some(if readers_wait { Message::ReadUnlock } else { Message::Unlock });
    }

    /// Wakes the readers that waited only for this writer, which waits no longer.
    fn tell_readers_behind(&mut self, gone: &Place) {
        let next = self.first_writer().map(|writer| writer.since);
        let is_let_through =
            |reader: &Place| gone.since <= reader.since && next.is_none_or(|next| reader.since < next);
        if self.name.lease.is_none() && self.name.waiting_readers.kept(self.now).any(is_let_through) {
            self.news.message = Some(Message::ReadUnlock);
        }
    }

    fn first_writer(&self) -> Option<&Place> {
        self.name.writers.kept(self.now).find(|writer| (self.told)(&writer.id))
    }

    fn grant_first(&mut self, not_behind: Option<&LeaseId>) -> bool {
        let first = self.name.writers.take_first(self.now, not_behind, self.told);
        let Some(Place { id, until, .. }) = first else { return false };
        self.lease_to_write(&id, until);
        self.news.granted.push(id);
        true
    }

    fn lease_to_write(&mut self, id: &LeaseId, until: Time) {
        self.name.writers.remove(id);
        self.name.lease = Some(Term::new(id, until));
        self.name.shared_token = None;
    }
}
