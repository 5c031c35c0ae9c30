//! Numbers on a Redis server, over a connection of their own, unknown to the locks.

use std::process;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, AsyncTypedCommands, Client, IntoConnectionInfo, pipe};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::job::Number;
use crate::outcome::EnterOutcome;
use crate::{Error, clock};

/// The common prefix of all keys of one run of the example.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run(String);

impl Run {
    /// A unique prefix.
    pub(crate) fn unique() -> Self {
        Self(format!("latchwork-quickstart:{}-{}", process::id(), clock::now()))
    }

    pub(crate) fn lock(&self, lock: u32) -> String {
        self.key("lock", lock)
    }

    fn key(&self, what: &str, lock: u32) -> String {
        format!("{}:{what}:{lock}", self.0)
    }
}

pub(crate) struct RedisNumbers {
    run: Run,
    locks: u32,
    connection: MultiplexedConnection,
}

impl RedisNumbers {
    pub(crate) async fn connect(url: &str, run: Run, locks: u32) -> Result<Self, Error> {
        let info = url.into_connection_info()?;
        // Small commands, each awaited by a task.
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(tcp))?;
        // The reply timeout of the lock.
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(3)));
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Self { run, locks, connection })
    }

    pub(crate) fn number(&self, lock: u32) -> RedisNumber {
        RedisNumber {
            number: self.run.key("number", lock),
            inside: self.run.key("inside", lock),
            last_left: self.run.key("last-left", lock),
            connection: self.connection.clone(),
        }
    }

    pub(crate) async fn counted(&self) -> Result<u64, Error> {
        let mut sum = 0;
        for lock in 0..self.locks {
            sum += self.number(lock).read().await?;
        }
        Ok(sum)
    }

    /// Deletes all keys of the run, with the locks of killed processes, which would stay for a lease.
    pub(crate) async fn delete(&self) -> Result<(), Error> {
        let kinds = ["lock", "number", "inside", "last-left"];
        let keys: Vec<String> =
            kinds.iter().flat_map(|kind| (0..self.locks).map(|lock| self.run.key(kind, lock))).collect();
        // The last commands of a killed process may still be in flight, so once is not enough.
        while self.connection.clone().del(&keys).await? > 0 {
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

/// A number under a key. A missing key counts as 0.
pub(crate) struct RedisNumber {
    number: String,
    inside: String,
    last_left: String,
    connection: MultiplexedConnection,
}

impl Number for RedisNumber {
    async fn enter(&self) -> Result<EnterOutcome, Error> {
        let mut both = pipe();
        both.incr(&self.inside, 1).get(&self.last_left);
        let (inside, left): (i64, Option<String>) = both.query_async(&mut self.connection.clone()).await?;
        let (last_left, process) = left.as_deref().and_then(|left| left.split_once(' ')).unwrap_or(("0", ""));
        let last_here = process == process::id().to_string();
        Ok(EnterOutcome { alone: inside == 1, last_left: last_left.parse()?, last_here })
    }

    async fn read(&self) -> Result<u64, Error> {
        let number = self.connection.clone().get_int(&self.number).await?;
        Ok(number.map_or(Ok(0), u64::try_from)?)
    }

    async fn write(&self, number: u64) -> Result<(), Error> {
        self.connection.clone().set(&self.number, number).await?;
        Ok(())
    }

    async fn leave(&self) -> Result<(), Error> {
        let mut both = pipe();
        let left = format!("{} {}", clock::now(), process::id());
        both.decr(&self.inside, 1).ignore().set(&self.last_left, left).ignore();
        let () = both.query_async(&mut self.connection.clone()).await?;
        Ok(())
    }
}
