//! [`Redis`], a [`Backend`]: sends a lock's operations as scripts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::{Cmd, FromRedisValue, cmd};
use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::backend::{
    AcquireOutcome, AcquireRequest, AnyBackend, Backend, Channels, Failure, LeaseKey, LockName, Mode, Moment,
    NextWaiter, ReleaseOutcome,
};
use crate::lock::{Holder, Lease, LeaseId, NameError};
use crate::subscription::Registry;
use crate::subscription::Transport;
use crate::support::runtime::Runtime;

use super::connection::{Common, Error, Line, MIN_RENEWAL_LIMIT, Meaning, WireRequest};
use super::hand_off_stats::HandOffStats;
use super::keys::{self, Nonces, QueueKind};
use super::pubsub::RedisTransport;
use super::scripts::{ACQUIRE, FORCE_RELEASE, HOLDER, RELEASE, RENEW, Reply, Script, UNCALLED};
use super::topology::Router;
use crate::support::runtime::TokioRuntime;

/// Limit of renewals in one command, as in Redisson, so that a script does not hold up the server.
const RENEWALS_PER_COMMAND: usize = 100;
const MAX_RENEWING_COMMANDS: usize = 64;

/// Interval of rollbacks of a late attempt, and so the longest time that such an attempt holds the lock.
const UNDO_INTERVAL: Duration = Duration::from_secs(1);

/// The number of replicas that must have an acquisition, and their time limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replicas {
    pub(super) count: usize,
    pub(super) timeout: Duration,
}

/// Locks kept on a Redis server (6.0 or newer).
///
/// Clones share their connections. The connections live on the tokio runtime in which
/// [`connect`](Self::connect) was called, and end with that runtime; the futures can be polled anywhere.
/// [`RedisBuilder::blocking_connect`](super::RedisBuilder::blocking_connect) has a runtime of its own.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use latchwork::{LockClient, redis::Redis};
///
/// let client = LockClient::new(Redis::connect("redis://127.0.0.1:6379").await?);
/// let guard = client.get_lock("orders:42")?.lock().await?;
/// // … no other process is here …
/// guard.unlock().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Redis {
    pub(super) router: Router,
    /// The router of acquisitions, if acquisitions wait for replicas.
    pub(super) acquisitions: Option<(Router, Replicas)>,
    pub(super) registry: Registry<RedisTransport>,
    pub(super) common: Arc<Common>,
    pub(super) nonces: Arc<Nonces>,
    pub(super) hand_off_stats: Arc<HandOffStats>,
}

impl Backend for Redis {
    type Error = Error;
    type Transport = RedisTransport;
    type Runtime = TokioRuntime;

    fn registry(&self) -> &Registry<RedisTransport> {
        &self.registry
    }

    fn runtime(&self) -> &TokioRuntime {
        &self.common.runtime
    }

    fn supports(&self, _mode: Mode) -> bool {
        true
    }

    fn channels(&self, mode: Mode, name: &LockName, client: &str) -> Channels {
        let name = name.as_str();
        let plain = || keys::listened(name, keys::channel(name));
        let read_write = || keys::listened(name, keys::read_write_channel(name));
        let grants = || QueueKind::of(mode).grants(name) + client;
        match mode {
            Mode::Plain => Channels { own: keys::calls(name) + client, common: Some(plain()) },
            // Redisson's fair lock publishes releases on the plain channel.
            Mode::Fair => Channels { own: grants(), common: Some(plain()) },
            Mode::Write => Channels { own: grants(), common: Some(read_write()) },
            Mode::Read => Channels::one(read_write()),
            Mode::Permits => Channels::one(grants()),
        }
    }

    fn grants_suffice(&self) -> bool {
        // Replicas may lack a lease that a release has granted.
        self.acquisitions.is_none()
    }

    fn calls_waiters(&self) -> bool {
        true
    }

    fn reconnects(&self) -> u64 {
        self.common.reconnects()
    }

    fn commands_waiting(&self) -> u64 {
        self.common.commands_waiting()
    }

    fn check_name(&self, name: &LockName) -> Result<(), NameError> {
        self.router.topology().check_name(name)
    }

    fn renewal_group(&self, name: &LockName) -> u64 {
        self.router.topology().node(name.as_str()).map_or(0, |node| node.number)
    }

    fn failure(&self, error: &Error) -> Failure {
        error.failure()
    }

    async fn acquire(
        &self,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, Error> {
        match mode {
            Mode::Plain => self.acquire_plain(name, request).await,
            Mode::Fair | Mode::Write | Mode::Permits => self.take(mode, name, request).await,
            Mode::Read => self.read(name, request).await,
        }
    }

    async fn release(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> Result<ReleaseOutcome, Error> {
        self.release_over(&self.router, mode, name, id, next).await
    }

    async fn roll_back(&self, mode: Mode, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, Error> {
        let released = self.release_over(self.attempts(), mode, name, id, None).await?;
        if self.common.may_come_late() {
            self.undo_in_background(mode, name, id);
        }
        Ok(released)
    }

    fn may_run_again(&self, id: &LeaseId) -> bool {
        self.common.take_resent(id)
    }

    async fn renew(&self, mode: Mode, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, Error> {
        self.renew_all(mode, leases, lease).await
    }

    async fn force_release(&self, mode: Mode, name: &LockName) -> Result<bool, Error> {
        match mode {
            Mode::Plain => self.force_plain(name).await,
            Mode::Fair | Mode::Write | Mode::Read | Mode::Permits => self.force(mode, name).await,
        }
    }

    async fn holders(&self, mode: Mode, name: &LockName) -> Result<Vec<Holder>, Error> {
        match mode {
            Mode::Plain | Mode::Fair => self.holder(name).await.map(Vec::from_iter),
            Mode::Write | Mode::Read => self.read_write_holders(name, mode == Mode::Read).await,
            Mode::Permits => self.permits_holders(name).await,
        }
    }

    #[inline(never)]
    fn erased(self) -> AnyBackend {
        AnyBackend::new(self)
    }
}

impl Redis {
    async fn release_over(
        &self,
        router: &Router,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> Result<ReleaseOutcome, Error> {
        let released = match mode {
            Mode::Plain => self.free(router, name, id).await,
            Mode::Fair | Mode::Write => self.pass_on(mode, router, name, id, next).await,
            Mode::Read => self.end_read(router, name, id).await,
            Mode::Permits => self.give_permits_back(router, name, id).await,
        };
        match released {
            // Boxed: cold.
            Err(error) if error.is_wrong_type() => Box::pin(self.replaced(mode, name, id, error)).await,
            released => released,
        }
    }

    /// After a release found a key of a wrong type: asks if another program has ended the lease.
    async fn replaced(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        error: Error,
    ) -> Result<ReleaseOutcome, Error> {
        let lease = [LeaseKey { name: name.clone(), id: id.clone() }];
        // Asks: a renewal never shortens a lease.
        match self.renew_all(mode, &lease, Lease::MIN).await {
            Ok(held) if held == [false] => Ok(ReleaseOutcome::NotHeld),
            _ => Err(error),
        }
    }

    async fn acquire_plain(
        &self,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, Error> {
        let AcquireRequest { id, lease, tokens, position, yields, sent, .. } = request;
        let counts = *tokens > 0;
        let words = |command: &mut Cmd, now: Instant| {
            let keys = 1 + usize::from(position.is_some()) + usize::from(counts);
            command.arg(keys).arg(name.as_str());
            if position.is_some() {
                command.arg(keys::waiters(name.as_str()));
            }
            if counts {
                command.arg(keys::token(name.as_str()));
            }
            command.arg(millis(*lease)).arg(keys::Shown(id));
            // Left out if unused: the server parses each argument.
            if counts || position.is_some() {
                command.arg(tokens);
            }
            if let Some(position) = position {
                command.arg(waited_until(now, position.waited, *sent));
            }
            if *yields {
                command.arg(1);
            }
        };
        let attempt = self.request(&ACQUIRE, name, &words);
        let attempt = WireRequest { waits_for_slot: position.is_none(), ..attempt };
        match self.attempt_once(id, &attempt).await {
            // The slot is moving, without the key of the waiting clients: no release calls this client.
            Err(error) if position.is_some() && error.meaning() == Some(Meaning::CrossSlot) => {
                let alone = AcquireRequest { position: None, yields: false, ..request.clone() };
                Ok(match Box::pin(self.acquire_plain(name, &alone)).await? {
                    AcquireOutcome::Held { left } => AcquireOutcome::HeldUncalled { left },
                    outcome => outcome,
                })
            }
            reply => attempted(name, reply?),
        }
    }

    async fn force_plain(&self, name: &LockName) -> Result<bool, Error> {
        // Not resent: another owner may hold the lock by then.
        let (reply, _) = self.end_plain(&self.router, &FORCE_RELEASE, name, &"", false).await?;
        freed(name, reply)
    }

    /// Sends a script that may free a plain lock, and calls clients that wait.
    async fn end_plain<T: FromRedisValue>(
        &self,
        router: &Router,
        script: &Script,
        name: &LockName,
        id: &(dyn fmt::Display + Sync),
        again: bool,
    ) -> Result<(T, bool), Error> {
        let send = |calls: bool| async move {
            let words = |command: &mut Cmd, _: Instant| {
                command.arg(1 + usize::from(calls)).arg(name.as_str());
                if calls {
                    command.arg(keys::waiters(name.as_str()));
                }
                command.arg(keys::Shown(id)).arg(keys::channel(name.as_str()));
                let knows_all = self.router.topology().knows_all_listeners();
                if self.publish() != "publish" || !knows_all {
                    command.arg(self.publish());
                }
                if !knows_all {
                    command.arg(1);
                }
            };
            let request = self.request(script, name, &words);
            let request = WireRequest { again, waits_for_slot: !calls, line: Line::GiveBack, ..request };
            router.send(&request).await
        };
        match send(true).await {
            // The slot moves without the key of the waiting clients. No client is called: clients that begin
            // to wait meanwhile ask by timer.
            Err(error) if error.meaning() == Some(Meaning::CrossSlot) => Box::pin(send(false)).await,
            outcome => outcome,
        }
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>, Error> {
        let words = |command: &mut Cmd, _: Instant| _ = command.arg(1).arg(name.as_str());
        let request = self.request(&HOLDER, name, &words);
        let (found, _): (Option<Found>, bool) = self.router.send(&request).await?;
        Ok(found.map(|(left, fields, mode)| {
            // The field `mode` does not parse as an id.
            let id = fields.iter().find_map(|field| field.parse().ok());
            Holder::new(id, duration(left)).mode(mode.and_then(|mode| keys::mode(&mode)))
        }))
    }
}

/// The lease's remaining ms, the lock's fields, and its mode. Redisson's plain and fair locks have none.
type Found = (i64, Vec<String>, Option<String>);

impl Redis {
    /// `words` writes the number of keys, the keys, and the arguments.
    pub(super) fn request<'a>(
        &self,
        script: &'a Script,
        name: &'a LockName,
        words: &'a (dyn Fn(&mut Cmd, Instant) + Sync),
    ) -> WireRequest<'a> {
        let request = WireRequest::plain(words, self.common.timing.response);
        let script = Some(script.hash_and_text());
        WireRequest { key: name.as_str(), script, line: Line::Ask, ..request }
    }

    pub(super) fn publish(&self) -> &'static str {
        if self.router.topology().is_sharded() { "spublish" } else { "publish" }
    }

    /// The router of attempts, and of their rollbacks. No rollback overtakes its attempt: the commands of one
    /// connection run in order, and a new connection first ends the one before. If the server refuses that
    /// end, the rollback is repeated: [`undo_in_background`](Self::undo_in_background).
    pub(super) fn attempts(&self) -> &Router {
        self.acquisitions.as_ref().map_or(&self.router, |(router, _)| router)
    }

    /// Sends an attempt by `id`. With [`Replicas`], fails unless enough replicas have the lock in time.
    pub(super) async fn attempt_once(
        &self,
        id: &LeaseId,
        request: &WireRequest<'_>,
    ) -> Result<Option<Reply>, Error> {
        let Some((router, replicas)) = &self.acquisitions else {
            let (reply, resent) = self.router.send(request).await?;
            self.common.answered(id, resent);
            return Ok(reply);
        };
        // Cold: boxed, to keep the hot future small.
        Box::pin(async {
            // A timeout of 0 would block for ever.
            let timeout = millis(replicas.timeout).max(1);
            let request = WireRequest {
                followed_by: Some(cmd("WAIT").arg(replicas.count).arg(timeout).take()),
                takes: replicas.timeout,
                limit: request.limit + replicas.timeout,
                ..request.clone()
            };
            let ((reply, had), resent): ((Option<Reply>, Result<usize, _>), _) =
                router.send(&request).await?;
            self.common.answered(id, resent);
            // A refused attempt wrote nothing that replicas could have.
            let is_acquired = !matches!(reply, Some(Reply::Number(_) | Reply::Mode(_)));
            if is_acquired && !had.as_ref().is_ok_and(|had| *had >= replicas.count) {
                return Err(Error::not_replicated(&router.address(), had, replicas.count));
            }
            Ok(reply)
        })
        .await
    }

    /// Rolls the attempt back each [`UNDO_INTERVAL`], for as long as commands may come late.
    fn undo_in_background(&self, mode: Mode, name: &LockName, id: &LeaseId) {
        if !self.common.begin_undoing(id) {
            return;
        }
        let (this, name, id) = (self.clone(), name.clone(), id.clone());
        self.common.runtime.spawn(async move {
            let runtime = &this.common.runtime;
            while !runtime.has_ended() && this.common.may_come_late() {
                runtime.sleep(UNDO_INTERVAL).await;
                let released = this.release_over(this.attempts(), mode, &name, &id, None).await;
                if matches!(released, Ok(ReleaseOutcome::Released { .. })) {
                    event!(WARN, lock = name.as_str(), "an attempt that came late was undone");
                }
            }
            this.common.end_undoing(&id);
        });
    }

    async fn free(&self, router: &Router, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, Error> {
        let (heard, resent) = self.end_plain::<i64>(router, &RELEASE, name, id, true).await?;
        Ok(match usize::try_from(heard) {
            Ok(heard) => {
                // Usually the message had no receiver: skip the look at our own subscription.
                let is_heard = || self.registry.transport().is_active(&keys::channel(name.as_str()));
                let ours = heard > 0 && is_heard();
                ReleaseOutcome::Released { receivers: heard.saturating_sub(usize::from(ours)) }
            }
            // The first sending freed the lock, or the lease was lost before, which has the same effect.
            Err(_) if resent => ReleaseOutcome::Released { receivers: 0 },
            Err(_) => ReleaseOutcome::NotHeld,
        })
    }

    async fn renew_all(&self, mode: Mode, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, Error> {
        let mut by_slot: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (index, key) in leases.iter().enumerate() {
            by_slot.entry(self.router.topology().slot(key.name.as_str())).or_default().push(index);
        }
        // Owned: a closure over borrowed parts would make no future that any thread may poll.
        let commands: Vec<Vec<usize>> = by_slot
            .values()
            .flat_map(|indices| indices.chunks(RENEWALS_PER_COMMAND).map(<[usize]>::to_vec))
            .collect();
        // The usual case, without `buffer_unordered`, which may call the caller's waker within its own poll.
        if let [only] = &*commands {
            return self.renew_some(mode, leases, only, lease).await;
        }
        // The first failure fails all: one node has all these leases.
        let answers = stream::iter(commands).map(|indices| async move {
            let renewed = self.renew_some(mode, leases, &indices, lease).await?;
            Ok::<_, Error>(indices.into_iter().zip(renewed))
        });
        let answers: Vec<_> = answers.buffer_unordered(MAX_RENEWING_COMMANDS).try_collect().await?;
        let mut renewed = vec![false; leases.len()];
        answers.into_iter().flatten().for_each(|(index, held)| renewed[index] = held);
        Ok(renewed)
    }

    async fn renew_some(
        &self,
        mode: Mode,
        leases: &[LeaseKey],
        indices: &[usize],
        lease: Duration,
    ) -> Result<Vec<bool>, Error> {
        // While the slot moves, perhaps for long, its keys may be at two nodes: renew each lease alone.
        match self.renew_together(mode, leases, indices, lease, false).await {
            Err(error) if error.meaning() == Some(Meaning::CrossSlot) => {}
            renewed => return renewed,
        }
        let mut renewed = Vec::with_capacity(indices.len());
        for index in indices.chunks(1) {
            renewed.extend(self.renew_together(mode, leases, index, lease, true).await?);
        }
        Ok(renewed)
    }

    async fn renew_together(
        &self,
        mode: Mode,
        leases: &[LeaseKey],
        indices: &[usize],
        lease: Duration,
        waits_for_slot: bool,
    ) -> Result<Vec<bool>, Error> {
        let asked = || indices.iter().map(|index| &leases[*index]);
        let field = |id| if mode == Mode::Write { keys::writer(id) } else { keys::id(id) };
        let fields: Vec<String> = asked().map(|lease| field(&lease.id)).collect();
        let own_key =
            |lease: &LeaseKey| (mode == Mode::Read).then(|| keys::read_lease(lease.name.as_str(), &lease.id));
        let own: Vec<Option<String>> = asked().map(own_key).collect();
        let names = asked().map(|lease| lease.name.as_str());
        let keys: Vec<&str> =
            names.zip(&own).flat_map(|(name, own)| [Some(name), own.as_deref()]).flatten().collect();
        let words = |command: &mut Cmd, _: Instant| {
            let fields_each = if mode == Mode::Read { 2 } else { 1 };
            command.arg(keys.len()).arg(&keys).arg(millis(lease)).arg(fields_each).arg(&fields);
        };
        let request = self.request(&RENEW, &leases[indices[0]].name, &words);
        // Leaves time to resend after a lost reply.
        let limit = match lease {
            // A question, which extends no lease.
            Lease::MIN => self.common.timing.response,
            lease => (lease / 3).max(MIN_RENEWAL_LIMIT).min(self.common.timing.response),
        };
        Ok(self.router.send(&WireRequest { limit, waits_for_slot, line: Line::Pass, ..request }).await?.0)
    }
}

pub(super) fn attempted(name: &LockName, reply: Option<Reply>) -> Result<AcquireOutcome, Error> {
    Ok(match reply {
        None => AcquireOutcome::Acquired { last_token: 0 },
        Some(Reply::Token(last_token)) => AcquireOutcome::Acquired { last_token },
        Some(Reply::Number(reply)) if reply <= UNCALLED => {
            AcquireOutcome::HeldUncalled { left: duration(UNCALLED - reply) }
        }
        Some(Reply::Number(left)) => AcquireOutcome::Held { left: duration(left) },
        Some(Reply::Mode(mode)) => return Err(Error::other_kind(name, &mode)),
    })
}

/// The outcome of a forced release: true if the lock was held.
pub(super) fn freed(name: &LockName, reply: Reply) -> Result<bool, Error> {
    match reply {
        Reply::Mode(mode) => Err(Error::other_kind(name, &mode)),
        answer => Ok(matches!(answer, Reply::Number(1))),
    }
}

/// The lease in ms, at least 1 (`Lease::check`). Rounded up: no lease ends earlier in Redis than here.
pub(super) fn millis(lease: Duration) -> u64 {
    let begun = u64::from(!lease.subsec_nanos().is_multiple_of(1_000_000));
    // In 64 bits: division of 128 bits is slow.
    u64::try_from(lease.as_millis()).unwrap_or(u64::MAX).saturating_add(begun)
}

/// Returns the time in µs for which a waiter has waited by `now` that had waited for `waited` at `sent`.
pub(super) fn waited_until(now: Instant, waited: Duration, sent: Moment) -> u64 {
    (waited + Moment::from(now).saturating_duration_since(sent)).as_micros() as u64
}

/// A PTTL reply: milliseconds, or −1 for a key without an end.
pub(super) fn duration(pttl: i64) -> Duration {
    u64::try_from(pttl).map_or(Duration::MAX, Duration::from_millis)
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("server", &self.router.address())
            .field("channels", &self.registry.len())
            .finish_non_exhaustive()
    }
}
