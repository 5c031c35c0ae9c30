//! Events of a lock name the lock and the owner, and no password. Every waiter is told, and each slow name.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Wake, Waker};
use std::time::{Duration, Instant};

use latchwork::backend::TokioRuntime;
use latchwork::backend::{Backend as _, Runtime as _};
use latchwork::blocking::LockClient;
use latchwork::local::{Local, ThreadRuntime};
use latchwork::redis::Redis;
use latchwork::{Lease, LockOptions, LossReason};
use latchwork_testkit::{RedisServer, SentinelSet};
use redis::FromRedisValue;
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

const SOON: Duration = Duration::from_secs(10);

/// An event: level, fields (`message` included), and fields of the enclosing span.
#[derive(Clone, Debug)]
struct Seen {
    level: Level,
    fields: BTreeMap<String, String>,
    span: Option<BTreeMap<String, String>>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

#[derive(Clone, Default)]
struct Record(Arc<Mutex<Vec<Seen>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Record {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if event.metadata().target() != "latchwork" {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let span = context.lookup_current().map(|span| span.extensions().get::<Fields>().unwrap().0.clone());
        self.0.lock().unwrap().push(Seen { level: *event.metadata().level(), fields: fields.0, span });
    }
}

impl Record {
    /// Waits for an event with this message and lock, or without a lock.
    fn wait_for(&self, message: &str, lock: Option<&str>) -> Seen {
        let begin = Instant::now();
        loop {
            let sought = |seen: &&Seen| {
                seen.fields["message"] == message && seen.fields.get("lock").map(String::as_str) == lock
            };
            let found = self.0.lock().unwrap().iter().find(sought).cloned();
            if let Some(seen) = found {
                return seen;
            }
            assert!(
                begin.elapsed() < SOON,
                "expected {message:?} about {lock:?}, and saw {:#?}",
                self.0.lock().unwrap()
            );
            std::thread::yield_now();
        }
    }
}

/// One test with Redis, as the subscriber, which has to see background threads, is global.
#[test]
fn life_of_a_lock_can_be_watched() {
    let record = Record::default();
    tracing::subscriber::set_global_default(Registry::default().with(record.clone())).unwrap();

    let mut server = RedisServer::start_with(&["--requirepass", "hunter2"]);
    let url = server.url().replace("redis://", "redis://:hunter2@");
    let options = LockOptions::default().watchdog_timeout(Duration::from_millis(600));
    let client =
        LockClient::with_options(Redis::builder().blocking_connect(&url).unwrap(), &options).unwrap();
    assert_eq!(record.wait_for("connected", None).level, Level::DEBUG);

    let lock = client.get_lock("watched").unwrap();
    let guard = lock.lock().unwrap();
    let owner = guard.owner().to_string();
    assert_eq!(record.wait_for("renewed", Some("watched")).level, Level::TRACE);
    let acquired = record.wait_for("acquired", Some("watched"));
    assert_eq!((acquired.level, &acquired.fields["owner"]), (Level::DEBUG, &owner));
    assert_eq!(acquired.span.expect("outside of a span")["lock"], "watched");

    let other = LockClient::new(Redis::builder().blocking_connect(&url).unwrap());
    let theirs = other.get_lock("watched").unwrap();
    assert!(theirs.try_lock().unwrap().is_none());
    assert!(theirs.try_lock_for(Duration::from_secs(1), Lease::Watched).unwrap().is_none());
    assert_eq!(record.wait_for("held by another", Some("watched")).level, Level::TRACE);
    assert_eq!(record.wait_for("waiting", Some("watched")).level, Level::DEBUG);
    assert_eq!(record.wait_for("woken", Some("watched")).fields["notified"], "false");

    let waits = std::thread::spawn({
        let lock = lock.clone();
        move || lock.lock().unwrap().unlock().unwrap()
    });
    while lock.waiters() == 0 {
        std::thread::yield_now();
    }
    guard.unlock().unwrap();
    waits.join().unwrap();
    assert_eq!(record.wait_for("released", Some("watched")).level, Level::DEBUG);

    let forced = client.get_lock("forced").unwrap();
    let guard = forced.lock().unwrap();
    forced.force_unlock().unwrap();
    assert_eq!(guard.lost_timeout(SOON), Some(LossReason::Gone));
    let lost = record.wait_for("lost", Some("forced"));
    assert_eq!(lost.level, Level::WARN);
    assert!(lost.fields["reason"].contains("no longer held"), "{lost:?}");
    drop(guard);

    let dropped = client.get_lock("dropped").unwrap();
    let guard = dropped.lock().unwrap();
    dropped.force_unlock().unwrap();
    drop(guard);
    assert_eq!(record.wait_for("lost", Some("dropped")).level, Level::WARN);

    let guard = lock.lock().unwrap();
    let back = "subscriptions are back";
    assert!(
        record.0.lock().unwrap().iter().all(|seen| seen.fields["message"] != back),
        "expected no event about returned subscriptions before the outage"
    );
    server.kill_9();
    guard.lost_timeout(SOON).expect("not lost");
    for message in ["connection for commands lost", "connection for subscriptions lost", "cannot connect"] {
        assert_eq!(record.wait_for(message, None).level, Level::WARN);
    }
    assert_eq!(record.wait_for("renewal failed", None).level, Level::WARN);
    server.restart();
    record.wait_for(back, None);

    let _without_ping = without_ping(&server);
    panics_in_the_background_are_told(&record);
    refused_courtesy_is_told_once(&record, &server);
    failing_releases_are_told_once(&record, &server);
    sentinel_that_lets_no_client_follow_is_told(&record);
    refused_heartbeats_are_told_once(&record, &server);

    let all = format!("{:?}", record.0.lock().unwrap());
    assert!(!all.contains("hunter2"), "{all}");
}

/// Panics of foreign code called by the crate's own runtime reach no caller.
fn panics_in_the_background_are_told(record: &Record) {
    struct Panics(&'static str);
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("{}", self.0);
        }
    }
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {}
    }
    let told = |panic: &str, work: &str| {
        let begin = Instant::now();
        let is_it = |seen: &Seen| {
            let is = |field: &str, what: &str| seen.fields.get(field).is_some_and(|value| value == what);
            is("message", "panicked") && is("panic", panic) && is("work", work)
        };
        while !record.0.lock().unwrap().iter().any(is_it) {
            assert!(begin.elapsed() < SOON, "expected {panic:?} of {work:?}");
            std::thread::yield_now();
        }
    };
    let task = "a detached task";
    let runtime = ThreadRuntime::new();
    runtime.spawn(async { panic!("at once") });
    told("at once", task);
    runtime.spawn({
        let runtime = runtime.clone();
        async move {
            runtime.sleep_until(runtime.now() + Duration::from_millis(1)).await;
            panic!("later");
        }
    });
    told("later", task);
    let clock = ThreadRuntime::paused();
    let mut sleep = Box::pin(clock.sleep_until(clock.now() + Duration::from_millis(1)));
    let waker = Waker::from(Arc::new(Panics("by a waker")));
    assert!(sleep.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_pending());
    // The timer has the last clone.
    drop(waker);
    clock.advance(Duration::from_millis(1));
    told("by a waker", "a timer's waker");
    drop(sleep);
    runtime.spawn(async {
        let _panics = Panics("at the end");
        std::future::pending::<()>().await;
    });
    drop(runtime);
    told("at the end", task);

    // tokio's timer would end with the panic.
    let runtime = TokioRuntime::background().unwrap();
    let mut sleep = Box::pin(runtime.sleep_until(runtime.now() + SOON));
    let waker = Waker::from(Arc::new(Panics("by a waker in tokio")));
    assert!(sleep.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_pending());
    drop(waker);
    drop(sleep);
    told("by a waker in tokio", "dropping a waker");
}

fn url_of(user: &str, server: &RedisServer) -> String {
    server.url().replace("redis://", &format!("redis://{user}:hunter2@"))
}

fn query<T: FromRedisValue>(server: &RedisServer, command: &str) -> T {
    let mut raw = redis::Client::open(url_of("", server)).unwrap().get_connection().unwrap();
    let mut words = command.split(' ');
    redis::cmd(words.next().unwrap()).arg(words.collect::<Vec<_>>()).query(&mut raw).unwrap()
}

fn run(server: &RedisServer, command: &str) {
    query::<()>(server, command);
}

/// Only the first error of a series of failures is reported; a success ends the series.
fn failing_releases_are_told_once(record: &Record, server: &RedisServer) {
    run(server, "ACL SETUSER releaser on >hunter2 ~* &* +@all");
    let client = LockClient::new(Redis::builder().blocking_connect(&url_of("releaser", server)).unwrap());
    let told = || {
        let seen = record.0.lock().unwrap();
        let told =
            seen.iter().filter(|seen| seen.fields.get("lock").is_some_and(|lock| lock == "unreleased"));
        told.filter(|seen| seen.fields["message"] == "release failed")
            .map(|seen| seen.level)
            .collect::<Vec<_>>()
    };
    let mut failures = 0;
    for times in 1..=2 {
        let guard = client.get_lock("unreleased").unwrap().lock().unwrap();
        run(server, "ACL SETUSER releaser -evalsha -eval");
        drop(guard);
        while client.metrics().releases_failed < failures + 3 {
            std::thread::yield_now();
        }
        run(server, "ACL SETUSER releaser +evalsha +eval");
        while client.metrics().releases_pending > 0 {
            std::thread::yield_now();
        }
        failures = client.metrics().releases_failed;
        assert_eq!(told(), vec![Level::WARN; times]);
    }
}

/// The user may not end connections, and loses several.
fn refused_courtesy_is_told_once(record: &Record, server: &RedisServer) {
    let run = |command: &str| run(server, command);
    run("ACL SETUSER courteous on >hunter2 ~* &* +@all -client +client|info");
    let client = LockClient::new(Redis::builder().blocking_connect(&url_of("courteous", server)).unwrap());
    for _ in 0..3 {
        client.get_lock("courtesy").unwrap().lock().unwrap().unlock().unwrap();
        run("CLIENT KILL USER courteous");
    }
    client.get_lock("courtesy").unwrap().lock().unwrap().unlock().unwrap();
    // Nor may the user leave a channel: messages keep coming, and the operator should know.
    run("ACL SETUSER courteous -unsubscribe");
    let theirs = client.get_lock("left").unwrap();
    run("HSET left somebody:1 1");
    // A wait that ends before the subscriber connection returns has no channel to leave.
    let call = format!("PUBSUB NUMSUB left:latchwork:{{left}}:call:{}", client.id());
    let subscribers = || query::<(String, usize)>(server, &call).1;
    while subscribers() == 0 {
        assert!(theirs.try_lock_for(Duration::from_secs(1), Lease::Watched).unwrap().is_none());
    }
    let refused = record.wait_for("not unsubscribed", None);
    let channel = &*refused.fields["channel"];
    assert!(refused.level == Level::WARN && channel.starts_with("left:latchwork:{left}:call:"), "{channel}");

    let seen = record.0.lock().unwrap();
    let told = seen.iter().filter(|seen| seen.fields["message"].starts_with("CLIENT KILL is refused"));
    assert_eq!(told.map(|seen| seen.level).collect::<Vec<_>>(), [Level::WARN]);
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < SOON, "no {what}");
        std::thread::yield_now();
    }
}

/// Returns a client with two connections, whose user has lost PING since.
fn without_ping(server: &RedisServer) -> Redis {
    run(server, "ACL SETUSER faint on >hunter2 ~* &* +@all");
    let often = Redis::builder().heartbeat(Duration::from_millis(500));
    let redis = often.blocking_connect(&url_of("faint", server)).unwrap();
    until("both connections", || query::<String>(server, "CLIENT LIST").matches("user=faint").count() == 2);
    run(server, "ACL SETUSER faint -ping");
    redis
}

fn refused_heartbeats_are_told_once(record: &Record, server: &RedisServer) {
    let refused = || {
        let log = query::<Vec<Vec<redis::Value>>>(server, "ACL LOG");
        let is_ping = |entry: &&Vec<redis::Value>| entry.contains(&redis::Value::BulkString(b"ping".into()));
        log.iter().find(is_ping).map_or(0, |entry| i64::from_redis_value_ref(&entry[1]).unwrap())
    };
    // All heartbeats but the last of each connection have been judged.
    until("refused heartbeats", || refused() >= 6);
    let seen = record.0.lock().unwrap();
    let told = seen.iter().filter(|seen| seen.fields["message"] == "heartbeat refused");
    let levels: Vec<Level> = told.map(|seen| seen.level).collect();
    assert!(
        (1..=2).contains(&levels.len()) && levels.iter().all(|level| *level == Level::WARN),
        "{levels:?}"
    );
}

/// The master is still found, but a failover would be noticed late.
fn sentinel_that_lets_no_client_follow_is_told(record: &Record) {
    let set = SentinelSet::start();
    for sentinel in &set.sentinels {
        let mut raw = redis::Client::open(sentinel.url()).unwrap().get_connection().unwrap();
        let rights = ["locks", "reset", "on", ">hunter2", "+sentinel", "resetchannels", "&+switch-master"];
        redis::cmd("ACL").arg("SETUSER").arg(&rights).exec(&mut raw).unwrap();
    }
    let url = set.url() + "?sentinel_username=locks&sentinel_password=hunter2";
    let redis = Redis::builder().blocking_connect(&url).unwrap();
    let told = record.wait_for("Sentinel lost", None);
    assert!(
        told.fields["error"].contains("does not answer SUBSCRIBE: the user has no permission"),
        "{told:?}"
    );
    assert_eq!(record.wait_for("master found", None).level, Level::INFO);
    let subscription = redis.registry().subscribe("channel");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(subscription.subscribed()).unwrap();
    let all = record.0.lock().unwrap();
    let found = all.iter().filter(|seen| seen.fields["message"] == "master found");
    assert_eq!(found.count(), 1, "{all:#?}");
}

/// Two clients of one store in memory, by tokio's paused clock.
fn two_clients() -> [latchwork::LockClient; 2] {
    let local = Local::on_tokio();
    ["worker-1", "worker-2"].map(|label| {
        let options = LockOptions::default().label(label);
        latchwork::LockClient::with_options(local.clone(), &options).unwrap()
    })
}

impl Record {
    /// Takes the events seen so far with this message.
    fn take(&self, message: &str) -> Vec<Seen> {
        let mut all = self.0.lock().unwrap();
        let (taken, kept) =
            std::mem::take(&mut *all).into_iter().partition(|seen| seen.fields["message"] == message);
        *all = kept;
        taken
    }
}

impl Seen {
    #[track_caller]
    fn assert(&self, fields: [(&str, &str); 3]) {
        for (name, value) in fields {
            let seen = self.fields.get(name).map_or("", String::as_str);
            let is_so = if value.is_empty() { seen.is_empty() } else { seen.contains(value) };
            assert!(is_so, "expected {name} of {value:?}, and saw {self:#?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_waiter_is_told_at_its_start_and_at_its_end() {
    let record = Record::default();
    let _seen = tracing::subscriber::set_default(Registry::default().with(record.clone()));
    let [here, there] = two_clients();
    let lock = here.get_lock("orders").unwrap();
    let held = lock.lock().await.unwrap();
    let [acquired] = &*record.take("acquired") else { panic!("expected one acquisition") };
    acquired.assert([("lock", "orders"), ("owner", here.id()), ("waited", "0ns")]);
    assert!(lock.try_lock().await.unwrap().is_none());
    assert!(record.take("waiting").is_empty(), "expected no wait of a caller that may not wait");

    // In the queue of the holder's client: all are told, and not the queue head alone.
    let wait = |client: &latchwork::LockClient| {
        let lock = client.get_lock("orders").unwrap();
        tokio::spawn(async move { lock.lock().await.unwrap() })
    };
    let [first, dropped] = [wait(&here), wait(&here)];
    let late = lock.try_lock_for(Duration::from_secs(1), Lease::Watched);
    assert!(late.await.unwrap().is_none());
    let waiting = record.take("waiting");
    assert_eq!(waiting.len(), 3);
    for waiting in waiting {
        assert_eq!(waiting.level, Level::DEBUG);
        waiting.assert([("lock", "orders"), ("label", "worker-1"), ("holder", ":1:worker-1")]);
    }
    let [late] = &*record.take("gave up") else { panic!("expected a wait whose time is over") };
    late.assert([("lock", "orders"), ("waited", "1s"), ("label", "")]);
    dropped.abort();
    sleep(Duration::from_secs(4)).await;
    assert_eq!(record.take("gave up").len(), 1, "expected the end of the dropped wait");
    drop(held);
    let held = first.await.unwrap();
    let [acquired] = &*record.take("acquired") else { panic!("expected one acquisition") };
    acquired.assert([("lock", "orders"), ("waited", "5s"), ("watched", "true")]);

    // At the store, which does not say which client has the lock.
    let theirs = wait(&there);
    sleep(Duration::from_secs(2)).await;
    let [waiting] = &*record.take("waiting") else { panic!("expected one wait") };
    waiting.assert([("label", "worker-2"), ("holder", ""), ("left", "s")]);
    drop(held);
    drop(theirs.await.unwrap());
    let [acquired] = &*record.take("acquired") else { panic!("expected one acquisition") };
    acquired.assert([("owner", there.id()), ("waited", "2s"), ("watched", "true")]);
}

/// Of a semaphore's waiters, 32 wait at the store, and all others in their client.
#[tokio::test(start_paused = true)]
async fn waiters_of_permits_and_of_both_sides_are_told() {
    const WAITERS: usize = 40;
    let record = Record::default();
    let _seen = tracing::subscriber::set_default(Registry::default().with(record.clone()));
    let [here, _] = two_clients();
    let jobs = here.get_semaphore("jobs", 1).unwrap();
    let permit = jobs.acquire().await.unwrap();
    let waits: Vec<_> = (0..WAITERS)
        .map(|_| {
            let jobs = jobs.clone();
            tokio::spawn(async move { jobs.acquire().await.unwrap().release().await.unwrap() })
        })
        .collect();
    sleep(Duration::from_secs(12)).await;
    assert_eq!(record.take("waiting").len(), WAITERS);
    let [slow] = &*record.take("slow wait") else { panic!("expected one warning for all acquisitions") };
    slow.assert([("lock", "jobs"), ("waiters", "40"), ("holder", ":worker-1")]);
    record.take("acquired");
    drop(permit);
    for wait in waits {
        wait.await.unwrap();
    }
    let acquired = record.take("acquired");
    assert_eq!(acquired.len(), WAITERS);
    acquired.iter().for_each(|acquired| acquired.assert([("lock", "jobs"), ("waited", "12s"), ("left", "")]));

    let prices = here.get_read_write_lock("prices").unwrap();
    let written = prices.write().lock().await.unwrap();
    let reads = prices.read().try_lock_for(Duration::from_secs(1), Lease::Watched).await.unwrap();
    assert!(reads.is_none());
    let [waiting] = &*record.take("waiting") else { panic!("expected one wait") };
    waiting.assert([("lock", "prices"), ("holder", ":worker-1"), ("label", "worker-1")]);
    drop(written);
}

#[tokio::test(start_paused = true)]
async fn name_with_slow_waits_is_told_once_a_minute() {
    const WAITERS: usize = 1000;
    let record = Record::default();
    let _seen = tracing::subscriber::set_default(Registry::default().with(record.clone()));
    let warned = || record.take("slow wait");
    // Waiters of the holder's client, which knows the holder, and of another client, which asks the store.
    for (at, waiter) in ["worker-1", "worker-2"].into_iter().enumerate() {
        let clients = two_clients();
        let held = clients[0].get_lock("orders").unwrap().lock().await.unwrap();
        let lock = clients[at].get_lock("orders").unwrap();
        let wait = || {
            tokio::spawn({
                let lock = lock.clone();
                async move { lock.lock().await.unwrap().unlock().await.unwrap() }
            })
        };
        let waits: Vec<_> = (0..WAITERS).map(|_| wait()).collect();
        sleep(Duration::from_millis(9_900)).await;
        assert_eq!(warned().len(), 0);
        sleep(Duration::from_millis(200)).await;
        let [slow] = &*warned() else { panic!("expected one warning for all waiters") };
        assert_eq!(
            (slow.level, &*slow.fields["waiters"], &*slow.fields["label"]),
            (Level::WARN, "1000", waiter)
        );
        slow.assert([("lock", "orders"), ("longest", "10s"), ("holder", ":1:worker-1")]);
        sleep(Duration::from_millis(59_500)).await;
        assert_eq!(warned().len(), 0);
        sleep(Duration::from_secs(1)).await;
        let [slow] = &*warned() else { panic!("expected one warning in the second minute") };
        slow.assert([("waiters", "1000"), ("longest", "70s"), ("holder", ":1:worker-1")]);

        drop(held);
        for wait in waits {
            wait.await.unwrap();
        }
        sleep(Duration::from_secs(600)).await;
        assert_eq!(warned().len(), 0, "expected no warning after the waits");
        let held = clients[0].get_lock("orders").unwrap().lock().await.unwrap();
        let wait = wait();
        sleep(Duration::from_secs(11)).await;
        assert_eq!(warned().len(), 1, "expected a warning of a later wait");
        drop(held);
        wait.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn slow_waits_are_told_by_the_clients_limit_or_never() {
    let record = Record::default();
    let _seen = tracing::subscriber::set_default(Registry::default().with(record.clone()));
    for (limit, warnings) in [(Duration::from_secs(30), 1), (Duration::ZERO, 0)] {
        let options = LockOptions::default().slow_wait(limit);
        let client = latchwork::LockClient::with_options(Local::on_tokio(), &options).unwrap();
        let lock = client.get_lock("orders").unwrap();
        let _held = lock.lock().await.unwrap();
        assert!(lock.try_lock_for(Duration::from_secs(29), Lease::Watched).await.unwrap().is_none());
        assert_eq!(record.take("slow wait").len(), 0);
        assert!(lock.try_lock_for(Duration::from_secs(31), Lease::Watched).await.unwrap().is_none());
        assert_eq!(record.take("slow wait").len(), warnings);
    }
}
