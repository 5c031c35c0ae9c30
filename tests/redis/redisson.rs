//! A hand-written Redisson client alternates with ours on a real server.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::by_hand::{self, client, run, subscribers};
use futures_util::StreamExt;
use latchwork::Lock;
use latchwork_testkit::RedisServer;
use redis::aio::{MultiplexedConnection, PubSub};
use tokio::time::timeout;

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

/// Far less than the half-minute lease that a missed message would wait for.
const SOON: Duration = Duration::from_secs(10);
crate::waiting::waiting_for!(SOON);

/// Sends the commands of Redisson's `RedissonLock` for one thread of one client.
struct Redisson {
    connection: MultiplexedConnection,
    owner: String,
    name: String,
    channel: String,
}

/// Acquires the lock or returns the remaining lease: lease in ms, owner.
const ACQUIRE: &str = "
    if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
        redis.call('hincrby', KEYS[1], ARGV[2], 1)
        redis.call('pexpire', KEYS[1], ARGV[1])
        return nil
    end
    return redis.call('pttl', KEYS[1])";

/// Releases a hold: message, lease in ms, owner, publishing command, life of the unlock latch in ms. The
/// latch stores the answer for a repeated request.
const UNLOCK: &str = "
    local answered = redis.call('get', KEYS[3])
    if answered then return tonumber(answered) end
    if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
    if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
        redis.call('pexpire', KEYS[1], ARGV[2])
        redis.call('set', KEYS[3], 0, 'px', ARGV[5])
        return 0
    end
    redis.call('del', KEYS[1])
    redis.call(ARGV[4], KEYS[2], ARGV[1])
    redis.call('set', KEYS[3], 1, 'px', ARGV[5])
    return 1";

/// `ACQUIRE` of `RedissonFencedLock`: returns time left and -1, or -1 and a token, new at each re-entry.
const ACQUIRE_FENCED: &str = "
    if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
        redis.call('incr', KEYS[2])
        redis.call('hincrby', KEYS[1], ARGV[2], 1)
        redis.call('pexpire', KEYS[1], ARGV[1])
        return {-1, tonumber(redis.call('get', KEYS[2]))}
    end
    return {redis.call('pttl', KEYS[1]), -1}";

const LEASE: u64 = 30_000;

impl Redisson {
    async fn thread(name: &str, number: u64) -> Self {
        Self {
            connection: by_hand::connection(&SERVER).await,
            owner: format!("8743c9c0-0795-4907-87fd-6c719a6b4586:{number}"),
            name: name.to_owned(),
            channel: format!("redisson_lock__channel:{{{name}}}"),
        }
    }

    /// `None` if the lock was acquired, otherwise the milliseconds left of another owner's lease.
    async fn try_lock(&mut self) -> Option<i64> {
        let mut eval = redis::cmd("EVAL");
        eval.arg(ACQUIRE).arg(1).arg(&self.name).arg(LEASE).arg(&self.owner);
        eval.query_async(&mut self.connection).await.unwrap()
    }

    /// Redisson throws `IllegalMonitorStateException` for `None`.
    async fn unlock(&mut self) -> Option<i64> {
        let latch = format!("redisson_unlock_latch:{{{}}}:{:032x}", self.name, request_id());
        let mut eval = redis::cmd("EVAL");
        eval.arg(UNLOCK).arg(3).arg(&self.name).arg(&self.channel).arg(&latch);
        eval.arg("0").arg(LEASE).arg(&self.owner).arg("publish").arg(1000);
        let answer = eval.query_async(&mut self.connection).await.unwrap();
        redis::cmd("DEL").arg(latch).exec_async(&mut self.connection).await.unwrap();
        answer
    }

    async fn try_lock_fenced(&mut self) -> Option<u64> {
        let mut eval = redis::cmd("EVAL");
        let counter = format!("redisson_lock_token:{{{}}}", self.name);
        eval.arg(ACQUIRE_FENCED).arg(2).arg(&self.name).arg(counter).arg(LEASE).arg(&self.owner);
        let (_, token): (i64, i64) = eval.query_async(&mut self.connection).await.unwrap();
        token.try_into().ok()
    }

    async fn subscribe(&self) -> PubSub {
        let mut messages = redis::Client::open(SERVER.url()).unwrap().get_async_pubsub().await.unwrap();
        messages.subscribe(&self.channel).await.unwrap();
        messages
    }

    /// As `RedissonLock.lock`: try, subscribe, try again, wait for the message or the end of the lease.
    async fn lock(&mut self) {
        if self.try_lock().await.is_none() {
            return;
        }
        let mut messages = self.subscribe().await;
        while let Some(left) = self.try_lock().await {
            let left = Duration::from_millis(left.try_into().unwrap());
            let _ = timeout(left, next_message(&mut messages)).await;
        }
    }
}

fn request_id() -> u64 {
    RandomState::new().hash_one(0)
}

async fn next_message(messages: &mut PubSub) -> Vec<u8> {
    messages.on_message().next().await.expect("the connection lives").get_payload_bytes().to_vec()
}

async fn our_lock(name: &str) -> Lock {
    client(&SERVER.url()).await.get_lock(name).unwrap()
}

/// Redisson's plain lock ignores our queue: a release is published on the lock's own channel.
#[tokio::test]
async fn our_fair_waiter_hears_redissons_release() {
    let mut redisson = Redisson::thread("heard:fair", 7).await;
    assert_eq!(redisson.try_lock().await, None);
    let client = client(&SERVER.url()).await;
    let ours = client.get_fair_lock("heard:fair").unwrap();
    let waiter = tokio::spawn(async move { ours.lock().await.unwrap() });
    eventually("a subscription", async || subscribers(&SERVER, &redisson.channel).await > 0).await;
    let told = || client.registry().stats().unlock_messages;
    assert_eq!(told(), 0);
    assert_eq!(redisson.unlock().await, Some(1));
    let guard = timeout(SOON, waiter).await.expect("not woken").unwrap();
    assert_eq!(told(), 1, "expected one wake-up by Redisson's message");
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn the_state_we_leave_is_redissons() {
    let name = "interop:state";
    let client = client(&SERVER.url()).await;
    let me = client.owner();
    let lock = client.get_lock(name).unwrap().owned_by(&me);
    let guards = [lock.lock().await.unwrap(), lock.lock().await.unwrap()];

    let mut state: HashMap<String, String> = run(&SERVER, &format!("HGETALL {name}")).await;
    assert_eq!(state.remove("mode").as_deref(), Some("lock"));
    // The hold count stays in the owner's process.
    let id = match state.iter().collect::<Vec<_>>()[..] {
        [(id, one)] if one == "1" => id,
        _ => panic!("{state:?}"),
    };
    let (uuid, number) = id.rsplit_once(':').unwrap();
    assert_eq!((uuid, uuid.len()), (client.id(), 36));
    assert!(number.parse::<u64>().is_ok());
    let left: i64 = run(&SERVER, &format!("PTTL {name}")).await;
    assert!((29_000..=30_000).contains(&left), "{left}");

    for guard in guards {
        guard.unlock().await.unwrap();
    }
    assert_eq!(run::<Vec<String>>(&SERVER, "KEYS *interop:state*").await, [""; 0]);
}

#[tokio::test]
async fn tokens_rise_across_redisson_and_ours() {
    let mut redisson = Redisson::thread("interop:fenced", 1).await;
    let lock = our_lock(&redisson.name).await.fenced();
    let mut last = None;
    for _ in 0..3 {
        let theirs = redisson.try_lock_fenced().await;
        assert!(theirs > last, "{theirs:?} after {last:?}");
        assert!(lock.try_lock().await.unwrap().is_none());
        assert_eq!(redisson.unlock().await, Some(1));
        let guard = lock.lock().await.unwrap();
        assert!(guard.fencing_token() > theirs, "{:?} after {theirs:?}", guard.fencing_token());
        assert_eq!(redisson.try_lock_fenced().await, None);
        last = guard.fencing_token();
        guard.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn redisson_reenters_where_we_left_it() {
    let mut redisson = Redisson::thread("interop:reentry", 7).await;
    let lock = our_lock(&redisson.name).await;
    assert_eq!(redisson.try_lock().await, None);
    assert_eq!(redisson.try_lock().await, None);
    assert_eq!(redisson.unlock().await, Some(0));
    assert!(lock.try_lock().await.unwrap().is_none(), "expected one of two holds");
    assert!(lock.force_unlock().await.unwrap());
    assert_eq!(redisson.unlock().await, None);
    lock.try_lock().await.unwrap().expect("free").unlock().await.unwrap();
}

#[tokio::test]
async fn both_take_turns() {
    const ROUNDS: u64 = 50;
    const NAME: &str = "interop:turns";
    /// Loses a count beside another holder.
    async fn add(counted: &AtomicU64) {
        let read = counted.load(SeqCst);
        tokio::task::yield_now().await;
        counted.store(read + 1, SeqCst);
    }
    let (counted, mut tasks) = (Arc::new(AtomicU64::new(0)), Vec::new());
    for thread in 0..3 {
        let counts = Arc::clone(&counted);
        tasks.push(tokio::spawn(async move {
            let mut redisson = Redisson::thread(NAME, thread).await;
            for _ in 0..ROUNDS {
                redisson.lock().await;
                add(&counts).await;
                assert_eq!(redisson.unlock().await, Some(1));
            }
        }));
        let counts = Arc::clone(&counted);
        tasks.push(tokio::spawn(async move {
            let lock = our_lock(NAME).await;
            for _ in 0..ROUNDS {
                let guard = lock.lock().await.unwrap();
                add(&counts).await;
                guard.unlock().await.unwrap();
            }
        }));
    }
    for task in tasks {
        timeout(SOON * 3, task).await.expect("a waiter was not woken").unwrap();
    }
    assert_eq!(counted.load(SeqCst), 6 * ROUNDS);
}
