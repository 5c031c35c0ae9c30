//! [`Error`]: what went wrong between here and the server.

mod advice;

use std::fmt;

use ::redis::{Cmd, ErrorKind as Kind, RedisError};

use self::advice::{advice, quote};

/// What went wrong between here and the server.
///
/// Its text says what to do about it, and never holds the URL or a password. The server's own words are the
/// [`source`](std::error::Error::source).
#[derive(Debug)]
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
    /// There was no connection to send the command on. It did not run.
    Connection,
    /// The server refused the command. It did not run.
    Refused,
    /// The connection broke, or the reply did not come in time. The command may have run or not.
    Unknown,
}

impl Error {
    pub(super) fn url(error: RedisError) -> Self {
        let context =
            "the Redis URL cannot be used; write redis://[user:password@]host[:port][/database]".into();
        Self { kind: ErrorKind::Url, context, source: Some(error) }
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

    /// The runtime that the connections live on has ended.
    pub(super) fn runtime_ended() -> Self {
        let context = "the tokio runtime in which Redis::connect was called has ended".into();
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

    /// What this means for the command that met it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
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
