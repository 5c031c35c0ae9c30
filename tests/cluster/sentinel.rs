//! The Redis backend with Sentinels: masters die, and masters are replaced. Each test has its own servers.

use std::sync::LazyLock;
use std::time::Duration;

use crate::by_hand::{self, calls, connection, run};
use crate::errors::{PASSWORD, cause, text};
use latchwork::redis::{ErrorKind, Redis};
use latchwork::{Guard, LockClient, LockError, LockOptions};
use latchwork_conformance::Store;
use latchwork_testkit::{ChaosProxy, Cut, RedisServer, SentinelSet, Way};
use redis::{FromRedisValue, cmd};
use tokio::task::JoinHandle;

/// Far more than a failover takes, and far less than the lease that a missed message would wait for.
const SOON: Duration = Duration::from_secs(15);
crate::waiting::waiting_for!(SOON);
const NAME: &str = "failover";

/// One set for the conformance suite; ends with the process.
static SET: LazyLock<SentinelSet> = LazyLock::new(|| {
    let set = SentinelSet::start();
    set.be_patient();
    set
});

struct WithReplicas;

impl Store for WithReplicas {
    type Backend = Redis;

    async fn connect(&self) -> Redis {
        let builder =
            Redis::builder().wait_for_replicas(1, Duration::from_secs(5)).linger(Duration::from_millis(20));
        builder.connect(&SET.url()).await.unwrap()
    }

    async fn subscribers(&self, channel: &str) -> usize {
        by_hand::subscribers(&SET.servers[0], channel).await
    }

    fn block_on<T>(&self, property: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(property)
    }
}

// Plain locks only: a command waits behind the `WAIT` of another, and arrives with the others' order unknown.
latchwork_conformance::part!(plain: WithReplicas);

async fn client(set: &SentinelSet) -> LockClient {
    client_with(set, Duration::from_secs(30)).await
}

async fn client_with(set: &SentinelSet, watchdog: Duration) -> LockClient {
    let options = LockOptions::default().watchdog_timeout(watchdog);
    LockClient::with_options(Redis::connect(&set.url()).await.unwrap(), &options).unwrap()
}

async fn waiter(client: &LockClient, master: &RedisServer) -> JoinHandle<Result<Guard, LockError>> {
    let lock = client.get_lock(NAME).unwrap();
    let waiter = tokio::spawn(async move { lock.lock().await });
    until_subscribed(master, client).await;
    waiter
}

/// The count of subscriptions to the channel on which the client is called.
async fn subscriptions(server: &RedisServer, client: &LockClient) -> usize {
    by_hand::subscribers(server, &by_hand::call_channel(client, NAME)).await
}

async fn until_subscribed(master: &RedisServer, client: &LockClient) {
    eventually("the subscription", async || subscriptions(master, client).await == 1).await;
}

async fn role(server: &RedisServer) -> String {
    let role: Vec<redis::Value> = run(server, "ROLE").await;
    String::from_redis_value(role.into_iter().next().unwrap()).unwrap()
}

/// Waits until the replica has all earlier writes.
async fn until_replicated(master: &RedisServer) {
    let mut raw = connection(master).await;
    raw.set_response_timeout(SOON);
    // WAIT covers the last write of its connection; PUBLISH is replicated, too. (Up to 7.0, any command.)
    let () = cmd("PUBLISH").arg("nothing").arg("").query_async(&mut raw).await.unwrap();
    let replicas: usize = cmd("WAIT").arg(1).arg(10_000).query_async(&mut raw).await.unwrap();
    assert_eq!(replicas, 1, "expected one replica of the master");
}

/// Asserts that neither this process nor the server keeps anything of ours.
async fn assert_clean(clients: &[&LockClient], master: &RedisServer) {
    for client in clients {
        assert!(client.registry().is_empty(), "expected no subscriptions: {:?}", client.registry());
    }
    eventually("a clean server", async || {
        let keys: usize = run(master, "DBSIZE").await;
        // The Sentinels' own channels stay.
        let channels: Vec<String> = run(master, "PUBSUB CHANNELS redisson*").await;
        keys == 0 && channels.is_empty()
    })
    .await;
}

/// Tells each Sentinel of another master; the Sentinels publish nothing to their followers.
async fn tell_sentinels(set: &SentinelSet, master: &RedisServer) {
    for sentinel in &set.sentinels {
        let () = run(sentinel, &format!("SENTINEL REMOVE {}", SentinelSet::NAME)).await;
        let monitor = format!("SENTINEL MONITOR {} 127.0.0.1 {} 2", SentinelSet::NAME, master.port());
        let () = run(sentinel, &monitor).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_servers_have_passwords_of_their_own() {
    let set = SentinelSet::start();
    for server in set.servers.iter().chain(&set.sentinels) {
        let sentinel = set.sentinels.iter().any(|it| it.port() == server.port());
        let user = if sentinel { "watcher" } else { "locker" };
        let () = run(server, &format!("ACL SETUSER {user} on >{PASSWORD}-{user} ~* &* +@all")).await;
    }
    let url = |server: &str, sentinel: &str| {
        let url = set.url().replace("://", &format!("://locker:{PASSWORD}-{server}@"));
        format!("{url}/3?sentinel_username=watcher&sentinel_password={PASSWORD}-{sentinel}")
    };
    let redis = Redis::connect(&url("locker", "watcher")).await.unwrap();
    assert!(!format!("{redis:?} {redis:#?}").contains(PASSWORD), "{redis:?}");
    let client = LockClient::new(redis);
    let guard = client.get_lock(NAME).unwrap().lock().await.unwrap();
    let keyspace: String = run(&set.servers[0], "INFO keyspace").await;
    assert!(keyspace.contains("db3:keys=1"), "{keyspace}");
    let users: String = run(&set.servers[0], "CLIENT LIST").await;
    assert_eq!(users.matches("user=locker").count(), 2, "{users}");
    for sentinel in &set.sentinels {
        let users: String = run(sentinel, "CLIENT LIST").await;
        assert!(!users.contains("user=locker"), "{users}");
    }
    guard.unlock().await.unwrap();

    let error = Redis::connect(&url("locker", "wrong")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSentinel, "{error:?}");
    assert!(error.to_string().contains("the user or the password is wrong"), "{error}");
    assert!(text(&error).contains("WRONGPASS"), "{error:?}");
    let error = Redis::connect(&url("wrong", "watcher")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    assert!(text(&error).contains("WRONGPASS"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_masters_and_sentinels_are_reported_at_once() {
    let mut set = SentinelSet::start();
    let url = set.url().replace("://", &format!("://:{PASSWORD}@"));
    let error = Redis::connect(&url.replace(SentinelSet::NAME, "nobody")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownMaster, "{error:?}");
    assert!(text(&error).contains(r#"know no master called "nobody""#), "{error}");

    let first = format!("127.0.0.1:1,{}", url.split_once('@').unwrap().1);
    Redis::connect(&format!("redis+sentinel://{first}")).await.unwrap();
    for (absent, says) in [
        // Port 1 is reserved, so nothing listens there.
        ("127.0.0.1:1".to_owned(), "check the addresses"),
        (format!("127.0.0.1:{}", set.servers[0].port()), "is no Sentinel"),
    ] {
        let url = format!("redis+sentinel://:{PASSWORD}@{absent}/mymaster?sentinel_password=");
        let error = Redis::connect(url.trim_end_matches("?sentinel_password=")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSentinel, "{error:?}");
        assert!(text(&error).contains(says) && text(&error).contains(&absent), "{}", text(&error));
    }

    tell_sentinels(&set, &set.servers[1]).await;
    let error = Redis::connect(&set.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotMaster, "{error:?}");
    let says = format!("Redis at 127.0.0.1:{} is what the Sentinels call the master", set.servers[1].port());
    assert!(text(&error).contains(&says) && text(&error).contains("calls itself slave"), "{error}");

    set.servers[1].kill_9();
    let error = Redis::connect(&set.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
}

/// The master dies during the release, and the lock is released nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_wait_for_the_next_master() {
    let mut set = SentinelSet::start();
    let client = client(&set).await;
    let guard = client.get_lock(NAME).unwrap().lock().await.unwrap();
    until_replicated(&set.servers[0]).await;
    set.servers[0].kill_9();
    soon("the unlock", guard.unlock()).await.unwrap();
    assert_clean(&[&client], &set.servers[1]).await;
}

/// A command under way is sent to the next master at once, long before its time limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_that_falls_silent_is_left() {
    let set = SentinelSet::start();
    let patience = Duration::from_secs(60);
    let redis = Redis::builder().response_timeout(patience).connect(&set.url()).await.unwrap();
    let client = LockClient::new(redis);
    let lock = client.get_lock(NAME).unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    // If the replica misses the release, the lock stays held there.
    until_replicated(&set.servers[0]).await;
    set.servers[0].pause();
    let guard = soon("the lock on the next master", lock.lock()).await.unwrap();
    let ids: Vec<String> = run(&set.servers[1], &format!("HKEYS {NAME}")).await;
    assert!(ids.len() == 2 && ids.iter().any(|id| id.starts_with(client.id())), "{ids:?}");
    guard.unlock().await.unwrap();
    assert_clean(&[&client], &set.servers[1]).await;
}

async fn scripts(server: &RedisServer) -> usize {
    calls(server, "evalsha").await + calls(server, "eval").await
}

/// The number of clients subscribed to the Sentinel.
async fn followers(sentinel: &RedisServer) -> usize {
    let clients: String = run(sentinel, "CLIENT LIST").await;
    clients.matches(" sub=1 ").count()
}

/// The followed Sentinel ends, falls silent, or forgets the master, and the next one is followed. Then the
/// master is replaced by its replica. The old master is healthy: for ten seconds it still calls itself master
/// and takes writes, and its clients leave it at once.
async fn next_sentinel_is_followed(ends: impl AsyncFnOnce(&mut SentinelSet)) {
    let mut set = SentinelSet::start();
    let all = [client(&set).await, client(&set).await];
    eventually("being followed", async || followers(&set.sentinels[0]).await == 2).await;
    ends(&mut set).await;
    eventually("the next one's being followed", async || followers(&set.sentinels[1]).await == 2).await;
    let guard = all[0].get_lock(NAME).unwrap().lock().await.unwrap();
    let waiter = waiter(&all[1], &set.servers[0]).await;
    until_replicated(&set.servers[0]).await;
    set.fail_over();
    set.wait_for_master(1);
    until_subscribed(&set.servers[1], &all[1]).await;
    let before = scripts(&set.servers[0]).await;
    for (number, client) in (0..100).zip(all.iter().cycle()) {
        let lock = client.get_lock(&format!("{NAME}:{number}")).unwrap();
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    guard.unlock().await.unwrap();
    soon("the wake-up by the new master", waiter).await.unwrap().unwrap().unlock().await.unwrap();
    assert_eq!(scripts(&set.servers[0]).await, before, "expected no scripts at the former master");
    assert_eq!(role(&set.servers[0]).await, "master", "expected a former master that takes writes");
    assert_clean(&all.each_ref(), &set.servers[1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_that_is_followed_may_end_or_stall_or_forget_the_master() {
    let remove = format!("SENTINEL REMOVE {}", SentinelSet::NAME);
    tokio::join!(
        next_sentinel_is_followed(async |set: &mut SentinelSet| set.sentinels[0].kill_9()),
        next_sentinel_is_followed(async |set: &mut SentinelSet| set.sentinels[0].pause()),
        next_sentinel_is_followed(async |set: &mut SentinelSet| run(&set.sentinels[0], &remove).await),
    );
}

/// The old master is slow to tell its role. Meanwhile the replica is promoted, and a message says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_that_is_replaced_while_it_is_connected_to_is_left() {
    let set = SentinelSet::start();
    let proxy = ChaosProxy::start(set.servers[0].port());
    let (inside, outside) = (set.servers[0].port(), proxy.port());
    let builder = Redis::builder()
        .map_addresses(move |host, port| (host.to_owned(), if port == inside { outside } else { port }));
    let builder = builder.connect_timeout(Duration::from_secs(60)).response_timeout(Duration::from_secs(60));
    let redis = builder.connect(&set.url()).await.unwrap();
    let client = LockClient::new(redis.clone());
    eventually("being followed", async || followers(&set.sentinels[0]).await == 1).await;
    let lock = client.get_lock(NAME).unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    until_replicated(&set.servers[0]).await;

    proxy.forget();
    proxy.silence(Way::ToServer);
    proxy.cut(Cut::Reset);
    let waits = tokio::spawn(async move { lock.lock().await });
    proxy.wait_until_held_back("HELLO");
    set.fail_over();
    set.wait_for_master(1);
    let next = format!("127.0.0.1:{}", set.servers[1].port());
    eventually("its being heard of", async || format!("{redis:?}").contains(&next)).await;
    assert_eq!(role(&set.servers[0]).await, "master", "expected a former master that serves");
    proxy.heal();
    let guard = soon("the lock", waits).await.unwrap().unwrap();
    let held: usize = run(&set.servers[1], &format!("EXISTS {NAME}")).await;
    assert_eq!(held, 1, "expected the lock at the new master");
    guard.unlock().await.unwrap();
    assert_clean(&[&client], &set.servers[1]).await;
}

/// The servers change places unseen by all clients. The Sentinels learn of it later, and publish nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_that_was_made_a_replica_is_left() {
    let set = SentinelSet::start();
    let redis =
        Redis::builder().response_timeout(Duration::from_millis(700)).connect(&set.url()).await.unwrap();
    let (holder, other) = (LockClient::new(redis), client(&set).await);
    let guard = holder.get_lock(NAME).unwrap().lock().await.unwrap();
    let waiter = waiter(&other, &set.servers[0]).await;
    until_replicated(&set.servers[0]).await;
    let () = run(&set.servers[1], "REPLICAOF NO ONE").await;
    let () = run(&set.servers[0], &format!("REPLICAOF 127.0.0.1 {}", set.servers[1].port())).await;

    // The command does not run, and the client does not know the new master.
    let lock = holder.get_lock("another").unwrap();
    let error = lock.lock().await.unwrap_err();
    assert_eq!(cause(&error).kind(), ErrorKind::Refused, "{error:?}");
    assert!(text(&error).contains("read only replica"), "{error:?}");
    let error = lock.lock().await.unwrap_err();
    assert_eq!(cause(&error).kind(), ErrorKind::NotMaster, "{error:?}");
    // A client that only listens leaves the old master, too.
    eventually("leaving", async || subscriptions(&set.servers[0], &other).await == 0).await;

    let late = tokio::spawn(async move { guard.unlock().await });
    tell_sentinels(&set, &set.servers[1]).await;
    soon("the unlock", late).await.unwrap().unwrap();
    soon("the wake-up", waiter).await.unwrap().unwrap().unlock().await.unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    assert_clean(&[&holder, &other], &set.servers[1]).await;
}

/// The Sentinels name another server without publishing; the old server is healthy and calls itself master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_that_is_lost_is_made_up_for_by_asking() {
    let set = SentinelSet::start();
    let client = client(&set).await;
    let lock = client.get_lock(NAME).unwrap();
    let () = run(&set.servers[0], &format!("HSET {NAME} somebody:1 1")).await;
    let waiter = waiter(&client, &set.servers[0]).await;
    until_replicated(&set.servers[0]).await;
    let () = run(&set.servers[1], "REPLICAOF NO ONE").await;
    let () = run(&set.servers[1], &format!("DEL {NAME}")).await;
    tell_sentinels(&set, &set.servers[1]).await;
    soon("the lock on the other server", waiter).await.unwrap().unwrap().unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
    let held: usize = run(&set.servers[0], &format!("EXISTS {NAME}")).await;
    assert_eq!(held, 1, "the lock at the server before is untouched");
    assert_clean(&[&client], &set.servers[1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_followed_without_a_waiter() {
    let set = SentinelSet::start();
    let redis = Redis::connect(&set.url()).await.unwrap();
    let clone = redis.clone();
    drop(redis);
    eventually("being followed", async || followers(&set.sentinels[0]).await == 1).await;
    drop(clone);
    eventually("the end", async || followers(&set.sentinels[0]).await == 0).await;
}
