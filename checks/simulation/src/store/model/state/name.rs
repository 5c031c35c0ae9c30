//! [`Name`]: the store's state of one name, and each command on a name as one step.

use std::time::Duration;

use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Message, NextWaiter, QueuePosition, ReleaseOutcome,
};
use latchwork::{LeaseId, LockKind};

use super::line::{Line, Place};
use super::{NEVER, Time, nanos};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) id: LeaseId,
    pub(crate) until: Time,
    /// Of a semaphore; 1 for a lock.
    pub(crate) permits: u32,
}

impl Term {
    pub(crate) fn new(id: &LeaseId, until: Time) -> Self {
        Self { id: id.clone(), until, permits: 1 }
    }
}

/// The state of a name. May still contain expired ids, which count as gone.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    /// Kind as which the name is held, if held.
    pub(crate) kind: LockKind,
    /// The holder's lease; of a read-write lock, the writer's.
    pub(crate) lease: Option<Term>,
    /// The readers' leases; of a semaphore, all leases.
    pub(crate) readers: Vec<Term>,
    /// The ids that wait for a plain lock.
    pub(crate) plain: Line,
    /// The number of clients that the release of the plain lock calls.
    pub(crate) calls: usize,
    pub(crate) fair: Line,
    pub(crate) permits: Line,
    pub(crate) writers: Line,
    /// Readers that wait, and were not let in since.
    pub(crate) waiting_readers: Line,
    /// Time at which readers were last let in.
    pub(crate) let_in: Option<Time>,
    /// Readers let in at that time that have neither claimed the lock nor given up.
    pub(crate) to_come: Line,
    /// Token of the present readers, if a reader has asked for a token since the last writer's.
    pub(crate) shared_token: Option<u64>,
    pub(crate) last_token: u64,
}

/// The messages that a step causes.
#[derive(Clone, Debug, Default)]
pub(crate) struct News {
    /// The waiters that were granted the lock, or permits, without an attempt of their own.
    pub(crate) granted: Vec<LeaseId>,
    /// The ids whose clients are called.
    pub(crate) called: Vec<LeaseId>,
    pub(crate) message: Option<Message>,
}

/// One command, at the moment of its effect.
pub(crate) struct Step<'a> {
    pub(crate) now: Time,
    pub(crate) name: &'a mut Name,
    /// True if the client of an id can be told of a grant.
    pub(crate) told: &'a dyn Fn(&LeaseId) -> bool,
    /// Whether a release of a plain lock calls those that wait.
    pub(crate) calls_waiters: bool,
    pub(crate) takes_earlier: bool,
    pub(crate) releases_the_dead: bool,
    /// True for the turns of the scripts: the end of a writer's lease passes the lock to no waiter, only the
    /// readers that were let in have the turn, and these readers may also claim the lock later.
    pub(crate) scripted_turns: bool,
    /// Extra gap between tokens, beside 1.
    pub(crate) token_gap: u64,
    pub(crate) news: News,
}

impl Default for Name {
    fn default() -> Self {
        Self {
            kind: LockKind::Plain,
            lease: None,
            readers: Vec::new(),
            plain: Line::default(),
            calls: 1,
            fair: Line::default(),
            permits: Line::default(),
            writers: Line::default(),
            waiting_readers: Line::default(),
            let_in: None,
            to_come: Line::default(),
            shared_token: None,
            last_token: 0,
        }
    }
}

impl Name {
    pub(crate) fn held(&self, now: Time) -> Option<&Term> {
        self.lease.as_ref().filter(|term| now < term.until)
    }

    /// Returns the end of all leases, and of the turn of readers still to come.
    pub(crate) fn held_until(&self, now: Time) -> Option<Time> {
        let leases = self.lease.iter().chain(&self.readers).map(|term| term.until);
        leases.chain(self.turn_until(now)).max().filter(|until| now < *until)
    }

    /// Returns the time at which waiters may be granted something, without any command.
    pub(crate) fn free_from(&self, now: Time) -> Option<Time> {
        match self.kind {
            LockKind::Semaphore => self.readers.iter().map(|term| term.until).filter(|at| now < *at).min(),
            _ => self.held_until(now),
        }
    }

    pub(crate) fn held_as(&self, now: Time) -> Option<LockKind> {
        self.held_until(now).map(|_| self.kind)
    }

    pub(crate) fn waits(&self, now: Time) -> bool {
        let lines = [&self.fair, &self.permits, &self.writers, &self.waiting_readers];
        lines.iter().any(|line| line.kept(now).next().is_some())
    }

    /// Returns the live leases of this kind; true marks a reader's.
    pub(crate) fn leases(&self, kind: LockKind, now: Time) -> impl Iterator<Item = (&Term, bool)> {
        let one = self.lease.iter().map(|term| (term, false));
        let all = one.chain(self.readers.iter().map(|term| (term, true)));
        all.filter(move |(term, _)| self.kind == kind && now < term.until)
    }

    pub(crate) fn left_over(&self, now: Time) -> Vec<String> {
        let leases = self.lease.iter().chain(&self.readers).filter(|term| now < term.until);
        let lines = [&self.plain, &self.fair, &self.permits, &self.writers, &self.waiting_readers];
        let lines = lines.into_iter().flat_map(|line| line.kept(now));
        let leases = leases.map(|term| format!("a lease, #{}", term.id.number()));
        leases.chain(lines.map(|place| format!("a place, #{}", place.id.number()))).collect()
    }
}

pub(crate) fn left(until: Time, now: Time) -> Duration {
    if until >= NEVER / 2 { Duration::MAX } else { Duration::from_nanos((until - now).max(0).unsigned_abs()) }
}

impl Step<'_> {
    pub(crate) fn reserve(&mut self, tokens: u64) -> u64 {
        if tokens == 0 {
            return 0;
        }
        self.name.last_token += tokens + self.token_gap;
        self.name.last_token
    }

    /// Leases the name as this kind to this id alone.
    fn lease_to(&mut self, kind: LockKind, id: &LeaseId, until: Time) {
        let name = &mut *self.name;
        name.kind = kind;
        name.lease = Some(Term::new(id, until));
        // Leftovers of a read-write lock whose leases are over.
        name.readers.clear();
        name.to_come.clear();
        (name.let_in, name.shared_token) = (None, None);
    }

    pub(crate) fn left(&self, until: Option<Time>) -> Duration {
        until.map_or(Duration::ZERO, |until| left(until, self.now))
    }

    fn other_kind(&self, kind: LockKind) -> Option<LockKind> {
        self.name.held_as(self.now).filter(|held| *held != kind)
    }

    /// No command shortens a lease.
    fn never_shorter(&self, until: Time, held_until: Time) -> Time {
        until.max(held_until)
    }

    // === Plain ===

    pub(crate) fn try_acquire(&mut self, request: &AcquireRequest) -> Result<AcquireOutcome, LockKind> {
        let AcquireRequest { id, lease, tokens, position, yields, .. } = request;
        if let Some(other) = self.other_kind(LockKind::Plain) {
            return Err(other);
        }
        let position = position.filter(|_| self.calls_waiters);
        let mut until = self.now + nanos(*lease);
        let held = self.name.held(self.now).cloned();
        let mut calls = 1;
        if let Some(held) = held {
            if held.id != *id {
                let left = left(held.until, self.now);
                let again = position.map(|position| self.enter(id, position));
                return Ok(AcquireOutcome::Held { left: again.map_or(left, |again| again.min(left)) });
            }
            (until, calls) = (self.never_shorter(until, held.until), self.name.calls);
        } else if let Some(position) =
            position.filter(|_| *yields && self.name.plain.kept(self.now).next().is_some())
        {
            return Ok(AcquireOutcome::Held { left: self.enter(id, position) });
        }
        let before = self.name.plain.kept(self.now).position(|place| place.id == *id);
        if position.is_some() && self.name.plain.remove(id).is_some_and(|place| self.now < place.until) {
            calls = before.unwrap_or(0).clamp(8, 32);
        }
        self.lease_to(LockKind::Plain, id, until);
        self.name.calls = calls;
        Ok(AcquireOutcome::Acquired { last_token: self.reserve(*tokens) })
    }

    /// Has a release call the client. Returns in how long the client is to ask again at the latest.
    fn enter(&mut self, id: &LeaseId, position: QueuePosition) -> Duration {
        const KEPT: Duration = Duration::from_secs(60);
        let others = self.name.plain.kept(self.now).count() as u64;
        self.name.plain.remove(id);
        let place = Place::new(id, QueuePosition { kept: KEPT, ..position }, self.now);
        let until = place.until;
        self.name.plain.put(place, self.now, true);
        // All are kept for as long as the last one.
        self.name.plain.keep_all(until);
        let waited =
            position.waited.clamp(Duration::from_millis(50), Duration::from_secs(2)).as_micros() as u64;
        Duration::from_millis(waited * (16 + others) / 16 / 1000).min(Duration::from_secs(5))
    }

    /// Calls so many that wait.
    fn call(&mut self, count: usize) {
        for _ in 0..count {
            let Some(place) = self.name.plain.take_first_told(self.now, self.told) else { return };
            self.news.called.push(place.id);
        }
    }

    fn take(&mut self, kind: LockKind, id: &LeaseId) -> bool {
        let (now, dead) = (self.now, self.releases_the_dead);
        let is_it = |term: &mut Term| term.id == *id && (dead || now < term.until);
        self.name.kind == kind && self.name.lease.take_if(is_it).is_some()
    }

    pub(crate) fn release_plain(&mut self, id: &LeaseId) -> bool {
        let released = self.take(LockKind::Plain, id);
        if released {
            self.news.message = Some(Message::Unlock);
        }
        if self.calls_waiters {
            let waits = !released && self.name.plain.remove(id).is_some_and(|place| self.now < place.until);
            if released {
                self.call(self.name.calls);
            } else if !waits && self.name.held_as(self.now).is_none() {
                self.call(1);
            }
        }
        released
    }

    pub(crate) fn renew_one(&mut self, id: &LeaseId, lease: Duration) -> bool {
        let (now, kind) = (self.now, self.name.kind);
        let held = self.name.lease.as_mut().filter(|term| term.id == *id && now < term.until);
        let Some(term) = held.filter(|_| kind != LockKind::ReadWrite) else { return false };
        let until = now + nanos(lease);
        term.until = term.until.max(until);
        true
    }

    pub(crate) fn force_release_plain(&mut self) -> Result<bool, LockKind> {
        if let Some(other) = self.other_kind(LockKind::Plain) {
            return Err(other);
        }
        let freed = self.name.held(self.now).is_some();
        if freed {
            self.name.lease = None;
            self.news.message = Some(Message::Unlock);
            if self.calls_waiters {
                self.call(1);
            }
        }
        Ok(freed)
    }

    // === Fair ===

    /// Leases the free name to the first waiter that can be told. True if there is such a waiter.
    pub(crate) fn pass_on_fair(&mut self, not_behind: Option<&LeaseId>) -> bool {
        let first = self.name.fair.take_first(self.now, not_behind, self.told);
        let Some(Place { id, until, .. }) = first else { return false };
        self.lease_to(LockKind::Fair, &id, until);
        self.news.granted.push(id);
        true
    }

    pub(crate) fn try_acquire_fair(
        &mut self,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        position: Option<QueuePosition>,
    ) -> Result<AcquireOutcome, LockKind> {
        if let Some(other) = self.other_kind(LockKind::Fair) {
            return Err(other);
        }
        let mut until = self.now + nanos(lease);
        let held = self.name.held(self.now).cloned();
        if let Some(held) = held.as_ref().filter(|held| held.id == *id) {
            until = self.never_shorter(until, held.until);
        } else {
            if let Some(position) = position {
                self.name.fair.put(Place::new(id, position, self.now), self.now, self.takes_earlier);
            }
            if held.is_some() || self.pass_on_fair(Some(id)) {
                let until = self.name.held(self.now).map(|term| term.until);
                return Ok(AcquireOutcome::Held { left: self.left(until) });
            }
        }
        self.name.fair.remove(id);
        self.lease_to(LockKind::Fair, id, until);
        Ok(AcquireOutcome::Acquired { last_token: self.reserve(tokens) })
    }

    pub(crate) fn release_fair(&mut self, id: &LeaseId, next: Option<&NextWaiter>) -> ReleaseOutcome {
        self.name.fair.remove(id);
        let had_it = self.take(LockKind::Fair, id);
        let next = next.filter(|_| had_it);
        if let Some(next) = next {
            self.name.fair.put(Place::new(&next.id, next.position, self.now), self.now, self.takes_earlier);
        }
        let is_free = self.name.held_as(self.now).is_none();
        let passed_on = is_free && self.pass_on_fair(next.map(|next| &next.id));
        match next {
            _ if !had_it => ReleaseOutcome::NotHeld,
            Some(next) if !passed_on => {
                self.name.fair.remove(&next.id);
                self.lease_to(LockKind::Fair, &next.id, self.now + nanos(next.lease));
                ReleaseOutcome::GrantedToNext { last_token: self.reserve(next.tokens) }
            }
            _ => ReleaseOutcome::Released { receivers: 0 },
        }
    }

    pub(crate) fn force_release_fair(&mut self) -> Result<bool, LockKind> {
        if let Some(other) = self.other_kind(LockKind::Fair) {
            return Err(other);
        }
        let freed = self.name.held(self.now).is_some();
        self.name.lease = None;
        self.pass_on_fair(None);
        Ok(freed)
    }
}
