//! [`Turns`]: whose turn it is at a fair or read-write lock of a [`Local`](super::Local). A fair lock is one
//! that has writers only.

use std::mem;
use std::time::Duration;

use crate::backend::{AcquireRequest, Mode, NextWaiter, ReleaseOutcome};
use crate::lock::{Holder, LeaseId};
use crate::lock_entry::Moment;
use crate::subscription::Message;

use super::queue::{Queue, Waiter};

/// For how long no writer gets the lock after readers were let in, while some of those have not come.
const READERS_TURN: Duration = Duration::from_secs(1);

/// The leases of a lock that has a queue.
#[derive(Debug, Default)]
pub(super) struct Leases {
    writer: Option<Term>,
    readers: Vec<Term>,
    /// When readers were let in last.
    let_in: Option<Moment>,
    /// The waiters of that time that have neither come since nor given up. The lock is kept for them.
    to_come: Vec<LeaseId>,
    to_write: Queue,
    /// The waiters to read that were not let in since.
    to_read: Queue,
    /// The token of the readers, if one of them has asked for it since a writer had one.
    pub(super) shared_token: Option<u64>,
}

/// A lease of its own.
#[derive(Debug)]
struct Term {
    id: LeaseId,
    until: Moment,
}

impl Term {
    /// `None` if it is over.
    fn holder(&self, now: Moment) -> Option<Holder> {
        let left = self.until.saturating_duration_since(now);
        (!left.is_zero()).then(|| Holder::new(Some(self.id.clone()), left))
    }
}

impl Leases {
    /// Makes the lease of `id` last until then at least. False if it has none.
    pub(super) fn renew(&mut self, mode: Mode, id: &LeaseId, until: Moment, now: Moment) -> bool {
        let terms = if mode == Mode::Read { &mut self.readers } else { self.writer.as_mut_slice() };
        let own = terms.iter_mut().find(|term| term.id == *id && now < term.until);
        own.map(|term| term.until = term.until.max(until)).is_some()
    }

    pub(super) fn holders(&self, mode: Mode, now: Moment) -> Vec<Holder> {
        let terms = if mode == Mode::Read { &self.readers } else { self.writer.as_slice() };
        terms.iter().filter_map(|term| term.holder(now)).collect()
    }

    /// When all of it is over; `None` if it is free.
    pub(super) fn until(&self) -> Option<Moment> {
        let leases = self.writer.iter().chain(&self.readers).map(|term| term.until);
        let kept = self.let_in.filter(|_| !self.to_come.is_empty()).map(|at| at + READERS_TURN);
        leases.chain(kept).max()
    }

    /// Whether a waiter has a position.
    pub(super) fn is_awaited(&self, now: Moment) -> bool {
        self.to_write.waiters(now).chain(self.to_read.waiters(now)).next().is_some()
    }

    fn write(&mut self, id: LeaseId, until: Moment) {
        self.writer = Some(Term { id, until });
        self.shared_token = None;
    }

    fn is_free(&self) -> bool {
        self.writer.is_none() && self.readers.is_empty() && self.to_come.is_empty()
    }
}

/// One counter for all names, as what rises over all of them rises for each, and one for each name would have
/// to be kept for ever.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    last: u64,
}

impl Tokens {
    /// So many: the last of them, or 0 if none are wanted.
    pub(super) fn reserve(&mut self, tokens: u64) -> u64 {
        self.last += tokens;
        if tokens > 0 { self.last } else { 0 }
    }

    /// One token that all readers of a time have: `shared`, or a new one if they have none yet.
    fn share(&mut self, shared: &mut Option<u64>) -> u64 {
        *shared.get_or_insert_with(|| self.reserve(1))
    }
}

/// What others are to be told of a step when the mutex is free.
#[derive(Debug, Default)]
pub(super) struct News {
    /// The waiter that was granted the lock to write.
    pub(super) granted: Option<LeaseId>,
    /// What is published to all waiters.
    pub(super) message: Option<Message>,
}

/// One step of one lock.
pub(super) struct Turns<'a> {
    pub(super) now: Moment,
    pub(super) lock: &'a mut Leases,
    pub(super) tokens: &'a mut Tokens,
    /// Whether a writer can be told that it was granted the lock.
    pub(super) told: &'a dyn Fn(&LeaseId) -> bool,
    pub(super) news: News,
}

impl Turns<'_> {
    /// Ends what is over.
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

    /// The last token, if the lock is had to write now. Otherwise when to ask again.
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
        // What reads beside it had a token before, and what reads after it gets a greater one than this.
        self.lock.shared_token.take_if(|_| write.tokens > 0);
        Ok(self.tokens.reserve(write.tokens))
    }

    /// Ends the lease of `id` to write, and grants the lock to `next` if that comes first.
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

    /// The readers' token, if the lock is had to read now and one is wanted. Otherwise when to ask again.
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
            self.lock.readers.push(Term { id: id.clone(), until });
        }
        let is_fenced = read.tokens > 0;
        Ok(if is_fenced { self.tokens.share(&mut self.lock.shared_token) } else { 0 })
    }

    /// Ends the lease of `id` to read.
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

    /// Whether the lock was held.
    pub(super) fn force_release(&mut self) -> bool {
        let did_read = !mem::take(&mut self.lock.readers).is_empty();
        let did_write = self.lock.writer.take().is_some();
        if !did_write || !self.let_in() {
            self.pass_on(did_read || did_write);
        }
        did_read || did_write
    }

    /// A writer has left: lets in the waiting readers. False if there are none, and the writer did not read
    /// itself.
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

    /// Whether a reader that began to wait then may read now, as there is no writer.
    fn may_read(&mut self, since: Moment) -> Result<(), Duration> {
        if self.lock.let_in.is_some_and(|at| since <= at) {
            return Ok(());
        }
        let Some(first) = self.first_writer().filter(|writer| writer.since <= since) else { return Ok(()) };
        let kept = first.until;
        if self.lock.is_free() {
            // It may have gone by now.
            return if self.grant_first(None) { Err(self.left(self.lock.until())) } else { Ok(()) };
        }
        // The writer, too, may be gone without a word.
        Err(self.left(self.lock.until().map(|until| until.min(kept))))
    }

    /// Grants the lock, which may have come free just now, to the first writer, or says that any waiter can
    /// have it.
    fn pass_on(&mut self, came_free: bool) {
        if !self.lock.is_free() || self.grant_first(None) || !came_free {
            return;
        }
        let readers_wait = self.lock.to_read.waiters(self.now).next().is_some();
        self.news.message = Some(if readers_wait { Message::ReadUnlock } else { Message::Unlock });
    }

    /// A writer waits no more: tells readers, if it was the last one that they had to wait for.
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

    /// Leases the lock, which is free, to the first writer that can be told. False if there is none before
    /// `not_behind`.
    fn grant_first(&mut self, not_behind: Option<&LeaseId>) -> bool {
        let first = self.lock.to_write.pop_first(self.now, not_behind, self.told);
        let Some(Waiter { id, until, .. }) = first else { return false };
        self.lock.write(id.clone(), until);
        self.news.granted = Some(id);
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
