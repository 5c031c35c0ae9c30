//! The queues of waiters: of fair locks, of writers, and of permits with leases.

use std::time::{Duration, Instant};

use ::redis::Cmd;

use crate::backend::{
    AcquireOutcome, AcquireRequest, LockName, Mode, Moment, NextWaiter, Permits, QueuePosition,
    ReleaseOutcome,
};
use crate::lock::{Holder, LeaseId};
use crate::support::runtime::Runtime;

use super::backend::{Redis, attempted, duration, freed, millis, waited_until};
use super::connection::{Error, Line, WireRequest};
use super::keys::{self, QueueKind};
use super::scripts::{
    AGAIN, ENDED_AND_AGAIN, MAX_CALLS, PERMITS_HOLDERS, PERMITS_RELEASE, QUEUES, Reply, Script, TAKE_FREE,
    endless,
};
use super::topology::Router;

pub(super) struct ScriptCall {
    pub(super) keys: Vec<String>,
    /// All arguments but `waited`.
    pub(super) args: Vec<String>,
    /// The last argument, if a waiter may be enqueued: its waiting time, and when that was measured.
    waited: Option<(Duration, Moment)>,
    /// See [`WireRequest`].
    announced: bool,
}

impl ScriptCall {
    /// Lets the call enqueue a waiter, if there is a position.
    pub(super) fn enqueue(&mut self, position: Option<QueuePosition>, sent: Moment) {
        if let Some(position) = position {
            self.waited = Some((position.waited, sent));
            // A next waiter is of this process, and learns of its lease by the reply.
            self.announced = false;
        }
    }

    /// Writes the call as of `now`, so that a slow command does not cost its waiter the place in the queue.
    fn write(&self, command: &mut Cmd, now: Instant) {
        command.arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        if let Some((waited, sent)) = self.waited {
            command.arg(waited_until(now, waited, sent).to_string());
        }
    }
}

impl Redis {
    /// A call with the keys and arguments common to all scripts of the kind. `releases`: may free the lock.
    pub(super) fn call(&self, kind: QueueKind, name: &LockName, releases: bool) -> ScriptCall {
        let (topology, lock) = (self.router.topology(), name.as_str());
        let [queue, positions] = kind.queue(lock);
        let (beside, channel) = match kind {
            QueueKind::Fair => (vec![keys::redisson_queue(lock)], keys::channel(lock)),
            QueueKind::ReadWrite => (keys::waiting_readers(lock).into(), keys::read_write_channel(lock)),
            // Whoever waits for permits is queued, and is told of a grant.
            QueueKind::Permits => (Vec::new(), String::new()),
        };
        let stats = &self.hand_off_stats;
        let common = [self.publish(), if topology.knows_all_listeners() { "1" } else { "0" }];
        let mut args: Vec<String> = common.map(str::to_owned).into();
        let (grants, granted) = (kind.grants(lock), keys::GRANTED.to_owned());
        args.extend([channel, keys::UNLOCK_MESSAGE.to_owned(), grants, granted]);
        if kind == QueueKind::ReadWrite {
            let spare = if releases && stats.is_enough(name) { "1" } else { "" };
            args.extend([keys::READ_UNLOCK_MESSAGE.to_owned(), keys::read_leases(lock), spare.to_owned()]);
        }
        let keys = [lock.to_owned(), queue, positions].into_iter().chain(beside).collect();
        ScriptCall { keys, args, waited: None, announced: releases && stats.last_time(name) }
    }

    pub(super) fn nonce(&self, kind: QueueKind, name: &LockName, waiter: &LeaseId) -> String {
        let grants = kind.grants(name.as_str());
        self.nonces.text(&(grants + &waiter.client_id()), waiter.number())
    }

    /// True if the reply says that the released id held the lease. Counts the release.
    pub(super) fn released(&self, name: &LockName, reply: i64) -> bool {
        if reply > 0 {
            self.hand_off_stats.count(name, reply == 2);
        }
        reply > 0
    }

    /// Sends a call until it has an answer, see [`AGAIN`]. Each call leaves fewer waiters to look at. The
    /// second part of the result: as of [`Router::send`].
    pub(super) async fn send_words(
        &self,
        router: &Router,
        name: &LockName,
        script: &Script,
        words: &ScriptCall,
        again: bool,
    ) -> Result<(Reply, bool), Error> {
        let words_of = |command: &mut Cmd, now: Instant| words.write(command, now);
        let announced = words.announced;
        let request =
            WireRequest { again, announced, line: Line::GiveBack, ..self.request(script, name, &words_of) };
        let mut any_resent = false;
        for _ in 0..MAX_CALLS {
            let (reply, resent) = router.send(&request).await?;
            any_resent |= resent;
            if !matches!(reply, Reply::Number(AGAIN)) {
                return Ok((reply, any_resent));
            }
        }
        Err(endless(name))
    }

    /// Sends an attempt by `id` to take a lock, until the script has an answer.
    pub(super) async fn attempt_words(
        &self,
        script: &Script,
        words: &ScriptCall,
        name: &LockName,
        id: &LeaseId,
    ) -> Result<AcquireOutcome, Error> {
        let words_of = |command: &mut Cmd, now: Instant| words.write(command, now);
        let request = self.request(script, name, &words_of);
        for _ in 0..MAX_CALLS {
            let reply = self.attempt_once(id, &request).await?;
            if !matches!(reply, Some(Reply::Number(AGAIN))) {
                return attempted(name, reply);
            }
        }
        Err(endless(name))
    }

    /// True if a short script may decide an attempt: the first of an owner without other holds and tokens.
    pub(super) fn is_simple(&self, name: &LockName, request: &AcquireRequest) -> bool {
        let AcquireRequest { tokens, position, under, .. } = request;
        let is_first = position.is_none_or(|position| position.waited.is_zero());
        // If the last release passed the lock on, the lock is most likely held.
        *tokens == 0 && is_first && under.is_none() && !self.hand_off_stats.last_time(name)
    }

    /// Sends an attempt by a short script. Returns `None` if the kind's full script has to decide.
    pub(super) async fn attempt_simple(
        &self,
        script: &Script,
        name: &LockName,
        request: &AcquireRequest,
        words: &(dyn Fn(&mut Cmd, Instant) + Sync),
    ) -> Result<Option<AcquireOutcome>, Error> {
        match self.attempt_once(&request.id, &self.request(script, name, words)).await? {
            Some(Reply::Number(AGAIN)) => Ok(None),
            // The full script gives the waiter its position.
            Some(Reply::Number(_)) if request.position.is_some() => Ok(None),
            reply => attempted(name, reply).map(Some),
        }
    }

    /// Takes the lock, or permits, if no waiter comes before `id`; otherwise gives `id` a position.
    pub(super) async fn take(
        &self,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, Error> {
        let kind = QueueKind::of(mode);
        let &AcquireRequest { ref id, lease, tokens, position, permits, sent, .. } = request;
        let words = |command: &mut Cmd, _: Instant| {
            let field = if mode == Mode::Write { keys::writer(id) } else { keys::id(id) };
            let [queue, _] = kind.queue(name.as_str());
            command.arg(2).arg(name.as_str()).arg(queue).arg(millis(lease)).arg(field).arg(mode.to_string());
        };
        if kind != QueueKind::Permits
            && self.is_simple(name, request)
            && let Some(outcome) = self.attempt_simple(&TAKE_FREE, name, request, &words).await?
        {
            return Ok(outcome);
        }
        let mut call = self.call(kind, name, false);
        call.args.extend([millis(lease).to_string(), keys::id(id)]);
        if kind == QueueKind::Permits {
            let Permits { count, capacity } = permits.unwrap_or_default();
            call.args.extend([count.to_string(), capacity.to_string()]);
        } else {
            call.keys.extend(counter(name, tokens));
            call.args.push(tokens.to_string());
        }
        if let Some(position) = position {
            call.args.extend([millis(position.kept).to_string(), self.nonce(kind, name, id)]);
        }
        call.enqueue(position, sent);
        let [acquire, ..] = QUEUES[kind as usize];
        self.attempt_words(acquire, &call, name, id).await
    }

    /// Passes the lock on if `id` holds it, and removes `id` from the queue.
    pub(super) async fn pass_on(
        &self,
        mode: Mode,
        router: &Router,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> Result<ReleaseOutcome, Error> {
        let kind = QueueKind::of(mode);
        let mut call = self.call(kind, name, true);
        call.args.push(keys::id(id));
        if let Some(NextWaiter { id, lease, tokens, position }) = next {
            call.keys.extend(counter(name, *tokens));
            call.args.extend([keys::id(id), millis(*lease).to_string(), tokens.to_string()]);
            call.args.extend([millis(position.kept).to_string(), self.nonce(kind, name, id)]);
            call.enqueue(Some(*position), self.common.runtime.now().into());
        }
        let [_, release, _] = QUEUES[kind as usize];
        let (reply, resent) = self.send_words(router, name, release, &call, true).await?;
        Ok(match reply {
            Reply::Token(last_token) => {
                self.released(name, 1);
                ReleaseOutcome::GrantedToNext { last_token }
            }
            Reply::Number(reply) if self.released(name, reply) => ReleaseOutcome::Released { receivers: 0 },
            // The first sending passed the lock on. (Or the lease was lost before: the effect is the same.)
            _ if resent => ReleaseOutcome::Released { receivers: 0 },
            _ => ReleaseOutcome::NotHeld,
        })
    }

    /// Frees the lock, or all permits, whichever owner holds it. True if the lock was held.
    pub(super) async fn force(&self, mode: Mode, name: &LockName) -> Result<bool, Error> {
        let kind = QueueKind::of(mode);
        let call = self.call(kind, name, false);
        let [.., force_release] = QUEUES[kind as usize];
        // Not resent: by then, another owner may hold the lock.
        let (reply, _) = self.send_words(&self.router, name, force_release, &call, false).await?;
        if let Reply::Number(ENDED_AND_AGAIN) = reply {
            self.serve(&self.router, name, "").await?;
            return Ok(true);
        }
        freed(name, reply)
    }

    /// Ends the lease of `id`, or its position, and grants the free permits to the first waiters.
    pub(super) async fn give_permits_back(
        &self,
        router: &Router,
        name: &LockName,
        id: &LeaseId,
    ) -> Result<ReleaseOutcome, Error> {
        let had_it = self.serve(router, name, &keys::id(id)).await?;
        Ok(if had_it { ReleaseOutcome::Released { receivers: 0 } } else { ReleaseOutcome::NotHeld })
    }

    /// Ends a lease or a position, if the id has one, and serves the waiters. True if the id had a lease.
    pub(super) async fn serve(&self, router: &Router, name: &LockName, id: &str) -> Result<bool, Error> {
        let mut call = self.call(QueueKind::Permits, name, true);
        call.args.push(id.to_owned());
        let mut had_it = false;
        for _ in 0..MAX_CALLS {
            let (reply, resent) = self.send_words(router, name, &PERMITS_RELEASE, &call, true).await?;
            // The first sending ended the lease. (Or the lease was lost before: the effect is the same.)
            had_it |= resent || matches!(reply, Reply::Number(1 | ENDED_AND_AGAIN));
            if !matches!(reply, Reply::Number(ENDED_AND_AGAIN)) {
                return Ok(had_it);
            }
        }
        Err(endless(name))
    }

    pub(super) async fn permits_holders(&self, name: &LockName) -> Result<Vec<Holder>, Error> {
        let words = |command: &mut Cmd, _: Instant| _ = command.arg(1).arg(name.as_str());
        let request = self.request(&PERMITS_HOLDERS, name, &words);
        let ((holders, other), _): (PermitHolders, bool) = self.router.send(&request).await?;
        if let Some(mode) = other {
            return Err(Error::other_kind(name, &mode));
        }
        let holder = |(id, left, permits): (String, i64, u32)| {
            Holder::new(id.parse().ok(), duration(left)).mode(Mode::Permits).permits(permits)
        };
        Ok(holders.into_iter().map(holder).collect())
    }
}

/// The reply of `permits_holders.lua`: each lease with its rest in ms and its permits, and the field `mode`
/// of another kind of lock.
type PermitHolders = (Vec<(String, i64, u32)>, Option<String>);

pub(super) fn counter(name: &LockName, tokens: u64) -> Option<String> {
    (tokens > 0).then(|| keys::token(name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenant without rights to token keys can use locks without tokens.
    #[test]
    fn command_that_asks_for_no_token_names_no_key_of_tokens() {
        let name = LockName::new("orders").unwrap();
        assert_eq!(counter(&name, 0), None);
        assert_eq!(counter(&name, 1), Some(keys::token("orders")));
    }
}
