//! [`RedisBuilder`]: connects with other options than the defaults.

use std::error::Error as StdError;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::subscription::Registry;
use crate::support::runtime::{Runtime, TokioRuntime, shielded};
use crate::support::sync::block_on;

use super::backend::{Redis, Replicas};
use super::connection::{Boxed, Common, ConnectOptions, Credentials, Error, MAX_TIME, Timing};
use super::keys::Nonces;
use super::pubsub::RedisTransport;
#[cfg(feature = "cluster")]
use super::topology::cluster::ShardedMessages;
use super::topology::{self, Options, Router};

impl Redis {
    /// Connects to the server at `url`:
    ///
    /// | URL | is |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/database]` | TCP |
    /// | `rediss://[user:password@]host[:port][/database]` | TLS over TCP, with the feature `tls` |
    /// | `redis-cluster://[user:password@]host[:port][,host[:port]…]` | a Cluster, by some of its nodes, with the feature `cluster` |
    /// | `rediss-cluster://…` | a Cluster over TLS; certificates must be for the hosts as the Cluster announces them |
    /// | `unix:///path[?db=database&user=user&pass=password]`, or `redis+unix://` | a socket of this machine |
    /// | `redis+sentinel://[user:password@]host[:port][,host[:port]…]/master[/database]` | the master that these Sentinels watch under that name, with the feature `sentinel` |
    /// | `rediss+sentinel://…` | TLS to the Sentinels and to the master, with the feature `tls` as well |
    ///
    /// The call does not retry: a service that may start before its server calls `connect` again, after an
    /// error of the kind [`Connection`](super::ErrorKind::Connection).
    ///
    /// User and password are the server's. The Sentinels' own, if needed, are given by
    /// `?sentinel_username=user&sentinel_password=password` at the end; their default port is 26379.
    ///
    /// Characters with a meaning in a URL are written as `%` and two hexadecimal digits. Any other parameter
    /// behind `?` is an error, except the needless `protocol=3` and `protocol=resp3` of a server's URL.
    /// Neither an error nor any `Debug` shows a password.
    ///
    /// With TLS, the server's certificate must be for the host and signed by an authority that the system
    /// trusts (read once per client), or that `RedisBuilder::root_certificate` names. The cryptography is the
    /// process's default of rustls if set by then; otherwise ring, for these connections alone.
    ///
    /// # Errors
    ///
    /// An [`Error`] of kind
    ///
    /// * [`Url`](super::ErrorKind::Url) if the URL cannot be used,
    /// * [`TlsNotBuiltIn`](super::ErrorKind::TlsNotBuiltIn),
    ///   [`ClusterNotBuiltIn`](super::ErrorKind::ClusterNotBuiltIn) or
    ///   [`SentinelNotBuiltIn`](super::ErrorKind::SentinelNotBuiltIn) if the URL needs a missing feature,
    /// * [`NotACluster`](super::ErrorKind::NotACluster) if the server is not part of a Cluster,
    /// * [`NoSentinel`](super::ErrorKind::NoSentinel) if no Sentinel can be asked,
    ///   [`UnknownMaster`](super::ErrorKind::UnknownMaster) if no Sentinel knows the name, and
    ///   [`NotMaster`](super::ErrorKind::NotMaster) if the server that the Sentinels name is not a master,
    /// * [`Connection`](super::ErrorKind::Connection) if no Redis server answers there, or the server refuses
    ///   the password, the database or TLS,
    /// * [`NoRuntime`](super::ErrorKind::NoRuntime) outside of a tokio runtime, or in a runtime without
    ///   timers or I/O, and [`PausedClock`](super::ErrorKind::PausedClock) where tokio's clock is paused. Use
    ///   [`blocking_connect`](RedisBuilder::blocking_connect) there.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connections made so far.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Returns a builder: to set time limits and certificates, or to connect without a runtime.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }
}

/// Options of a connection, made by [`Redis::builder`]. Defaults, and when to change which: [Options].
///
/// [Options]: https://github.com/latchwork/latchwork/blob/main/docs/options.md#of-the-redis-connection
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use latchwork::redis::Redis;
///
/// let redis = Redis::builder().response_timeout(Duration::from_secs(1)).connect("redis://127.0.0.1").await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
#[must_use = "nothing is connected yet"]
pub struct RedisBuilder {
    timing: Timing,
    introduction: ConnectOptions,
    replicas: Option<Replicas>,
    topology: Options,
}

impl RedisBuilder {
    /// Limits the time to connect, the server's greeting included; 1 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timing.connect = timeout.min(MAX_TIME);
        self
    }

    /// Limits the time of a command, from when it is written; 3 s by default, as in Redisson. Within this
    /// limit, a command that was not served or not answered is sent again: over a new connection after a
    /// silence of a third of the limit (at least half a second, at most one), to another node of a Cluster,
    /// or to the next master. After the limit the command fails, with an
    /// [unknown](super::ErrorKind::Unknown) effect if it was sent.
    ///
    /// At most 256 acquiring and 256 releasing commands are in flight at a time. Further commands queue for
    /// as long as those in flight are answered: `Metrics::commands_waiting`.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.timing.response = timeout.min(MAX_TIME);
        self
    }

    /// Sets the interval of heartbeats on a silent connection; about once a second by default. A connection
    /// without an answer within four fifths of the interval is given up.
    ///
    /// # Panics
    ///
    /// If `interval` is zero.
    #[track_caller]
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        assert!(!interval.is_zero(), "there must be some time between two heartbeats");
        self.timing.heartbeat = interval.min(MAX_TIME);
        self
    }

    /// Sets the silence after which the operating system probes a connection (TCP keepalive), in whole
    /// seconds from 1 to 32 767; 15 s by default. Times outside of that range are clamped.
    pub fn keepalive(mut self, after: Duration) -> Self {
        self.timing.keepalive = after.min(MAX_TIME);
        self
    }

    /// Sets the user name; replaces the URL's.
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.introduction.instead.0 = Some(username.into());
        self
    }

    /// Sets the password; replaces the URL's. Needs no escapes.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.introduction.instead.1 = Some(password.into());
        self
    }

    /// Sets a callback for user and password in place of the URL's, for tokens that expire. Called before
    /// each connection to a server (not to a Sentinel). If the callback fails or takes too long, connecting
    /// is tried again. Example: [`Credentials`].
    pub fn credentials<F>(mut self, callback: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, Box<dyn StdError + Send + Sync>>> + Send + 'static,
    {
        self.introduction.credentials = Some(Arc::new(move || Box::pin(callback())));
        self
    }

    /// Names the connections in `CLIENT LIST` (`CLIENT SETNAME`); no name by default. A name has no spaces.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.introduction.name = Some(name.into());
        self
    }

    /// Maps the host and port that a server announces to the address to dial: for Clusters and Sentinels
    /// behind a NAT or in containers. The callback gets the URL's addresses, too, and returns other addresses
    /// unchanged. Certificates must be for the returned host.
    pub fn map_addresses(mut self, map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static) -> Self {
        self.introduction.address_map = Some(Arc::new(map));
        self
    }

    /// Sets how long a channel stays subscribed to after its last waiter has left: at least `linger`, at most
    /// half as long again; 1 s by default. Where a lock goes to and fro between processes, a waiter that
    /// returns within this time costs the server one command instead of three.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.timing.linger = linger.min(MAX_TIME);
        self
    }

    /// Makes an acquisition succeed only if at least `replicas` replicas have it in memory within `timeout`
    /// (in whole milliseconds, at least one). Otherwise the lock is released, and the error is of kind
    /// [`NotReplicated`](super::ErrorKind::NotReplicated).
    ///
    /// A failover may still lose the lock, though less likely: another replica may become the master, or a
    /// replica may have restarted. Waiting for all replicas rules out the first case, but then no lock can be
    /// acquired while a replica is down.
    ///
    /// Renewals do not wait: a holder would lose its lock whenever a replica is down for as long as the
    /// lease. So a failover can bring back an earlier end of the lease. The next renewal corrects it, or, if
    /// another owner has entered meanwhile, tells the holder of its loss. Releases do not wait either: a lost
    /// release only leaves the lock held until the lease ends.
    ///
    /// Acquisitions then have their own connection, which serves no other command during WAIT. They run one
    /// after another, each for as long as the slowest of the replicas takes. A user needs the right to WAIT.
    ///
    /// # Panics
    ///
    /// If `replicas` is 0, which would not wait at all.
    #[track_caller]
    pub fn wait_for_replicas(mut self, replicas: usize, timeout: Duration) -> Self {
        assert!(replicas > 0, "wait for one replica at least");
        self.replicas = Some(Replicas { count: replicas, timeout });
        self
    }

    /// Selects the kind of messages in a Cluster; [`Auto`](ShardedMessages::Auto) by default.
    #[cfg(feature = "cluster")]
    pub fn sharded_messages(mut self, sharded: ShardedMessages) -> Self {
        self.topology.sharded_messages = sharded;
        self
    }

    /// Sets the issuer's certificate, or several concatenated, in PEM: trusted in place of the system's.
    #[cfg(feature = "tls")]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.introduction.tls.root_certificate = Some(pem.into());
        self
    }

    /// Sets the client's own certificate and key, in PEM, for servers that require them.
    #[cfg(feature = "tls")]
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.introduction.tls.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Connects to the server at `url`; see [`Redis::connect`].
    ///
    /// # Errors
    ///
    /// Those of [`Redis::connect`], and an [`Error`] of kind [`Certificate`](super::ErrorKind::Certificate)
    /// if a certificate or key cannot be read.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connections made so far.
    pub async fn connect(self, url: &str) -> Result<Redis, Error> {
        let runtime = TokioRuntime::try_current().ok_or_else(Error::no_runtime)?;
        if let Some(part) = TokioRuntime::lacks().await {
            return Err(Error::lacks(part));
        }
        if runtime.is_paused() {
            return Err(Error::paused_clock());
        }
        self.begin_connect(runtime, url).await
    }

    /// Boxed and not inlined: otherwise each crate that awaits `connect` compiles all of its code again.
    #[inline(never)]
    fn begin_connect(self, runtime: TokioRuntime, url: &str) -> Boxed<'_, Result<Redis, Error>> {
        Box::pin(async move { shielded(pin!(self.connect_on(runtime, url))).await })
    }

    /// Connects to the server at `url` and blocks this thread until connected. For code without a runtime:
    /// the connections live on their own [background thread](TokioRuntime::background), which ends with the
    /// last clone of the [`Redis`].
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect), and an error of kind [`Connection`](super::ErrorKind::Connection)
    /// if the system refuses the thread.
    pub fn blocking_connect(self, url: &str) -> Result<Redis, Error> {
        let runtime = TokioRuntime::background().map_err(Error::no_thread)?;
        let url = url.to_owned();
        let (done, outcome) = oneshot::channel();
        // tokio's own `block_on` would panic in async code.
        runtime.spawn({
            let runtime = runtime.clone();
            async move {
                let _ = done.send(self.connect_on(runtime, &url).await);
            }
        });
        block_on(outcome).unwrap_or_else(|_| Err(Error::runtime_ended()))
    }

    /// Connects to a simulated server at `url`.
    #[cfg(latchwork_simulation)]
    #[doc(hidden)]
    pub async fn simulated_connect(
        self,
        surroundings: Arc<dyn crate::support::runtime::Surroundings>,
        url: &str,
    ) -> Result<Redis, Error> {
        self.connect_on(TokioRuntime::simulated(surroundings), url).await
    }

    async fn connect_on(mut self, runtime: TokioRuntime, url: &str) -> Result<Redis, Error> {
        self.topology.own_connections = self.replicas.is_some();
        let common = Arc::new(Common::new(self.timing, runtime));
        let topology = topology::connect(url, self.introduction, self.topology, &common).await?;
        let nonces = Arc::new(Nonces::new(&common.runtime));
        let registry = Registry::new(RedisTransport::start(Arc::clone(&topology), &common, &nonces));
        let router = Router::new(topology, Arc::clone(&common));
        let acquisitions = self.replicas.map(|replicas| (router.with_own_connection(), replicas));
        Ok(Redis { router, acquisitions, registry, common, nonces, hand_off_stats: Arc::default() })
    }
}

impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBuilder").field("timing", &self.timing).finish_non_exhaustive()
    }
}
