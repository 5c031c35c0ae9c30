//! [`Error`]: an error from the Redis backend.

use std::any::Any;
use std::fmt;

use ::redis::{Cmd, ErrorKind as Kind, RedisError, ServerErrorKind};

use crate::backend::{Failure, LockName};
use crate::lock::{LockError, LockKind};
use crate::support::foreign::message;

use super::advice::{advice, denied, of_greeting, quote, says, what_to_do};

/// An error from the Redis backend: of the URL, of connecting, or of a command.
///
/// The text names the remedy, and contains neither URL nor password. The
/// [`source`](std::error::Error::source) holds the server's words, unless they may repeat the password.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use latchwork::redis::{ErrorKind, Redis};
///
/// let error = Redis::connect("http://localhost").await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Url);
/// assert!(error.to_string().contains("write redis://"), "expected advice in the error");
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    /// The command's fate, if the command was sent.
    meaning: Option<Meaning>,
    /// Failed operation, server and remedy.
    context: String,
    source: Option<RedisError>,
}

/// The kind of an [`Error`], and whether the command ran.
///
/// # Examples
///
/// ```
/// use latchwork::redis::{ErrorKind, Redis};
///
/// // No server listens there.
/// let error = Redis::builder().blocking_connect("redis://127.0.0.1:1").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Connection);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The URL cannot be used. Nothing was sent.
    Url,
    /// The URL asks for TLS (`rediss://`), and this build lacks the feature `tls`. Nothing was sent.
    TlsNotBuiltIn,
    /// The URL names Sentinels (`redis+sentinel://`); this build lacks feature `sentinel`. Nothing was sent.
    SentinelNotBuiltIn,
    /// [`connect`](super::super::Redis::connect) was called outside of a tokio runtime with timers and I/O.
    /// Nothing was sent.
    NoRuntime,
    /// [`connect`](super::super::Redis::connect) was called in a tokio runtime whose clock is paused, as by
    /// `#[tokio::test(start_paused = true)]`. Nothing was sent.
    PausedClock,
    /// A certificate or key cannot be read. Nothing was sent.
    Certificate,
    /// No Sentinel could be asked for the master. The command did not run.
    NoSentinel,
    /// The Sentinels know no master of that name. The command did not run.
    UnknownMaster,
    /// The Sentinels named a server that is no master, as during a failover. The command did not run.
    NotMaster,
    /// The URL names a Cluster (`redis-cluster://`); this build lacks feature `cluster`. Nothing was sent.
    ClusterNotBuiltIn,
    /// The URL names a Cluster, and the server runs without Cluster mode.
    NotACluster,
    /// There was no connection to send the command on. The command did not run.
    Connection,
    /// The server refused the command. The command did not run.
    Refused,
    /// The name is held as another kind of lock. Nothing was changed.
    OtherKind(LockKind),
    /// The connection broke, or the reply did not come in time. The command may have run or not.
    Unknown,
    /// The lock was acquired and is being released: too few replicas confirmed in time for
    /// [`wait_for_replicas`](super::super::RedisBuilder::wait_for_replicas).
    NotReplicated,
}

impl Error {
    /// `what`: the defect of the URL, without any part of the URL.
    pub(crate) fn url(what: &str) -> Self {
        let context = format!(
            "the Redis URL cannot be used: {what}; write redis://[user:password@]host[:port][/database], \
             redis-cluster://[user:password@]host[:port][,host[:port]…], \
             redis+sentinel://[user:password@]host[:port][,host[:port]…]/master[/database]\
             [?sentinel_username=user&sentinel_password=password] or \
             unix:///path[?db=database&user=user&pass=password], with special characters as % and two hexadecimal digits"
        );
        Self::new(ErrorKind::Url, context, None)
    }

    pub(crate) fn unusable_url(error: RedisError) -> Self {
        // A detail quotes a part of the URL, which may be the password.
        let source = error.detail().is_none().then_some(error);
        Self { source, ..Self::url("host, port or database are missing or wrong") }
    }

    /// `what`: the unsupported part of the URL. `feature`: the Cargo feature that supports the part.
    pub(crate) fn not_built_in(kind: ErrorKind, what: &str, feature: &str) -> Self {
        let context = format!(
            "the Redis URL {what}, for which this build was not made; turn on latchwork's feature `{feature}`"
        );
        Self::new(kind, context, None)
    }

    #[cfg(feature = "tls")]
    pub(crate) fn certificate(which: &str) -> Self {
        Self::new(ErrorKind::Certificate, format!("{which} cannot be read; it must be in PEM"), None)
    }

    pub(crate) fn no_runtime() -> Self {
        let context = "connecting to Redis needs a tokio runtime, and this is outside of one: connect in a \
                       runtime, or by Redis::builder().blocking_connect(url), which has a thread of its own";
        Self::new(ErrorKind::NoRuntime, context.into(), None)
    }

    pub(crate) fn lacks(part: &str) -> Self {
        let context = format!(
            "connecting to Redis needs the {part} of tokio, which this runtime was built without: build it with \
             `enable_all()`"
        );
        Self::new(ErrorKind::NoRuntime, context, None)
    }

    pub(crate) fn paused_clock() -> Self {
        let context = "the clock of this tokio runtime is paused, and would jump over the time that a server takes to \
                       answer: connect by Redis::builder().blocking_connect(url), which has a clock of its own, or \
                       test over memory, by LockClient::new(Local::on_tokio())";
        Self::new(ErrorKind::PausedClock, context.into(), None)
    }

    pub(crate) fn no_thread(error: std::io::Error) -> Self {
        let context = "cannot start the thread for the connections to Redis".into();
        Self::new(ErrorKind::Connection, context, Some(error.into()))
    }

    pub(crate) fn credentials(address: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        Self::unconnected(address, &format!(": the credentials callback failed: {error}"), None)
    }

    pub(crate) fn panicked(address: &str, panic: &(dyn Any + Send)) -> Self {
        Self::unconnected(
            address,
            &format!(": a callback of the builder's panicked: {}", message(panic)),
            None,
        )
    }

    /// `command`, which this connection needs, failed or was refused.
    pub(crate) fn greeting(address: &str, command: &str, error: RedisError) -> Self {
        let why = format!(", which does not answer {command}: {}", what_to_do(&error));
        Self::unconnected(address, &why, Some(error))
    }

    /// The TLS handshake had no reply in time, or one that is not TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn no_tls(address: &str) -> Self {
        let why = ", which does not speak TLS there, or not in time: give rediss:// the server's `tls-port`, \
                   or write redis:// for its `port`";
        Self::unconnected(address, why, None)
    }

    #[cfg(feature = "tls")]
    pub(crate) fn no_system_certificates(error: Option<std::io::Error>) -> Self {
        let context = "the system has no certificates to trust (such as those of the package ca-certificates); \
                       install them, or name one by RedisBuilder::root_certificate";
        Self::new(ErrorKind::Certificate, context.into(), error.map(RedisError::from))
    }

    pub(crate) fn connection(address: &str, error: RedisError) -> Self {
        // The system's words name the cause, such as a refused connection, and repeat no password.
        let advice =
            if error.is_connection_refusal() { "; see whether a Redis server runs there" } else { "" };
        let cause = || (error.kind() == Kind::Io).then(|| format!("{error}{advice}"));
        let why = Self::remedy(&error).or_else(cause).map(|why| format!(": {why}")).unwrap_or_default();
        Self::unconnected(address, &why, Some(error))
    }

    fn unconnected(address: &str, why: &str, source: Option<RedisError>) -> Self {
        Self::new(ErrorKind::Connection, format!("cannot connect to Redis at {address}{why}"), source)
    }

    /// Like [`connection`](Self::connection), without the server's words, which may repeat the password.
    pub(crate) fn introduction(address: &str, error: RedisError) -> Self {
        Self::connection(address, of_greeting(error))
    }

    /// `had`: the number of replicas that confirmed, or the refusal of WAIT.
    pub(crate) fn not_replicated(address: &str, had: Result<usize, RedisError>, wanted: usize) -> Self {
        let context = match &had {
            Ok(had) => format!(
                "only {had} of {wanted} replicas had the lock in time, so it is given back; see whether the \
                 replicas of Redis at {address} follow it, or allow them more time"
            ),
            Err(error) => {
                format!("Redis at {address} refused WAIT, so the lock is given back: {}", what_to_do(error))
            }
        };
        Self::new(ErrorKind::NotReplicated, context, had.err())
    }

    pub(crate) fn no_owner(slot: u16) -> Self {
        let context = format!("no node of the Cluster has slot {slot}, in which the lock would lie");
        Self::new(ErrorKind::Connection, context, None)
    }

    pub(crate) fn runtime_ended() -> Self {
        let context = "the tokio runtime that the connections to Redis lived on has ended".into();
        Self::new(ErrorKind::Connection, context, None)
    }

    pub(crate) fn command(address: &str, command: &Cmd, error: RedisError) -> Self {
        let meaning = Meaning::of(&error);
        let (kind, context) = match meaning {
            Meaning::Lost => (
                ErrorKind::Unknown,
                format!("no reply from Redis at {address}, so the command may have run or not"),
            ),
            _ => {
                let quoted = quote(command, &error);
                let refused = match denied(&error).filter(|denied| !quoted.starts_with(denied)) {
                    Some(denied) => format!("{denied} in {quoted}"),
                    None => quoted,
                };
                let what_to_do = what_to_do(&error);
                (ErrorKind::Refused, format!("Redis at {address} refused {refused}: {what_to_do}"))
            }
        };
        Self { kind, meaning: Some(meaning), context, source: Some(error) }
    }

    /// Returns the remedy for a server's refusal, with the denied command's name.
    pub(crate) fn remedy(error: &RedisError) -> Option<String> {
        let what_to_do = advice(error)?;
        let said = denied(error).map(|denied| format!("{denied} was refused: "));
        Some(said.unwrap_or_default() + what_to_do)
    }

    pub(crate) fn new(kind: ErrorKind, context: String, source: Option<RedisError>) -> Self {
        Self { kind, meaning: None, context, source }
    }

    /// Returns the fate of the command; `None` if the command was not sent.
    pub(crate) fn meaning(&self) -> Option<Meaning> {
        self.meaning
    }

    /// True if a later attempt may succeed without intervention.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self.kind, ErrorKind::Connection | ErrorKind::NoSentinel | ErrorKind::NotMaster)
            || self.meaning == Some(Meaning::NotServing)
    }

    pub(crate) fn is_wrong_type(&self) -> bool {
        self.redis_error().is_some_and(|error| says(error, "WRONGTYPE"))
    }

    /// Returns the redis crate's error; [`source`](std::error::Error::source) has a shorter chain of causes.
    pub(crate) fn redis_error(&self) -> Option<&RedisError> {
        self.source.as_ref()
    }

    pub(crate) fn other_kind(name: &LockName, mode: &str) -> Self {
        let found = kind(mode);
        let context = format!("{name:?} is held as a {found} (its mode is {mode:?})");
        Self::new(ErrorKind::OtherKind(found), context, None)
    }

    /// Returns the kind of the error, which says whether the command ran.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub(crate) fn failure(&self) -> Failure {
        match self.kind {
            ErrorKind::Unknown | ErrorKind::NotReplicated => Failure::Indeterminate,
            ErrorKind::OtherKind(found) => Failure::OtherKind(found),
            _ if self.may_pass() => Failure::Unreachable,
            _ => Failure::Refused,
        }
    }
}

/// Only for errors of connecting. A lock's commands fail with [`LockError::Backend`].
impl From<Error> for LockError {
    fn from(error: Error) -> Self {
        Self::Connect { failure: error.failure(), source: Box::new(error) }
    }
}

/// Fate of a command, by the redis crate's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Connection broken, reply missing, or reply of another command. The command may have run.
    Lost,
    /// The server is a replica, loading, busy, or without its replicas or Cluster. The command did not run.
    NotServing,
    /// The keys are spread over several nodes of a Cluster. The command did not run.
    CrossSlot,
    /// Another node has the key. The command did not run.
    Elsewhere,
    /// A permanent refusal: the command did not run, or its script stopped before the first write.
    Refused,
}

impl Meaning {
    pub(crate) fn of(error: &RedisError) -> Self {
        const NOT_SERVING: [&str; 5] = ["READONLY", "MASTERDOWN", "LOADING", "CLUSTERDOWN", "NOREPLICAS"];
        let serves_no_client =
            || error.code() == Some("BUSY") || NOT_SERVING.iter().any(|code| says(error, code));
        match error.kind() {
            Kind::Server(kind) => match kind {
                ServerErrorKind::TryAgain => Self::CrossSlot,
                ServerErrorKind::Moved | ServerErrorKind::Ask => Self::Elsewhere,
                // From a script that accessed an undeclared key, such as a reader's lease.
                _ if error.detail().is_some_and(|said| said.contains("non local key")) => Self::CrossSlot,
                _ if serves_no_client() => Self::NotServing,
                _ => Self::Refused,
            },
            Kind::Extension if serves_no_client() => Self::NotServing,
            Kind::Extension | Kind::AuthenticationFailed => Self::Refused,
            _ => Self::Lost,
        }
    }
}

pub(crate) fn is_broken(error: &RedisError) -> bool {
    Meaning::of(error) == Meaning::Lost
}

pub(crate) fn out_of_step() -> RedisError {
    RedisError::from((Kind::UnexpectedReturnType, "a reply to another command"))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // Skip the byte offset of a parse error, which tells a user nothing.
        let source = self.redis_error().filter(|error| error.kind() != Kind::Parse)?;
        // Some errors of the redis crate display only their cause: skip them, to name each cause once.
        let behind = std::error::Error::source(source);
        let cause = behind.filter(|behind| behind.to_string() == source.to_string()).unwrap_or(source);
        // This error's own text may name the cause.
        if self.context.contains(&cause.to_string()) { cause.source() } else { Some(cause) }
    }
}

/// `mode`: the value of the lock's field `mode`. Redisson's plain and fair locks have no such field.
fn kind(mode: &str) -> LockKind {
    match mode {
        "lock" => LockKind::Plain,
        "fair" => LockKind::Fair,
        "read" | "write" => LockKind::ReadWrite,
        "permits" => LockKind::Semaphore,
        _ => LockKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use ::redis::{ErrorKind as Kind, RedisError};

    use super::super::super::fake::refusal;
    use super::{Error, ErrorKind, Failure, Meaning, is_broken, out_of_step, what_to_do};

    #[test]
    fn missing_or_not_yet_serving_server_is_a_passing_error() {
        let error = |kind| Error::new(kind, String::new(), None);
        for kind in [ErrorKind::Connection, ErrorKind::NoSentinel, ErrorKind::NotMaster] {
            assert!(error(kind).may_pass() && error(kind).failure() == Failure::Unreachable, "{kind:?}");
        }
        for kind in [ErrorKind::Url, ErrorKind::Unknown, ErrorKind::Refused] {
            assert!(!error(kind).may_pass(), "{kind:?}");
        }
        let loading = Error::command("", &::redis::cmd("GET"), refusal("LOADING it begins"));
        assert!(loading.may_pass());
    }

    /// Before 7.0 the reply starts with the script's name, followed by the script's error.
    #[test]
    fn script_errors_mean_the_same_in_every_server_version() {
        let script = "ERR Error running script (call to f_0123456789abcdef): @user_script:1:";
        for (met, before_7, meaning, is_wrong_type) in [
            (
                "READONLY You can't write against a read only replica.",
                "@user_script: 1: -READONLY You can't write against a read only replica.",
                Meaning::NotServing,
                false,
            ),
            (
                "NOREPLICAS Not enough good replicas to write.",
                "@user_script: 1: -NOREPLICAS Not enough good replicas to write.",
                Meaning::NotServing,
                false,
            ),
            (
                "WRONGTYPE Operation against a key holding the wrong kind of value",
                "WRONGTYPE Operation against a key holding the wrong kind of value",
                Meaning::Refused,
                true,
            ),
        ] {
            let replies = [refusal(met), refusal(&format!("{script} {before_7}"))];
            assert_eq!(what_to_do(&replies[0]), what_to_do(&replies[1]), "{met}");
            for reply in replies {
                assert_ne!(what_to_do(&reply), "its reply says why", "{reply:?}");
                assert_eq!(Meaning::of(&reply), meaning, "{reply:?}");
                let error = Error::new(ErrorKind::Refused, String::new(), Some(reply));
                assert_eq!(error.is_wrong_type(), is_wrong_type, "{met}");
            }
        }
        // An error word in a quotation is not that error.
        let other = refusal(&format!("{script} ERR no such key 'READONLY'"));
        assert_eq!(Meaning::of(&other), Meaning::Refused);
    }

    #[test]
    fn busy_server_is_waited_for_and_keys_of_two_nodes_are_split() {
        for (reply, meaning) in [
            ("BUSY Redis is busy running a script. You can only call SCRIPT KILL.", Meaning::NotServing),
            ("ERR Script attempted to access a non local key in a cluster node", Meaning::CrossSlot),
        ] {
            assert_eq!(Meaning::of(&refusal(reply)), meaning, "{reply}");
        }
    }

    #[test]
    fn connection_is_broken_by_what_is_no_answer_and_by_no_refusal() {
        let silence = RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
        assert!(is_broken(&silence) && is_broken(&out_of_step()));
        assert!(!is_broken(&refusal("NOPERM it may not")) && !is_broken(&refusal("LOADING it is")));
    }

    #[test]
    fn why_a_url_cannot_be_used_is_told_unless_it_may_quote_the_url() {
        let why = Error::unusable_url(RedisError::from((Kind::InvalidClientConfig, "it has no host")));
        assert!(why.source().is_some_and(|why| why.to_string().contains("no host")), "{why:?}");
        let quotes = RedisError::from((Kind::InvalidClientConfig, "its host is wrong", "hunter2".to_owned()));
        let silent = Error::unusable_url(quotes);
        assert!(silent.source().is_none() && !format!("{silent:?}").contains("hunter2"), "{silent:?}");
    }
}
