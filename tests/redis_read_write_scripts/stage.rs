//! A read-write lock on a real server, its backend, and a bystander who sees each key and message.

use std::sync::LazyLock;
use std::time::Duration;

use futures_util::StreamExt;
use latchwork::redis::{Error, Redis};
use latchwork::{
    AcquireOutcome, AcquireRequest, Backend as _, Holder, LeaseId, LockName, Mode, NextWaiter, QueuePosition,
    ReleaseOutcome,
};
use latchwork_testkit::RedisServer;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{Client, FromRedisValue};

use crate::by_hand::{command, connection};
use crate::commands::{Commands as _, did_read, left};

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

/// Far longer than a test takes, and different, so that a time to live says which of them it comes from.
pub(crate) const LEASE: Duration = Duration::from_secs(600);
pub(crate) const KEPT: Duration = Duration::from_secs(120);
/// The time between two arrivals. What commands take is nothing beside it.
pub(crate) const STEP: Duration = Duration::from_secs(1000);
/// A client of Redisson.
pub(crate) const THEM: &str = "99999999-0795-4907-87fd-6c719a6b4586:7";

/// The id with this number of the client with that number.
pub(crate) fn id(client: u32, number: u64) -> LeaseId {
    format!("{client:08x}-0795-4907-87fd-6c719a6b4586:{number}").parse().unwrap()
}

/// Of one that came before `steps` others.
pub(crate) fn position(steps: u32) -> QueuePosition {
    QueuePosition { waited: STEP * steps, kept: KEPT }
}

pub(crate) fn next(id: &LeaseId, steps: u32) -> NextWaiter {
    NextWaiter { id: id.clone(), lease: LEASE, tokens: 0, position: position(steps) }
}

pub(crate) struct Stage {
    pub(crate) redis: Redis,
    pub(crate) name: LockName,
    raw: MultiplexedConnection,
    sink: PubSubSink,
    stream: PubSubStream,
}

/// A grant, which says its waiter's nonce: 64 bits.
fn without_nonce(said: &str) -> &str {
    let (granted, nonce) = said.rsplit_once(':').unwrap();
    assert!(nonce.len() == 16 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit()), "{said}");
    granted
}

impl Stage {
    pub(crate) async fn set(name: &str) -> Self {
        let redis = Redis::connect(&SERVER.url()).await.unwrap();
        let client = Client::open(SERVER.url()).unwrap();
        let (mut sink, stream) = client.get_async_pubsub().await.unwrap().split();
        sink.subscribe(format!("fence:{name}")).await.unwrap();
        sink.subscribe(format!("redisson_rwlock:{{{name}}}")).await.unwrap();
        let raw = connection(&SERVER).await;
        Self { redis, name: LockName::new(name).unwrap(), raw, sink, stream }
    }

    /// A command by hand, with `{}` for the lock's name.
    pub(crate) async fn run<T: FromRedisValue>(&mut self, words: &str) -> T {
        let words = words.replace("{}", self.name.as_str());
        command(&words).query_async(&mut self.raw).await.unwrap_or_else(|error| panic!("{words}: {error}"))
    }

    pub(crate) async fn listen(&mut self, id: &LeaseId) {
        self.sink.subscribe(self.redis.channels(Mode::Write, &self.name, &id.client_id()).own).await.unwrap();
    }

    pub(crate) async fn listen_no_more(&mut self, id: &LeaseId) {
        self.sink
            .unsubscribe(self.redis.channels(Mode::Write, &self.name, &id.client_id()).own)
            .await
            .unwrap();
    }

    /// What was published since the last look: a message to all, or a grant, as the client's uuid, `:`, and the number.
    pub(crate) async fn heard(&mut self) -> Vec<String> {
        let () = self.run("PUBLISH fence:{} over").await;
        let mut heard = Vec::new();
        loop {
            let message = self.stream.next().await.expect("connected");
            let (channel, said): (_, String) = (message.get_channel_name(), message.get_payload().unwrap());
            match channel.strip_prefix(&*format!("{0}:latchwork:{{{0}}}:rw_grant:", self.name)) {
                Some(client) => heard.push(without_nonce(&said).replace("granted", client)),
                None if channel.starts_with("fence:") => return heard,
                None => heard.push(said),
            }
        }
    }

    pub(crate) async fn assert_heard(&mut self, expected: &[&str]) {
        assert_eq!(self.heard().await, expected);
    }

    pub(crate) async fn assert_granted(&mut self, id: &LeaseId) {
        assert_eq!(self.heard().await, [id.to_string()]);
    }

    pub(crate) async fn ask_to_write(
        &self,
        id: &LeaseId,
        position: Option<QueuePosition>,
    ) -> Result<AcquireOutcome, Error> {
        let request = self.redis.request(id, LEASE).position(position);
        self.redis.acquire(Mode::Write, &self.name, &request).await
    }

    pub(crate) async fn ask_to_read(
        &self,
        id: &LeaseId,
        position: Option<QueuePosition>,
    ) -> Result<AcquireOutcome, Error> {
        self.ask(&self.redis.request(id, LEASE).position(position)).await
    }

    /// As one that writes already, under the lease of that.
    pub(crate) async fn ask_beside(
        &self,
        id: &LeaseId,
        writer: &LeaseId,
        position: Option<QueuePosition>,
    ) -> Result<AcquireOutcome, Error> {
        self.ask(&self.redis.request(id, LEASE).position(position).under(writer.clone())).await
    }

    /// To read, as the request says.
    pub(crate) async fn ask(&self, request: &AcquireRequest) -> Result<AcquireOutcome, Error> {
        self.redis.acquire(Mode::Read, &self.name, request).await
    }

    pub(crate) async fn writer(&self) -> Option<Holder> {
        self.redis.holder(Mode::Write, &self.name).await.unwrap()
    }

    pub(crate) async fn readers(&self) -> Vec<Holder> {
        self.redis.holders(Mode::Read, &self.name).await.unwrap()
    }

    pub(crate) async fn write(&self, id: &LeaseId) {
        assert_eq!(left(self.ask_to_write(id, None).await.unwrap()), None, "{id}");
    }

    pub(crate) async fn read(&self, id: &LeaseId) {
        assert_eq!(left(self.ask_to_read(id, Some(position(0))).await.unwrap()), None, "{id}");
    }

    /// Asks to write, and does not get it.
    pub(crate) async fn wait_to_write(&self, id: &LeaseId, steps: u32) -> Duration {
        left(self.ask_to_write(id, Some(position(steps))).await.unwrap()).expect("somebody has it")
    }

    pub(crate) async fn wait_to_read(&self, id: &LeaseId, steps: u32) -> Duration {
        left(self.ask_to_read(id, Some(position(steps))).await.unwrap()).expect("somebody has it")
    }

    pub(crate) async fn release_write(&self, id: &LeaseId) -> ReleaseOutcome {
        self.redis.release(Mode::Write, &self.name, id, None).await.unwrap()
    }

    pub(crate) async fn release_read(&self, id: &LeaseId) -> bool {
        did_read(self.redis.release(Mode::Read, &self.name, id, None).await.unwrap())
    }

    /// The lock's fields and values, in order.
    pub(crate) async fn fields(&mut self) -> Vec<String> {
        let all: Vec<(String, String)> = self.run("HGETALL {}").await;
        let mut all: Vec<_> = all.into_iter().map(|(field, value)| format!("{field}={value}")).collect();
        all.sort();
        all
    }

    pub(crate) async fn assert_fields(&mut self, fields: &[String]) {
        assert_eq!(self.fields().await, fields);
    }

    /// That a key, with `{}` for the lock's name, lasts for so long.
    pub(crate) async fn assert_lasts(&mut self, key: &str, left: Duration) {
        let lasts: i64 = self.run(&format!("PTTL {key}")).await;
        let lasts = Duration::from_millis(lasts.try_into().unwrap_or(0));
        let is_so = lasts <= left && lasts > left.saturating_sub(left.min(Duration::from_secs(30)) / 2);
        assert!(is_so, "{key}: {lasts:?} instead of {left:?}");
    }

    /// All keys of the lock, but its counter of tokens. None of them stays for ever.
    pub(crate) async fn keys(&mut self) -> Vec<String> {
        let keys: Vec<String> = self.run("KEYS *{}*").await;
        let counter = format!("redisson_lock_token:{{{}}}", self.name);
        let keys: Vec<String> = keys.into_iter().filter(|key| *key != counter).collect();
        for key in &keys {
            // What is not there has ended meanwhile.
            assert_ne!(self.run::<i64>(&format!("PTTL {key}")).await, -1, "{key} stays for ever");
        }
        keys
    }

    /// Nothing is left.
    pub(crate) async fn end(mut self) {
        assert_eq!(self.keys().await, [""; 0]);
    }
}

/// The key of a reader's lease, of its hold with that number.
pub(crate) fn lease_key(reader: &str, hold: u32) -> String {
    format!("{{{{}}}}:{reader}:rwlock_timeout:{hold}")
}
