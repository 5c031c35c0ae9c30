//! Not a lock, but a lower bound for its cost.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client as Server, FromRedisValue, IntoConnectionInfo, ProtocolVersion, Script,
    ScriptInvocation,
};

use super::{Client, LEASE, Many, PATIENCE};

/// Two scripts equal to Redisson's without contention, sent by EVALSHA over a connection like ours.
#[derive(Debug)]
pub struct Raw(Pair);

/// Two scripts for one name, and their connection.
pub(super) struct Pair {
    connection: MultiplexedConnection,
    name: String,
    pub(super) channel: String,
    pub(super) owner: String,
    acquire: Script,
    release: Script,
}

const ACQUIRE: &str = "
local holds = redis.call('hget', KEYS[1], ARGV[2])
if not holds and (ARGV[3] ~= '1' or redis.call('exists', KEYS[1]) == 1) then
    return redis.call('pttl', KEYS[1])
end
redis.call('hset', KEYS[1], ARGV[2], ARGV[3])
local left = redis.call('pttl', KEYS[1])
if not holds or (left >= 0 and left < tonumber(ARGV[1])) then
    redis.call('pexpire', KEYS[1], ARGV[1])
end
return nil";

const RELEASE: &str = "
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return 0
end
redis.call(ARGV[4], KEYS[2], ARGV[3])
redis.call('del', KEYS[1])
return 1";

/// A connection like latchwork's: RESP3, without Nagle's delay, and no limit of commands in flight.
pub(in crate::lock) async fn connection(
    url: &str,
    response_timeout: Option<Duration>,
) -> MultiplexedConnection {
    let info = url.into_connection_info().expect("a URL");
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let resp3 = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let server = Server::open(info.set_tcp_settings(tcp).set_redis_settings(resp3)).expect("a URL");
    let config = AsyncConnectionConfig::new()
        .set_pipeline_buffer_size(tokio::sync::Semaphore::MAX_PERMITS)
        .set_response_timeout(response_timeout);
    server.get_multiplexed_async_connection_with_config(&config).await.expect("a server")
}

impl Pair {
    pub(super) async fn all(url: &str, names: &[String], [acquire, release]: [&str; 2]) -> Vec<Self> {
        let connection = connection(url, Some(PATIENCE)).await;
        let pair = |name: &String| Self {
            connection: connection.clone(),
            name: name.clone(),
            channel: format!("redisson_lock__channel:{{{name}}}"),
            owner: owner(),
            acquire: Script::new(acquire),
            release: Script::new(release),
        };
        names.iter().map(pair).collect()
    }

    pub(super) async fn one(url: &str, name: &str, scripts: [&str; 2]) -> Self {
        Self::all(url, &[name.to_owned()], scripts).await.swap_remove(0)
    }

    /// `last`: the script's third argument, if any.
    pub(super) async fn lock(&self, last: Option<u64>) {
        let mut acquire = self.acquire.key(&self.name);
        acquire.arg(LEASE.as_millis() as u64).arg(&self.owner);
        if let Some(last) = last {
            acquire.arg(last);
        }
        let left: Option<i64> = acquire.invoke_async(&mut self.connection.clone()).await.expect("a reply");
        assert_eq!(left, None, "this row cannot wait");
    }

    /// `words`: adds the script's arguments after the lock's name.
    pub(super) async fn unlock<T: FromRedisValue>(&self, words: impl FnOnce(&mut ScriptInvocation<'_>)) -> T {
        let mut release = self.release.key(&self.name);
        words(&mut release);
        release.invoke_async(&mut self.connection.clone()).await.expect("a reply")
    }
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("name", &self.name).finish_non_exhaustive()
    }
}

/// As long as a UUID and a number.
pub(super) fn owner() -> String {
    format!("{:036}:1", fastrand::u64(..))
}

impl Client for Raw {
    const NAME: &'static str = "raw";
    const POLLS: Option<Duration> = None;
    type Guard = ();

    async fn connect(url: &str, name: &str) -> Self {
        Self(Pair::one(url, name, [ACQUIRE, RELEASE]).await)
    }

    async fn lock(&self) {
        self.0.lock(Some(1)).await;
    }

    async fn unlock(&self, (): ()) {
        let Pair { channel, owner, .. } = &self.0;
        let had: bool =
            self.0.unlock(|release| _ = release.key(channel).arg(owner).arg(0).arg(0).arg("publish")).await;
        assert!(had, "it was held");
    }
}

impl Many for Raw {
    async fn connect_all(url: &str, names: &[String]) -> Vec<Self> {
        Pair::all(url, names, [ACQUIRE, RELEASE]).await.into_iter().map(Self).collect()
    }
}
