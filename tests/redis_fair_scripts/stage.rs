//! A fair lock on a real server, its backend, and a bystander who sees each key and message.

use std::sync::LazyLock;
use std::time::Duration;

use futures_util::StreamExt;
use latchwork::redis::{Error, Redis};
use latchwork::{
    AcquireOutcome, Backend as _, LeaseId, LockName, Mode, NextWaiter, QueuePosition, ReleaseOutcome,
};
use latchwork_testkit::RedisServer;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{Client, FromRedisValue};

use crate::by_hand::{command, connection};
use crate::commands::Commands as _;

pub(crate) static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

/// Far longer than a test takes, and different, so that a time to live says which of them it comes from.
pub(crate) const LEASE: Duration = Duration::from_secs(600);
pub(crate) const KEPT: Duration = Duration::from_secs(120);
/// The time between two arrivals. What commands take is nothing beside it.
pub(crate) const STEP: Duration = Duration::from_secs(1000);

pub(crate) const NOT_WANTED: AcquireOutcome = AcquireOutcome::Acquired { last_token: 0 };

/// The id with this number of the client with that number.
pub(crate) fn id(client: u32, number: u64) -> LeaseId {
    format!("{client:08x}-0795-4907-87fd-6c719a6b4586:{number}").parse().unwrap()
}

/// Of one that came before `steps` others.
pub(crate) fn position(steps: u32) -> QueuePosition {
    QueuePosition { waited: STEP * steps, kept: KEPT }
}

pub(crate) fn next(id: &LeaseId, steps: u32, tokens: u64) -> NextWaiter {
    NextWaiter { id: id.clone(), lease: LEASE, tokens, position: position(steps) }
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
        Self::set_for(name, &SERVER.url()).await
    }

    /// `url`: whom the backend is connected as.
    pub(crate) async fn set_for(name: &str, url: &str) -> Self {
        let redis = Redis::connect(url).await.unwrap();
        let client = Client::open(SERVER.url()).unwrap();
        let (mut sink, stream) = client.get_async_pubsub().await.unwrap().split();
        sink.subscribe(format!("fence:{name}")).await.unwrap();
        sink.subscribe(format!("redisson_lock__channel:{{{name}}}")).await.unwrap();
        let raw = connection(&SERVER).await;
        Self { redis, name: LockName::new(name).unwrap(), raw, sink, stream }
    }

    /// A command by hand, with `{}` for the lock's name.
    pub(crate) async fn run<T: FromRedisValue>(&mut self, words: &str) -> T {
        let words = words.replace("{}", self.name.as_str());
        command(&words).query_async(&mut self.raw).await.unwrap_or_else(|error| panic!("{words}: {error}"))
    }

    /// To a channel, with `{}` for the lock's name.
    pub(crate) async fn listen_to(&mut self, channel: &str) {
        self.sink.subscribe(channel.replace("{}", self.name.as_str())).await.unwrap();
    }

    pub(crate) async fn listen(&mut self, id: &LeaseId) {
        self.sink.subscribe(self.redis.channels(Mode::Fair, &self.name, &id.client_id()).own).await.unwrap();
    }

    pub(crate) async fn listen_no_more(&mut self, id: &LeaseId) {
        self.sink
            .unsubscribe(self.redis.channels(Mode::Fair, &self.name, &id.client_id()).own)
            .await
            .unwrap();
    }

    /// What was published since the last look: to whom, without what all channels of the lock begin with, and what.
    pub(crate) async fn heard(&mut self) -> Vec<(String, String)> {
        let () = self.run("PUBLISH fence:{} over").await;
        let mut heard = Vec::new();
        loop {
            let message = self.stream.next().await.expect("connected");
            let channel = message.get_channel_name();
            if channel.starts_with("fence:") {
                return heard;
            }
            let said: String = message.get_payload().unwrap();
            let grants = format!("{0}:latchwork:{{{0}}}:fair_grant:", self.name);
            let plain = format!("redisson_lock__channel:{{{}}}", self.name);
            heard.push(match channel.strip_prefix(&*grants) {
                Some(client) => (client.to_owned(), without_nonce(&said).to_owned()),
                None => (channel.replace(&plain, "plain"), said),
            });
        }
    }

    /// That these ids were granted the lock, and nothing else was published.
    pub(crate) async fn assert_granted(&mut self, ids: &[&LeaseId]) {
        let expected: Vec<_> =
            ids.iter().map(|id| (id.client_id(), format!("granted:{}", id.number()))).collect();
        assert_eq!(self.heard().await, expected);
    }

    /// That the lock's channel was told so often that it is free, and nobody was granted it.
    pub(crate) async fn assert_freed(&mut self, times: usize) {
        assert_eq!(self.heard().await, vec![("plain".to_owned(), "0".to_owned()); times]);
    }

    pub(crate) async fn ask(
        &self,
        id: &LeaseId,
        position: Option<QueuePosition>,
    ) -> Result<AcquireOutcome, Error> {
        self.redis.acquire(Mode::Fair, &self.name, &self.redis.request(id, LEASE).position(position)).await
    }

    /// Asks for a lock that is free for the id.
    pub(crate) async fn take(&self, id: &LeaseId) {
        assert_eq!(self.ask(id, Some(position(0))).await.unwrap(), NOT_WANTED, "{id}");
    }

    /// Asks for a lock that the id does not get, and says how long another has it.
    pub(crate) async fn wait(&self, id: &LeaseId, steps: u32) -> Duration {
        match self.ask(id, Some(position(steps))).await.unwrap() {
            AcquireOutcome::Held { left } => left,
            outcome => panic!("{id}: {outcome:?}"),
        }
    }

    pub(crate) async fn release(&self, id: &LeaseId, next: Option<&NextWaiter>) -> ReleaseOutcome {
        self.redis.release(Mode::Fair, &self.name, id, next).await.unwrap()
    }

    /// Who has the lock, as a fair lock.
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
        let lasts = Duration::from_millis(self.run("PTTL {}").await);
        assert!(lasts <= left && lasts > left - Duration::from_secs(30), "{lasts:?} instead of {left:?}");
    }

    /// The ids in the queue, in order.
    pub(crate) async fn queue(&mut self) -> Vec<LeaseId> {
        let ids: Vec<String> = self.run("ZRANGE {}:latchwork:{{}}:fair_queue 0 -1").await;
        let mut kept: Vec<String> = self.run("ZRANGE {}:latchwork:{{}}:fair_kept 0 -1").await;
        let mut sorted = ids.clone();
        sorted.sort();
        kept.sort();
        assert_eq!(sorted, kept, "each position is kept until some time");
        ids.iter().map(|id| id.parse().unwrap()).collect()
    }

    pub(crate) async fn assert_queue(&mut self, ids: &[&LeaseId]) {
        assert_eq!(self.queue().await.iter().collect::<Vec<_>>(), ids);
    }

    /// The id's position is over.
    pub(crate) async fn end_position(&mut self, id: &LeaseId) {
        let () = self.run(&format!("ZADD {{}}:latchwork:{{{{}}}}:fair_kept XX 1 {id}")).await;
    }

    /// All keys of the lock, but its counter of tokens. None of them stays for ever.
    pub(crate) async fn keys(&mut self) -> Vec<String> {
        let keys: Vec<String> = self.run("KEYS *{}*").await;
        let counter = format!("redisson_lock_token:{{{}}}", self.name);
        let keys: Vec<String> = keys.into_iter().filter(|key| *key != counter).collect();
        for key in &keys {
            assert!(self.run::<i64>(&format!("PTTL {key}")).await > 0, "{key} stays for ever");
        }
        keys
    }

    /// Nothing is left.
    pub(crate) async fn end(mut self) {
        assert_eq!(self.keys().await, [""; 0]);
    }
}
