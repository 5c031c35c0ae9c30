//! The Redis backend, wire-compatible with Redisson's `RLock`.
//!
//! # On the wire
//!
//! | thing | is |
//! |---|---|
//! | the lock | a hash under the lock's name, with two fields: the lease's id, and `1` as value; `mode`, and `lock` as value. How often an owner holds the lock is counted in its process |
//! | the lease's id | `<uuid>:<number>`, new for each lease; `<uuid>:<number>:<label>` if the client has a label |
//! | the lease's end | the hash's time to live |
//! | the channel | `redisson_lock__channel:{name}` (without the added braces if the name has some) |
//! | the tokens | a number under `redisson_lock_token:{name}`, which never expires; only a fenced lock has it |
//! | the message | `0`, published when the lock becomes free, or its lease ends earlier than before |
//!
//! A Redisson client on the same name takes turns with this one, and each wakes the other. Its plain, fair, fenced and spin locks have no
//! `mode`, and look the same; as the fair and the spin lock wake nobody of ours, the one waiter of a process that talks to the server asks
//! once a second while the hash has none. Its read and write locks are another kind of lock: `mode` keeps them out of a lock of ours, and
//! a name that they hold is an error here ([`LockError::OtherKind`](crate::LockError::OtherKind)), not a wait.
//!
//! Every key but the counter of the tokens has a time to live, always. A script does all that it is to do or nothing, whichever command in
//! it the server refuses. (Servers before 7.0 cannot be asked what a user may do; there a counter may have been raised for nothing, which
//! leaves a gap, and a server that is out of memory still leases locks.)
//!
//! # Connections
//!
//! Two to a server, both RESP3, both made again when they break: one for commands, one for subscriptions and a heartbeat. A connection
//! that has subscribed is in a class of its own on the server (it can be killed for reading too slowly), and renewals must
//! not die with it.
//!
//! # Sentinel
//!
//! With a `redis+sentinel://` URL (feature `sentinel`) the server is whatever the Sentinels call the master, if its answer to ROLE
//! is that it is one; a user needs to be allowed that. The Sentinels are asked whenever something is to be connected to, in turn,
//! beginning with the last one who was right. Besides, one of them is followed: by its message `+switch-master`, and by asking it
//! once a second, should a message be lost. Another one is followed as soon as it does not answer.
//!
//! When the master changes, no command is sent to the former one any more, although it may take writes for ten seconds still. What
//! is under way there is given up, and sent to the new one; both connections are made again, and everybody who waits
//! tries again. The same happens when the server says that it is a replica, be it to a command (READONLY) or to the heartbeat, which is a
//! ROLE.
//!
//! A command that did not run, because there is no master at the moment or because it came to one that is none, waits for
//! the next one as long as for a reply, and is then sent once.
//!
//! # Cluster
//!
//! With the feature `cluster`, [`Redis::connect`] takes `redis-cluster://` URLs. Commands go to the master that has the lock's slot, over
//! one connection for each; when slots move or a replica takes over, they follow, within their time limit. Messages come by
//! Redisson's own rule: the sharded kind from the lock's master if the servers know it (Redis 7.0), otherwise the plain kind over one
//! connection to any node; [`RedisBuilder::sharded_messages`] overrules that. A node that is slow or gone delays the renewals of
//! its own locks only.
//!
//! Besides what locks need on one server, a user with an ACL needs the commands `CLUSTER SLOTS`, `CLUSTER INFO`, `ASKING` and
//! `PUBSUB SHARDNUMSUB`, and `SPUBLISH` and `SSUBSCRIBE` where messages are sharded.
//!
//! All that belongs to a lock lies in one slot. A name whose first braces are empty (`{}`) would make that impossible, and
//! [`LockClient::get_lock`](crate::LockClient::get_lock) refuses it. While a slot is moving, two things wait for the end of the
//! move: the first acquisition of a fenced lock, whose lock and counter would be with different nodes, and a sharded message.
//!
//! # Lost replies
//!
//! A command whose connection breaks before its reply is sent once more over a new one. That costs nothing but the time, as
//! each means the same when it runs twice. Only forcing a lock free is not sent again. A reply that does not come while the connection
//! stands is an error after three seconds; an attempt to take the lock is rolled back then, and a release is repeated until it is answered
//! or the lease is over.
//!
//! What was sent over a connection that is given up may still be on its way. A release that comes late finds nothing, as an id is not used
//! again. An attempt that comes late would take the lock for nobody until its lease ends, so the next connection has the server end the one
//! before it (`CLIENT KILL`), before anything else is sent. That takes a server of 6.2 or newer and a user who may do it.
//!
//! # What is not guaranteed
//!
//! One Redis server is not consensus. A lock that was written to a master which fails before its replica has heard of it is
//! free on the new master; two holders can then believe in it until the first one's next renewal. In the same way the counter of
//! the tokens can be set back, and begins anew if it is deleted or evicted.
//! [`RedisBuilder::wait_for_replicas`] makes that less likely, and says what is left.
//!
//! A master that is cut off from its Sentinels, but not from us, is believed for as long as the Sentinels that we reach name it; the
//! server's own `min-replicas-to-write` is the remedy for that.

mod back_off;
mod builder;
#[cfg(feature = "cluster")]
mod cluster;
mod commands;
mod error;
mod given_up;
mod keys;
mod reconnects;
mod replicas;
mod route;
mod scripts;
#[cfg(feature = "sentinel")]
mod sentinel;
mod server;
mod standing;
mod subscriptions;
mod timeouts;
#[cfg(feature = "tls")]
mod tls;
mod tokio_runtime;
mod transport;
mod url;
mod wanted;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::builder::RedisBuilder;
#[cfg(feature = "cluster")]
pub use self::cluster::ShardedMessages;
use self::commands::{Commands, Sent};
pub use self::error::{Error, ErrorKind};
use self::reconnects::Reconnects;
use self::replicas::{Replicated, Wait};
use self::route::Route;
use self::scripts::{Reply, Script, Scripts};
pub use self::tokio_runtime::{TokioRuntime, TokioSleep};
pub use self::transport::RedisTransport;
#[cfg(feature = "cluster")]
use crate::lock::NameError;
use crate::lock::{AcquireOutcome, Backend, Failure, Holder, LeaseId, LeaseKey, LockName, ReleaseOutcome};
use crate::registry::Registry;
use crate::transport::Transport;

/// As in Redisson: renewals go out this many to a command, so that one script does not hold up the server.
const RENEWALS_PER_COMMAND: usize = 100;

/// A renewal that only asks whether a lease is there has no lease to be in time for.
const SHORTEST_RENEWAL: Duration = Duration::from_millis(500);

/// Locks kept on a Redis server (6.0 or newer).
///
/// Clones share their connections. These live on the tokio runtime in which [`connect`](Self::connect) was called, and end
/// when it does; what waits for them can be polled anywhere. [`RedisBuilder::blocking_connect`] brings a runtime.
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
    commands: Arc<Route>,
    /// For acquisitions, if replicas are to be waited for.
    acquisitions: Option<(Commands, Wait)>,
    /// The command that tells who waits.
    publish: &'static str,
    scripts: Arc<Scripts>,
    registry: Registry<RedisTransport>,
    runtime: TokioRuntime,
    reconnects: Reconnects,
}

impl Redis {
    /// Connects to the server at `url`:
    ///
    /// | URL | is |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/database]` | TCP |
    /// | `rediss://[user:password@]host[:port][/database]` | TLS over TCP, with the feature `tls` |
    /// | `redis-cluster://[user:password@]host[:port][,host[:port]…]` | a Cluster, by some of its nodes, with the feature `cluster` |
    /// | `rediss-cluster://…` | the same over TLS; certificates must be for the hosts as the Cluster announces them |
    /// | `unix:///path[?db=database&user=user&pass=password]`, or `redis+unix://` | a socket of this machine |
    /// | `redis+sentinel://[user:password@]host[:port][,host[:port]…]/master[/database]` | the master that these Sentinels watch under that name, with the feature `sentinel` |
    /// | `rediss+sentinel://…` | the same over TLS, to the Sentinels and to the master, with the feature `tls` as well |
    ///
    /// User and password are the server's. What the Sentinels themselves want, if anything, is said by
    /// `?sentinel_username=user&sentinel_password=password` at the end; their port, if not given, is 26379.
    ///
    /// Characters that mean something in a URL are written as `%` and two hexadecimal digits. Neither an error nor any `Debug`
    /// ever shows a password.
    ///
    /// With TLS, the server's certificate must be for the host and signed by somebody whom the system trusts, or whom
    /// [`RedisBuilder::root_certificate`] names. If the process has not
    /// chosen its cryptography for rustls by then, it is ring.
    ///
    /// # Errors
    ///
    /// An [`Error`] of kind [`Url`](ErrorKind::Url) if the URL cannot be used, [`TlsNotBuiltIn`](ErrorKind::TlsNotBuiltIn) if it
    /// asks for TLS without the feature, [`ClusterNotBuiltIn`](ErrorKind::ClusterNotBuiltIn) the same for a Cluster,
    /// [`NotACluster`](ErrorKind::NotACluster) if that is none, or [`Connection`](ErrorKind::Connection) if nobody answers there,
    /// or somebody who refuses the password, the database or TLS. With Sentinels, [`SentinelNotBuiltIn`](ErrorKind::SentinelNotBuiltIn) without
    /// the feature, [`NoSentinel`](ErrorKind::NoSentinel) if none of them can be asked, [`UnknownMaster`](ErrorKind::UnknownMaster) if
    /// none knows the name, and [`NotMaster`](ErrorKind::NotMaster) if the server that they name is none.
    ///
    /// # Panics
    ///
    /// When called outside of a tokio runtime whose timers and I/O are on.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// To connect with other time limits, another certificate, or without a runtime.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }
}

impl Backend for Redis {
    type Error = Error;
    type Transport = RedisTransport;
    type Runtime = TokioRuntime;

    fn registry(&self) -> &Registry<RedisTransport> {
        &self.registry
    }

    fn runtime(&self) -> &TokioRuntime {
        &self.runtime
    }

    fn channel(&self, name: &LockName) -> String {
        keys::channel(name.as_str())
    }

    fn reconnects(&self) -> u64 {
        self.reconnects.get()
    }

    #[cfg(feature = "cluster")]
    fn check_name(&self, name: &LockName) -> Result<(), NameError> {
        match &*self.commands {
            Route::Server(_) => Ok(()),
            Route::Cluster(_) => cluster::check_name(name),
        }
    }

    #[cfg(feature = "cluster")]
    fn renewal_group(&self, name: &LockName) -> u64 {
        match &*self.commands {
            Route::Server(_) => 0,
            Route::Cluster(cluster) => cluster.group(name.as_str()),
        }
    }

    fn failure(&self, error: &Error) -> Failure {
        match error.kind() {
            ErrorKind::Unknown | ErrorKind::NotReplicated => Failure::Indeterminate,
            ErrorKind::Connection | ErrorKind::NoSentinel | ErrorKind::NotMaster => Failure::Unreachable,
            ErrorKind::Url
            | ErrorKind::TlsNotBuiltIn
            | ErrorKind::SentinelNotBuiltIn
            | ErrorKind::Certificate
            | ErrorKind::UnknownMaster
            | ErrorKind::ClusterNotBuiltIn
            | ErrorKind::NotACluster
            | ErrorKind::Refused => Failure::Refused,
            ErrorKind::OtherKind(found) => Failure::OtherKind(found),
        }
    }

    async fn try_acquire(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
    ) -> Result<AcquireOutcome, Error> {
        let (id, count, channel) = (id.to_string(), tokens.to_string(), self.channel(name));
        let args = [&*millis(lease), &*id, &*count, keys::UNLOCK_MESSAGE, self.publish, &*channel];
        let reply = self.acquire(&self.scripts.acquire, name, tokens > 0, &args).await?;
        Ok(match reply {
            None => AcquireOutcome::Acquired { last_token: 0 },
            Some(Reply::Token(last_token)) => AcquireOutcome::Acquired { last_token },
            Some(Reply::Number(left)) => AcquireOutcome::Held { left: duration(left) },
            Some(Reply::Mode(mode)) => return Err(Error::other_kind(name, &mode)),
        })
    }

    async fn release(&self, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, Error> {
        self.free(&self.commands, name, id).await
    }

    async fn roll_back(&self, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, Error> {
        match &self.acquisitions {
            // Over the connection of the attempt, so that it cannot come before it.
            Some((commands, _)) => self.free(&Route::Server(commands.clone()), name, id).await,
            None => self.release(name, id).await,
        }
    }

    async fn force_release(&self, name: &LockName) -> Result<bool, Error> {
        let channel = self.channel(name);
        let args = [keys::UNLOCK_MESSAGE, self.publish, &channel];
        // Not again: somebody else may have it by then.
        match self.commands.eval_once(&self.scripts.force_release, &[name.as_str()], &args).await? {
            Reply::Mode(mode) => Err(Error::other_kind(name, &mode)),
            Reply::Number(freed) => Ok(freed == 1),
            Reply::Token(_) => Ok(true),
        }
    }

    async fn renew(&self, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, Error> {
        #[cfg(feature = "cluster")]
        if let Route::Cluster(cluster) = &*self.commands {
            return cluster.renew(&self.scripts.renew, leases, lease).await;
        }
        // A reply that is lost leaves time to ask once more, over another connection.
        let limit = (lease / 3).max(SHORTEST_RENEWAL);
        let lease = millis(lease);
        let mut renewed = Vec::with_capacity(leases.len());
        for leases in leases.chunks(RENEWALS_PER_COMMAND) {
            let names: Vec<&str> = leases.iter().map(|key| key.name.as_str()).collect();
            let ids: Vec<String> = leases.iter().map(|key| key.id.to_string()).collect();
            let args: Vec<&str> = std::iter::once(&*lease).chain(ids.iter().map(|id| &**id)).collect();
            let (answers, _): (Vec<bool>, Sent) =
                self.commands.eval_within(limit, &self.scripts.renew, &names, &args).await?;
            renewed.extend(answers);
        }
        Ok(renewed)
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>, Error> {
        let (found, _): (Option<(i64, Vec<String>)>, Sent) =
            self.commands.eval(&self.scripts.holder, &[name.as_str()], &[]).await?;
        Ok(found.map(|(left, fields)| Holder {
            // Besides there is `mode`, which is no id.
            id: fields.iter().find_map(|field| field.parse().ok()),
            left: duration(left),
        }))
    }
}

impl Redis {
    /// Frees the lock if `id` has it.
    async fn free(&self, commands: &Route, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, Error> {
        let (id, channel) = (id.to_string(), self.channel(name));
        let args = [&*id, keys::UNLOCK_MESSAGE, self.publish, &*channel];
        let (heard, sent): (i64, Sent) =
            commands.eval(&self.scripts.release, &[name.as_str()], &args).await?;
        Ok(match usize::try_from(heard) {
            Ok(heard) => {
                let ours = usize::from(self.registry.transport().stands(&channel));
                ReleaseOutcome::Released { heard: heard.saturating_sub(ours) }
            }
            // The first sending has freed it. (That it was lost before then cannot be told from that, and comes to the same.)
            Err(_) if sent == Sent::Twice => ReleaseOutcome::Released { heard: 0 },
            Err(_) => ReleaseOutcome::NotHeld,
        })
    }

    /// Runs the script by which an id comes to have the lock.
    async fn acquire(
        &self,
        script: &Script,
        name: &LockName,
        fenced: bool,
        args: &[&str],
    ) -> Result<Option<Reply>, Error> {
        let token = fenced.then(|| keys::token(name.as_str()));
        let keys = [name.as_str(), token.as_deref().unwrap_or_default()];
        let keys = &keys[..1 + usize::from(fenced)];
        let Some((commands, wait)) = &self.acquisitions else {
            return Ok(self.commands.eval(script, keys, args).await?.0);
        };
        // Seldom wanted, and so it takes no room in the futures of the others.
        let replicated = Box::pin(commands.eval_replicated(*wait, script, keys, args));
        let (Replicated { reply, replicas }, _) = replicated.await?;
        // Who has not got the lock has nothing that replicas could have.
        if !matches!(reply, Some(Reply::Number(_) | Reply::Mode(_))) {
            commands.check(*wait, replicas)?;
        }
        Ok(reply)
    }
}

/// A lease as Redis takes it: rounded up, as it must not end there before it does here. `Lease::check` has seen to it that it is at
/// least 1 and fits.
fn millis(lease: Duration) -> String {
    lease.as_nanos().div_ceil(1_000_000).to_string()
}

/// A PTTL reply: milliseconds, or −1 for a key without an end.
fn duration(pttl: i64) -> Duration {
    u64::try_from(pttl).map_or(Duration::MAX, Duration::from_millis)
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("commands", &self.commands).field("registry", &self.registry).finish()
    }
}
