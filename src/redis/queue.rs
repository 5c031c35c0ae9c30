//! The queues of waiters for exclusive locks: fair locks, and the write half of read-write locks.

use std::time::{Duration, Instant};

use ::redis::Cmd;

use crate::backend::{
    AcquireOutcome, AcquireRequest, LockName, Mode, NextWaiter, QueuePosition, ReleaseOutcome,
};
use crate::lock::LeaseId;
use crate::runtime::Runtime;

use super::backend::{Redis, attempted, freed, millis};
use super::connection::{Error, Line, WireRequest};
use super::keys;
use super::scripts::{AGAIN, MOST_TIMES, QueueScripts, Reply, Script, endless};
use super::topology::{Messages, Router, Sent};

/// What they wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueKind {
    Fair,
    ReadWrite,
}

impl QueueKind {
    /// What the waiters of this mode wait for.
    pub(super) fn of(mode: Mode) -> Self {
        if mode == Mode::Fair { Self::Fair } else { Self::ReadWrite }
    }

    /// What the channels begin with on which clients are told that they were granted the lock.
    fn grants(self, name: &str) -> String {
        match self {
            Self::Fair => keys::grants(name),
            Self::ReadWrite => keys::write_grants(name),
        }
    }
}

/// Keys and arguments of a script.
pub(super) struct ScriptCall {
    pub(super) keys: Vec<String>,
    /// All but `waited`.
    args: Vec<String>,
    /// The last one, if a waiter is about to get a position: for how long it has waited, and when that was
    /// so.
    waited: Option<(Duration, Instant)>,
    /// See [`WireRequest`].
    announced: bool,
}

impl ScriptCall {
    /// Writes these words as of `now`: a command may be on its way for longer than others have waited.
    fn write(&self, command: &mut Cmd, now: Instant) {
        command.arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        if let Some((waited, then)) = self.waited {
            command.arg((waited + now.saturating_duration_since(then)).as_micros().to_string());
        }
    }
}

/// A call of a script of a lock that has a queue.
pub(super) struct Call<'a> {
    pub(super) kind: QueueKind,
    pub(super) name: &'a LockName,
    /// Whether it may free the lock.
    pub(super) releases: bool,
    /// Keys behind those of the kind.
    pub(super) keys: Vec<String>,
    /// The script's own arguments, but the last if there is a position.
    pub(super) own: Vec<String>,
    /// Then the last one is by its age.
    pub(super) position: Option<QueuePosition>,
}

impl Redis {
    fn queue_scripts(&self, kind: QueueKind) -> &QueueScripts {
        match kind {
            QueueKind::Fair => &self.scripts.fair,
            QueueKind::ReadWrite => &self.scripts.write,
        }
    }

    /// The keys of the lock, and what scripts of its kind are told before their own arguments.
    pub(super) fn words(&self, call: Call<'_>) -> ScriptCall {
        let (topology, name) = (self.router.topology(), call.name.as_str());
        // Grants go out in both kinds, too, as they go to clients of a fleet of which some listen to the
        // other one already. Of those the node does not know.
        let other = if self.publishes_both { topology.messages().other().publish() } else { "" };
        let knows_all = topology.knows_all_listeners()
            && !(self.publishes_both && topology.messages() == Messages::Sharded);
        let grants = call.kind.grants(name);
        let ([queue, positions], beside, channel) = match call.kind {
            QueueKind::Fair => {
                (keys::fair_queue(name), vec![keys::redisson_queue(name)], keys::channel(name))
            }
            QueueKind::ReadWrite => {
                let channel = keys::read_write_channel(name);
                (keys::write_queue(name), keys::waiting_readers(name).into(), channel)
            }
        };
        let passed_on = &self.passed_on[call.kind as usize];
        let common = [self.publish(), other, if knows_all { "1" } else { "0" }];
        let mut args: Vec<String> = common.map(str::to_owned).into();
        args.extend([channel, keys::UNLOCK_MESSAGE.to_owned(), grants, keys::GRANTED.to_owned()]);
        if call.kind == QueueKind::ReadWrite {
            let spare = if call.releases && passed_on.is_enough(call.name) { "1" } else { "" };
            args.extend([keys::READ_UNLOCK_MESSAGE.to_owned(), keys::read_leases(name), spare.to_owned()]);
        }
        args.extend(call.own);
        let own = [name.to_owned(), queue, positions].into_iter().chain(beside);
        let keys = own.chain(call.keys).collect();
        let now = self.common.runtime.now();
        // A waiter that is named with it is of this process, and has it by the reply.
        let announced = call.releases && call.position.is_none() && passed_on.last_time(call.name);
        ScriptCall { keys, args, waited: call.position.map(|position| (position.waited, now)), announced }
    }

    /// The nonce of a waiter that is to be enqueued.
    fn nonce(&self, kind: QueueKind, name: &LockName, waiter: &LeaseId) -> String {
        let grants = kind.grants(name.as_str());
        self.nonces.text(&(grants + &waiter.client_id()), waiter.number())
    }

    /// Whether the lease was held by the id that was released, by the reply.
    pub(super) fn released(&self, kind: QueueKind, name: &LockName, reply: i64) -> bool {
        if reply > 0 {
            self.passed_on[kind as usize].count(name, reply == 2, self.common.runtime.now());
        }
        reply > 0
    }

    /// Sends it until it has an answer: see [`AGAIN`]. Each that is sent leaves less to look at.
    pub(super) async fn send_words(
        &self,
        router: &Router,
        name: &LockName,
        script: &Script,
        words: &ScriptCall,
        again: bool,
    ) -> Result<(Reply, Sent), Error> {
        let words_of = |command: &mut Cmd, now: Instant| words.write(command, now);
        let announced = words.announced;
        let request =
            WireRequest { again, announced, line: Line::GiveBack, ..self.request(script, name, &words_of) };
        let mut any = Sent::Once;
        for _ in 0..MOST_TIMES {
            let (reply, sent) = router.send(&request).await?;
            if sent == Sent::Again {
                any = Sent::Again;
            }
            if !matches!(reply, Reply::Number(AGAIN)) {
                return Ok((reply, any));
            }
        }
        Err(endless(name))
    }

    /// An attempt by `id` to take a lock, in whichever way.
    pub(super) async fn attempt_words(
        &self,
        script: &Script,
        words: &ScriptCall,
        name: &LockName,
        id: &LeaseId,
    ) -> Result<AcquireOutcome, Error> {
        let words_of = |command: &mut Cmd, now: Instant| words.write(command, now);
        let request = self.request(script, name, &words_of);
        for _ in 0..MOST_TIMES {
            let reply = self.attempt_once(id, &request).await?;
            if !matches!(reply, Some(Reply::Number(AGAIN))) {
                return attempted(name, reply);
            }
        }
        Err(endless(name))
    }

    /// Takes the lock if no waiter is before `id`, which gets a position otherwise.
    pub(super) async fn take(
        &self,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, Error> {
        let kind = QueueKind::of(mode);
        let AcquireRequest { id, lease, tokens, position, .. } = request;
        let (lease, tokens, position) = (*lease, *tokens, *position);
        let mut own = vec![millis(lease).to_string(), keys::id(id), tokens.to_string()];
        if let Some(position) = position {
            own.extend([millis(position.kept).to_string(), self.nonce(kind, name, id)]);
        }
        let keys = counter(name, tokens);
        let words = self.words(Call { kind, name, releases: false, keys, own, position });
        self.attempt_words(&self.queue_scripts(kind).acquire, &words, name, id).await
    }

    /// Passes the lock on if `id` has it, and takes `id` out of the queue.
    pub(super) async fn pass_on(
        &self,
        mode: Mode,
        router: &Router,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> Result<ReleaseOutcome, Error> {
        let kind = QueueKind::of(mode);
        let tokens = next.map_or(0, |next| next.tokens);
        let position = next.map(|next| next.position);
        let mut own = vec![keys::id(id)];
        if let Some(NextWaiter { id, lease, position, .. }) = next {
            own.extend([keys::id(id), millis(*lease).to_string(), tokens.to_string()]);
            own.extend([millis(position.kept).to_string(), self.nonce(kind, name, id)]);
        }
        let keys = counter(name, tokens);
        let words = self.words(Call { kind, name, releases: true, keys, own, position });
        let script = &self.queue_scripts(kind).release;
        let (reply, sent) = self.send_words(router, name, script, &words, true).await?;
        Ok(match reply {
            Reply::Token(last_token) => {
                self.released(kind, name, 1);
                ReleaseOutcome::GrantedToNext { last_token }
            }
            Reply::Number(reply) if self.released(kind, name, reply) => {
                ReleaseOutcome::Released { receivers: 0 }
            }
            // The first sending has passed it on. (That it was lost before then cannot be told from that, and
            // comes to the same.)
            _ if sent == Sent::Again => ReleaseOutcome::Released { receivers: 0 },
            _ => ReleaseOutcome::NotHeld,
        })
    }

    /// Frees the lock, whichever owner has it. True if it was held.
    pub(super) async fn force(&self, mode: Mode, name: &LockName) -> Result<bool, Error> {
        let kind = QueueKind::of(mode);
        let words = self.words(Call {
            kind,
            name,
            releases: false,
            keys: Vec::new(),
            own: Vec::new(),
            position: None,
        });
        let script = &self.queue_scripts(kind).force_release;
        // Not again: another owner may have it by then.
        freed(name, self.send_words(&self.router, name, script, &words, false).await?.0)
    }
}

/// Where tokens come from, if any are wanted.
pub(super) fn counter(name: &LockName, tokens: u64) -> Vec<String> {
    if tokens > 0 { vec![keys::token(name.as_str())] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenant without rights to the tokens' keys is served as long as no tokens are asked for.
    #[test]
    fn command_that_asks_for_no_token_names_no_key_of_tokens() {
        let name = LockName::new("orders").unwrap();
        assert_eq!(counter(&name, 0), Vec::<String>::new());
        assert_eq!(counter(&name, 1), [keys::token("orders")]);
    }
}
