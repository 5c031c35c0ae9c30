//! [`RedisBuilder`]: a connection that is not as usual.

use std::fmt;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ::redis::{Client, ConnectionInfo, ProtocolVersion};

use crate::registry::Registry;
use crate::runtime::Runtime;

#[cfg(feature = "cluster")]
use super::cluster::{Cluster, ShardedMessages};
use super::commands::Commands;
use super::error::Error;
use super::reconnects::Reconnects;
use super::replicas::Wait;
use super::route::Route;
use super::scripts::Scripts;
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use super::server::Server;
use super::subscriptions::Source;
use super::timeouts::Timeouts;
use super::tokio_runtime::TokioRuntime;
use super::transport::RedisTransport;
use super::{Redis, keys, url};

/// How to connect, where [`Redis::connect`] does not suit; made by [`Redis::builder`].
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
    timeouts: Timeouts,
    wait: Option<Wait>,
    #[cfg(feature = "cluster")]
    sharded_messages: ShardedMessages,
    #[cfg(feature = "tls")]
    root_certificate: Option<Vec<u8>>,
}

impl RedisBuilder {
    /// How long to wait for a connection, the server's greeting included; 1 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.connect = timeout;
        self
    }

    /// How long to wait for a reply; 3 s by default, as in Redisson. A connection that kept us waiting longer is given up and
    /// made again, and whether the command ran is [unknown](super::ErrorKind::Unknown).
    ///
    /// In a Cluster this is also the limit for a command whose slot moves, or whose node is gone, to find the one that serves it.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.response = timeout;
        self
    }

    /// How long a channel stays subscribed to after the last waiter has left; 1 s by default. Where a lock goes to and fro between
    /// processes, a waiter that comes back meanwhile costs the server one command instead of three.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.timeouts.linger = linger;
        self
    }

    /// An acquisition counts only if at least `replicas` replicas have it within `timeout` (in whole milliseconds, at least one).
    /// Otherwise the lock is given back, and the error is of kind [`NotReplicated`](super::ErrorKind::NotReplicated).
    ///
    /// What it says is that so many replicas had the lock in memory at that moment. It makes losing it in a failover less likely, and
    /// not impossible: the replica that is made the master may be another one, or have been restarted since. To wait for all
    /// replicas rules out the first, and lets nobody take a lock while one of them is down.
    ///
    /// Renewals are not waited for, as a holder would lose its lock whenever a replica is down for as long as the lease. So a
    /// failover can bring back an earlier end of the lease, which the next renewal corrects; or one that is past, if the replica was as
    /// far behind as that: then another can get in, and the next renewal tells the holder of its loss. Nor are releases waited
    /// for: one that is lost leaves the lock held until the lease ends, and lets nobody in.
    ///
    /// Acquisitions then have a connection of their own, as the server runs nothing that comes over a connection while it waits;
    /// they go one after another, each taking as long as the slowest of those replicas does. A user needs to be allowed WAIT.
    ///
    /// # Panics
    ///
    /// If `replicas` is 0, which would be no wait at all.
    #[track_caller]
    pub fn wait_for_replicas(mut self, replicas: usize, timeout: Duration) -> Self {
        assert!(replicas > 0, "wait for one replica at least");
        self.wait = Some(Wait { replicas, timeout });
        self
    }

    /// Which kind of messages tells who waits in a Cluster; [`Auto`](ShardedMessages::Auto) by default.
    #[cfg(feature = "cluster")]
    pub fn sharded_messages(mut self, sharded: ShardedMessages) -> Self {
        self.sharded_messages = sharded;
        self
    }

    /// The certificate, in PEM, of who signed the server's: trusted in place of the system's certificates. Several may stand
    /// one after the other.
    #[cfg(feature = "tls")]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificate = Some(pem.into());
        self
    }

    /// Connects to the server at `url`; see [`Redis::connect`].
    ///
    /// # Errors
    ///
    /// Those of [`Redis::connect`], and an [`Error`] of kind [`Certificate`](super::ErrorKind::Certificate) if the root
    /// certificate cannot be read.
    ///
    /// # Panics
    ///
    /// When called outside of a tokio runtime whose timers and I/O are on.
    pub async fn connect(self, url: &str) -> Result<Redis, Error> {
        self.connect_on(TokioRuntime::current(), url).await
    }

    /// Connects to the server at `url` and blocks this thread until that is done. For code without a runtime: the connections
    /// live on a [background thread](TokioRuntime::background) of their own, which ends with the last clone of the [`Redis`].
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect), and of kind [`Connection`](super::ErrorKind::Connection) if the system refuses the
    /// thread.
    pub fn blocking_connect(self, url: &str) -> Result<Redis, Error> {
        let runtime = TokioRuntime::background().map_err(Error::no_thread)?;
        let url = url.to_owned();
        let (done, outcome) = mpsc::sync_channel(1);
        // `block_on` of tokio's would panic if the caller is in async code.
        runtime.spawn({
            let runtime = runtime.clone();
            async move {
                let _ = done.send(self.connect_on(runtime, &url).await);
            }
        });
        outcome.recv().unwrap_or_else(|_| Err(Error::runtime_ended()))
    }

    async fn connect_on(self, runtime: TokioRuntime, url: &str) -> Result<Redis, Error> {
        let _nodes = url::cluster(url, cfg!(feature = "cluster"))?;
        #[cfg(feature = "cluster")]
        if let Some(nodes) = _nodes {
            return self.connect_cluster(runtime, &nodes).await;
        }
        let server = self.server(url, &runtime)?;
        let commands = |timeouts| Commands::new(server.clone(), timeouts, runtime.clone());
        let acquisitions = self.wait.map(|wait| {
            let response = self.timeouts.response + wait.timeout;
            (commands(Timeouts { response, ..self.timeouts }), wait)
        });
        let commands = commands(self.timeouts);
        commands.connect().await?;
        let reconnects = server.reconnects().clone();
        let transport = RedisTransport::start(Source::Server(Box::new(server)), self.timeouts, &runtime);
        let redis = redis(Route::Server(commands), keys::PUBLISH, transport, runtime, reconnects);
        Ok(Redis { acquisitions, ..redis })
    }

    fn server(&self, url: &str, _runtime: &TokioRuntime) -> Result<Server, Error> {
        if !url::names_sentinels(url, cfg!(feature = "sentinel"))? {
            return Ok(Server::new(self.client(url::parse(url, cfg!(feature = "tls"))?)?));
        }
        #[cfg(not(feature = "sentinel"))]
        unreachable!("refused above");
        #[cfg(feature = "sentinel")]
        {
            let url = super::sentinel::url::parse(url, cfg!(feature = "tls"))?;
            let sentinels = url.sentinels.into_iter().map(|sentinel| self.client(sentinel));
            let sentinels = sentinels.collect::<Result<_, Error>>()?;
            let server = self.client(url.server)?;
            let patience = self.timeouts.connect;
            Ok(Server::found_by(Sentinels::new(&url.master, sentinels, server, patience, _runtime)))
        }
    }

    #[cfg(feature = "cluster")]
    async fn connect_cluster(self, runtime: TokioRuntime, urls: &[String]) -> Result<Redis, Error> {
        if self.wait.is_some() {
            return Err(Error::no_wait_in_a_cluster());
        }
        let parse = |url: &String| url::parse(url, cfg!(feature = "tls"));
        let seeds = urls.iter().map(parse).collect::<Result<_, _>>()?;
        let (timeouts, sharded) = (self.timeouts, self.sharded_messages);
        let cluster = Cluster::connect(self, runtime.clone(), seeds).await?;
        let sharded = match sharded {
            ShardedMessages::Auto => cluster.has_sharded_messages().await?,
            ShardedMessages::On => true,
            ShardedMessages::Off => false,
        };
        let nodes = Arc::clone(cluster.nodes());
        let reconnects = nodes.reconnects().clone();
        let (publish, transport) = if sharded {
            (keys::SPUBLISH, RedisTransport::start_sharded(nodes, timeouts, &runtime))
        } else {
            (keys::PUBLISH, RedisTransport::start(Source::Cluster(nodes), timeouts, &runtime))
        };
        Ok(redis(Route::Cluster(cluster), publish, transport, runtime, reconnects))
    }

    #[cfg(feature = "cluster")]
    pub(super) fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    pub(super) fn client(&self, info: ConnectionInfo) -> Result<Client, Error> {
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let resp3 = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = info.set_tcp_settings(tcp).set_redis_settings(resp3);
        #[cfg(feature = "tls")]
        {
            super::tls::provide_cryptography(&info);
            if let Some(pem) = &self.root_certificate {
                return super::tls::client_that_trusts(pem, info);
            }
        }
        Client::open(info).map_err(Error::unusable_url)
    }
}

fn redis(
    route: Route,
    publish: &'static str,
    transport: RedisTransport,
    runtime: TokioRuntime,
    reconnects: Reconnects,
) -> Redis {
    let (commands, scripts, registry) = (Arc::new(route), Arc::new(Scripts::new()), Registry::new(transport));
    Redis { commands, acquisitions: None, publish, scripts, registry, runtime, reconnects }
}

impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBuilder").field("timeouts", &self.timeouts).finish_non_exhaustive()
    }
}
