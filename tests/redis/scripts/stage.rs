//! A lock that has a queue on a real server, its backend, and a bystander that sees each key and message.

use std::sync::LazyLock;
use std::time::Duration;

use futures_util::StreamExt;
use latchwork::LeaseId;
use latchwork::backend::{Backend as _, QueuePosition};
use latchwork::lock::{LockName, Mode};
use latchwork::redis::Redis;
use latchwork_testkit::RedisServer;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{Client, FromRedisValue};

use crate::by_hand::{command, connection};

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

/// Far longer than a test takes, and different, so that a time to live says which of them it comes from.
pub(crate) const LEASE: Duration = Duration::from_secs(600);
pub(crate) const KEPT: Duration = Duration::from_secs(120);
/// The time between two arrivals. What commands take is nothing beside it.
pub(crate) const STEP: Duration = Duration::from_secs(1000);

/// The id with this number of the client with that number.
pub(crate) fn id(client: u32, number: u64) -> LeaseId {
    format!("{client:08x}-0795-4907-87fd-6c719a6b4586:{number}").parse().unwrap()
}

/// Of one that came before `steps` others.
pub(crate) fn position(steps: u32) -> QueuePosition {
    QueuePosition { waited: STEP * steps, kept: KEPT }
}

/// What differs between locks that have a queue.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Of its waiters, by which their channels are known.
    pub(crate) mode: Mode,
    /// What Redisson's channel begins with.
    pub(crate) channel: &'static str,
    /// What the channels of grants have behind the lock's name.
    pub(crate) grants: &'static str,
}

/// A message that was published.
#[derive(Debug)]
pub(crate) enum Message {
    /// On Redisson's channel of the lock.
    ToAll(String),
    /// On the channel of grants of the client, and what it says but for its nonce.
    Grant { client: String, said: String },
    /// On another channel.
    Other { channel: String, said: String },
}

pub(crate) struct Stage {
    pub(crate) redis: Redis,
    pub(crate) name: LockName,
    kind: &'static Kind,
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
    pub(crate) async fn set(kind: &'static Kind, name: &str) -> Self {
        let redis = Redis::connect(&SERVER.url()).await.unwrap();
        let client = Client::open(SERVER.url()).unwrap();
        let (mut sink, stream) = client.get_async_pubsub().await.unwrap().split();
        sink.subscribe(format!("fence:{name}")).await.unwrap();
        sink.subscribe(format!("{}:{{{name}}}", kind.channel)).await.unwrap();
        let raw = connection(&SERVER).await;
        Self { redis, name: LockName::new(name).unwrap(), kind, raw, sink, stream }
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

    fn own_channel(&self, id: &LeaseId) -> impl redis::ToRedisArgs + use<> {
        self.redis.channels(self.kind.mode, &self.name, &id.client_id()).own
    }

    pub(crate) async fn listen(&mut self, id: &LeaseId) {
        let channel = self.own_channel(id);
        self.sink.subscribe(channel).await.unwrap();
    }

    pub(crate) async fn listen_no_more(&mut self, id: &LeaseId) {
        let channel = self.own_channel(id);
        self.sink.unsubscribe(channel).await.unwrap();
    }

    /// What was published since the last look.
    pub(crate) async fn published(&mut self) -> Vec<Message> {
        let () = self.run("PUBLISH fence:{} over").await;
        let grants = format!("{0}:latchwork:{{{0}}}:{1}:", self.name, self.kind.grants);
        let to_all = format!("{}:{{{}}}", self.kind.channel, self.name);
        let mut published = Vec::new();
        loop {
            let message = self.stream.next().await.expect("connected");
            let channel = message.get_channel_name();
            if channel.starts_with("fence:") {
                return published;
            }
            let said: String = message.get_payload().unwrap();
            published.push(if let Some(client) = channel.strip_prefix(&*grants) {
                Message::Grant { client: client.to_owned(), said: without_nonce(&said).to_owned() }
            } else if channel == to_all {
                Message::ToAll(said)
            } else {
                Message::Other { channel: channel.to_owned(), said }
            });
        }
    }

    /// All keys of the lock, but its counter of tokens, and how long each lasts, in milliseconds.
    pub(crate) async fn lasting_keys(&mut self) -> Vec<(String, i64)> {
        let keys: Vec<String> = self.run("KEYS *{}*").await;
        let counter = format!("redisson_lock_token:{{{}}}", self.name);
        let mut lasting = Vec::new();
        for key in keys.into_iter().filter(|key| *key != counter) {
            let lasts = self.run(&format!("PTTL {key}")).await;
            lasting.push((key, lasts));
        }
        lasting
    }
}
