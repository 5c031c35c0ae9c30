//! What can go wrong before a master is found.

use ::redis::RedisError;

use super::super::super::connection::{Error, ErrorKind};

impl Error {
    /// `what`: what is wrong with the URL, without any part of it.
    pub(crate) fn sentinel_url(what: &str) -> Self {
        let context = format!(
            "the Redis URL cannot be used: {what}; write \
             redis+sentinel://[user:password@]host[:port][,host[:port]…]/master[/database]\
             [?sentinel_username=user&sentinel_password=password], with special characters as % and two hexadecimal digits"
        );
        Self::new(ErrorKind::Url, context, None)
    }

    /// `sentinels`: where they were looked for. `error`: the first one's.
    pub(crate) fn no_sentinel(sentinels: &str, error: Self) -> Self {
        let source = error.redis_error().cloned();
        let is_none =
            |error: &RedisError| error.detail().is_some_and(|said| said.contains("unknown command"));
        let what_to_do = match &source {
            Some(error) if is_none(error) => Some("what answers there is no Sentinel".into()),
            source => source.as_ref().and_then(Self::remedy),
        };
        let what_to_do = what_to_do.unwrap_or("check the addresses, and that one of them runs".into());
        let context = format!("no Sentinel at {sentinels} says where the master is: {what_to_do}");
        Self::new(ErrorKind::NoSentinel, context, source)
    }

    pub(crate) fn unknown_master(name: &str) -> Self {
        let context = format!(
            "the Sentinels know no master called {name:?}; write into the URL what stands behind `sentinel monitor` in their \
             configuration"
        );
        Self::new(ErrorKind::UnknownMaster, context, None)
    }

    /// `role`: what the server calls itself instead, if it says so.
    pub(crate) fn not_master(name: &str, address: &str, role: &str) -> Self {
        let context = format!(
            "Redis at {address} is what the Sentinels call the master {name:?}, and calls itself {role}; if there is a \
             failover, try again in a moment, otherwise see the Sentinels' log"
        );
        Self::new(ErrorKind::NotMaster, context, None)
    }

    pub(crate) fn connection_lost(address: &str) -> Self {
        let lost = std::io::Error::from(std::io::ErrorKind::ConnectionAborted);
        Self::new(
            ErrorKind::Connection,
            format!("the connection to Redis at {address} broke"),
            Some(lost.into()),
        )
    }
}
