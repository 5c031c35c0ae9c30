//! [`Server`]: the Redis server of all locks, and a control connection.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Sub};
use std::thread;
use std::time::{Duration, Instant};

use latchwork_testkit::RedisServer;
use redis::{Client, Connection, FromRedisValue, InfoDict, cmd};

/// A Redis server of this run.
pub struct Server {
    redis: RedisServer,
    control: Connection,
    /// The bytes of one call of `spent`, and of all calls so far.
    look: [u64; 2],
}

/// Resources that a server has used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// CPU time of the whole server.
    pub cpu: Duration,
    /// Number of EVALSHA calls.
    pub calls: u64,
    /// The duration of these calls, by the server's own clock.
    pub evalsha: Duration,
    /// Network traffic in bytes, without that of `spent` itself.
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

/// Time for the last commands of ended clients to arrive, and for a key with one second to expire.
const SOON: Duration = Duration::from_secs(5);

impl Server {
    /// Starts a server.
    pub fn start() -> Self {
        let redis = RedisServer::start();
        let control = connect(&redis.url());
        let mut server = Self { redis, control, look: [0; 2] };
        // The first reply is shorter, since it has fewer commands to count.
        server.spent();
        let [before, after] = [server.spent(), server.spent()];
        server.look[0] = after.bytes - before.bytes;
        server
    }

    /// The URL.
    pub fn url(&self) -> String {
        self.redis.url()
    }

    /// The version.
    pub fn version(&mut self) -> String {
        let info: InfoDict = self.control(&["INFO", "server"]);
        info.get("redis_version").unwrap_or_default()
    }

    /// Calls of each command, including calls inside scripts, by the server's own count.
    pub fn calls(&mut self) -> BTreeMap<String, u64> {
        let info: String = self.control(&["INFO", "commandstats"]);
        let count = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        };
        info.lines().filter_map(count).collect()
    }

    /// Resources used so far.
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

    /// Runs a command over the control connection.
    pub fn control<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        let (name, args) = words.split_first().expect("a command");
        cmd(name).arg(args).query(&mut self.control).expect("the server answers")
    }

    /// Checks that no key and no subscription is left. Panics if any is left.
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
