//! Semaphores over Redis under comparison, behind one trait.

use std::sync::Mutex;
use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{LockClient, NamedSemaphore, PermitGuard};
use redis::aio::MultiplexedConnection;
use redis::{Script, cmd};

use super::clients::raw::connection;
use super::clients::{LEASE, PATIENCE};

/// A process's client of a semaphore. Any number of its tasks may use the client at once.
pub trait Semaphore: Send + Sync + Sized + 'static {
    /// The row's name.
    const NAME: &'static str;

    /// Commands that a client sends, as the server counts them: no script runs a further one of these.
    const COMMANDS: &'static [&'static str];

    /// One permit.
    type Permit: Send;

    /// Connects to the server at `url` for the semaphore called `name`, on the current runtime.
    fn connect(url: &str, name: &str, permits: u32) -> impl Future<Output = Self> + Send;

    /// Takes a permit, without a time limit.
    fn acquire(&self) -> impl Future<Output = Self::Permit> + Send;

    /// Gives the permit back.
    fn release(&self, permit: Self::Permit) -> impl Future<Output = ()> + Send;
}

impl Semaphore for NamedSemaphore {
    const NAME: &'static str = "latchwork";
    const COMMANDS: &'static [&'static str] = &["evalsha"];
    type Permit = PermitGuard;

    async fn connect(url: &str, name: &str, permits: u32) -> Self {
        let client = LockClient::new(Redis::connect(url).await.expect("a server"));
        client.get_semaphore(name, permits).expect("a name")
    }

    async fn acquire(&self) -> PermitGuard {
        Self::acquire(self).await.expect("no fault is injected")
    }

    async fn release(&self, permit: PermitGuard) {
        permit.release().await.expect("it is held");
    }
}

/// A list of as many tokens as permits: BLPOP takes one, over a connection of the waiter's own, and LPUSH
/// gives one back. No leases: a token of a process that ends is gone for good.
pub struct Tokens {
    url: String,
    name: String,
    commands: MultiplexedConnection,
    /// Connections without a sleeping waiter.
    sleepers: Mutex<Vec<MultiplexedConnection>>,
    /// Bounds the dials under way: the server's backlog of connections is short.
    dials: tokio::sync::Semaphore,
}

impl Semaphore for Tokens {
    const NAME: &'static str = "blpop";
    const COMMANDS: &'static [&'static str] = &["blpop", "lpush"];
    type Permit = ();

    async fn connect(url: &str, name: &str, permits: u32) -> Self {
        let commands = connection(url, Some(PATIENCE)).await;
        let mut once = cmd("SET");
        once.arg(format!("{name}:made")).arg(1).arg("NX");
        let is_first: Option<String> = once.query_async(&mut commands.clone()).await.expect("a reply");
        if is_first.is_some() {
            let tokens = vec![1; permits as usize];
            let push = cmd("LPUSH").arg(name).arg(tokens).to_owned();
            let _: u64 = push.query_async(&mut commands.clone()).await.expect("a reply");
        }
        let (sleepers, dials) = (Mutex::default(), tokio::sync::Semaphore::new(32));
        Self { url: url.to_owned(), name: name.to_owned(), commands, sleepers, dials }
    }

    async fn acquire(&self) {
        let idle = self.sleepers.lock().expect("no thread panics with it").pop();
        let mut sleeper = match idle {
            Some(sleeper) => sleeper,
            None => {
                let _dial = self.dials.acquire().await.expect("no code closes the semaphore");
                connection(&self.url, None).await
            }
        };
        let mut pop = cmd("BLPOP");
        pop.arg(&self.name).arg(0);
        let _: (String, String) = pop.query_async(&mut sleeper).await.expect("a reply");
        self.sleepers.lock().expect("no thread panics with it").push(sleeper);
    }

    async fn release(&self, (): ()) {
        let push = cmd("LPUSH").arg(&self.name).arg(1).to_owned();
        let _: u64 = push.query_async(&mut self.commands.clone()).await.expect("a reply");
    }
}

/// A sorted set of ids by the ends of their leases, asked every 10 ms: the way of most libraries.
pub struct Polled {
    name: String,
    permits: u32,
    commands: MultiplexedConnection,
    acquire: Script,
}

const ACQUIRE: &str = "
local clock = redis.call('time')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('zremrangebyscore', KEYS[1], '-inf', now)
if redis.call('zcard', KEYS[1]) >= tonumber(ARGV[1]) then
    return 0
end
redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[3])
redis.call('pexpire', KEYS[1], ARGV[2])
return 1";

impl Semaphore for Polled {
    const NAME: &'static str = "polled set";
    const COMMANDS: &'static [&'static str] = &["evalsha", "zrem"];
    type Permit = String;

    async fn connect(url: &str, name: &str, permits: u32) -> Self {
        let commands = connection(url, Some(PATIENCE)).await;
        Self { name: name.to_owned(), permits, commands, acquire: Script::new(ACQUIRE) }
    }

    async fn acquire(&self) -> String {
        let id = format!("{:032x}", fastrand::u128(..));
        loop {
            let mut acquire = self.acquire.key(&self.name);
            acquire.arg(self.permits).arg(LEASE.as_millis() as u64).arg(&id);
            if acquire.invoke_async(&mut self.commands.clone()).await.expect("a reply") {
                return id;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn release(&self, id: String) {
        let remove = cmd("ZREM").arg(&self.name).arg(id).to_owned();
        let _: u64 = remove.query_async(&mut self.commands.clone()).await.expect("a reply");
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Polled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Polled").field("name", &self.name).finish_non_exhaustive()
    }
}
