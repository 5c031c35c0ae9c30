//! A queueing lock on a real server, its backend, and a connection that sees every key and message.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::LazyLock;
use std::time::Duration;

use futures_util::StreamExt;
use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Backend as _, LockName, Mode, NextWaiter, QueuePosition, ReleaseOutcome,
};
use latchwork::redis::{Error, Redis};
use latchwork::{Holder, LeaseId};
use latchwork_conformance::commands::{Commands as _, did_read, keys, left};
use latchwork_testkit::RedisServer;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{Client, FromRedisValue};

use crate::by_hand::{command, connection};

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

/// Far longer than a test takes; each constant differs, so a time to live shows its source.
pub(crate) const LEASE: Duration = Duration::from_secs(600);
/// Most time by which a lock outlasts the field of a writer beside readers.
pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);
pub(crate) const KEPT: Duration = Duration::from_secs(120);
/// The time between two arrivals; far longer than commands take.
pub(crate) const STEP: Duration = Duration::from_secs(1000);

pub(crate) fn id(client: u32, number: u64) -> LeaseId {
    format!("{client:08x}-0795-4907-87fd-6c719a6b4586:{number}").parse().unwrap()
}

/// The position of a waiter that came `steps` arrivals ago.
pub(crate) fn position(steps: u32) -> QueuePosition {
    QueuePosition { waited: STEP * steps, kept: KEPT }
}

pub(crate) fn next(id: &LeaseId, steps: u32, tokens: u64) -> NextWaiter {
    NextWaiter { id: id.clone(), lease: LEASE, tokens, position: position(steps) }
}

/// Fields for `HSET`: each id with the same value.
pub(crate) fn fields(ids: impl IntoIterator<Item: Display>, value: u32) -> String {
    ids.into_iter().map(|id| format!(" {id} {value}")).collect()
}

/// The key of a reader's lease for its hold number `hold`.
pub(crate) fn lease_key(reader: &str, hold: u32) -> String {
    format!("{{{{}}}}:{reader}:rwlock_timeout:{hold}")
}

pub(crate) struct Stage {
    pub(crate) redis: Redis,
    pub(crate) name: LockName,
    /// Mode of the waiters that have positions.
    pub(crate) mode: Mode,
    /// Prefix of the lock's own keys and channels, behind `latchwork:{NAME}:`.
    prefix: &'static str,
    channel: String,
    pub(crate) raw: MultiplexedConnection,
    sink: PubSubSink,
    stream: PubSubStream,
}

fn without_nonce(said: &str) -> &str {
    let (granted, nonce) = said.rsplit_once(':').unwrap();
    assert!(nonce.len() == 16 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit()), "{said}");
    granted
}

impl Stage {
    pub(crate) async fn fair(name: &str) -> Self {
        Self::on(&SERVER, name, Mode::Fair).await
    }

    pub(crate) async fn read_write(name: &str) -> Self {
        Self::on(&SERVER, name, Mode::Write).await
    }

    pub(crate) fn prefix(mode: Mode) -> &'static str {
        match mode {
            Mode::Plain => "plain",
            Mode::Fair => "fair",
            Mode::Permits => "permits",
            _ => "rw",
        }
    }

    pub(crate) async fn on(server: &RedisServer, name: &str, mode: Mode) -> Self {
        let channel = match mode {
            Mode::Plain | Mode::Fair => "redisson_lock__channel",
            Mode::Permits => "none",
            _ => "redisson_rwlock",
        };
        let prefix = Self::prefix(mode);
        // However busy the machine is, no command is sent again.
        let patient = Redis::builder().response_timeout(Duration::from_secs(60));
        let redis = patient.connect(&server.url()).await.unwrap();
        let client = Client::open(server.url()).unwrap();
        let (mut sink, stream) = client.get_async_pubsub().await.unwrap().split();
        let channel = format!("{channel}:{{{name}}}");
        sink.subscribe(format!("fence:{name}")).await.unwrap();
        sink.subscribe(&channel).await.unwrap();
        let raw = connection(server).await;
        Self { redis, name: LockName::new(name).unwrap(), mode, prefix, channel, raw, sink, stream }
    }

    /// Runs a command, with `{}` for the lock's name.
    pub(crate) async fn run<T: FromRedisValue>(&mut self, words: &str) -> T {
        let words = words.replace("{}", self.name.as_str());
        command(&words).query_async(&mut self.raw).await.unwrap_or_else(|error| panic!("{words}: {error}"))
    }

    /// Writes fields of the lock, which then lasts for a lease.
    pub(crate) async fn put(&mut self, fields: &str) {
        let () = self.run(&format!("HSET {{}} {fields}")).await;
        let () = self.run("PEXPIRE {} 600000").await;
    }

    /// Writes the lease of a reader's first hold.
    pub(crate) async fn lease(&mut self, reader: &str, lease: Duration) {
        let () = self.run(&format!("SET {} 1 PX {}", lease_key(reader, 1), lease.as_millis())).await;
    }

    /// The ids whose clients a release of the plain lock calls, in order.
    pub(crate) async fn called(&mut self) -> Vec<String> {
        self.run("ZRANGE {}:latchwork:{{}}:waiters 0 -1").await
    }

    pub(crate) async fn millis(&mut self) -> u64 {
        let [seconds, micros]: [u64; 2] = self.run("TIME").await;
        seconds * 1000 + micros / 1000
    }

    pub(crate) async fn listen_to(&mut self, channel: &str) {
        self.sink.subscribe(channel.replace("{}", self.name.as_str())).await.unwrap();
    }

    fn own_channel(&self, id: &LeaseId) -> impl redis::ToRedisArgs + use<> {
        self.redis.channels(self.mode, &self.name, &id.client_id()).own
    }

    pub(crate) async fn listen(&mut self, id: &LeaseId) {
        let channel = self.own_channel(id);
        self.sink.subscribe(channel).await.unwrap();
    }

    pub(crate) async fn listen_no_more(&mut self, id: &LeaseId) {
        let channel = self.own_channel(id);
        self.sink.unsubscribe(channel).await.unwrap();
    }

    /// Messages since the last call: a text on the lock's channel, a granted id, or a channel and its text.
    pub(crate) async fn heard(&mut self) -> Vec<String> {
        let () = self.run("PUBLISH fence:{} over").await;
        self.heard_before_fence().await
    }

    /// As `heard`, for a fence that was already published.
    pub(crate) async fn heard_before_fence(&mut self) -> Vec<String> {
        let grants = format!("{0}:latchwork:{{{0}}}:{1}_grant:", self.name, self.prefix);
        let calls = format!("{0}:latchwork:{{{0}}}:call:", self.name);
        let mut heard = Vec::new();
        loop {
            let message = self.stream.next().await.expect("connected");
            let channel = message.get_channel_name();
            if channel.starts_with("fence:") {
                return heard;
            }
            let said: String = message.get_payload().unwrap();
            heard.push(if let Some(client) = channel.strip_prefix(&*grants) {
                without_nonce(&said).replace("granted", client)
            } else if let Some(client) = channel.strip_prefix(&*calls) {
                format!("called {client}")
            } else if channel == self.channel {
                said
            } else {
                format!("{channel} {said}")
            });
        }
    }

    pub(crate) async fn assert_heard(&mut self, expected: &[&str]) {
        assert_eq!(self.heard().await, expected);
    }

    /// Asserts that the ids were granted the lock, and no other message was published.
    pub(crate) async fn assert_granted(&mut self, ids: &[&LeaseId]) {
        let expected: Vec<String> = ids.iter().map(ToString::to_string).collect();
        assert_eq!(self.heard().await, expected);
    }

    pub(crate) async fn ask(
        &self,
        id: &LeaseId,
        position: Option<QueuePosition>,
    ) -> Result<AcquireOutcome, Error> {
        self.redis.acquire(self.mode, &self.name, &self.redis.request(id, LEASE).position(position)).await
    }

    /// Acquires the free lock for `id`.
    pub(crate) async fn take(&self, id: &LeaseId) {
        let taken = self.ask(id, Some(position(0))).await.unwrap();
        assert_eq!(taken, AcquireOutcome::Acquired { last_token: 0 }, "{id}");
    }

    /// Asks for a held lock; returns the time left of the holder's lease.
    pub(crate) async fn wait(&self, id: &LeaseId, steps: u32) -> Duration {
        left(self.ask(id, Some(position(steps))).await.unwrap()).expect("another client has the lock")
    }

    pub(crate) async fn release(&self, id: &LeaseId, next: Option<&NextWaiter>) -> ReleaseOutcome {
        self.redis.release(self.mode, &self.name, id, next).await.unwrap()
    }

    pub(crate) async fn force_release(&self) -> bool {
        self.redis.force_release(self.mode, &self.name).await.unwrap()
    }

    pub(crate) async fn ask_to_read(&self, request: &AcquireRequest) -> Result<AcquireOutcome, Error> {
        self.redis.acquire(Mode::Read, &self.name, request).await
    }

    /// Asks to read beside the own write lease `writer`.
    pub(crate) async fn ask_beside(
        &self,
        id: &LeaseId,
        writer: &LeaseId,
        position: Option<QueuePosition>,
    ) -> Result<AcquireOutcome, Error> {
        self.ask_to_read(&self.redis.request(id, LEASE).position(position).under(writer.clone())).await
    }

    /// Asks to read; returns the time to wait, or `None` if the read lease was granted.
    pub(crate) async fn reader_waits(
        &self,
        id: &LeaseId,
        position: Option<QueuePosition>,
    ) -> Option<Duration> {
        left(self.ask_to_read(&self.redis.request(id, LEASE).position(position)).await.unwrap())
    }

    pub(crate) async fn read(&self, id: &LeaseId) {
        assert_eq!(self.reader_waits(id, Some(position(0))).await, None, "{id}");
    }

    pub(crate) async fn read_for(&self, id: &LeaseId, lease: Duration) {
        let read = self.redis.request(id, lease);
        assert_eq!(left(self.ask_to_read(&read).await.unwrap()), None, "{id}");
    }

    /// Reads beside the own write lease `writer`.
    pub(crate) async fn read_beside(&self, id: &LeaseId, writer: &LeaseId) {
        assert_eq!(left(self.ask_beside(id, writer, None).await.unwrap()), None, "{id}");
    }

    pub(crate) async fn wait_to_read(&self, id: &LeaseId, steps: u32) -> Duration {
        self.reader_waits(id, Some(position(steps))).await.expect("another client has the lock")
    }

    pub(crate) async fn release_read(&self, id: &LeaseId) -> bool {
        did_read(self.redis.release(Mode::Read, &self.name, id, None).await.unwrap())
    }

    pub(crate) async fn renew(&self, mode: Mode, id: &LeaseId, lease: Duration) {
        let renewed = self.redis.renew(mode, &keys(&self.name, &[id]), lease).await.unwrap();
        assert_eq!(renewed, [true], "{mode:?} {id}");
    }

    pub(crate) async fn writer(&self) -> Option<Holder> {
        self.redis.holder(Mode::Write, &self.name).await.unwrap()
    }

    pub(crate) async fn readers(&self) -> Vec<Holder> {
        self.redis.holders(Mode::Read, &self.name).await.unwrap()
    }

    pub(crate) async fn holder(&mut self) -> Option<LeaseId> {
        let fields: Vec<String> = self.run("HKEYS {}").await;
        if fields.is_empty() {
            return None;
        }
        assert_eq!(fields.len(), 2, "{fields:?}");
        assert_eq!(self.run::<String>("HGET {} mode").await, "fair");
        Some(fields.iter().find(|field| *field != "mode").unwrap().parse().unwrap())
    }

    pub(crate) async fn assert_holder(&mut self, id: &LeaseId, left: Duration) {
        assert_eq!(self.holder().await.as_ref(), Some(id));
        self.assert_lasts("{}", left).await;
    }

    /// The queue in order: each id with the start of its wait and the end of its position (µs).
    pub(crate) async fn positions(&mut self) -> Vec<(LeaseId, f64, f64)> {
        let prefix = format!("{{}}:latchwork:{{{{}}}}:{}", self.prefix);
        let (queue, kept) =
            (format!("ZRANGE {prefix}_queue 0 -1 WITHSCORES"), format!("HGETALL {prefix}_positions"));
        let queue: Vec<(String, f64)> = self.run(&queue).await;
        let mut kept: BTreeMap<String, String> = self.run(&kept).await;
        let mut position = |(id, since): (String, f64)| {
            let until = kept.remove(&id).unwrap();
            (id.parse().unwrap(), since, until[..16].parse().unwrap())
        };
        let positions = queue.into_iter().map(&mut position).collect();
        assert!(kept.is_empty(), "expected no entry without a position, and found {kept:?}");
        positions
    }

    pub(crate) async fn queue(&mut self) -> Vec<LeaseId> {
        self.positions().await.into_iter().map(|(id, ..)| id).collect()
    }

    pub(crate) async fn assert_queue(&mut self, ids: &[&LeaseId]) {
        assert_eq!(self.queue().await.iter().collect::<Vec<_>>(), ids);
    }

    /// Sets the end of the id's position, if there is one.
    pub(crate) async fn keep_until(&mut self, id: &LeaseId, until: u64) {
        let positions = format!("{{}}:latchwork:{{{{}}}}:{}_positions", self.prefix);
        let position: Option<String> = self.run(&format!("HGET {positions} {id}")).await;
        let Some(position) = position else { return };
        let nonce = position.split(':').nth(1).unwrap();
        let () = self.run(&format!("HSET {positions} {id} {until:016}:{nonce}")).await;
    }

    pub(crate) async fn end_position(&mut self, id: &LeaseId) {
        self.keep_until(id, 1).await;
    }

    pub(crate) async fn fields(&mut self) -> Vec<String> {
        let all: BTreeMap<String, String> = self.run("HGETALL {}").await;
        all.into_iter().map(|(field, value)| format!("{field}={value}")).collect()
    }

    pub(crate) async fn assert_fields(&mut self, fields: &[String]) {
        assert_eq!(self.fields().await, fields);
    }

    /// The end of the write lease in the writer's field (µs).
    pub(crate) async fn writes_until(&mut self, writer: &LeaseId) -> u64 {
        let until: String = self.run(&format!("HGET {{}} {writer}:write")).await;
        until.strip_prefix("until:").expect("the writer reads as well").parse().unwrap()
    }

    /// Asserts the life of a key, with `{}` for the lock's name.
    pub(crate) async fn assert_lasts(&mut self, key: &str, left: Duration) {
        let lasts: i64 = self.run(&format!("PTTL {key}")).await;
        let lasts = Duration::from_millis(lasts.try_into().unwrap_or(0));
        let is_so = lasts <= left && lasts > left.saturating_sub(left.min(Duration::from_secs(30)) / 2);
        assert!(is_so, "expected {key} to last {left:?}, and it lasts {lasts:?}");
    }

    /// All keys of the lock except its token counter; asserts that each has a time to live. (KEYS finds every
    /// key that contains the name, so no test's name is part of another's.)
    pub(crate) async fn keys(&mut self) -> Vec<String> {
        let counter = format!("redisson_lock_token:{{{}}}", self.name);
        let mut keys: Vec<String> = self.run("KEYS *{}*").await;
        keys.retain(|key| *key != counter);
        for key in &keys {
            let lasts: i64 = self.run(&format!("PTTL {key}")).await;
            // A reader's remains may have expired meanwhile.
            let has_ended = lasts == -2 && self.mode == Mode::Write;
            assert!(lasts > 0 || has_ended, "{key}: {lasts}");
        }
        keys
    }

    pub(crate) async fn end(mut self) {
        assert_eq!(self.keys().await, [""; 0]);
    }
}
