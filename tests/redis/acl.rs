//! The rights documented on the page of `redis` suffice; each is needed, and an error names a missing one.

use std::sync::LazyLock;
use std::time::Duration;

use crate::by_hand;
use crate::kinds::{MODES, lock_of};
use crate::scripts::stage::{fields, id};
use latchwork::backend::{Backend, LockName, Mode, NextWaiter, Permits, QueuePosition, ReleaseOutcome};
use latchwork::redis::{Error, ErrorKind, Redis, RedisBuilder, ShardedMessages};
use latchwork::{Lease, LeaseId, LockClient, LockOptions};
use latchwork_conformance::Store;
use latchwork_testkit::{RedisCluster, RedisServer, SentinelSet, is_older_than_7};
use redis::FromRedisValue;

use latchwork_conformance::commands::{Commands as _, RELEASED, keys};

/// Far longer than any step here takes, and far shorter than the leases that a lost wake-up would wait for.
const SOON: Duration = Duration::from_secs(10);
crate::waiting::waiting_for!(SOON);

fn page() -> &'static str {
    include_str!("../../src/redis.rs").split_once("# Rights").unwrap().1
}

fn documented() -> Vec<&'static str> {
    let list = page().split("```").nth(1).unwrap();
    list.trim_start_matches("text").split_whitespace().filter(|word| *word != "//!").collect()
}

/// The additional rights in the row of the page's table that begins with `row`.
fn besides(row: &str) -> Vec<String> {
    let beginning = format!("//! | {row}");
    let line = page().lines().find(|line| line.starts_with(&beginning));
    let line = line.unwrap_or_else(|| panic!("no row begins with {row:?}"));
    let words = line.rsplit_once("| `").unwrap().1.trim_end_matches("` |");
    words.split(' ').map(|word| word.replace("\\|", "|")).collect()
}

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

async fn run<T: FromRedisValue>(server: &RedisServer, command: &[&str]) -> T {
    let mut connection = by_hand::connection(server).await;
    redis::cmd(command[0]).arg(&command[1..]).query_async(&mut connection).await.unwrap()
}

async fn user<S: AsRef<str>>(server: &RedisServer, name: &str, rights: &[S]) -> String {
    let rights = rights.iter().map(AsRef::as_ref).collect::<Vec<_>>();
    let words = ["ACL", "SETUSER", name, "reset", "resetchannels", "on", ">secret"].into_iter().chain(rights);
    let () = run(server, &words.collect::<Vec<_>>()).await;
    server.url().replace("redis://", &format!("redis://{name}:secret@"))
}

/// The row of the page's table with further rights, if any. The prefix of the suite's names replaces the
/// page's prefix.
struct ByDocumentedRights(Option<&'static str>);

impl Store for ByDocumentedRights {
    type Backend = Redis;

    async fn connect(&self) -> Redis {
        // Once: some versions end a user's subscriptions when the same rights are set again.
        static URLS: [tokio::sync::OnceCell<String>; 3] = [const { tokio::sync::OnceCell::const_new() }; 3];
        let (which, name) = match self.0 {
            None => (0, "locks"),
            Some("fair locks |") => (1, "fair"),
            Some(_) => (2, "semaphores"),
        };
        let besides = self.0.map(besides).unwrap_or_default();
        let all = documented().into_iter().map(str::to_owned).chain(besides);
        let all: Vec<String> = all.map(|right| right.replace("orders:", "conformance:")).collect();
        let url = URLS[which].get_or_init(|| async { user(&SERVER, name, &all).await }).await;
        Redis::builder().linger(Duration::from_millis(20)).connect(url).await.unwrap()
    }

    async fn subscribers(&self, channel: &str) -> usize {
        run::<(String, usize)>(&SERVER, &["PUBSUB", "NUMSUB", channel]).await.1
    }

    fn block_on<T>(&self, property: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(property)
    }
}

latchwork_conformance::part!(plain: ByDocumentedRights(None));

mod fair {
    use super::*;

    latchwork_conformance::part!(fair: ByDocumentedRights(Some("fair locks |")));
}

mod semaphores {
    use super::*;

    latchwork_conformance::part!(permits: ByDocumentedRights(Some("semaphores |")));
}

fn texts(error: &(dyn std::error::Error + 'static)) -> String {
    let behind = error.source().map(texts).unwrap_or_default();
    format!("{error}; {behind}")
}

/// Uses all functions of plain locks until the server refuses a command.
async fn use_everything(url: &str, server: &RedisServer) -> Result<(), String> {
    let redis = Redis::connect(url).await.map_err(|error| texts(&error))?;
    let options = LockOptions::default().watchdog_timeout(Duration::from_millis(600));
    let client = LockClient::with_options(redis, &options).unwrap();
    let used = async {
        let lock = client.get_lock("orders:1")?.fenced();
        let guard = lock.lock().await?;
        lock.is_locked().await?;
        // A refused renewal shows only as a loss, so extend the lease by hand.
        guard.owner();
        let again = lock.owned_by(guard.owner()).lock_with_lease(Duration::from_secs(5)).await?;
        again.unlock().await?;
        guard.unlock().await?;
        let _held = lock.lock_with_lease(Duration::from_secs(60)).await?;
        lock.force_unlock().await?;
        by_hand::another_holds(server, "orders:2").await;
        let redis = client.backend::<Redis>().unwrap();
        let position = QueuePosition { waited: Duration::ZERO, kept: SOON };
        let waits = redis.request(&id(7, 1), SOON).position(position);
        redis.acquire(Mode::Plain, &LockName::new("orders:2")?, &waits).await?;
        let waits = client.get_lock("orders:2")?;
        waits.try_lock_for(Duration::from_millis(300), Lease::Watched).await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    used.await.map_err(|error| texts(&*error as &(dyn std::error::Error + 'static)))
}

#[tokio::test]
async fn each_right_that_is_missing_is_told() {
    // No call awaits UNSUBSCRIBE, so an event reports it; see `tests/tracing.rs`.
    let needed = documented().into_iter().filter(|right| right.starts_with('+') && *right != "+unsubscribe");
    let needed: Vec<String> = needed.map(str::to_owned).collect();
    rights_are_needed(&[], &needed, use_everything).await;
}

/// `+get`, `+incrby` and the patterns with `token` are for fenced locks only.
#[tokio::test]
async fn locks_without_tokens_need_no_rights_to_them() {
    let server = RedisServer::start();
    let rows = ["fair locks |", "read-write locks |"].map(besides).concat();
    let all = documented().into_iter().map(str::to_owned).chain(rows);
    let is_for_tokens = |right: &str| ["+get", "+incrby"].contains(&right) || right.contains("token");
    let rights: Vec<String> = all.filter(|right| !is_for_tokens(right)).collect();
    let url = user(&server, "unfenced", &rights).await;
    let client = LockClient::new(Redis::connect(&url).await.map_err(|error| texts(&error)).unwrap());
    for mode in MODES {
        let lock = lock_of(&client, mode, &format!("orders:{mode}"));
        let guard = lock.lock().await.unwrap_or_else(|error| panic!("{}", texts(&error)));
        guard.unlock().await.unwrap_or_else(|error| panic!("{}", texts(&error)));
    }
}

/// A lock that may not be read counts neither as free nor as lost.
#[tokio::test]
async fn unreadable_lock_fails_holder_queries_and_renewals() {
    let server = RedisServer::start();
    let rights: Vec<&str> = documented().into_iter().filter(|right| *right != "+hget").collect();
    let url = user(&server, "blind", &rights).await;
    let redis = Redis::connect(&url).await.map_err(|error| texts(&error)).unwrap();
    let (name, holder) = (LockName::new("orders:1").unwrap(), "8743c9c0-0795-4907-87fd-6c719a6b4586:1");
    let () = run(&server, &["HSET", "orders:1", "mode", "lock", holder, "1"]).await;
    let said = redis.holder(Mode::Plain, &name).await.expect_err("the user has no right to read the lock");
    assert_named("+hget", Err(texts(&said)));
    let leases = keys(&name, &[&holder.parse().unwrap()]);
    let said =
        redis.renew(Mode::Plain, &leases, SOON).await.expect_err("the user has no right to read the lock");
    assert_named("+hget", Err(texts(&said)));
}

/// Now and then an arriving reader removes many dead ones.
#[tokio::test]
async fn reader_without_hdel_reads_or_leaves_nothing() {
    let server = RedisServer::start();
    let all = documented().into_iter().map(str::to_owned).chain(besides("read-write locks |"));
    let rights: Vec<String> = all.filter(|right| right != "+hdel").collect();
    let url = user(&server, "careful", &rights).await;
    let redis = Redis::connect(&url).await.map_err(|error| texts(&error)).unwrap();
    let name = LockName::new("orders:1").unwrap();
    let dead = fields((0..600).map(|client| id(0xdead_0000 + client, 1)), 1);
    let hash = format!("HSET orders:1 mode read{dead}");
    let () = run(&server, &hash.split(' ').collect::<Vec<_>>()).await;
    for client in 1..2000 {
        let reader = id(client, 1);
        let asked = redis.acquire(Mode::Read, &name, &redis.request(&reader, SOON * 60)).await;
        let reads: bool = run(&server, &["HEXISTS", "orders:1", &reader.to_string()]).await;
        assert_eq!(reads, asked.is_ok(), "{asked:?}");
        if let Err(error) = asked {
            assert_named("+hdel", Err(texts(&error)));
            return;
        }
    }
    panic!("expected a reader that looks for dead readers");
}

async fn use_fair_lock(redis: &Redis, name: &LockName, server: &RedisServer) -> Result<(), Error> {
    let (holder, waiter, next) = (id(1, 1), id(2, 1), id(1, 2));
    let lease = Duration::from_secs(60);
    let position = QueuePosition { waited: Duration::ZERO, kept: lease };
    for id in [&holder, &waiter] {
        let request = redis.request(id, lease).tokens(1).position(position);
        redis.acquire(Mode::Fair, name, &request).await?;
    }
    let mut listener = redis::Client::open(server.url()).unwrap().get_async_pubsub().await.unwrap();
    listener.subscribe(redis.channels(Mode::Fair, name, &waiter.client_id()).own).await.unwrap();
    let next = NextWaiter { id: next, lease, tokens: 1, position };
    assert_eq!(redis.release(Mode::Fair, name, &holder, Some(&next)).await?, RELEASED);
    assert_eq!(redis.release(Mode::Fair, name, &waiter, None).await?, RELEASED);
    assert_eq!(redis.release(Mode::Fair, name, &next.id, None).await?, ReleaseOutcome::NotHeld);
    assert!(!redis.force_release(Mode::Fair, name).await?);
    Ok(())
}

async fn use_permits(redis: &Redis, name: &LockName, server: &RedisServer) -> Result<(), Error> {
    let [holder, waiter, short] = [id(1, 1), id(2, 1), id(3, 1)];
    let lease = Duration::from_secs(60);
    let position = QueuePosition { waited: Duration::ZERO, kept: lease };
    let asks = |id: &LeaseId, lease| redis.request(id, lease).permits(Permits { count: 1, capacity: 2 });
    redis.acquire(Mode::Permits, name, &asks(&holder, lease)).await?;
    redis.acquire(Mode::Permits, name, &asks(&short, Duration::from_millis(1))).await?;
    redis.acquire(Mode::Permits, name, &asks(&waiter, lease).position(position)).await?;
    redis.renew(Mode::Permits, &keys(name, &[&holder]), lease * 2).await?;
    redis.holders(Mode::Permits, name).await?;
    let mut listener = redis::Client::open(server.url()).unwrap().get_async_pubsub().await.unwrap();
    listener.subscribe(redis.channels(Mode::Permits, name, &waiter.client_id()).own).await.unwrap();
    for id in [&short, &holder, &waiter] {
        redis.release(Mode::Permits, name, id, None).await?;
    }
    redis.acquire(Mode::Permits, name, &asks(&holder, lease)).await?;
    assert!(redis.force_release(Mode::Permits, name).await?);
    Ok(())
}

async fn use_read_write_lock(redis: &Redis, name: &LockName, server: &RedisServer) -> Result<(), Error> {
    let (holder, waiter, next, reader, beside) = (id(1, 1), id(2, 1), id(1, 2), id(3, 1), id(1, 3));
    let lease = Duration::from_secs(60);
    let position = QueuePosition { waited: Duration::ZERO, kept: lease };
    let asks = |id: &LeaseId| redis.request(id, lease).tokens(1).position(position);
    redis.acquire(Mode::Write, name, &asks(&holder)).await?;
    redis.acquire(Mode::Read, name, &asks(&beside).under(holder.clone())).await?;
    redis.renew(Mode::Write, &keys(name, &[&holder]), lease * 2).await?;
    redis.renew(Mode::Read, &keys(name, &[&beside]), lease * 2).await?;
    redis.acquire(Mode::Write, name, &asks(&waiter)).await?;
    redis.acquire(Mode::Read, name, &asks(&reader)).await?;
    let mut listener = redis::Client::open(server.url()).unwrap().get_async_pubsub().await.unwrap();
    listener.subscribe(redis.channels(Mode::Write, name, &waiter.client_id()).own).await.unwrap();
    let channel = redis.channels(Mode::Read, name, "").own;
    redis
        .registry()
        .subscribe(&channel)
        .subscribed()
        .await
        .map_err(|refused| refused.reason().downcast_ref::<Error>().expect("the backend's own").clone())?;
    let next = NextWaiter { id: next, lease, tokens: 1, position };
    assert_eq!(redis.release(Mode::Write, name, &holder, Some(&next)).await?, RELEASED);
    redis.acquire(Mode::Read, name, &asks(&reader)).await?;
    for id in [&beside, &reader] {
        assert_eq!(redis.release(Mode::Read, name, id, None).await?, RELEASED);
    }
    let writer = redis.holder(Mode::Write, name).await?.and_then(|writer| writer.id);
    assert_eq!(writer, Some(waiter.clone()));
    assert_eq!(redis.release(Mode::Write, name, &waiter, None).await?, RELEASED);
    assert_eq!(redis.release(Mode::Write, name, &next.id, None).await?, ReleaseOutcome::NotHeld);
    redis.acquire(Mode::Read, name, &asks(&reader)).await?;
    assert!(redis.force_release(Mode::Write, name).await?);
    Ok(())
}

/// Asserts that each right of `needed` is missed where it is missing, and that no key is left without an end.
async fn rights_are_needed(
    besides: &[String],
    needed: &[String],
    uses: impl AsyncFn(&str, &RedisServer) -> Result<(), String>,
) {
    let server = RedisServer::start();
    let all: Vec<String> =
        documented().into_iter().map(str::to_owned).chain(besides.iter().cloned()).collect();
    let url = user(&server, "whole", &all).await;
    uses(&url, &server).await.expect("the documented rights suffice");
    for right in needed {
        let () = run(&server, &["FLUSHALL"]).await;
        let () = run(&server, &["SCRIPT", "FLUSH"]).await;
        let rest: Vec<&String> = all.iter().filter(|other| *other != right).collect();
        let url = user(&server, "poor", &rest).await;
        let said = uses(&url, &server).await;
        // No server names the refused key or channel.
        if right.starts_with('+') {
            assert_named(right, said);
        } else {
            said.expect_err(right);
        }
        for key in run::<Vec<String>>(&server, &["KEYS", "*"]).await {
            let left: i64 = run(&server, &["PTTL", &key]).await;
            // A lease may end between the two questions: the key is gone then, with another answer.
            assert!(left != -1 || key.starts_with("redisson_lock_token:"), "no end of {key} without {right}");
        }
    }
}

async fn rights_of_a_kind_are_needed(
    row: &str,
    uses: impl AsyncFn(&Redis, &LockName, &RedisServer) -> Result<(), Error>,
) {
    let besides = besides(row);
    let uses = async |url: &str, server: &RedisServer| {
        let redis = Redis::connect(url).await.map_err(|it| texts(&it))?;
        // Redisson's forms of names without braces and with braces differ.
        for name in ["orders:1", "orders:{1}"] {
            let refusal = uses(&redis, &LockName::new(name).unwrap(), server).await;
            let refusal = refusal.inspect_err(|it| assert_eq!(it.kind(), ErrorKind::Refused, "{it:?}"));
            refusal.map_err(|it| texts(&it))?;
        }
        Ok(())
    };
    rights_are_needed(&besides, &besides, uses).await;
}

#[tokio::test]
async fn locks_of_a_kind_name_missing_rights_and_do_nothing_halfway() {
    rights_of_a_kind_are_needed("fair locks |", use_fair_lock).await;
    rights_of_a_kind_are_needed("read-write locks |", use_read_write_lock).await;
    rights_of_a_kind_are_needed("semaphores |", use_permits).await;
}

/// Asserts that the error tells of the missing right, by its name unless the server keeps the name to itself.
#[track_caller]
fn assert_named(right: &str, said: Result<(), String>) {
    let said = said.expect_err(&format!("{right} is asked for, and not needed"));
    let name = match right.strip_prefix('&') {
        Some(channel) => channel.to_owned(),
        None => right[1..].to_uppercase().replace('|', " "),
    };
    let is_unnamed = said.contains("The user executing the script can't run this command");
    assert!(is_unnamed || said.contains(&name), "without {right}: {said}");
    assert!(said.contains("permission"), "without {right}: {said}");
}

async fn assert_needed(row: &str, servers: &[&RedisServer], uses: impl AsyncFn(&str) -> Result<(), String>) {
    let common: Vec<String> = documented().into_iter().map(str::to_owned).collect();
    let rights = besides(row);
    let set = async |rights: &[String]| {
        for server in servers {
            let all: Vec<String> = common.iter().chain(rights).cloned().collect();
            user(server, "locks", &all).await;
        }
    };
    set(&rights).await;
    uses("locks:secret@").await.unwrap_or_else(|error| panic!("{row}: {error}"));
    for right in &rights {
        let rest: Vec<String> = rights.iter().filter(|other| *other != right).cloned().collect();
        set(&rest).await;
        assert_named(right, uses("locks:secret@").await);
    }
}

async fn use_once(builder: RedisBuilder, url: &str) -> Result<(), String> {
    let redis = builder.connect(url).await.map_err(|error| texts(&error))?;
    let lock = LockClient::new(redis).get_lock("orders:once").unwrap();
    let guard = lock.lock().await.map_err(|error| texts(&error))?;
    guard.unlock().await.map_err(|error| texts(&error))
}

/// Commands on keys of another tenant, each of which the server must refuse.
const ON_KEYS: &str = "GET *, HGET * mode, HKEYS *, HSCAN * 0, EXISTS *, PTTL *, ZRANGE * 0 -1, ZSCORE * 1, \
                       LINDEX * 0, HSET * mode read, HDEL * mode, ZADD * 1 1, ZREM * 1, PEXPIRE * 1, \
                       INCRBY * 1, DEL *";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_rights_keep_a_tenant_from_other_tenants_locks() {
    let server = RedisServer::start();
    let rows = ["fair locks |", "read-write locks |"].map(besides).concat();
    let all: Vec<String> = documented().into_iter().map(str::to_owned).chain(rows).collect();
    let others: Vec<String> = all.iter().map(|right| right.replace("orders:", "payments:")).collect();
    let tenant = user(&server, "orders", &all).await;
    let other = user(&server, "payments", &others).await;
    let (holder, waits, tenant_client) =
        (by_hand::client(&other).await, by_hand::client(&other).await, by_hand::client(&tenant).await);
    // Each name is held, has a waiter of each kind, and every key that a lock can have.
    let names =
        ["plain", "{plain}", "fair", "{fair}", "write", "{write}"].map(|name| format!("payments:{name}"));
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    for name in &names {
        let modes = match name[9..].trim_matches(['{', '}']) {
            "plain" => &[Mode::Plain][..],
            "fair" => &[Mode::Fair],
            _ => &[Mode::Write, Mode::Read],
        };
        held.push(lock_of(&holder, modes[0], name).fenced().lock().await.unwrap());
        for mode in modes {
            let lock = lock_of(&waits, *mode, name);
            waiting.push(tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() }));
        }
    }
    let reads = holder.get_read_write_lock("payments:read").unwrap().read().lock().await.unwrap();
    // Waiters of plain and read locks listen to one channel, waiters of fair and write locks to two.
    eventually("all of them listen", async || {
        run::<Vec<String>>(&server, &["PUBSUB", "CHANNELS", "*payments*"]).await.len() == 10
    })
    .await;
    let wakes = |client: &LockClient| {
        let stats = client.registry().stats();
        stats.unlock_messages + stats.read_unlock_messages + stats.grant_messages
    };
    eventually("all queues", async || run::<Vec<String>>(&server, &["KEYS", "*payments*"]).await.len() == 26)
        .await;
    let keys: Vec<String> = run(&server, &["KEYS", "*payments*"]).await;
    let channels: Vec<String> = run(&server, &["PUBSUB", "CHANNELS", "*payments*"]).await;
    let woken = wakes(&waits);
    let mut tenant_by_hand = by_hand::connect(&tenant).await;
    let mut refused = async |words: String| {
        let answer = by_hand::command(&words).query_async::<redis::Value>(&mut tenant_by_hand).await;
        let error = answer.expect_err(&words).to_string();
        assert!(error.contains("NOPERM") || error.contains("permission"), "{words:?}: {error}");
    };
    for key in &keys {
        for words in ON_KEYS.split(", ") {
            refused(words.replace('*', key)).await;
        }
    }
    for channel in &channels {
        refused(format!("PUBLISH {channel} 0")).await;
        refused(format!("SUBSCRIBE {channel}")).await;
    }
    for name in &names {
        for lock in MODES.map(|mode| lock_of(&tenant_client, mode, name)) {
            let calls = [
                lock.try_lock().await.map(drop),
                lock.force_unlock().await.map(drop),
                lock.is_locked().await.map(drop),
            ];
            for error in calls.map(Result::unwrap_err) {
                assert!(error.is_refused(), "{name}: {error:?}");
            }
        }
    }
    assert_eq!(wakes(&waits), woken, "expected no wake-up by another tenant");
    for guard in &held {
        guard.ensure_held().await.unwrap();
    }
    assert!(waiting.iter().all(|waiter| !waiter.is_finished()));
    reads.unlock().await.unwrap();
    for guard in held {
        guard.unlock().await.unwrap();
    }
    for waiter in waiting {
        soon("its turn", waiter).await.unwrap();
    }
}

/// The command in `docs/operations.md` for operators to copy, split as a shell does.
fn command_for_operators() -> Vec<String> {
    let page = include_str!("../../docs/operations.md");
    let command = page.split("redis-cli ").find(|command| command.starts_with("ACL SETUSER")).unwrap();
    let command = command.split("```").next().unwrap();
    command.replace(['\\', '\''], " ").split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn documented_user_takes_all_locks_of_its_prefix_only() {
    let server = RedisServer::start();
    let command = command_for_operators();
    let () = run(&server, &command.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let url = server.url().replace("redis://", &format!("redis://{}:hunter2@", command[2]));
    let client = async |name: &str| {
        let redis = Redis::builder().client_name(name).connect(&url).await;
        LockClient::new(redis.unwrap_or_else(|error| panic!("{}", texts(&error))))
    };
    let (here, there) = (client("here").await, client("there").await);
    let locks = |client: &LockClient, prefix: &str| {
        MODES.map(|mode| lock_of(client, mode, &format!("{prefix}:{mode}")).fenced())
    };
    for (held, wanted) in locks(&here, "orders").into_iter().zip(locks(&there, "orders")) {
        let guard = held.lock().await.unwrap();
        let waits = tokio::spawn(async move { wanted.lock().await.unwrap().unlock().await.unwrap() });
        guard.ensure_held().await.unwrap();
        guard.unlock().await.unwrap();
        soon("its turn", waits).await.unwrap();
        let forced = held.lock().await.unwrap();
        assert!(held.force_unlock().await.unwrap() && !forced.is_held());
    }
    let [ours, theirs] = [&here, &there].map(|client| client.get_semaphore("orders:jobs", 1).unwrap());
    let permit = ours.acquire().await.unwrap();
    let waits = tokio::spawn(async move { theirs.acquire().await.unwrap().release().await.unwrap() });
    permit.ensure_held().await.unwrap();
    permit.release().await.unwrap();
    soon("its turn", waits).await.unwrap();
    ours.usage().await.unwrap();
    let error = here.get_semaphore("payments:jobs", 1).unwrap().try_acquire().await.map(drop).unwrap_err();
    assert!(error.is_refused(), "{error:?}");
    for lock in locks(&here, "payments") {
        let error = lock.try_lock().await.map(drop).unwrap_err();
        assert!(error.is_refused(), "{error:?}");
    }
}

#[tokio::test]
async fn rights_for_a_name_and_a_database_are_needed_and_named() {
    let server = RedisServer::start();
    let url = |login: &str| server.url().replace("redis://", &format!("redis://{login}"));
    let named = async |login: &str| use_once(Redis::builder().client_name("locker"), &url(login)).await;
    assert_needed("a [name]", &[&server], named).await;
    let elsewhere = async |login: &str| use_once(Redis::builder(), &(url(login) + "/3")).await;
    assert_needed("a database other than 0", &[&server], elsewhere).await;
}

#[tokio::test]
async fn right_to_wait_for_replicas_is_needed_and_named() {
    let master = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
    let _replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    let url = |login: &str| master.url().replace("redis://", &format!("redis://{login}"));
    let waits = async |login: &str| {
        let builder = Redis::builder().wait_for_replicas(1, Duration::from_secs(10));
        use_once(builder, &url(login)).await
    };
    assert_needed("waiting for [replicas]", &[&master], waits).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_with_sentinels_are_needed_and_named() {
    let set = SentinelSet::start();
    set.be_patient();
    let servers: Vec<&RedisServer> = set.servers.iter().collect();
    let with_login =
        |login: &str| set.url().replace("redis+sentinel://", &format!("redis+sentinel://{login}"));
    let of_servers = async |login: &str| use_once(Redis::builder(), &with_login(login)).await;
    assert_needed("Sentinel, at the servers", &servers, of_servers).await;
    // An event reports a refused subscription at the Sentinels; see `tests/tracing.rs`.
    let sentinels = besides("Sentinel, at the Sentinels");
    assert_eq!(sentinels, ["+sentinel", "+subscribe", "&+switch-master"]);
    let url = set.url() + "?sentinel_username=locks&sentinel_password=secret";
    for rights in [&sentinels[..], &sentinels[1..]] {
        for sentinel in &set.sentinels {
            let words = ["ACL", "SETUSER", "locks", "reset", "resetchannels", "on", ">secret", "-@all"];
            let words: Vec<&str> = words.into_iter().chain(rights.iter().map(String::as_str)).collect();
            let () = run(sentinel, &words).await;
        }
        let used = use_once(Redis::builder(), &url).await;
        if rights.len() == sentinels.len() { used.unwrap() } else { assert_named("+sentinel", used) }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_in_a_cluster_are_needed_and_named() {
    if is_older_than_7() {
        return;
    }
    let cluster = RedisCluster::start_with(&[]);
    let nodes: Vec<&RedisServer> = cluster.nodes().iter().collect();
    let with_login =
        |login: &str| cluster.url().replace("redis-cluster://", &format!("redis-cluster://{login}"));
    let (name, to) = ("orders:moving", 1);
    let slot: u16 = cluster.ask(0, &["CLUSTER", "KEYSLOT", name]);
    let from = cluster.owner(0, slot).unwrap();
    let to = if from == to { 2 } else { to };
    cluster.begin_to_move(slot, from, to);
    // The target node of the move acquires a lock that is free.
    let in_a_moving_slot = async |login: &str, sharded| {
        let builder = Redis::builder().sharded_messages(sharded);
        let redis = builder.connect(&with_login(login)).await.map_err(|error| texts(&error))?;
        let lock = LockClient::new(redis).get_lock(name).unwrap();
        let guard = lock.lock().await.map_err(|error| texts(&error))?;
        guard.unlock().await.map_err(|error| texts(&error))
    };
    let plain = async |login: &str| in_a_moving_slot(login, ShardedMessages::Off).await;
    assert_needed("a Cluster |", &nodes, plain).await;
    cluster.finish_to_move(slot, from, to);
    let by_itself = async |login: &str| {
        let redis = Redis::connect(&with_login(login)).await;
        redis.map(drop).map_err(|error| texts(&error))
    };
    // The client finds sharded messages, which need rights of their own.
    let asks: Vec<String> = besides("a Cluster |").into_iter().chain(besides("a Cluster's kind")).collect();
    for rights in [&asks[..], &asks[..2]] {
        for node in &nodes {
            let all: Vec<String> =
                documented().into_iter().map(str::to_owned).chain(rights.iter().cloned()).collect();
            user(node, "locks", &all).await;
        }
        let said = by_itself("locks:secret@").await;
        if rights.len() == asks.len() { said.unwrap() } else { assert_named("+pubsub|shardnumsub", said) }
    }
    let sharded = besides("sharded messages");
    assert_eq!(sharded, ["+spublish", "+ssubscribe", "+sunsubscribe"]);
    for missing in [None, Some("+spublish"), Some("+ssubscribe")] {
        for node in &nodes {
            let all = documented().into_iter().map(str::to_owned).chain(besides("a Cluster |"));
            let all: Vec<String> =
                all.chain(sharded.iter().filter(|it| Some(&***it) != missing).cloned()).collect();
            user(node, "locks", &all).await;
        }
        let () = cluster.ask(to, &["DEL", name]);
        let used = async {
            in_a_moving_slot("locks:secret@", ShardedMessages::On).await?;
            let () = cluster.ask(to, &["HSET", name, "somebody:1", "1"]);
            let builder = Redis::builder().sharded_messages(ShardedMessages::On);
            let redis = builder.connect(&with_login("locks:secret@")).await.map_err(|error| texts(&error))?;
            let lock = LockClient::new(redis).get_lock(name).unwrap();
            let waited = lock.try_lock_for(Duration::from_millis(300), Lease::Watched).await;
            waited.map(drop).map_err(|error| texts(&error))
        };
        match (missing, used.await) {
            (None, used) => used.unwrap(),
            (Some(right), said) => assert_named(right, said),
        }
    }
}
