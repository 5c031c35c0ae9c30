//! [`Stage`]: a server, two players of each side, and a look at the server past all of them.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use latchwork_testkit::RedisServer;
use redis::{Connection, FromRedisValue};

use crate::checks::Checked;
use crate::player::{AT_ALL, Player, SOON, Side, Sides, Way};

/// As both have it if nothing is said.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(30);

/// A server, with a connection to look at it.
pub(crate) struct Server {
    pub(crate) server: RedisServer,
    connection: Mutex<Connection>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let server = RedisServer::start();
        let client = redis::Client::open(server.url()).expect("it is a URL");
        let connection = client.get_connection().expect("the server is up");
        Self { server, connection: Mutex::new(connection) }
    }

    pub(crate) fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut connection = self.connection.lock().expect("no thread panics with it");
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut *connection).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Looks again and again until it is so.
    pub(crate) fn until(&self, what: &str, is_so: impl FnMut(&Self) -> bool) -> Checked {
        self.until_within(AT_ALL, what, is_so)
    }

    fn until_within(&self, limit: Duration, what: &str, mut is_so: impl FnMut(&Self) -> bool) -> Checked {
        let deadline = Instant::now() + limit;
        while !is_so(self) {
            if Instant::now() > deadline {
                return Err(format!("{what}: not within {limit:?}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    pub(crate) fn keys(&self, pattern: &str) -> Vec<String> {
        self.run(&["KEYS", pattern])
    }

    /// Milliseconds that a key has left; −1 for ever, −2 not there.
    pub(crate) fn left(&self, key: &str) -> i64 {
        self.run(&["PTTL", key])
    }

    /// That nothing is left: no channel, and no key.
    pub(crate) fn is_clean(&self) -> Checked {
        let mut remains = String::new();
        let clean = self.until("a clean server", |server| {
            let keys = server.remains("*");
            let channels: Vec<String> = server.run(&["PUBSUB", "CHANNELS"]);
            remains = format!("keys {keys:?}, channels {channels:?}");
            keys.is_empty() && channels.is_empty()
        });
        clean.map_err(|error| format!("{error}: {remains}"))
    }

    /// All keys but counters of tokens, and those that Redisson leaves to their time, in some versions for
    /// each unlock.
    fn remains(&self, pattern: &str) -> Vec<String> {
        let stays = |key: &String| match self.left(key) {
            -1 => !key.starts_with("redisson_lock_token:"),
            _ => !key.starts_with("redisson_unlock_latch:"),
        };
        self.keys(pattern).into_iter().filter(stays).collect()
    }
}

pub(crate) struct Stage {
    pub(crate) server: Server,
    sides: Sides,
    way: Way,
    ours: [Player; 2],
    redisson: [Player; 2],
}

impl Stage {
    pub(crate) fn set(sides: Sides) -> Self {
        let server = Server::start();
        let url = server.server.url();
        let way = Way { locks: url.clone(), data: url, watchdog: WATCHDOG };
        let two = |side| [(); 2].map(|()| Player::start(side, &sides, &way));
        let (ours, redisson) = (two(Side::Ours), two(Side::Redisson));
        Self { server, ours, redisson, sides, way }
    }

    /// Redisson's.
    pub(crate) fn version(&self) -> &str {
        self.redisson[0].version()
    }

    /// One of the two players of a side.
    pub(crate) fn player(&self, side: Side, which: usize) -> &Player {
        match side {
            Side::Ours => &self.ours[which],
            Side::Redisson => &self.redisson[which],
        }
    }

    /// That the name is gone at once, but for the leases of readers that Redisson leaves to their time if one
    /// was forced free.
    pub(crate) fn leaves_nothing_of(&self, name: &str) -> Checked {
        let mut remains = Vec::new();
        let clean = self.server.until_within(SOON, "no keys", |server| {
            remains = server.remains(&format!("*{{{name}}}*"));
            remains.extend(server.remains(name));
            let theirs = |key: &String| self.redisson.iter().any(|one| key.contains(one.id()));
            remains.retain(|key| !(key.contains(":rwlock_timeout:") && theirs(key)));
            remains.is_empty()
        });
        clean.map_err(|error| format!("{error}, but {remains:?}"))
    }

    /// One more, to be killed.
    pub(crate) fn victim(&self, side: Side) -> Player {
        Player::start(side, &self.sides, &self.way)
    }
}
