//! [`Server`]: the Redis server that all locks meet on, and a connection that only looks.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Sub};
use std::thread;
use std::time::{Duration, Instant};

use latchwork_testkit::RedisServer;
use redis::{Client, Connection, FromRedisValue, InfoDict, cmd};

/// A server of this run's own.
pub struct Server {
    redis: RedisServer,
    control: Connection,
    /// The bytes of one look at what was spent, and of all looks so far.
    look: [u64; 2],
}

/// What a server has spent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// CPU time, of whatever it does.
    pub cpu: Duration,
    /// How often a script was called by its hash.
    pub calls: u64,
    /// The time that these calls took, by the server's own clock.
    pub evalsha: Duration,
    /// What came and went over the network, without what it takes to ask for this.
    pub bytes: u64,
}

impl Sub for Spent {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            cpu: self.cpu - before.cpu,
            calls: self.calls - before.calls,
            evalsha: self.evalsha - before.evalsha,
            bytes: self.bytes - before.bytes,
        }
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, more: Self) {
        self.cpu += more.cpu;
        self.calls += more.calls;
        self.evalsha += more.evalsha;
        self.bytes += more.bytes;
    }
}

/// How long the last commands of ended clients may take to arrive, and a key to go that was given a second.
const SOON: Duration = Duration::from_secs(5);

impl Server {
    /// Starts it.
    pub fn start() -> Self {
        let redis = RedisServer::start();
        let control = connect(&redis.url());
        let mut server = Self { redis, control, look: [0; 2] };
        // The first answer is shorter, as it has fewer commands to count.
        server.spent();
        let [before, after] = [server.spent(), server.spent()];
        server.look[0] = after.bytes - before.bytes;
        server
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

    /// What it has spent so far.
    pub fn spent(&mut self) -> Spent {
        let network: InfoDict = self.control(&["INFO", "stats"]);
        let bytes = |name| network.get::<u64>(name).unwrap_or_default();
        let bytes = bytes("total_net_input_bytes") + bytes("total_net_output_bytes") - self.look[1];
        self.look[1] += self.look[0];
        let (cpu, stats): (String, String) =
            (self.control(&["INFO", "cpu"]), self.control(&["INFO", "commandstats"]));
        let after = |text: &str, name: &str| {
            let rest = text.split_once(name)?.1;
            rest.split([',', '\r']).next()?.parse::<f64>().ok()
        };
        let seconds = ["used_cpu_user:", "used_cpu_sys:"].map(|name| after(&cpu, name).unwrap_or_default());
        let evalsha = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap_or_default();
        let [calls, usec] = ["calls=", "usec="].map(|name| after(evalsha, name).unwrap_or_default() as u64);
        Spent {
            cpu: Duration::from_secs_f64(seconds.iter().sum()),
            calls,
            evalsha: Duration::from_micros(usec),
            bytes,
        }
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
    pub fn assert_empty(&mut self, client: &str) {
        let start = Instant::now();
        loop {
            let keys: Vec<String> = self.control(&["KEYS", "*"]);
            let channels: Vec<String> = self.control(&["PUBSUB", "CHANNELS"]);
            if keys.is_empty() && channels.is_empty() {
                return;
            }
            assert!(start.elapsed() < SOON, "{client} has left keys {keys:?} and channels {channels:?}");
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
