//! [`Server`]: a Redis server, and a connection that bypasses all proxies.

use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use latchwork_testkit::RedisServer;
use redis::{Connection, FromRedisValue};

use crate::checks::Checked;

/// Far longer than any working step takes, and longer than a watched lease, so that the check fails.
pub(crate) const AT_ALL: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    pub(crate) server: RedisServer,
    connection: Mutex<Option<Connection>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self { server: RedisServer::start(), connection: Mutex::default() }
    }

    /// Fails if the server is down.
    pub(crate) fn try_run<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let mut connection = self.connection.lock().expect("no thread panics under this mutex");
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        if let Some(opened) = &mut *connection
            && let Ok(answer) = command.query(opened)
        {
            return Ok(answer);
        }
        // The server may have been restarted.
        let opened = redis::Client::open(self.server.url())?.get_connection_with_timeout(SOON)?;
        command.query(connection.insert(opened))
    }

    pub(crate) fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_run(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub(crate) fn until(&self, what: &str, is_so: impl FnMut() -> bool) -> Checked {
        until(AT_ALL, what, is_so)
    }

    /// Remaining milliseconds of a key; −1: no expiry, −2: no such key.
    pub(crate) fn left(&self, key: &str) -> i64 {
        self.run(&["PTTL", key])
    }

    /// The channels with subscribers, and the keys with `of` in their name, that are left after `limit`;
    /// except token counters, and keys that Redisson leaves to expire, in some versions for each unlock.
    pub(crate) fn remains(&self, of: &str, limit: Duration, but: impl Fn(&str) -> bool) -> Vec<String> {
        let stays = |key: &String| match self.left(key) {
            -1 => !key.starts_with("redisson_lock_token:"),
            _ => !key.starts_with("redisson_unlock_latch:") && !but(key),
        };
        let mut left = Vec::new();
        let _ = until(limit, "nothing", || {
            let keys: Vec<String> = self.run(&["KEYS", &format!("*{of}*")]);
            left = keys.into_iter().filter(stays).map(|key| format!("the key {key}")).collect();
            if of.is_empty() {
                let channels: Vec<String> = self.run(&["PUBSUB", "CHANNELS"]);
                left.extend(channels.iter().map(|channel| format!("a subscription to {channel}")));
            }
            left.is_empty()
        });
        left
    }
}

/// Enough for a message on a busy machine, and far shorter than a lease.
pub(crate) const SOON: Duration = Duration::from_secs(5);

fn until(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) -> Checked {
    let deadline = Instant::now() + limit;
    while !is_so() {
        if Instant::now() > deadline {
            return Err(format!("{what}: not within {limit:?}"));
        }
        sleep(Duration::from_millis(1));
    }
    Ok(())
}
