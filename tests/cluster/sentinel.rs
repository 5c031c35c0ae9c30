//! The Redis backend with Sentinels, and what they are for: masters that end, and masters that are replaced.
//!
//! Each test has servers and Sentinels of its own to be cruel to, and more than one thread, as it waits for
//! them with one.

use std::sync::LazyLock;
use std::time::Duration;

use crate::by_hand::{calls, connection, run};
use latchwork::redis::{Error, ErrorKind, Redis};
use latchwork::{Guard, LockClient, LockError, LockOptions, LossReason};
use latchwork_conformance::Store;
use latchwork_testkit::{ChaosProxy, Cut, RedisServer, SentinelSet, Way};
use redis::{FromRedisValue, cmd};
use tokio::task::JoinHandle;

/// Far more than a failover takes, and far less than the lease of half a minute that a missed message would
/// wait for.
const SOON: Duration = Duration::from_secs(15);
crate::waiting::waiting_for!(SOON);
const NAME: &str = "failover";
const PASSWORD: &str = "hunter2";

/// One set for the suite; it ends with the process.
static SET: LazyLock<SentinelSet> = LazyLock::new(|| {
    let set = SentinelSet::start();
    set.be_patient();
    set
});

/// The suite for every backend, with all that this file is about.
struct WithReplicas;

impl Store for WithReplicas {
    type Backend = Redis;

    async fn connect(&self) -> Redis {
        let builder =
            Redis::builder().wait_for_replicas(1, Duration::from_secs(5)).linger(Duration::from_millis(20));
        builder.connect(&SET.url()).await.unwrap()
    }

    async fn subscribers(&self, channel: &str) -> usize {
        run::<(String, usize)>(&SET.servers[0], &format!("PUBSUB NUMSUB {channel}")).await.1
    }

    /// Its connections are tasks.
    fn block_on<T>(&self, property: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(property)
    }
}

latchwork_conformance::part!(plain: WithReplicas);

mod fair {
    use super::*;

    latchwork_conformance::part!(fair: WithReplicas);
}

async fn client(set: &SentinelSet) -> LockClient {
    client_with(set, Duration::from_secs(30)).await
}

async fn client_with(set: &SentinelSet, watchdog: Duration) -> LockClient {
    let options = LockOptions::default().watchdog_timeout(watchdog);
    LockClient::with_options(Redis::connect(&set.url()).await.unwrap(), &options).unwrap()
}

/// A task that waits for the lock, and has subscribed to its channel on the server.
async fn waiter(client: &LockClient, master: &RedisServer) -> JoinHandle<Result<Guard, LockError>> {
    let lock = client.get_lock(NAME).unwrap();
    let waiter = tokio::spawn(async move { lock.lock().await });
    until_subscribed(master).await;
    waiter
}

async fn until_subscribed(master: &RedisServer) {
    let channel = format!("PUBSUB NUMSUB redisson_lock__channel:{{{NAME}}}");
    eventually("the subscription", async || run::<(String, usize)>(master, &channel).await.1 == 1).await;
}

async fn role(server: &RedisServer) -> String {
    let role: Vec<redis::Value> = run(server, "ROLE").await;
    String::from_redis_value(role.into_iter().next().unwrap()).unwrap()
}

/// Waits until the replica has all that was written so far.
async fn until_replicated(master: &RedisServer) {
    let mut raw = connection(master).await;
    raw.set_response_timeout(SOON);
    // What WAIT is about is what its connection wrote last, and this goes to replicas as a write does. (Up to
    // 7.0 anything it ran would do.)
    let () = cmd("PUBLISH").arg("nothing").arg("").query_async(&mut raw).await.unwrap();
    let replicas: usize = cmd("WAIT").arg(1).arg(10_000).query_async(&mut raw).await.unwrap();
    assert_eq!(replicas, 1, "the replica does not follow");
}

/// Nothing of ours is left in this process, nor on the server.
async fn assert_clean(clients: &[&LockClient], master: &RedisServer) {
    for client in clients {
        assert!(client.registry().is_empty(), "interest is left: {:?}", client.registry());
    }
    eventually("a clean server", async || {
        let keys: usize = run(master, "DBSIZE").await;
        // The Sentinels' own are there for good.
        let channels: Vec<String> = run(master, "PUBSUB CHANNELS redisson*").await;
        keys == 0 && channels.is_empty()
    })
    .await;
}

/// Tells each Sentinel that the master is another one, without a word of it to its followers.
async fn tell_sentinels(set: &SentinelSet, master: &RedisServer) {
    for sentinel in &set.sentinels {
        let () = run(sentinel, &format!("SENTINEL REMOVE {}", SentinelSet::NAME)).await;
        let monitor = format!("SENTINEL MONITOR {} 127.0.0.1 {} 2", SentinelSet::NAME, master.port());
        let () = run(sentinel, &monitor).await;
    }
}

#[track_caller]
fn kind(error: &LockError) -> ErrorKind {
    let cause: Option<&Error> = error.backend_error().and_then(|error| error.downcast_ref());
    cause.unwrap_or_else(|| panic!("not an error of the backend: {error:?}")).kind()
}

/// The whole of an error, causes and Debug included; it shows no password.
#[track_caller]
fn text(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = format!("{error:?}");
    let mut next = Some(error);
    while let Some(error) = next {
        text += &format!("\n{error}\n{error:?}");
        next = error.source();
    }
    assert!(!text.contains(PASSWORD), "{text}");
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_wait_and_unlock() {
    let set = SentinelSet::start();
    let (one, other) = (client(&set).await, client(&set).await);
    let guard = one.get_lock(NAME).unwrap().lock().await.unwrap();
    let ids: Vec<String> = run(&set.servers[0], &format!("HKEYS {NAME}")).await;
    assert!(ids.len() == 2 && ids.iter().any(|id| id.starts_with(one.id())), "{ids:?}");
    let waiter = waiter(&other, &set.servers[0]).await;
    guard.unlock().await.unwrap();
    soon("the wake-up", waiter).await.unwrap().unwrap().unlock().await.unwrap();
    assert_clean(&[&one, &other], &set.servers[0]).await;
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
async fn what_cannot_be_found_is_said_at_once() {
    let mut set = SentinelSet::start();
    let url = set.url().replace("://", &format!("://:{PASSWORD}@"));
    let error = Redis::connect(&url.replace(SentinelSet::NAME, "nobody")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownMaster, "{error:?}");
    assert!(text(&error).contains(r#"know no master called "nobody""#), "{error}");

    // A Sentinel that is not asked, as another one answers.
    let first = format!("127.0.0.1:1,{}", url.split_once('@').unwrap().1);
    Redis::connect(&format!("redis+sentinel://{first}")).await.unwrap();
    for (absent, says) in [
        // Reserved, so there is no listener.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_that_is_killed_takes_no_replicated_lock_along() {
    let mut set = SentinelSet::start();
    let (holder, other) = (client_with(&set, Duration::from_secs(9)).await, client(&set).await);
    let guard = holder.get_lock(NAME).unwrap().lock().await.unwrap();
    let waiter = waiter(&other, &set.servers[0]).await;
    until_replicated(&set.servers[0]).await;
    set.servers[0].kill_9();
    // A renewal that no server confirmed would end the lease before the next server's does.
    let first = guard.remaining();
    eventually("a renewal on the new master", async || guard.remaining() > first).await;
    assert!(guard.is_held());
    set.wait_for_master(1);
    assert!(!waiter.is_finished());
    until_subscribed(&set.servers[1]).await;
    let ids: Vec<String> = run(&set.servers[1], &format!("HKEYS {NAME}")).await;
    assert!(ids.len() == 2 && ids.iter().any(|id| id.starts_with(holder.id())), "{ids:?}");
    guard.unlock().await.unwrap();
    soon("the wake-up by the new master", waiter).await.unwrap().unwrap().unlock().await.unwrap();
    assert_clean(&[&holder, &other], &set.servers[1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_that_was_not_replicated_is_lost_and_its_holder_told() {
    let mut set = SentinelSet::start();
    let (holder, other) = (client_with(&set, Duration::from_secs(9)).await, client(&set).await);
    // It cannot follow the master any more, and does not know why.
    let () = run(&set.servers[1], "CONFIG SET masteruser nobody").await;
    let () = run(&set.servers[1], "CONFIG SET masterauth nothing").await;
    let () = run(&set.servers[0], "CLIENT KILL TYPE replica").await;
    let guard = holder.get_lock(NAME).unwrap().lock().await.unwrap();
    let waiter = waiter(&other, &set.servers[0]).await;
    set.servers[0].kill_9();
    let next = soon("the waiter's going on", waiter).await.unwrap().unwrap();
    assert_eq!(soon("notice of the loss", guard.lost()).await, LossReason::Gone);
    assert!(!guard.is_held());
    // It is the waiter's by now.
    assert!(guard.unlock().await.unwrap_err().is_not_held());
    next.unlock().await.unwrap();
    assert_clean(&[&holder, &other], &set.servers[1]).await;
}

/// A lock that was not seen to be free is given back, although its master ends at that moment.
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

/// What is under way is not waited for until its time limit, but sent to the next master as soon as there is
/// one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_that_falls_silent_is_left() {
    let set = SentinelSet::start();
    let patience = Duration::from_secs(60);
    let redis = Redis::builder().response_timeout(patience).connect(&set.url()).await.unwrap();
    let client = LockClient::new(redis);
    let lock = client.get_lock(NAME).unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    // A release that the replica has not heard of leaves the lock held there.
    until_replicated(&set.servers[0]).await;
    set.servers[0].pause();
    let guard = soon("the lock on the next master", lock.lock()).await.unwrap();
    let ids: Vec<String> = run(&set.servers[1], &format!("HKEYS {NAME}")).await;
    assert!(ids.len() == 2 && ids.iter().any(|id| id.starts_with(client.id())), "{ids:?}");
    guard.unlock().await.unwrap();
    assert_clean(&[&client], &set.servers[1]).await;
}

/// How many scripts the server has run.
async fn scripts(server: &RedisServer) -> usize {
    calls(server, "evalsha").await + calls(server, "eval").await
}

/// How many follow the Sentinel.
async fn followers(sentinel: &RedisServer) -> usize {
    let clients: String = run(sentinel, "CLIENT LIST").await;
    clients.matches(" sub=1 ").count()
}

/// Replaces the master by the replica, and looks at what the former one is asked from then on. It is in
/// order, and for ten seconds says that it still is the master, and takes writes.
async fn failover_is_followed(set: &SentinelSet, holder: &LockClient, other: &LockClient) {
    let guard = holder.get_lock(NAME).unwrap().lock().await.unwrap();
    let waiter = waiter(other, &set.servers[0]).await;
    until_replicated(&set.servers[0]).await;
    set.fail_over();
    set.wait_for_master(1);
    until_subscribed(&set.servers[1]).await;
    let before = scripts(&set.servers[0]).await;
    for client in [holder, other] {
        for number in 0..50 {
            let lock = client.get_lock(&format!("{NAME}:{number}")).unwrap();
            lock.lock().await.unwrap().unlock().await.unwrap();
        }
    }
    guard.unlock().await.unwrap();
    soon("the wake-up by the new master", waiter).await.unwrap().unwrap().unlock().await.unwrap();
    assert_eq!(scripts(&set.servers[0]).await, before, "the former master has run scripts");
    assert_eq!(role(&set.servers[0]).await, "master", "it would have refused them");
    assert_clean(&[holder, other], &set.servers[1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn former_master_that_is_in_order_is_left_at_once() {
    let set = SentinelSet::start();
    failover_is_followed(&set, &client(&set).await, &client(&set).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_that_is_followed_may_end() {
    let mut set = SentinelSet::start();
    let (holder, other) = (client(&set).await, client(&set).await);
    eventually("being followed", async || followers(&set.sentinels[0]).await == 2).await;
    set.sentinels[0].kill_9();
    eventually("the next one's being followed", async || followers(&set.sentinels[1]).await == 2).await;
    failover_is_followed(&set, &holder, &other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_that_is_followed_may_fall_silent() {
    let set = SentinelSet::start();
    let (holder, other) = (client(&set).await, client(&set).await);
    eventually("being followed", async || followers(&set.sentinels[0]).await == 2).await;
    set.sentinels[0].pause();
    eventually("the next one's being followed", async || followers(&set.sentinels[1]).await == 2).await;
    failover_is_followed(&set, &holder, &other).await;
}

/// It answers, but would say nothing when the master changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_that_is_followed_may_forget_the_master() {
    let set = SentinelSet::start();
    let (holder, other) = (client(&set).await, client(&set).await);
    eventually("being followed", async || followers(&set.sentinels[0]).await == 2).await;
    let () = run(&set.sentinels[0], &format!("SENTINEL REMOVE {}", SentinelSet::NAME)).await;
    eventually("the next one's being followed", async || followers(&set.sentinels[1]).await == 2).await;
    failover_is_followed(&set, &holder, &other).await;
}

/// It takes the server long to say what it is. Meanwhile another one becomes the master, and a message says
/// so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_that_is_replaced_while_it_is_connected_to_is_left() {
    let set = SentinelSet::start();
    let proxy = ChaosProxy::start(set.servers[0].port());
    let (inside, outside) = (set.servers[0].port(), proxy.port());
    let builder = Redis::builder()
        .map_addresses(move |host, port| (host.to_owned(), if port == inside { outside } else { port }));
    // As long as that takes, it is waited for.
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
    assert_eq!(role(&set.servers[0]).await, "master", "it would be left in any case");
    proxy.heal();
    let guard = soon("the lock", waits).await.unwrap().unwrap();
    let held: usize = run(&set.servers[1], &format!("EXISTS {NAME}")).await;
    assert_eq!(held, 1, "the former master was asked");
    guard.unlock().await.unwrap();
    assert_clean(&[&client], &set.servers[1]).await;
}

/// The former master is in order, and the Sentinel is asked nothing more: only its message says that there is
/// another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_is_enough() {
    let set = SentinelSet::start();
    let proxy = ChaosProxy::start(set.sentinels[0].port());
    let url = proxy.url().replace("redis://", "redis+sentinel://") + "/" + SentinelSet::NAME;
    // What it is asked about once a second is waited for as long.
    let redis = Redis::builder().connect_timeout(Duration::from_secs(60)).connect(&url).await.unwrap();
    let client = LockClient::new(redis);
    proxy.wait_for_link_of("SUBSCRIBE").silence(Way::ToServer);
    let () = run(&set.servers[0], &format!("HSET {NAME} somebody:1 1")).await;
    let waiter = waiter(&client, &set.servers[0]).await;
    proxy.wait_until_held_back("GET-MASTER-ADDR");
    until_replicated(&set.servers[0]).await;
    set.fail_over();
    set.wait_for_master(1);
    until_subscribed(&set.servers[1]).await;
    assert_eq!(role(&set.servers[0]).await, "master", "it would have been left in any case");
    assert!(client.get_lock(NAME).unwrap().force_unlock().await.unwrap());
    soon("the wake-up", waiter).await.unwrap().unwrap().unlock().await.unwrap();
    assert_clean(&[&client], &set.servers[1]).await;
}

/// Unseen by all clients the servers change places. The Sentinels are told later, and say nothing of it.
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

    // It does not run, and it is unknown where it would.
    let lock = holder.get_lock("another").unwrap();
    let error = lock.lock().await.unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Refused, "{error:?}");
    assert!(text(&error).contains("read only replica"), "{error:?}");
    let error = lock.lock().await.unwrap_err();
    assert_eq!(kind(&error), ErrorKind::NotMaster, "{error:?}");
    // A client that only listens finds out, too.
    let still = format!("PUBSUB NUMSUB redisson_lock__channel:{{{NAME}}}");
    eventually("leaving", async || run::<(String, usize)>(&set.servers[0], &still).await.1 == 0).await;

    let late = tokio::spawn(async move { guard.unlock().await });
    tell_sentinels(&set, &set.servers[1]).await;
    soon("the unlock", late).await.unwrap().unwrap();
    soon("the wake-up", waiter).await.unwrap().unwrap().unlock().await.unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    assert_clean(&[&holder, &other], &set.servers[1]).await;
}

/// The Sentinels name another server, and say nothing of it; the one there was is in order and says that it
/// is a master.
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
    let keys: usize = run(&set.servers[0], "DBSIZE").await;
    assert_eq!(keys, 1, "the server there was is not left alone");
    assert_clean(&[&client], &set.servers[1]).await;
}

/// The task that follows the Sentinels ends with the last clone.
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
