//! [`RedisBuilder`]: a connection that is not as usual.

use std::fmt;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ::redis::{Client, ConnectionInfo, ProtocolVersion};

use crate::counter::Counter;
use crate::registry::Registry;
use crate::runtime::Runtime;

use super::commands::Commands;
use super::error::Error;
use super::scripts::Scripts;
use super::server::Server;
use super::timeouts::Timeouts;
use super::tokio_runtime::TokioRuntime;
use super::transport::RedisTransport;
use super::{Redis, url};

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
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.response = timeout;
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
        let info = url::parse(url, cfg!(feature = "tls"))?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let resp3 = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let server = Server::new(self.client(info.set_tcp_settings(tcp).set_redis_settings(resp3))?);

        let reconnects = Arc::<Counter>::default();
        let commands =
            Arc::new(Commands::new(server.clone(), self.timeouts, runtime.clone(), Arc::clone(&reconnects)));
        commands.connect().await?;
        let registry =
            Registry::new(RedisTransport::start(server, self.timeouts, &runtime, Arc::clone(&reconnects)));
        Ok(Redis { commands, scripts: Arc::new(Scripts::new()), registry, runtime, reconnects })
    }

    fn client(&self, info: ConnectionInfo) -> Result<Client, Error> {
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

impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBuilder").field("timeouts", &self.timeouts).finish_non_exhaustive()
    }
}
