//! [`RedisBuilder`]: a connection that is not as usual.

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
use super::connection::{Boxed, Common, ConnectOptions, Credentials, Error, Timing};
use super::keys::Nonces;
use super::late::LateAttempts;
use super::pubsub::RedisTransport;
use super::scripts::Scripts;
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
    /// | `rediss-cluster://…` | the same over TLS; certificates must be for the hosts as the Cluster announces them |
    /// | `unix:///path[?db=database&user=user&pass=password]`, or `redis+unix://` | a socket of this machine |
    /// | `redis+sentinel://[user:password@]host[:port][,host[:port]…]/master[/database]` | the master that these Sentinels watch under that name, with the feature `sentinel` |
    /// | `rediss+sentinel://…` | the same over TLS, to the Sentinels and to the master, with the feature `tls` as well |
    ///
    /// User and password are the server's. What the Sentinels themselves want, if anything, is said by
    /// `?sentinel_username=user&sentinel_password=password` at the end; their port, if not given, is 26379.
    ///
    /// Characters that mean something in a URL are written as `%` and two hexadecimal digits. A parameter
    /// behind `?` that is not in this table is refused, as one with a typing error would do nothing. Neither
    /// an error nor any `Debug` ever shows a password.
    ///
    /// With TLS, the server's certificate must be for the host and signed by an authority that the system
    /// trusts (read once per client), or that `RedisBuilder::root_certificate` names. The cryptography is the
    /// one that the process has chosen for rustls by then; or else ring, for these connections alone.
    ///
    /// # Errors
    ///
    /// An [`Error`] of kind [`Url`](super::ErrorKind::Url) if the URL cannot be used,
    /// [`TlsNotBuiltIn`](super::ErrorKind::TlsNotBuiltIn) if it asks for TLS without the feature,
    /// [`ClusterNotBuiltIn`](super::ErrorKind::ClusterNotBuiltIn) the same for a Cluster,
    /// [`NotACluster`](super::ErrorKind::NotACluster) if that is none, or
    /// [`Connection`](super::ErrorKind::Connection) if no server answers there, what answers is no Redis
    /// server, or the server refuses the password, the database or TLS. With Sentinels,
    /// [`SentinelNotBuiltIn`](super::ErrorKind::SentinelNotBuiltIn) without the feature,
    /// [`NoSentinel`](super::ErrorKind::NoSentinel) if none of them can be asked,
    /// [`UnknownMaster`](super::ErrorKind::UnknownMaster) if none knows the name, and
    /// [`NotMaster`](super::ErrorKind::NotMaster) if the server that they name is none.
    ///
    /// Outside of a tokio runtime, or in one without timers or I/O, the error is of kind
    /// [`NoRuntime`](super::ErrorKind::NoRuntime); where tokio's clock is paused, of kind
    /// [`PausedClock`](super::ErrorKind::PausedClock). Take
    /// [`blocking_connect`](RedisBuilder::blocking_connect) there.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connections that were begun.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// A builder: to set time limits and certificates, or to connect without a runtime.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }
}

/// How to connect, where [`Redis::connect`] does not suit; made by [`Redis::builder`].
///
/// [Options] lists all of them with their defaults, and when to change which.
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
    publishes_both: bool,
}

impl RedisBuilder {
    /// How long to wait for a connection, the server's greeting included; 1 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timing.connect = timeout;
        self
    }

    /// How long a command may take, from when it is written; 3 s by default, as in Redisson. Within this
    /// limit it is sent again where it was not served or not answered: over a new connection when no reply at
    /// all has come for a third of it (half a second at least, one at most), to another node of a Cluster, to
    /// the next master. Then it fails, and if it was sent, whether it ran is
    /// [unknown](super::ErrorKind::Unknown).
    ///
    /// No more than 256 commands are under way at a time that ask, and as many that give back. Others wait
    /// before the connection, in order, for as long as those are answered: `Metrics::commands_waiting`.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.timing.response = timeout;
        self
    }

    /// How often a connection over which nothing comes is asked whether it stands; once a second by default,
    /// more or less. It is given up if there is no answer within four fifths of this time.
    ///
    /// # Panics
    ///
    /// If `interval` is zero.
    #[track_caller]
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        assert!(!interval.is_zero(), "there must be some time between two heartbeats");
        self.timing.heartbeat = interval;
        self
    }

    /// After how long a silence the operating system probes a connection (TCP keepalive), in whole seconds,
    /// from one to 32 767; 15 s by default. What lies beyond is taken for the next of these.
    pub fn keepalive(mut self, after: Duration) -> Self {
        self.timing.keepalive = after;
        self
    }

    /// The user name; replaces the one in the URL.
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.introduction.instead.0 = Some(username.into());
        self
    }

    /// The password, in place of the URL's. Nothing in it needs to be escaped.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.introduction.instead.1 = Some(password.into());
        self
    }

    /// Called for user and password before each connection to a server (not to a Sentinel); replaces those in
    /// the URL. For tokens that expire. If it fails, or takes too long, so does connecting, which is tried
    /// again.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use latchwork::redis::{Credentials, Redis};
    ///
    /// async fn token() -> Result<String, std::io::Error> {
    ///     // … asked of its issuer, or read from where it was put …
    /// #   Ok(String::new())
    /// }
    /// let redis = Redis::builder()
    ///     .credentials(|| async { Ok(Credentials::new("locks", token().await?)) })
    ///     .connect("rediss://cache.example.com")
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn credentials<F>(mut self, callback: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, Box<dyn StdError + Send + Sync>>> + Send + 'static,
    {
        self.introduction.credentials = Some(Arc::new(move || Box::pin(callback())));
        self
    }

    /// What the connections are called in `CLIENT LIST` (`CLIENT SETNAME`); by default nothing. A name has no
    /// spaces.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.introduction.name = Some(name.into());
        self
    }

    /// Where a server is to be dialled that announces itself under this host and port: for Clusters and
    /// Sentinels behind a NAT or in containers. An address that is not to be changed is returned as it is;
    /// those of the URL may come, too.
    ///
    /// Certificates must be for the host that is returned.
    pub fn map_addresses(mut self, map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static) -> Self {
        self.introduction.address_map = Some(Arc::new(map));
        self
    }

    /// How long a channel stays subscribed to after the last waiter has left, at least, and at most half as
    /// long again; 1 s by default. Where a lock goes to and fro between processes, a waiter that comes back
    /// meanwhile costs the server one command instead of three.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.timing.linger = linger;
        self
    }

    /// An acquisition counts only if at least `replicas` replicas have it within `timeout` (in whole
    /// milliseconds, at least one). Otherwise the lock is given back, and the error is of kind
    /// [`NotReplicated`](super::ErrorKind::NotReplicated).
    ///
    /// What it says is that so many replicas had the lock in memory at that moment. It makes losing it in a
    /// failover less likely, and not impossible: the replica that is made the master may be another one, or
    /// have been restarted since. To wait for all replicas rules out the first, and no lock can be taken
    /// while one of them is down.
    ///
    /// Renewals are not waited for, as a holder would lose its lock whenever a replica is down for as long as
    /// the lease. So a failover can bring back an earlier end of the lease, which the next renewal corrects;
    /// or one that is past, if the replica was as far behind as that: then another can get in, and the next
    /// renewal tells the holder of its loss. Nor are releases waited for: one that is lost leaves the lock
    /// held until the lease ends, and lets no second owner in.
    ///
    /// Acquisitions then have a connection of their own, as the server runs nothing that comes over a
    /// connection while it waits; they go one after another, each taking as long as the slowest of those
    /// replicas does. A user needs to be allowed WAIT.
    ///
    /// # Panics
    ///
    /// If `replicas` is 0, which would be no wait at all.
    #[track_caller]
    pub fn wait_for_replicas(mut self, replicas: usize, timeout: Duration) -> Self {
        assert!(replicas > 0, "wait for one replica at least");
        self.replicas = Some(Replicas { count: replicas, timeout });
        self
    }

    /// Which kind of messages wakes waiters in a Cluster; [`Auto`](ShardedMessages::Auto) by default.
    #[cfg(feature = "cluster")]
    pub fn sharded_messages(mut self, sharded: ShardedMessages) -> Self {
        self.topology.sharded_messages = sharded;
        self
    }

    /// Publishes each message in both kinds, sharded and plain, whichever of them this client hears itself.
    /// For a fleet that is moved from the one to the other: first all publish both, then all
    /// [listen](Self::sharded_messages) to the other kind, then none publishes both any more.
    #[cfg(feature = "cluster")]
    pub fn publish_both_kinds(mut self, both: bool) -> Self {
        self.publishes_both = both;
        self
    }

    /// The certificate, in PEM, of the server's issuer: trusted in place of the system's certificates.
    /// Several may stand one after the other.
    #[cfg(feature = "tls")]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.introduction.tls.root_certificate = Some(pem.into());
        self
    }

    /// The client's own certificate and its key, in PEM, for a server that asks for one.
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
    /// Dropping the future ends the connections that were begun.
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

    /// Boxed in a function that is not inlined, so that all that connecting stands on is compiled here, and
    /// not once more in the crate that awaits it.
    #[inline(never)]
    fn begin_connect(self, runtime: TokioRuntime, url: &str) -> Boxed<'_, Result<Redis, Error>> {
        Box::pin(async move { shielded(pin!(self.connect_on(runtime, url))).await })
    }

    /// Connects to the server at `url` and blocks this thread until that is done. For code without a runtime:
    /// the connections live on a [background thread](TokioRuntime::background) of their own, which ends with
    /// the last clone of the [`Redis`].
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect), and of kind [`Connection`](super::ErrorKind::Connection) if the
    /// system refuses the thread.
    pub fn blocking_connect(self, url: &str) -> Result<Redis, Error> {
        let runtime = TokioRuntime::background().map_err(Error::no_thread)?;
        let url = url.to_owned();
        let (done, outcome) = oneshot::channel();
        // `block_on` of tokio's would panic if the caller is in async code.
        runtime.spawn({
            let runtime = runtime.clone();
            async move {
                let _ = done.send(self.connect_on(runtime, &url).await);
            }
        });
        block_on(outcome).unwrap_or_else(|_| Err(Error::runtime_ended()))
    }

    /// Connects in a simulation, to whatever it has at `url`.
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
        let common = Arc::new(Common::new(self.timing.bounded(), runtime));
        let topology = topology::connect(url, self.introduction, self.topology, &common).await?;
        let own = |replicas| (Router::new(topology.with_own_connections(), Arc::clone(&common)), replicas);
        let acquisitions = self.replicas.map(own);
        let nonces = Arc::new(Nonces::new(&common.runtime));
        let registry = Registry::new(RedisTransport::start(Arc::clone(&topology), &common, &nonces));
        let router = Router::new(topology, Arc::clone(&common));
        let (scripts, late) = (Arc::new(Scripts::new()), Arc::new(LateAttempts::default()));
        let publishes_both = self.publishes_both;
        Ok(Redis {
            router,
            acquisitions,
            scripts,
            registry,
            common,
            late,
            publishes_both,
            nonces,
            hand_off_stats: Arc::default(),
        })
    }
}

impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBuilder").field("timing", &self.timing).finish_non_exhaustive()
    }
}
