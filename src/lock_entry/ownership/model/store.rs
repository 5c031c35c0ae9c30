//! Store of the model: a lock with a queue, without a queue, or shared.

use std::time::Duration;

use super::LEASE;
use crate::support::moment::Moment;

pub(super) const KEPT: Duration = LEASE.checked_div(3).unwrap();

pub(super) const THEIRS: u64 = 0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum StoreKind {
    Plain,
    Queue,
    Shared,
}

pub(super) struct Store {
    kind: StoreKind,
    /// A number that leases the lock anew gets exactly the new length, even if shorter.
    pub(super) sets_exactly: bool,
    lease: Option<(u64, Moment)>,
    /// Leases of a shared lock. `lease` is then another process's exclusive lease.
    shared: Vec<(u64, Moment)>,
    /// Refused waiters that the store remembers, of a shared lock.
    remembered: Vec<(u64, Moment)>,
    writer_waits: bool,
    queue: Option<Vec<Position>>,
    last_token: u64,
    forced: Vec<u64>,
    next_number: u64,
    messages: Vec<u64>,
    /// Highest number granted by a delivered message.
    receivers: u64,
}

struct Position {
    number: u64,
    since: Moment,
    until: Moment,
}

pub(super) enum Reply {
    /// The named waiter has the lock, and tokens up to this one.
    Leased(u64),
    Queued,
}

impl Store {
    pub(super) fn new(kind: StoreKind) -> Self {
        Self {
            kind,
            sets_exactly: false,
            lease: None,
            shared: Vec::new(),
            remembered: Vec::new(),
            writer_waits: false,
            queue: (kind == StoreKind::Queue).then(Vec::new),
            last_token: 0,
            forced: Vec::new(),
            next_number: 1,
            messages: Vec::new(),
            receivers: 0,
        }
    }

    pub(super) fn queues(&self) -> bool {
        self.queue.is_some()
    }

    pub(super) fn fresh(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    pub(super) fn is_shared(&self) -> bool {
        self.kind == StoreKind::Shared
    }

    pub(super) fn held(&self, now: Moment) -> Option<u64> {
        self.leases(now).next()
    }

    pub(super) fn holds(&self, number: u64, now: Moment) -> bool {
        self.leases(now).any(|held| held == number)
    }

    fn leases(&self, now: Moment) -> impl Iterator<Item = u64> {
        let leases = self.lease.iter().chain(&self.shared);
        leases.filter(move |(_, until)| *until > now).map(|(number, _)| *number)
    }

    pub(super) fn was_forced(&self, number: u64) -> bool {
        self.forced.contains(&number)
    }

    pub(super) fn has_position(&self, number: u64, now: Moment) -> bool {
        self.queue.iter().flatten().any(|position| position.number == number && position.until > now)
    }

    pub(super) fn numbers(&self, now: Moment) -> impl Iterator<Item = u64> {
        let queued = self.queue.iter().flatten().map(|position| (position.number, position.until));
        let waits = queued.chain(self.remembered.iter().copied()).filter(move |(_, until)| *until > now);
        self.leases(now).chain(waits.map(|(number, _)| number)).filter(|number| *number != THEIRS)
    }

    /// Returns the last token if `number` has the lock now. Otherwise the number gets a position.
    pub(super) fn acquire(
        &mut self,
        number: u64,
        lease: Duration,
        tokens: u64,
        since: Moment,
        now: Moment,
    ) -> Option<u64> {
        if self.is_shared() && number != THEIRS {
            return self.share(number, lease, now);
        }
        if self.held(now) != Some(number) {
            self.push(number, since, KEPT, now);
            self.pass_on(Some(number), now);
            if self.held(now).is_some() {
                return None;
            }
        }
        Some(self.lease_to(number, lease, tokens, now))
    }

    pub(super) fn release(&mut self, number: u64, now: Moment) {
        self.free(number, now);
        self.pass_on(None, now);
    }

    /// Releases, and names a waiter. `None` if there was no lease to release.
    pub(super) fn release_for(
        &mut self,
        number: u64,
        named: u64,
        lease: Duration,
        tokens: u64,
        since: Moment,
        now: Moment,
    ) -> Option<Reply> {
        if !self.free(number, now) {
            self.pass_on(None, now);
            return None;
        }
        self.push(named, since, KEPT, now);
        self.pass_on(Some(named), now);
        match self.held(now) {
            Some(_) => Some(Reply::Queued),
            None => Some(Reply::Leased(self.lease_to(named, lease, tokens, now))),
        }
    }

    pub(super) fn force(&mut self, now: Moment) {
        self.forced
            .extend(self.lease.take().into_iter().chain(self.shared.drain(..)).map(|(number, _)| number));
        self.pass_on(None, now);
    }

    /// Acquires together with others, unless another process has the lock alone or waits for that.
    fn share(&mut self, number: u64, lease: Duration, now: Moment) -> Option<u64> {
        self.pass_on(None, now);
        self.remembered.retain(|(other, _)| *other != number);
        if self.lease.is_some_and(|(_, until)| until > now) || self.writer_waits && !self.holds(number, now) {
            self.remembered.push((number, now + KEPT));
            return None;
        }
        self.share_beside(number, lease, now);
        self.last_token = self.last_token.max(1);
        Some(self.last_token)
    }

    pub(super) fn share_beside(&mut self, number: u64, lease: Duration, now: Moment) {
        let until = self.ends(number, now).max(Some(now + lease)).unwrap_or(now);
        self.shared.retain(|(other, _)| *other != number);
        self.shared.push((number, until));
    }

    /// Cuts all leases, as a renewal by another process that shares the lock does.
    pub(super) fn cut(&mut self, lease: Duration, now: Moment) {
        for (_, until) in &mut self.shared {
            *until = (*until).min(now + lease);
        }
    }

    /// Returns the last token, if `number` has the lock now, by a command that does not wait.
    pub(super) fn lease_anew(
        &mut self,
        number: u64,
        lease: Duration,
        tokens: u64,
        now: Moment,
    ) -> Option<u64> {
        if self.is_shared() {
            let token = self.share(number, lease, now);
            self.remembered.retain(|(other, _)| *other != number);
            return token;
        }
        if self.held(now) != Some(number) {
            self.pass_on(None, now);
        }
        let may = self.held(now).is_none_or(|held| held == number);
        may.then(|| self.lease_to(number, lease, tokens, now))
    }

    pub(super) fn ends(&self, number: u64, now: Moment) -> Option<Moment> {
        let mut leases = self.lease.iter().chain(&self.shared);
        leases.find(|(other, until)| *other == number && *until > now).map(|(_, until)| *until)
    }

    /// Makes the number's lease last at least for `lease` from now on. False if the number has no lease.
    pub(super) fn renew(&mut self, number: u64, lease: Duration, now: Moment) -> bool {
        let mut leases = self.lease.iter_mut().chain(&mut self.shared);
        let its = leases.find(|(other, until)| *other == number && *until > now);
        its.is_some_and(|(_, until)| {
            *until = (*until).max(now + lease);
            true
        })
    }

    pub(super) fn writer_waits(&mut self, now: Moment) {
        self.writer_waits = true;
        self.pass_on(None, now);
    }

    pub(super) fn push(&mut self, number: u64, since: Moment, kept: Duration, now: Moment) {
        let Some(queue) = &mut self.queue else { return };
        queue.retain(|position| position.until > now);
        match queue.iter_mut().find(|position| position.number == number) {
            Some(there) => there.until = now + kept,
            None => {
                let behind = queue.partition_point(|there| there.since <= since);
                queue.insert(behind, Position { number, since, until: now + kept });
            }
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some(queue) = &mut self.queue {
            queue.retain(|position| position.number != number);
        }
    }

    fn free(&mut self, number: u64, now: Moment) -> bool {
        self.remove(number);
        let had_it = self.holds(number, now);
        self.lease = self.lease.filter(|(other, _)| *other != number);
        self.shared.retain(|(other, _)| *other != number);
        self.remembered.retain(|(other, _)| *other != number);
        had_it
    }

    /// Leases a free lock to the first of the queue, unless the first is `not_yet`, and sends the message.
    fn pass_on(&mut self, not_yet: Option<u64>, now: Moment) {
        if self.held(now).is_some() {
            return;
        }
        if std::mem::take(&mut self.writer_waits) {
            self.lease = Some((THEIRS, now + LEASE * 3));
        }
        let Some(queue) = &mut self.queue else { return };
        queue.retain(|position| position.until > now);
        if queue.first().is_some_and(|first| Some(first.number) != not_yet) {
            let Position { number, until, .. } = queue.remove(0);
            self.lease = Some((number, until));
            if number != THEIRS {
                self.messages.push(number);
            }
        }
    }

    fn lease_to(&mut self, number: u64, lease: Duration, tokens: u64, now: Moment) -> u64 {
        self.remove(number);
        // Never shorter, except at a store that sets lengths exactly.
        let before = self.lease.filter(|(other, _)| *other == number && !self.sets_exactly);
        let until = now + lease;
        self.lease = Some((number, before.map_or(until, |(_, before)| before.max(until))));
        self.last_token += tokens;
        self.last_token
    }

    pub(super) fn has_told(&self) -> bool {
        !self.messages.is_empty()
    }

    pub(super) fn tell(&mut self) {
        self.receivers = self.receivers.max(self.messages.remove(0));
    }

    pub(super) fn receivers(&self) -> u64 {
        self.receivers
    }
}
