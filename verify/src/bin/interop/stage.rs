//! [`Stage`]: a server, two players of each side, and a look at the server past all of them.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use latchwork_testkit::RedisServer;
use redis::{Connection, FromRedisValue};

use crate::checks::Checked;
use crate::player::{AT_ALL, Player, Side, Sides, Way};

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
        let mut connection = self.connection.lock().expect("nobody panics with it");
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut *connection).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Looks again and again until it is so.
    pub(crate) fn until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) -> Checked {
        let deadline = Instant::now() + AT_ALL;
        while !is_so(self) {
            if Instant::now() > deadline {
                return Err(format!("{what}: not within {AT_ALL:?}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Milliseconds that a key has left; −1 for ever, −2 not there.
    pub(crate) fn left(&self, key: &str) -> i64 {
        self.run(&["PTTL", key])
    }

    /// That nothing is left: no channel, and no key but counters of tokens, and those that Redisson leaves to their time.
    pub(crate) fn is_clean(&self) -> Checked {
        let mut remains = String::new();
        let clean = self.until("a clean server", |server| {
            let keys: Vec<String> = server.run(&["KEYS", "*"]);
            let theirs =
                |key: &str| key.starts_with("redisson_unlock_latch:") || key.contains(":rwlock_timeout:");
            let stays = |key: &String| match server.left(key) {
                -1 => !key.starts_with("redisson_lock_token:"),
                _ => !theirs(key),
            };
            let keys: Vec<_> = keys.into_iter().filter(stays).collect();
            let channels: Vec<String> = server.run(&["PUBSUB", "CHANNELS"]);
            remains = format!("keys {keys:?}, channels {channels:?}");
            keys.is_empty() && channels.is_empty()
        });
        clean.map_err(|error| format!("{error}: {remains}"))
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

    /// One more, to be killed.
    pub(crate) fn victim(&self, side: Side) -> Player {
        Player::start(side, &self.sides, &self.way)
    }
}
