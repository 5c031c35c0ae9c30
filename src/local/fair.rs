//! Fair locks of a [`Local`].
//!
//! All clients of one `Local` are in this process, and most have one: then its queue is empty, and the one in the client's
//! [`LockEntry`](crate::LockEntry) is the order. This one orders several clients.

use std::time::Duration;

use crate::fault::fault;
use crate::lock::{
    AcquireOutcome, FairBackend, FairReleaseOutcome, LeaseId, LockKind, LockName, Next, Position,
};
use crate::lock_entry::Moment;
use crate::runtime::Runtime;
use crate::transport::Message;

use super::queue::Waiter;
use super::{Held, Local, OtherKind, entry};

/// Who was granted the lock by this step, to be told when the mutex is free.
type Granted = Option<LeaseId>;

impl Held {
    /// Leases `name`, which nobody has.
    fn lease_fair(&mut self, name: &LockName, id: LeaseId, until: Moment, now: Moment) {
        let lease = entry(&mut self.by_name, name, now);
        let was_dead = lease.id.is_none();
        (lease.id, lease.until, lease.kind) = (Some(id), until, LockKind::Fair);
        if was_dead {
            self.sweep.revives();
        }
    }

    /// Leases `name`, which nobody has, to the first of the queue who can be told.
    fn pass_on(
        &mut self,
        name: &LockName,
        now: Moment,
        not_behind: Option<&LeaseId>,
        told: impl Fn(&LeaseId) -> bool,
    ) -> Granted {
        let Waiter { id, until, .. } = self.fair.pop_first(name, now, not_behind, told)?;
        self.lease_fair(name, id.clone(), until, now);
        Some(id)
    }
}

impl<R: Runtime + Clone> Local<R> {
    /// Tells whose turn it is.
    fn tell(&self, name: &LockName, granted: Granted) {
        if let Some(id) = granted
            && !fault!(LocalGrantsInSilence)
        {
            let channel = self.grant_channel(name, &id.client_id());
            self.registry.transport().publish(&channel, Message::Granted(id.number()));
        }
    }

    /// Whether the client of `id` listens. Should it cease to do so before it is told, it gives back what it was granted.
    fn listens(&self, name: &LockName, id: &LeaseId) -> bool {
        self.registry.transport().is_subscribed(&self.grant_channel(name, &id.client_id()))
    }
}

impl<R: Runtime + Clone> FairBackend for Local<R> {
    fn grant_channel(&self, name: &LockName, client: &str) -> String {
        // The channel of no plain lock, whatever that is called.
        ["\0granted:", client, ":", name.as_str()].concat()
    }

    async fn try_acquire_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        position: Option<Position>,
        now: Moment,
    ) -> Result<AcquireOutcome, OtherKind> {
        let (outcome, granted) = {
            let mut held = self.held.lock();
            held.sweep(now);
            // `None`: it is free. Otherwise until when it lasts, if it is leased to this id.
            let ours = match held.alive(name, now) {
                Some(lease) if lease.kind != LockKind::Fair => return Err(lease.other_kind()),
                holder => holder.map(|lease| (lease.id.as_ref() == Some(id)).then_some(lease.until)),
            };
            if let Some(position) = position {
                held.fair.push(name, Waiter::new(id, position, now), now);
            }
            let granted = match ours {
                None => held.pass_on(name, now, position.map(|_| id), |id| self.listens(name, id)),
                Some(_) => None,
            };
            if granted.is_none() && ours != Some(None) {
                held.fair.remove(name, id);
                // Never shorter, as long as it lasts.
                let until = ours.flatten().max(Some(now + lease)).unwrap_or(now);
                held.lease_fair(name, id.clone(), until, now);
                (AcquireOutcome::Acquired { last_token: held.tokens.reserve(tokens) }, None)
            } else {
                let left = held.alive(name, now).map_or(Duration::ZERO, |lease| lease.left(now));
                (AcquireOutcome::Held { left }, granted)
            }
        };
        self.tell(name, granted);
        Ok(outcome)
    }

    async fn release_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
    ) -> Result<FairReleaseOutcome, OtherKind> {
        let now = self.now();
        let (outcome, granted) = {
            let mut held = self.held.lock();
            held.fair.remove(name, id);
            let had_it = held.release(name, id, || now);
            let next = next.filter(|_| had_it);
            if let Some(Next { id: next, position, .. }) = next {
                held.fair.push(name, Waiter::new(next, *position, now), now);
            }
            let granted = match held.alive(name, now) {
                Some(_) => None,
                None if next.is_some() && fault!(LocalNamedOvertakes) => None,
                None => held.pass_on(name, now, next.map(|next| &next.id), |id| self.listens(name, id)),
            };
            let outcome = match next {
                _ if !had_it => FairReleaseOutcome::NotHeld,
                Some(next) if granted.is_none() => {
                    held.fair.remove(name, &next.id);
                    held.lease_fair(name, next.id.clone(), now + next.lease, now);
                    FairReleaseOutcome::GrantedToNext { last_token: held.tokens.reserve(next.tokens) }
                }
                _ => FairReleaseOutcome::Released,
            };
            (outcome, granted)
        };
        self.tell(name, granted);
        Ok(outcome)
    }

    async fn force_release_fair(&self, name: &LockName) -> Result<bool, OtherKind> {
        let now = self.now();
        let (freed, granted) = {
            let mut held = self.held.lock();
            let freed = match held.alive(name, now) {
                Some(lease) if lease.kind != LockKind::Fair => return Err(lease.other_kind()),
                Some(lease) => lease.id.take().is_some(),
                None => false,
            };
            (freed, held.pass_on(name, now, None, |id| self.listens(name, id)))
        };
        self.tell(name, granted);
        Ok(freed)
    }
}
