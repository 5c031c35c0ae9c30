//! Fair locks of [`Redis`].

use std::time::{Duration, Instant};

use ::redis::Cmd;

use crate::lock::{
    AcquireOutcome, FairBackend, FairReleaseOutcome, LeaseId, LockName, Moment, Next, Position,
};

use super::backend::{Redis, freed, millis};
use super::connection::{Error, Request};
use super::keys;
use super::scripts::{Reply, Script};
use super::topology::{Messages, Router, Sent};

/// Keys and arguments of a script.
struct Words {
    keys: Vec<String>,
    /// All but the last.
    args: Vec<String>,
    /// The last one: for how long the waiter has waited that is about to get a position, and when that was so.
    waited: Option<(Duration, Instant)>,
}

impl Words {
    /// A call with these words, as of now. A command may be on its way for longer than others have waited.
    fn call(&self, call: impl Fn(&[&str], &[&str]) -> Cmd) -> Cmd {
        let waited = self.waited.map(|(waited, then)| (waited + then.elapsed()).as_micros().to_string());
        let keys: Vec<_> = self.keys.iter().map(|key| &**key).collect();
        let args = self.args.iter().map(|arg| &**arg);
        call(&keys, &args.chain([waited.as_deref().unwrap_or_default()]).collect::<Vec<_>>())
    }
}

impl FairBackend for Redis {
    fn grant_channel(&self, name: &LockName, client: &str) -> String {
        keys::grants(name.as_str()) + client
    }

    fn grants_suffice(&self) -> bool {
        // Of a lease that a release has granted no replica need have heard.
        self.acquisitions.is_none()
    }

    async fn try_acquire_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        position: Option<Position>,
        _now: Moment,
    ) -> Result<AcquireOutcome, Error> {
        let kept = position.map(|position| millis(position.kept)).unwrap_or_default();
        let own = [millis(lease), id.to_string(), tokens.to_string(), kept];
        let words = self.fair_words(name, tokens, own, position);
        let script = &self.scripts.fair_acquire;
        let by_hash = || words.call(|keys, args| script.evalsha(keys, args));
        let in_full = || words.call(|keys, args| script.eval(keys, args));
        self.attempt(name, id, self.fair_request(&words, &by_hash, &in_full)).await
    }

    async fn release_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
    ) -> Result<FairReleaseOutcome, Error> {
        self.pass_on(&self.router, name, id, next).await
    }

    async fn roll_back_fair(&self, name: &LockName, id: &LeaseId) -> Result<FairReleaseOutcome, Error> {
        self.pass_on(self.attempts(), name, id, None).await
    }

    async fn force_release_fair(&self, name: &LockName) -> Result<bool, Error> {
        let words = self.fair_words(name, 0, [], None);
        // Not again: somebody else may have it by then.
        let (reply, _) =
            self.send_words(&self.router, &self.scripts.fair_force_release, &words, false).await?;
        freed(name, reply)
    }
}

impl Redis {
    /// The keys of a fair lock, and what its scripts are told before their own arguments.
    fn fair_words<const N: usize>(
        &self,
        name: &LockName,
        tokens: u64,
        own: [String; N],
        position: Option<Position>,
    ) -> Words {
        let name = name.as_str();
        let [queue, kept] = keys::fair_queue(name);
        let mut keys = vec![name.to_owned(), queue, kept, keys::redisson_queue(name)];
        if tokens > 0 {
            keys.push(keys::token(name));
        }
        let topology = self.router.topology();
        // Grants go out in both kinds, too, as they go to clients of a fleet of which some listen to the other one already. Of those the node
        // does not know.
        let other = if self.publishes_both { topology.messages().other().publish() } else { "" };
        let knows_all = topology.knows_all_listeners()
            && !(self.publishes_both && topology.messages() == Messages::Sharded);
        let common = [
            self.publish(),
            other,
            if knows_all { "1" } else { "0" },
            &keys::channel(name),
            keys::UNLOCK_MESSAGE,
            &keys::grants(name),
            keys::GRANTED,
        ];
        let args = common.into_iter().map(str::to_owned).chain(own).collect();
        Words { keys, args, waited: position.map(|position| (position.waited, Instant::now())) }
    }

    fn fair_request<'a>(
        &self,
        words: &'a Words,
        by_hash: &'a (dyn Fn() -> Cmd + Sync),
        in_full: &'a (dyn Fn() -> Cmd + Sync),
    ) -> Request<'a> {
        let request = Request::plain(by_hash(), self.common.timing.response);
        Request { key: &words.keys[0], as_of_now: Some(by_hash), in_full: Some(in_full), ..request }
    }

    async fn send_words(
        &self,
        router: &Router,
        script: &Script,
        words: &Words,
        again: bool,
    ) -> Result<(Reply, Sent), Error> {
        let by_hash = || words.call(|keys, args| script.evalsha(keys, args));
        let in_full = || words.call(|keys, args| script.eval(keys, args));
        router.send(Request { again, ..self.fair_request(words, &by_hash, &in_full) }).await
    }

    /// Passes the lock on if `id` has it, and takes `id` out of the queue.
    async fn pass_on(
        &self,
        router: &Router,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
    ) -> Result<FairReleaseOutcome, Error> {
        let outcome = self.pass_on_once(router, name, id, next).await?;
        self.undo_late(router, name, id, |redis, router, name, id| {
            Box::pin(async move {
                matches!(redis.pass_on_once(router, name, id, None).await, Ok(FairReleaseOutcome::Released))
            })
        });
        Ok(outcome)
    }

    async fn pass_on_once(
        &self,
        router: &Router,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
    ) -> Result<FairReleaseOutcome, Error> {
        let tokens = next.map_or(0, |next| next.tokens);
        let [next_id, lease] = next.map(|next| [next.id.to_string(), millis(next.lease)]).unwrap_or_default();
        let position = next.map(|next| next.position);
        let kept = position.map(|position| millis(position.kept)).unwrap_or_default();
        let own = [id.to_string(), next_id, lease, tokens.to_string(), kept];
        let words = self.fair_words(name, tokens, own, position);
        // It is an attempt by the next one, too, and one that comes late may lease the lock to it.
        let attempt = next.map(|next| self.late.attempt(&next.id));
        let (reply, sent) = self.send_words(router, &self.scripts.fair_release, &words, true).await?;
        if let Some(attempt) = attempt {
            attempt.answered(sent);
        }
        Ok(match reply {
            Reply::Token(last_token) => FairReleaseOutcome::GrantedToNext { last_token },
            Reply::Number(1) => FairReleaseOutcome::Released,
            // The first sending has passed it on. (That it was lost before then cannot be told from that, and comes to the same.)
            _ if sent == Sent::Again => FairReleaseOutcome::Released,
            _ => FairReleaseOutcome::NotHeld,
        })
    }
}
