//! [`Server`]: the Redis server that all locks meet on, and a connection that only looks.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use latchwork_testkit::RedisServer;
use redis::{Client, Connection, FromRedisValue, InfoDict, cmd};

/// A server of this run's own.
pub struct Server {
    redis: RedisServer,
    control: Connection,
}

/// How long the last commands of ended clients may take to arrive, and a key to go that was given a second.
const SOON: Duration = Duration::from_secs(5);

impl Server {
    /// Starts it.
    pub fn start() -> Self {
        let redis = RedisServer::start();
        let control = connect(&redis.url());
        Self { redis, control }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.redis.url()
    }

    /// Its version.
    pub fn version(&mut self) -> String {
        let info: InfoDict = self.control(&["INFO", "server"]);
        info.get("redis_version").unwrap_or_default()
    }

    /// How often each command has run, those inside of scripts included, by the server's own count.
    pub fn calls(&mut self) -> BTreeMap<String, u64> {
        let info: String = self.control(&["INFO", "commandstats"]);
        let count = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        };
        info.lines().filter_map(count).collect()
    }

    /// Runs a command over the connection that only looks.
    pub fn control<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        let (name, args) = words.split_first().expect("a command");
        cmd(name).arg(args).query(&mut self.control).expect("the server answers")
    }

    /// Sees that no key and no subscription is left.
    ///
    /// # Panics
    ///
    /// If there is.
    pub fn assert_empty(&mut self, whom: &str) {
        let start = Instant::now();
        loop {
            let keys: Vec<String> = self.control(&["KEYS", "*"]);
            let channels: Vec<String> = self.control(&["PUBSUB", "CHANNELS"]);
            if keys.is_empty() && channels.is_empty() {
                return;
            }
            assert!(start.elapsed() < SOON, "{whom} has left keys {keys:?} and channels {channels:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

pub(super) fn connect(url: &str) -> Connection {
    Client::open(url).and_then(|client| client.get_connection()).expect("the server takes one more")
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("redis", &self.redis).finish_non_exhaustive()
    }
}
