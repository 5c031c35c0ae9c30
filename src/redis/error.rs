//! [`Error`]: what went wrong between here and the server.

mod advice;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "sentinel")]
mod sentinel;

use std::fmt;

use ::redis::{Cmd, ErrorKind as Kind, RedisError};

use crate::lock::{LockKind, LockName};

#[cfg(feature = "sentinel")]
pub(super) use self::advice::said_in_script;
use self::advice::{advice, quote};

/// What went wrong between here and the server.
///
/// Its text says what to do about it, and never holds the URL or a password. The server's own words are the
/// [`source`](std::error::Error::source).
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    /// What was being done, with whom, and what to do about it.
    context: String,
    source: Option<RedisError>,
}

/// What an [`Error`] means for the command that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The URL cannot be used. Nothing was sent.
    Url,
    /// The URL asks for TLS (`rediss://`), and this build was made without the feature `tls`. Nothing was sent.
    TlsNotBuiltIn,
    /// The URL asks for Sentinel (`redis+sentinel://`), and this build was made without the feature `sentinel`. Nothing was sent.
    SentinelNotBuiltIn,
    /// The root certificate cannot be read. Nothing was sent.
    Certificate,
    /// No Sentinel could be asked where the master is. The command did not run.
    NoSentinel,
    /// The Sentinels know no master of that name. The command did not run.
    UnknownMaster,
    /// What the Sentinels call the master is none, as happens for a moment during a failover. The command did not run.
    NotMaster,
    /// The URL names a Cluster (`redis-cluster://`), and this build was made without the feature `cluster`. Nothing was sent.
    ClusterNotBuiltIn,
    /// The URL names a Cluster, and the server is none.
    NotACluster,
    /// There was no connection to send the command on. It did not run.
    Connection,
    /// The server refused the command. It did not run.
    Refused,
    /// The name is held as another kind of lock. Nothing was changed.
    OtherKind(LockKind),
    /// The connection broke, or the reply did not come in time. The command may have run or not.
    Unknown,
    /// The lock was taken, but fewer replicas confirmed it in time than
    /// [`wait_for_replicas`](super::RedisBuilder::wait_for_replicas) asks for. It is being given back.
    NotReplicated,
}

impl Error {
    /// `what`: what is wrong with the URL, without any part of it.
    pub(super) fn url(what: &str) -> Self {
        let context = format!(
            "the Redis URL cannot be used: {what}; write redis://[user:password@]host[:port][/database], \
             redis-cluster://[user:password@]host[:port][,host[:port]…] or \
             unix:///path[?db=database&user=user&pass=password], with special characters as % and two hexadecimal digits"
        );
        Self { kind: ErrorKind::Url, context, source: None }
    }

    /// The redis crate could not use a URL that parses.
    pub(super) fn unusable_url(error: RedisError) -> Self {
        // A detail repeats a part of the URL, whatever that is.
        let source = error.detail().is_none().then_some(error);
        Self { source, ..Self::url("host, port or database are missing or wrong") }
    }

    pub(super) fn tls_not_built_in() -> Self {
        let context =
            "the Redis URL asks for TLS, which this build does not have; turn on latchwork's feature `tls`"
                .into();
        Self { kind: ErrorKind::TlsNotBuiltIn, context, source: None }
    }

    pub(super) fn sentinel_not_built_in() -> Self {
        let context = "the Redis URL names Sentinels, which this build cannot ask; turn on latchwork's feature `sentinel`".into();
        Self { kind: ErrorKind::SentinelNotBuiltIn, context, source: None }
    }

    pub(super) fn cluster_not_built_in() -> Self {
        let context = "the URL names a Redis Cluster, for which this build was not made; turn on latchwork's feature `cluster`"
            .into();
        Self { kind: ErrorKind::ClusterNotBuiltIn, context, source: None }
    }

    #[cfg(feature = "tls")]
    pub(super) fn certificate(error: Option<RedisError>) -> Self {
        let context = "the root certificate cannot be read; it must be in PEM".into();
        Self { kind: ErrorKind::Certificate, context, source: error }
    }

    pub(super) fn no_thread(error: std::io::Error) -> Self {
        let context = "cannot start the thread for the connections to Redis".into();
        Self { kind: ErrorKind::Connection, context, source: Some(error.into()) }
    }

    pub(super) fn connection(address: &str, error: RedisError, password: Option<&str>) -> Self {
        let what_to_do = advice(&error).map(|advice| format!(": {advice}")).unwrap_or_default();
        // A server that does not know the greeting quotes it, and the password is in there.
        let tells = password.is_some_and(|password| format!("{error} {error:?}").contains(password));
        Self {
            kind: ErrorKind::Connection,
            context: format!("cannot connect to Redis at {address}{what_to_do}"),
            source: (!tells).then_some(error),
        }
    }

    /// `why`: why the replicas could not be waited for, if they could not.
    pub(super) fn not_replicated(address: &str, had: usize, wanted: usize, why: Option<RedisError>) -> Self {
        let replicas = |count| if count == 1 { "replica" } else { "replicas" };
        let context = match &why {
            None => format!(
                "only {had} of {wanted} {} had the lock in time, so it is given back; see whether the {} of Redis at \
                 {address} follow it, or allow them more time",
                replicas(wanted),
                replicas(2),
            ),
            Some(error) => format!(
                "Redis at {address} refused WAIT, so the lock is given back: {}",
                advice(error).unwrap_or("its reply says why")
            ),
        };
        Self { kind: ErrorKind::NotReplicated, context, source: why }
    }

    /// The runtime that the connections live on has ended.
    pub(super) fn runtime_ended() -> Self {
        let context = "the tokio runtime that the connections to Redis lived on has ended".into();
        Self { kind: ErrorKind::Connection, context, source: None }
    }

    pub(super) fn command(address: &str, command: &Cmd, error: RedisError) -> Self {
        let (kind, context) = match error.kind() {
            // A server that answered with an error did not run the command, or stopped the script before its first write.
            Kind::Server(_) | Kind::Extension | Kind::AuthenticationFailed => {
                let what_to_do = advice(&error).unwrap_or("its reply says why");
                (ErrorKind::Refused, format!("Redis at {address} refused {}: {what_to_do}", quote(command)))
            }
            _ => (
                ErrorKind::Unknown,
                format!("no reply from Redis at {address}, so the command may have run or not"),
            ),
        };
        Self { kind, context, source: Some(error) }
    }

    /// `mode`: what the lock says of itself.
    pub(super) fn other_kind(name: &LockName, mode: &str) -> Self {
        let found = kind(mode);
        let context = format!("{name:?} is held as a {found} (its mode is {mode:?})");
        Self { kind: ErrorKind::OtherKind(found), context, source: None }
    }

    /// What this means for the command that met it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// What a lock is that says so in its field `mode`. Redisson's plain and fair locks have none.
fn kind(mode: &str) -> LockKind {
    match mode {
        "lock" => LockKind::Plain,
        "fair" => LockKind::Fair,
        "read" | "write" => LockKind::ReadWrite,
        _ => LockKind::Unknown,
    }
}

/// Whether what was met is the end of the connection.
pub(super) fn is_broken(error: &RedisError) -> bool {
    error.is_io_error() || error.is_unrecoverable_error()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
