//! [`Turns`]: the rules of read-write locks, and of fair locks: the latter have writers only.

use std::mem;
use std::time::Duration;

use crate::backend::{AcquireRequest, Mode, NextWaiter, Permits, ReleaseOutcome};
use crate::lock::{Holder, LeaseId};
use crate::lock_entry::Moment;
use crate::subscription::Message;

use super::queue::{Queue, Waiter};

/// Longest time for which a lock stays reserved for readers that were let in and have not come.
const READERS_TURN: Duration = Duration::from_secs(1);

/// The leases and waiters of a lock with a queue.
#[derive(Debug, Default)]
pub(super) struct Leases {
    writer: Option<Term>,
    /// Readers of a read-write lock, holders of a semaphore's permits.
    readers: Vec<Term>,
    /// Time at which readers were last let in.
    let_in: Option<Moment>,
    /// Readers let in at that time that have neither come nor given up. The lock is reserved for them.
    to_come: Vec<LeaseId>,
    /// Waiters for a fair lock, to write, or for permits.
    to_write: Queue,
    to_read: Queue,
    /// Fencing token of the readers, if a reader has asked for a token since the last writer's.
    pub(super) shared_token: Option<u64>,
}

#[derive(Debug)]
struct Term {
    id: LeaseId,
    until: Moment,
    /// Count of a semaphore's permits.
    permits: u32,
}

impl Term {
    fn holder(&self, now: Moment) -> Option<Holder> {
        let left = self.until.saturating_duration_since(now);
        (!left.is_zero()).then(|| Holder::new(Some(self.id.clone()), left).permits(self.permits))
    }
}

impl Leases {
    /// Makes the lease of `id` last at least until `until`. False if there is no lease.
    pub(super) fn renew(&mut self, mode: Mode, id: &LeaseId, until: Moment, now: Moment) -> bool {
        let is_many = matches!(mode, Mode::Read | Mode::Permits);
        let terms = if is_many { &mut self.readers } else { self.writer.as_mut_slice() };
        let own = terms.iter_mut().find(|term| term.id == *id && now < term.until);
        own.map(|term| term.until = term.until.max(until)).is_some()
    }

    pub(super) fn holders(&self, mode: Mode, now: Moment) -> Vec<Holder> {
        let is_many = matches!(mode, Mode::Read | Mode::Permits);
        let terms = if is_many { &self.readers } else { self.writer.as_slice() };
        terms.iter().filter_map(|term| term.holder(now)).collect()
    }

    /// Returns the latest end of the leases and of the readers' turn; `None` if the lock is free.
    pub(super) fn until(&self) -> Option<Moment> {
        let leases = self.writer.iter().chain(&self.readers).map(|term| term.until);
        let kept = self.let_in.filter(|_| !self.to_come.is_empty()).map(|at| at + READERS_TURN);
        leases.chain(kept).max()
    }

    pub(super) fn is_awaited(&self, now: Moment) -> bool {
        self.to_write.waiters(now).chain(self.to_read.waiters(now)).next().is_some()
    }

    fn write(&mut self, id: LeaseId, until: Moment) {
        self.writer = Some(Term { id, until, permits: 1 });
        self.shared_token = None;
    }

    fn fits(&self, Permits { count, capacity }: Permits) -> bool {
        let used: u64 = self.readers.iter().map(|holder| u64::from(holder.permits)).sum();
        used + u64::from(count) <= u64::from(capacity)
    }

    fn is_free(&self) -> bool {
        self.writer.is_none() && self.readers.is_empty() && self.to_come.is_empty()
    }
}

/// One counter for all names: a name's own would have to be kept for ever, and tokens may leave gaps.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    last: u64,
}

impl Tokens {
    /// Reserves `tokens` and returns the last; returns 0 for none.
    pub(super) fn reserve(&mut self, tokens: u64) -> u64 {
        self.last += tokens;
        if tokens > 0 { self.last } else { 0 }
    }

    /// Returns the readers' common token: `shared`, or a new one.
    fn share(&mut self, shared: &mut Option<u64>) -> u64 {
        *shared.get_or_insert_with(|| self.reserve(1))
    }
}

/// Messages of a step, to publish once the mutex is free.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) granted: Vec<LeaseId>,
    pub(super) message: Option<Message>,
}

pub(super) struct Turns<'a> {
    pub(super) now: Moment,
    pub(super) lock: &'a mut Leases,
    pub(super) tokens: &'a mut Tokens,
    /// True if the client of a writer can be told of a grant.
    pub(super) told: &'a dyn Fn(&LeaseId) -> bool,
    pub(super) news: News,
}

impl Turns<'_> {
    /// Removes ended leases, ends the readers' turn, and lets readers in after the end of a writer.
    pub(super) fn settle(&mut self) {
        let now = self.now;
        if self.lock.let_in.is_none_or(|at| at + READERS_TURN <= now) {
            self.lock.to_come.clear();
        }
        self.lock.readers.retain(|reader| now < reader.until);
        if self.lock.writer.take_if(|writer| writer.until <= now).is_some() {
            self.let_in();
        }
    }

    /// Acquires the lock to write: the last token, or the time after which to ask again.
    pub(super) fn try_write(&mut self, write: &AcquireRequest) -> Result<u64, Duration> {
        let (id, until) = (&write.id, self.now + write.lease);
        if !self.lock.renew(Mode::Write, id, until, self.now) {
            if let Some(position) = write.position {
                self.lock.to_write.push(Waiter::new(id, position, self.now));
            }
            if !self.lock.is_free() || self.grant_first(Some(id)) {
                return Err(self.left(self.lock.until()));
            }
            self.lease_to_write(id.clone(), until);
        }
        // Present readers have an earlier token; readers after this writer need a greater one.
        self.lock.shared_token.take_if(|_| write.tokens > 0);
        Ok(self.tokens.reserve(write.tokens))
    }

    /// Ends the lease of `id` to write. Grants the lock to the first waiter, including `next`.
    pub(super) fn release_write(&mut self, id: &LeaseId, next: Option<&NextWaiter>) -> ReleaseOutcome {
        let waited = self.lock.to_write.remove(id);
        if self.lock.writer.take_if(|writer| writer.id == *id).is_none() {
            if self.lock.is_free() {
                self.grant_first(None);
            }
            if waited {
                self.tell_readers_let_through();
            }
            return ReleaseOutcome::NotHeld;
        }
        if let Some(next) = next {
            self.lock.to_write.push(Waiter::new(&next.id, next.position, self.now));
        }
        if self.let_in() || self.grant_first(next.map(|next| &next.id)) {
            return ReleaseOutcome::Released { receivers: 0 };
        }
        match next {
            Some(next) => {
                self.lease_to_write(next.id.clone(), self.now + next.lease);
                ReleaseOutcome::GrantedToNext { last_token: self.tokens.reserve(next.tokens) }
            }
            None => {
                self.news.message = Some(Message::Unlock);
                ReleaseOutcome::Released { receivers: 0 }
            }
        }
    }

    /// Acquires the lock to read: the readers' token (0 if unwanted), or the time after which to ask again.
    pub(super) fn try_read(&mut self, read: &AcquireRequest) -> Result<u64, Duration> {
        let (id, until) = (&read.id, self.now + read.lease);
        if !self.lock.renew(Mode::Read, id, until, self.now) {
            self.lock.to_come.retain(|other| other != id);
            let waited = read.position.map_or(Duration::ZERO, |position| position.waited);
            let admitted = match &self.lock.writer {
                Some(writer) if read.under.as_ref() == Some(&writer.id) => Ok(()),
                Some(writer) => Err(self.left(Some(writer.until))),
                None => self.may_read(self.now - waited),
            };
            if let (Err(_), Some(position)) = (admitted, read.position) {
                self.lock.to_read.push(Waiter::new(id, position, self.now));
            }
            admitted?;
            self.lock.to_read.remove(id);
            self.lock.readers.push(Term { id: id.clone(), until, permits: 1 });
        }
        let is_fenced = read.tokens > 0;
        Ok(if is_fenced { self.tokens.share(&mut self.lock.shared_token) } else { 0 })
    }

    pub(super) fn release_read(&mut self, id: &LeaseId) -> ReleaseOutcome {
        self.lock.to_read.remove(id);
        let others = |other: &LeaseId| other != id;
        let (reading, coming) = (self.lock.readers.len(), self.lock.to_come.len());
        self.lock.readers.retain(|reader| others(&reader.id));
        self.lock.to_come.retain(others);
        let did_read = self.lock.readers.len() < reading;
        self.pass_on(did_read || self.lock.to_come.len() < coming);
        if did_read { ReleaseOutcome::Released { receivers: 0 } } else { ReleaseOutcome::NotHeld }
    }

    /// Ends all leases, and serves the waiters. True if the lock was held.
    pub(super) fn force_release(&mut self) -> bool {
        let did_read = !mem::take(&mut self.lock.readers).is_empty();
        let did_write = self.lock.writer.take().is_some();
        if !did_write || !self.let_in() {
            self.pass_on(did_read || did_write);
        }
        did_read || did_write
    }

    /// Acquires permits: the time after which to ask again if not granted.
    pub(super) fn try_permits(&mut self, request: &AcquireRequest) -> Result<u64, Duration> {
        let (id, until) = (&request.id, self.now + request.lease);
        let permits = request.permits.unwrap_or_default();
        if self.lock.renew(Mode::Permits, id, until, self.now) {
            return Ok(0);
        }
        if let Some(position) = request.position {
            self.lock.to_write.push(Waiter::new(id, position, self.now).permits(permits));
        }
        if self.grant_permits(Some(id)) || !self.lock.fits(permits) {
            return Err(self.left(self.lock.readers.iter().map(|holder| holder.until).min()));
        }
        self.lock.to_write.remove(id);
        self.lock.readers.push(Term { id: id.clone(), until, permits: permits.count });
        // Ended leases may leave permits for waiters behind.
        self.grant_permits(None);
        Ok(0)
    }

    pub(super) fn release_permits(&mut self, id: &LeaseId) -> ReleaseOutcome {
        self.lock.to_write.remove(id);
        let held = self.lock.readers.iter().position(|holder| holder.id == *id);
        held.map(|at| self.lock.readers.swap_remove(at));
        self.grant_permits(None);
        held.map_or(ReleaseOutcome::NotHeld, |_| ReleaseOutcome::Released { receivers: 0 })
    }

    pub(super) fn force_release_permits(&mut self) -> bool {
        let was_held = !mem::take(&mut self.lock.readers).is_empty();
        self.grant_permits(None);
        was_held
    }

    /// Grants permits to the first waiters ahead of `not_behind`. True if a waiter stays ahead.
    fn grant_permits(&mut self, not_behind: Option<&LeaseId>) -> bool {
        loop {
            let mut ahead =
                self.lock.to_write.waiters(self.now).take_while(|waiter| Some(&waiter.id) != not_behind);
            let Some(first) = ahead.find(|waiter| (self.told)(&waiter.id)) else { return false };
            if !self.lock.fits(first.permits) {
                return true;
            }
            let Waiter { id, until, permits, .. } = first.clone();
            drop(ahead);
            self.lock.to_write.remove(&id);
            self.news.granted.push(id.clone());
            self.lock.readers.push(Term { id, until, permits: permits.count });
        }
    }

    /// Lets in the waiting readers after a writer has left. False if the lock is now free.
    fn let_in(&mut self) -> bool {
        let waiting = self.lock.to_read.take(self.now);
        self.lock.to_come.extend(waiting.map(|reader| reader.id));
        if self.lock.is_free() {
            return false;
        }
        self.lock.let_in = Some(self.now);
        self.news.message = Some(Message::ReadUnlock);
        true
    }

    /// With no writer, admits a reader that began to wait at `since`, or returns the time until its next try.
    fn may_read(&mut self, since: Moment) -> Result<(), Duration> {
        if self.lock.let_in.is_some_and(|at| since <= at) {
            return Ok(());
        }
        let Some(first) = self.first_writer().filter(|writer| writer.since <= since) else { return Ok(()) };
        let kept = first.until;
        if self.lock.is_free() {
            // The writer's client may have ended since.
            return if self.grant_first(None) { Err(self.left(self.lock.until())) } else { Ok(()) };
        }
        // The waiting writer may have died: ask again when its position ends.
        Err(self.left(self.lock.until().map(|until| until.min(kept))))
    }

    /// Grants a free lock to the first writer; if none, and if it `came_free` just now, tells all waiters.
    fn pass_on(&mut self, came_free: bool) {
        if !self.lock.is_free() || self.grant_first(None) || !came_free {
            return;
        }
        let readers_wait = self.lock.to_read.waiters(self.now).next().is_some();
        self.news.message = Some(if readers_wait { Message::ReadUnlock } else { Message::Unlock });
    }

    /// Tells the readers to ask, after a writer has left the queue, if one waits for no earlier writer.
    fn tell_readers_let_through(&mut self) {
        let next = self.first_writer().map(|writer| writer.since);
        let is_let_through = |reader: &Waiter| next.is_none_or(|next| reader.since < next);
        if self.lock.writer.is_none() && self.lock.to_read.waiters(self.now).any(is_let_through) {
            self.news.message = Some(Message::ReadUnlock);
        }
    }

    fn first_writer(&self) -> Option<&Waiter> {
        self.lock.to_write.waiters(self.now).find(|writer| (self.told)(&writer.id))
    }

    /// Leases the free lock to the first reachable writer ahead of `not_behind`. False if there is none.
    fn grant_first(&mut self, not_behind: Option<&LeaseId>) -> bool {
        let first = self.lock.to_write.pop_first(self.now, not_behind, self.told);
        let Some(Waiter { id, until, .. }) = first else { return false };
        self.lock.write(id.clone(), until);
        self.news.granted.push(id);
        true
    }

    fn lease_to_write(&mut self, id: LeaseId, until: Moment) {
        self.lock.to_write.remove(&id);
        self.lock.write(id, until);
    }

    fn left(&self, until: Option<Moment>) -> Duration {
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(self.now))
    }
}
