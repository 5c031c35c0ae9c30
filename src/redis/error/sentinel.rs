//! What can go wrong before a master is found.

use ::redis::RedisError;

use super::advice::advice;
use super::{Error, ErrorKind};

impl Error {
    /// `what`: what is wrong with the URL, without any part of it.
    pub(in super::super) fn sentinel_url(what: &str) -> Self {
        let context = format!(
            "the Redis URL cannot be used: {what}; write \
             redis+sentinel://[user:password@]host[:port][,host[:port]…]/master[/database]\
             [?sentinel_username=user&sentinel_password=password], with special characters as % and two hexadecimal digits"
        );
        Self { kind: ErrorKind::Url, context, source: None }
    }

    /// `sentinels`: where they were looked for. `error`: the first one's.
    pub(in super::super) fn no_sentinel(sentinels: &str, error: RedisError, passwords: &[&str]) -> Self {
        let is_none = error.detail().is_some_and(|said| said.contains("unknown command"));
        let what_to_do = match advice(&error) {
            _ if is_none => "who answers there is no Sentinel",
            advice => advice.unwrap_or("check the addresses, and that one of them runs"),
        };
        Self {
            kind: ErrorKind::NoSentinel,
            context: format!("no Sentinel at {sentinels} says where the master is: {what_to_do}"),
            source: tells_none(error, passwords),
        }
    }

    pub(in super::super) fn unknown_master(name: &str) -> Self {
        let context = format!(
            "the Sentinels know no master called {name:?}; write into the URL what stands behind `sentinel monitor` in their \
             configuration"
        );
        Self { kind: ErrorKind::UnknownMaster, context, source: None }
    }

    /// `role`: what the server calls itself instead, if it says so.
    pub(in super::super) fn not_master(name: &str, address: &str, role: &str) -> Self {
        let context = format!(
            "Redis at {address} is what the Sentinels call the master {name:?}, and calls itself {role}; if there is a \
             failover, try again in a moment, otherwise see the Sentinels' log"
        );
        Self { kind: ErrorKind::NotMaster, context, source: None }
    }

    /// The server that should be the master does not say what it is.
    pub(in super::super) fn no_role(address: &str, error: RedisError) -> Self {
        let what_to_do = advice(&error).unwrap_or("it must answer ROLE");
        Self {
            kind: ErrorKind::Connection,
            context: format!("cannot connect to Redis at {address}: {what_to_do}"),
            source: Some(error),
        }
    }

    /// Whether a later attempt may find what this one did not, with nothing changed by hand.
    pub(in super::super) fn may_pass(&self) -> bool {
        matches!(self.kind, ErrorKind::Connection | ErrorKind::NoSentinel | ErrorKind::NotMaster)
    }
}

/// The error, unless it shows one of the passwords.
fn tells_none(error: RedisError, passwords: &[&str]) -> Option<RedisError> {
    let text = format!("{error} {error:?}");
    (!passwords.iter().any(|password| text.contains(password))).then_some(error)
}
