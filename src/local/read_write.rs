//! Read-write locks of a [`Local`].

use std::time::Duration;

use crate::lock::{
    AcquireOutcome, FairReleaseOutcome, LeaseId, LeaseKey, LockKind, LockName, Next, Position, ReadRequest,
    ReadWriteBackend, ReadWriteHolders,
};
use crate::lock_entry::Moment;
use crate::runtime::Runtime;
use crate::transport::Message;

use super::turns::{News, ReadWrite, Turns};
use super::{Held, Lease, Local, OtherKind, Tokens, entry};

impl Lease {
    /// The read-write lock that this is, or is from now on if it is free.
    fn read_write(&mut self, now: Moment) -> Result<&mut ReadWrite, OtherKind> {
        if self.kind != LockKind::ReadWrite {
            if self.is_alive(now) {
                return Err(self.other_kind());
            }
            (self.id, self.kind) = (None, LockKind::ReadWrite);
            // A lock of another kind may have had a greater one since.
            self.read_write.as_mut().and_then(|lock| lock.shared_token.take());
        }
        Ok(self.read_write.get_or_insert_default())
    }
}

impl Held {
    /// Carries out a step of a read-write lock, and says what others are to be told of it.
    fn step<T>(
        &mut self,
        name: &LockName,
        now: Moment,
        told: &dyn Fn(&LeaseId) -> bool,
        step: impl FnOnce(&mut Turns<'_>, &mut Tokens) -> T,
    ) -> Result<(T, News), OtherKind> {
        self.sweep(now);
        let Self { by_name, writers, readers, tokens, .. } = self;
        let lease = entry(by_name, name, now);
        let lock = lease.read_write(now)?;
        let mut turns = Turns { name, now, lock, writers, readers, told, news: News::default() };
        turns.settle();
        let outcome = step(&mut turns, tokens);
        let (news, until) = (turns.news, turns.lock.until());
        lease.until = until.unwrap_or(now);
        Ok((outcome, news))
    }

    /// One answer for each lease, by what `renew` says of its lock. Tells nobody: a lease that lasts longer lets nobody in.
    fn renew_each(
        &mut self,
        leases: &[LeaseKey],
        now: Moment,
        renew: impl Fn(&mut ReadWrite, &LeaseId) -> bool,
    ) -> Vec<bool> {
        let renewed = leases.iter().map(|key| {
            let Some(lease) = self.alive(&key.name, now) else { return false };
            let Ok(lock) = lease.read_write(now) else { return false };
            let renewed = renew(lock, &key.id);
            lease.until = lock.until().unwrap_or(now);
            renewed
        });
        renewed.collect()
    }
}

impl<R: Runtime + Clone> Local<R> {
    /// Carries out a step of a read-write lock, and tells others of it.
    fn step<T>(
        &self,
        name: &LockName,
        now: Moment,
        step: impl FnOnce(&mut Turns<'_>, &mut Tokens) -> T,
    ) -> Result<T, OtherKind> {
        let channel = |id: &LeaseId| self.write_grant_channel(name, &id.client_id());
        let transport = self.registry.transport();
        // Should the client cease to listen before it is told, it gives back what it was granted.
        let told = |id: &LeaseId| transport.is_subscribed(&channel(id));
        let (outcome, news) = self.held.lock().step(name, now, &told, step)?;
        if transport.is_unheard() {
            return Ok(outcome);
        }
        if let Some(id) = news.granted {
            transport.publish(&channel(&id), Message::Granted(id.number()));
        }
        if let Some(message) = news.message {
            transport.publish(&self.read_write_channel(name), message);
        }
        Ok(outcome)
    }

    /// Forgets an id at a name that is held as another kind of lock.
    fn forget(&self, name: &LockName, id: &LeaseId) {
        let mut held = self.held.lock();
        held.writers.remove(name, id);
        held.readers.remove(name, id);
    }
}

fn outcome(tried: Result<u64, Duration>) -> AcquireOutcome {
    match tried {
        Ok(last_token) => AcquireOutcome::Acquired { last_token },
        Err(left) => AcquireOutcome::Held { left },
    }
}

impl<R: Runtime + Clone> ReadWriteBackend for Local<R> {
    fn read_write_channel(&self, name: &LockName) -> String {
        // The channel of no plain lock, whatever that is called.
        ["\0read-write:", name.as_str()].concat()
    }

    fn write_grant_channel(&self, name: &LockName, client: &str) -> String {
        ["\0granted to write:", client, ":", name.as_str()].concat()
    }

    async fn try_write(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        position: Option<Position>,
        now: Moment,
    ) -> Result<AcquireOutcome, OtherKind> {
        let tried = self.step(name, now, |turns, counter| {
            turns.try_write(id, now + lease, position).map(|()| {
                // What reads beside it had one before, and what reads after it gets a greater one than this.
                turns.lock.shared_token.take_if(|_| tokens > 0);
                counter.reserve(tokens)
            })
        })?;
        Ok(outcome(tried))
    }

    async fn release_write(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
    ) -> Result<FairReleaseOutcome, OtherKind> {
        let released = self.step(name, self.now(), |turns, counter| match turns.release_write(id, next) {
            (true, true) => FairReleaseOutcome::GrantedToNext {
                last_token: counter.reserve(next.map_or(0, |next| next.tokens)),
            },
            (true, false) => FairReleaseOutcome::Released,
            (false, _) => FairReleaseOutcome::NotHeld,
        });
        Ok(released.unwrap_or_else(|_| {
            self.forget(name, id);
            FairReleaseOutcome::NotHeld
        }))
    }

    async fn try_read(
        &self,
        name: &LockName,
        id: &LeaseId,
        read: &ReadRequest<'_>,
        now: Moment,
    ) -> Result<AcquireOutcome, OtherKind> {
        let tried = self.step(name, now, |turns, counter| {
            let tried = turns.try_read(id, read);
            tried.map(|()| if read.fenced { counter.share(&mut turns.lock.shared_token) } else { 0 })
        })?;
        Ok(outcome(tried))
    }

    async fn release_read(&self, name: &LockName, id: &LeaseId) -> Result<bool, OtherKind> {
        let released = self.step(name, self.now(), |turns, _| turns.release_read(id));
        Ok(released.unwrap_or_else(|_| {
            self.forget(name, id);
            false
        }))
    }

    async fn renew_writes(&self, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, OtherKind> {
        let now = self.now();
        Ok(self.held.lock().renew_each(leases, now, |lock, id| lock.renew_write(id, now + lease, now)))
    }

    async fn renew_reads(&self, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, OtherKind> {
        let now = self.now();
        Ok(self.held.lock().renew_each(leases, now, |lock, id| lock.renew_read(id, now + lease, now)))
    }

    async fn force_release_read_write(&self, name: &LockName) -> Result<bool, OtherKind> {
        self.step(name, self.now(), |turns, _| turns.force_release())
    }

    async fn read_write_holders(&self, name: &LockName) -> Result<ReadWriteHolders, OtherKind> {
        let now = self.now();
        let mut held = self.held.lock();
        match held.alive(name, now) {
            Some(lease) => Ok(lease.read_write(now)?.holders(now)),
            None => Ok(ReadWriteHolders::default()),
        }
    }
}
