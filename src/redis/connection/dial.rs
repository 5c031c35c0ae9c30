//! [`Dialer`]: makes connections to an [`Address`] and greets the server with [`Credentials`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::io::tcp::socket2::TcpKeepalive;
use ::redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind as Kind, ProtocolVersion, PushInfo,
    RedisError,
};

use super::common::Common;
use super::error::Error;
use super::live::{self, Boxed, MultiplexedConnection, Push};
#[cfg(feature = "tls")]
use super::tls::{Connector, Tls};

/// The system's keepalive counts whole seconds and rejects zero; Linux accepts at most nine hours.
const KEEPALIVE_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(32_767));

/// Maps the host and port announced by a server to the host and port to dial.
pub(crate) type AddressMap = Arc<dyn Fn(&str, u16) -> (String, u16) + Send + Sync>;

/// The builder's settings for dialling and for the greeting.
#[derive(Clone, Default)]
pub(crate) struct ConnectOptions {
    /// User and password in place of the URL's.
    pub(crate) instead: (Option<String>, Option<String>),
    pub(crate) credentials: Option<CredentialsCallback>,
    pub(crate) name: Option<String>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Tls,
    pub(crate) address_map: Option<AddressMap>,
}

/// Makes connections to the URL's server, or to another server with the same user, name and TLS settings.
pub(crate) struct Dialer {
    info: ConnectionInfo,
    introduction: ConnectOptions,
    #[cfg(feature = "tls")]
    tls: Option<Connector>,
    common: Arc<Common>,
}

impl Dialer {
    pub(crate) fn new(
        info: ConnectionInfo,
        introduction: ConnectOptions,
        common: &Arc<Common>,
    ) -> Result<Self, Error> {
        let timing = &common.timing;
        let [time, interval] = [timing.keepalive, timing.keepalive / 3]
            .map(|time| time.clamp(KEEPALIVE_RANGE.0, KEEPALIVE_RANGE.1));
        let keepalive = TcpKeepalive::new().with_time(time).with_interval(interval);
        let tcp = info.tcp_settings().clone().set_nodelay(true).set_keepalive(keepalive);
        // TCP_USER_TIMEOUT: the system sends no byte later than `LATEST_RUN` allows, even if an unpolled
        // caller keeps the connection open.
        #[cfg(any(target_os = "android", target_os = "linux"))]
        let tcp = tcp.set_user_timeout(crate::backend::LATEST_RUN / 2);
        let mut redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        redis = redis.set_lib_name("latchwork", env!("CARGO_PKG_VERSION"));
        if let Some(username) = &introduction.instead.0 {
            redis = redis.set_username(username);
        }
        if let Some(password) = &introduction.instead.1 {
            redis = redis.set_password(password);
        }
        let info = info.set_tcp_settings(tcp).set_redis_settings(redis);
        Ok(Self {
            #[cfg(feature = "tls")]
            tls: introduction.tls.connector(info.addr())?,
            info,
            introduction,
            common: Arc::clone(common),
        })
    }

    #[cfg(test)]
    pub(crate) fn plain(url: impl ::redis::IntoConnectionInfo, common: &Arc<Common>) -> Self {
        Self::new(url.into_connection_info().unwrap(), ConnectOptions::default(), common).unwrap()
    }

    pub(crate) fn address(&self) -> Arc<str> {
        self.info.addr().to_string().into()
    }

    /// Connects to `at`, or to the URL's server.
    pub(crate) async fn dial(
        &self,
        at: Option<&Address>,
        push: Push,
    ) -> Result<MultiplexedConnection, Error> {
        let Common { timing, runtime, .. } = &*self.common;
        let mut info = match (at.cloned(), &self.introduction.address_map) {
            (Some(Address { host, port }), Some(map)) => {
                let (host, port) = map(&host, port);
                Address { host, port }.into_info(&self.info)
            }
            (Some(at), None) => at.into_info(&self.info),
            (None, _) => self.info.clone(),
        };
        let address = info.addr().to_string();
        if let Some(callback) = &self.introduction.credentials {
            let asked = runtime.timeout(timing.connect, callback()).await;
            let asked = asked.unwrap_or_else(|| Err("it did not answer in time".into()));
            info = asked.map_err(|error| Error::credentials(&address, &*error))?.into_info(info);
        }
        let failed = |error| Error::introduction(&address, error);
        let config = AsyncConnectionConfig::new().set_push_sender(move |info: PushInfo| -> Result<(), ()> {
            push(info);
            Ok(())
        });
        // Limits the whole dial with the look-up of the host's name: the redis crate's own limits are off.
        let dial = async {
            #[cfg(feature = "tls")]
            if let Some(tls) = &self.tls {
                return tls.dial(runtime, &info, config, timing.connect).await;
            }
            live::dial(runtime, &info, config, timing.connect).await.map_err(failed)
        };
        let dialled = runtime.timeout(timing.connect, dial).await;
        let timed_out = || Err(failed(RedisError::from((Kind::Io, "it did not answer in time"))));
        let mut connection = dialled.unwrap_or_else(timed_out)?;
        if let Some(name) = &self.introduction.name {
            let mut command = ::redis::cmd("CLIENT");
            let named = command.arg("SETNAME").arg(name).exec_async(&mut connection).await;
            named.map_err(|error| Error::greeting(&address, "CLIENT SETNAME", error))?;
        }
        Ok(connection)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// Returns `info` with this address, and with TLS if `info` has it.
    pub(crate) fn into_info(self, info: &ConnectionInfo) -> ConnectionInfo {
        let address = match info.addr() {
            ConnectionAddr::TcpTls { .. } => {
                ConnectionAddr::TcpTls { host: self.host, port: self.port, insecure: false, tls_params: None }
            }
            _ => ConnectionAddr::Tcp(self.host, self.port),
        };
        info.clone().set_addr(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// User and password, from a [callback](super::super::RedisBuilder::credentials) for each connection.
///
/// # Examples
///
/// ```
/// use latchwork::redis::{Credentials, Redis};
///
/// let credentials = Credentials::new("locks", "secret");
/// assert!(!format!("{credentials:?}").contains("secret"));
///
/// // Called for each connection, so that an expired token is replaced.
/// let builder = Redis::builder().credentials(|| async { Ok(Credentials::new("locks", "secret")) });
/// # drop(builder);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    username: Option<String>,
    password: String,
}

impl Credentials {
    /// Credentials of this user.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self { username: Some(username.into()), password: password.into() }
    }

    /// Credentials of the URL's user, or of the default user.
    pub fn password(password: impl Into<String>) -> Self {
        Self { username: None, password: password.into() }
    }

    pub(crate) fn into_info(self, info: ConnectionInfo) -> ConnectionInfo {
        let redis = info.redis_settings().clone().set_password(self.password);
        let redis = match self.username {
            Some(username) => redis.set_username(username),
            None => redis,
        };
        info.set_redis_settings(redis)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

pub(crate) type NoCredentials = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type CredentialsCallback =
    Arc<dyn Fn() -> Boxed<'static, Result<Credentials, NoCredentials>> + Send + Sync>;

#[cfg(test)]
mod tests {
    use ::redis::IntoConnectionInfo as _;

    use super::super::common::Timing;
    use super::*;
    #[cfg(any(target_os = "android", target_os = "linux"))]
    use crate::backend::LATEST_RUN;
    use crate::support::runtime::TokioRuntime;

    fn dialer(timing: Timing) -> Dialer {
        Dialer::plain("redis://127.0.0.1", &Arc::new(Common::new(timing, TokioRuntime::current())))
    }

    /// Nagle's algorithm would hold a small packet until the previous one was acknowledged.
    #[tokio::test]
    async fn small_packets_go_out_at_once_and_probes_are_a_third_apart() {
        const SILENCE: Duration = Duration::from_secs(30);
        let timing = Timing { keepalive: SILENCE, ..Timing::default() };
        let dialer = dialer(timing);
        let tcp = dialer.info.tcp_settings();
        assert!(tcp.nodelay());
        let wanted = TcpKeepalive::new().with_time(SILENCE).with_interval(SILENCE / 3);
        assert_eq!(format!("{:?}", tcp.keepalive()), format!("{:?}", Some(wanted)));
    }

    #[cfg(any(target_os = "android", target_os = "linux"))]
    #[tokio::test]
    async fn unconfirmed_packets_are_given_up_before_their_commands_end() {
        let limit = dialer(Timing::default()).info.tcp_settings().user_timeout().expect("there is a limit");
        assert!((LATEST_RUN / 4..LATEST_RUN).contains(&limit), "{limit:?}");
    }

    #[tokio::test]
    async fn server_is_told_the_librarys_name_and_version() {
        let dialer = dialer(Timing::default());
        let redis = dialer.info.redis_settings();
        assert_eq!((redis.lib_name(), redis.lib_ver()), (Some("latchwork"), Some(env!("CARGO_PKG_VERSION"))));
    }

    #[test]
    fn announced_server_is_reached_with_the_urls_transport() {
        let at = |url: &str| {
            let address = Address { host: "10.0.0.2".into(), port: 7001 };
            address.into_info(&url.into_connection_info().unwrap()).addr().clone()
        };
        assert!(matches!(at("redis://a"), ConnectionAddr::Tcp(host, 7001) if host == "10.0.0.2"));
        let ConnectionAddr::TcpTls { host, port: 7001, .. } = at("rediss://a") else {
            panic!("its commands, and its password, go over the network in clear")
        };
        assert_eq!(host, "10.0.0.2");
    }

    #[test]
    fn credentials_replace_those_in_the_url_with_or_without_a_user() {
        let told = |credentials: Credentials| {
            let info = "redis://former:old@a".into_connection_info().unwrap();
            let info = credentials.into_info(info);
            let redis = info.redis_settings();
            (redis.username().map(str::to_owned), redis.password().map(str::to_owned))
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(told(Credentials::new("locks", "new")), (text("locks"), text("new")));
        assert_eq!(told(Credentials::password("new")), (text("former"), text("new")));
    }
}
