//! The questions to the Sentinels, and the master's known address.

use std::sync::Arc;

use ::redis::{FromRedisValue, RedisError, RedisResult, Value, cmd};
use tokio::sync::watch;

use crate::support::sync::Mutex;

use super::super::super::connection::{
    Address, Dialer, Error, ErrorKind, Known, MultiplexedConnection, Push,
};

pub(super) struct Shared {
    pub(super) name: Arc<str>,
    pub(super) sentinels: Vec<Dialer>,
    /// Index of the Sentinel to ask first, the last one that named the right master.
    first: Mutex<usize>,
    /// Dials the master, at the address that the Sentinels name.
    server: Dialer,
    /// The master's address; `None` if unknown or proved wrong.
    pub(super) known: watch::Sender<Known>,
}

impl Shared {
    pub(super) fn new(name: Arc<str>, sentinels: Vec<Dialer>, server: Dialer) -> Self {
        Self { name, sentinels, first: Mutex::new(0), server, known: watch::Sender::new(None) }
    }

    /// Asks one Sentinel after another, until a named server confirms its role as master.
    pub(super) async fn find(&self, push: &Push) -> Result<(Arc<str>, MultiplexedConnection), Error> {
        let (mut refused, mut unknown, mut unasked) = (Vec::<(Address, Error)>::new(), false, None);
        for sentinel in self.in_turn() {
            let said = match self.ask(sentinel).await {
                Ok(said) => said,
                Err(error) => {
                    unasked.get_or_insert(error);
                    continue;
                }
            };
            let Some(said) = said else {
                unknown = true;
                continue;
            };
            if refused.iter().any(|(other, _)| *other == said) {
                continue;
            }
            match self.connect_to_master(&said, push).await {
                Ok(connection) => {
                    self.prefer(sentinel);
                    return Ok((said.to_string().into(), connection));
                }
                Err(error) => refused.push((said, error)),
            }
        }
        Err(match (refused.into_iter().next(), unasked) {
            (Some((_, error)), _) => error,
            (None, Some(error)) if !unknown => Error::no_sentinel(&self.addresses(), error),
            (None, _) => Error::unknown_master(&self.name),
        })
    }

    /// Returns the Sentinels' indexes, beginning with the preferred Sentinel.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (*self.first.lock(), self.sentinels.len());
        (0..count).map(move |turn| (first + turn) % count)
    }

    pub(super) fn prefer(&self, sentinel: usize) {
        *self.first.lock() = sentinel;
    }

    async fn ask(&self, sentinel: usize) -> Result<Option<Address>, Error> {
        let sentinel = &self.sentinels[sentinel];
        let mut connection = sentinel.dial(None, Arc::new(|_| {})).await?;
        let said = self.ask_over(&mut connection).await;
        said.map_err(|error| Error::greeting(&sentinel.address(), "SENTINEL", error))
    }

    pub(super) async fn ask_over(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<Option<Address>> {
        let mut question = cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&*self.name);
        let said: Option<(String, u16)> = question.query_async(connection).await?;
        Ok(said.map(|(host, port)| Address { host, port }))
    }

    async fn connect_to_master(&self, at: &Address, push: &Push) -> Result<MultiplexedConnection, Error> {
        let address = at.to_string();
        let mut connection = self.server.dial(Some(at), Arc::clone(push)).await?;
        let role = role(&mut connection).await.map_err(|error| Error::greeting(&address, "ROLE", error))?;
        if role == "master" { Ok(connection) } else { Err(Error::not_master(&self.name, &address, &role)) }
    }

    /// Stores the master's `address`, if newer than the known address.
    pub(super) fn learn(&self, address: &Arc<str>, is_newer: impl FnOnce(&Known) -> bool) {
        let learnt = self.known.send_if_modified(|known| {
            let news = known.as_ref() != Some(address) && is_newer(known);
            if news {
                *known = Some(Arc::clone(address));
            }
            news
        });
        if learnt {
            event!(INFO, master = &*self.name, server = &**address, "master found");
        }
    }

    fn addresses(&self) -> String {
        self.sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the server's own word for its role: `master`, `slave` or `sentinel`.
pub(super) async fn role(connection: &mut MultiplexedConnection) -> Result<String, RedisError> {
    // The fields after the role differ between roles.
    let reply: Vec<Value> = cmd("ROLE").query_async(connection).await?;
    let role = reply.into_iter().next().unwrap_or(Value::Nil);
    Ok(String::from_redis_value(role)?)
}

impl Error {
    /// `sentinels`: the addresses asked. `error`: the first Sentinel's error.
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

    pub(crate) fn not_master(name: &str, address: &str, role: &str) -> Self {
        let context = format!(
            "Redis at {address} is what the Sentinels call the master {name:?}, and calls itself {role}; if there is a \
             failover, try again in a moment, otherwise see the Sentinels' log"
        );
        Self::new(ErrorKind::NotMaster, context, None)
    }
}
