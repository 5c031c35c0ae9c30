//! Our own scripts, without the rest of us.

use std::time::Duration;

use redis::Script;
use redis::aio::MultiplexedConnection;

use super::raw::{connection, owner};
use super::{Client, LEASE, Many, PATIENCE};

/// The scripts that ours sends, with the same words, each by EVALSHA over a connection like ours: between it
/// and ours lies what the client costs, between it and [`Raw`](super::Raw) what the scripts do.
pub struct Bare {
    connection: MultiplexedConnection,
    name: String,
    channel: String,
    owner: String,
    acquire: Script,
    release: Script,
}

const ACQUIRE: &str = include_str!("../../../../src/redis/scripts/acquire.lua");
const RELEASE: &str = include_str!("../../../../src/redis/scripts/release.lua");

impl Bare {
    fn of(connection: MultiplexedConnection, name: &str) -> Self {
        Self {
            connection,
            name: name.to_owned(),
            channel: format!("redisson_lock__channel:{{{name}}}"),
            owner: owner(),
            acquire: Script::new(ACQUIRE),
            release: Script::new(RELEASE),
        }
    }
}

impl Client for Bare {
    const NAME: &'static str = "bare";
    const POLLS: Option<Duration> = None;
    type Guard = ();

    async fn connect(url: &str, name: &str) -> Self {
        Self::of(connection(url, Some(PATIENCE)).await, name)
    }

    async fn lock(&self) {
        let mut acquire = self.acquire.key(&self.name);
        acquire.arg(LEASE.as_millis() as u64).arg(&self.owner).arg(0);
        let left: Option<i64> = acquire.invoke_async(&mut self.connection.clone()).await.expect("a reply");
        assert_eq!(left, None, "this row cannot wait");
    }

    async fn unlock(&self, (): ()) {
        let mut release = self.release.key(&self.name);
        release.arg(&self.owner).arg(0).arg("publish").arg(&self.channel);
        let heard: i64 = release.invoke_async(&mut self.connection.clone()).await.expect("a reply");
        assert!(heard >= 0, "it was held");
    }
}

impl Many for Bare {
    async fn connect_all(url: &str, names: &[String]) -> Vec<Self> {
        let connection = connection(url, Some(PATIENCE)).await;
        names.iter().map(|name| Self::of(connection.clone(), name)).collect()
    }
}

impl std::fmt::Debug for Bare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bare").field("name", &self.name).finish_non_exhaustive()
    }
}
