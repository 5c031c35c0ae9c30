//! A lock whose waiters sleep in BLPOP: the fastest wake-up among the peers.

use std::sync::Mutex;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Script, cmd};

use super::raw::connection;
use super::{Client, LEASE, PATIENCE};

/// In the manner of python-redis-lock: SET NX acquires the lock, a release pushes one token onto a list of
/// signals, and a waiter pops it over a connection of its own. No watchdog, no queue.
pub struct Blpop {
    url: String,
    name: String,
    signal: String,
    commands: MultiplexedConnection,
    /// Connections without a sleeping waiter.
    sleepers: Mutex<Vec<MultiplexedConnection>>,
    release: Script,
}

/// At most one token, which expires soon if it is not popped.
const RELEASE: &str = "
if redis.call('get', KEYS[1]) ~= ARGV[1] then
    return 0
end
redis.call('del', KEYS[2])
redis.call('lpush', KEYS[2], 1)
redis.call('pexpire', KEYS[2], ARGV[2])
redis.call('del', KEYS[1])
return 1";

const SIGNAL_LASTS: Duration = Duration::from_secs(1);

impl Blpop {
    async fn try_lock(&self, owner: &str) -> bool {
        let mut set = cmd("SET");
        set.arg(&self.name).arg(owner).arg("NX").arg("PX").arg(LEASE.as_millis() as u64);
        let done: Option<String> = set.query_async(&mut self.commands.clone()).await.expect("a reply");
        done.is_some()
    }

    async fn sleep(&self) {
        let idle = self.sleepers.lock().expect("no thread panics with it").pop();
        let mut sleeper = match idle {
            Some(sleeper) => sleeper,
            None => connection(&self.url, None).await,
        };
        let mut pop = cmd("BLPOP");
        pop.arg(&self.signal).arg(LEASE.as_secs());
        let _: Option<(String, String)> = pop.query_async(&mut sleeper).await.expect("a reply");
        self.sleepers.lock().expect("no thread panics with it").push(sleeper);
    }
}

impl Client for Blpop {
    const NAME: &'static str = "blpop";
    const POLLS: Option<Duration> = None;
    type Guard = String;

    async fn connect(url: &str, name: &str) -> Self {
        let commands = connection(url, Some(PATIENCE)).await;
        Self {
            url: url.to_owned(),
            name: name.to_owned(),
            signal: format!("{name}:signal"),
            commands,
            sleepers: Mutex::default(),
            release: Script::new(RELEASE),
        }
    }

    async fn lock(&self) -> String {
        let owner = format!("{:032x}", fastrand::u128(..));
        while !self.try_lock(&owner).await {
            self.sleep().await;
        }
        owner
    }

    async fn unlock(&self, owner: String) {
        let mut release = self.release.key(&self.name);
        release.key(&self.signal).arg(&owner).arg(SIGNAL_LASTS.as_millis() as u64);
        let had: bool = release.invoke_async(&mut self.commands.clone()).await.expect("a reply");
        assert!(had, "it was held");
    }
}

impl std::fmt::Debug for Blpop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blpop").field("name", &self.name).finish_non_exhaustive()
    }
}
