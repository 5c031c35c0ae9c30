//! A command has run, and its reply is lost with the connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::by_hand;
use futures_util::{FutureExt, StreamExt};
use latchwork::backend::{AcquireOutcome, Backend as _, LeaseKey, LockName, Mode, ReleaseOutcome};
use latchwork::redis::{Error, ErrorKind, Redis};
use latchwork::{LeaseId, LockClient, LockError, LockOptions};
use latchwork_testkit::RedisServer;
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use latchwork_conformance::commands::Commands as _;

const SOON: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_secs(30);

/// A server behind a proxy that swallows replies.
struct Faulty {
    server: RedisServer,
    url: String,
    /// Number of script replies still to swallow, each with its connection cut.
    to_eat: Arc<AtomicUsize>,
    /// While true, no client gets a new connection.
    refuse: Arc<AtomicBool>,
}

impl Faulty {
    async fn start() -> Self {
        let server = RedisServer::start();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let to_eat = Arc::new(AtomicUsize::new(0));
        let refuse = Arc::new(AtomicBool::new(false));
        let refused = Arc::clone(&refuse);
        let (port, eat) = (server.port(), Arc::clone(&to_eat));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if refused.load(Ordering::SeqCst) {
                    continue;
                }
                let eat = Arc::clone(&eat);
                tokio::spawn(async move {
                    let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    let _ = forward(client, server, &eat).await;
                });
            }
        });
        Self { server, url, to_eat, refuse }
    }

    async fn client(&self) -> LockClient {
        LockClient::new(Redis::connect(&self.url).await.unwrap())
    }

    fn eat(&self, replies: usize) {
        self.to_eat.store(replies, Ordering::SeqCst);
    }

    fn assert_all_eaten(&self) {
        assert_eq!(
            self.to_eat.load(Ordering::SeqCst),
            0,
            "expected all replies to be lost, or the test shows nothing"
        );
    }

    async fn raw(&self) -> MultiplexedConnection {
        by_hand::connection(&self.server).await
    }

    async fn state(&self, name: &str) -> HashMap<String, String> {
        let mut state: HashMap<String, String> =
            redis::cmd("HGETALL").arg(name).query_async(&mut self.raw().await).await.unwrap();
        assert_eq!(state.remove("mode").is_some(), !state.is_empty(), "{state:?}");
        state
    }

    async fn until_free(&self, name: &str) {
        let free = async { while !self.state(name).await.is_empty() {} };
        timeout(SOON, free).await.expect("the lock stayed held");
    }
}

/// Carries bytes both ways until the next reply to swallow, then cuts both ends. NOSCRIPT replies pass.
async fn forward(mut client: TcpStream, mut server: TcpStream, to_eat: &AtomicUsize) -> std::io::Result<()> {
    let (mut sent, mut replied) = ([0; 16 * 1024], [0; 16 * 1024]);
    let mut script = false;
    loop {
        tokio::select! {
            n = client.read(&mut sent) => {
                let n = n?;
                script = sent[..n].windows(4).any(|window| window == b"EVAL");
                server.write_all(&sent[..n]).await?;
                if n == 0 { return Ok(()) }
            }
            n = server.read(&mut replied) => {
                let n = n?;
                let ran = script && n > 0 && !replied.starts_with(b"-NOSCRIPT");
                let one_less = |left: usize| left.checked_sub(1);
                if ran && to_eat.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
                    return Ok(());
                }
                client.write_all(&replied[..n]).await?;
                if n == 0 { return Ok(()) }
            }
        }
    }
}

fn cause(error: &LockError) -> &Error {
    error.backend_error().and_then(|error| error.downcast_ref()).expect("an error of the backend")
}

#[tokio::test]
async fn lost_reply_of_acquire_costs_a_retry() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let lock = client.get_lock("orders").unwrap().owned_by(&client.owner());
    faulty.eat(1);
    let outer = lock.lock().await.unwrap();
    faulty.assert_all_eaten();
    let state = faulty.state("orders").await;
    assert!(state.len() == 1 && state.values().all(|count| count == "1"), "{state:?}");
    // Re-entry sends no command.
    let inner = lock.lock().await.unwrap();
    assert_eq!(faulty.state("orders").await, state);
    inner.unlock().await.unwrap();
    outer.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap(), "expected a free lock, and a retry counted as a hold");
}

#[tokio::test]
async fn lost_reply_of_release_costs_a_retry() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let lock = client.get_lock("orders").unwrap();
    let guard = lock.lock().await.unwrap();
    let mut messages = redis::Client::open(faulty.server.url()).unwrap().get_async_pubsub().await.unwrap();
    messages.subscribe("redisson_lock__channel:{orders}").await.unwrap();
    faulty.eat(1);
    guard.unlock().await.unwrap();
    faulty.assert_all_eaten();
    assert!(faulty.state("orders").await.is_empty());

    // One message for the waiters.
    let mut messages = messages.into_on_message();
    assert!(timeout(SOON, messages.next()).await.expect("no message came").is_some());
    let mut end = redis::cmd("PUBLISH");
    end.arg("redisson_lock__channel:{orders}").arg("the end");
    end.exec_async(&mut faulty.raw().await).await.unwrap();
    let last = timeout(SOON, messages.next()).await.unwrap().unwrap();
    assert_eq!(last.get_payload::<String>().unwrap(), "the end");
}

#[tokio::test]
async fn resent_release_does_not_free_the_next_holders_lock() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let lock = client.get_lock("orders").unwrap();
    let guard = lock.lock().await.unwrap();
    // Waits at the server directly, so this waiter holds the lock by about the time of the second sending.
    let direct = LockClient::new(Redis::connect(&faulty.server.url()).await.unwrap());
    let next = tokio::spawn({
        let lock = direct.get_lock("orders").unwrap();
        async move { lock.lock().await.unwrap() }
    });
    faulty.eat(1);
    guard.unlock().await.unwrap();
    faulty.assert_all_eaten();
    let next = timeout(SOON, next).await.expect("the next in line was not woken").unwrap();
    assert!(lock.is_locked().await.unwrap());
    next.unlock().await.unwrap();
}

#[tokio::test]
async fn lost_reply_of_renewal_costs_a_retry() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let lock = client.get_lock("orders").unwrap();
    let guard = lock.lock_with_lease(LEASE).await.unwrap();
    let id = lock.holder().await.unwrap().unwrap().id.unwrap();
    faulty.eat(1);
    let key = LeaseKey { name: guard.name().clone(), id };
    assert_eq!(
        client.backend::<Redis>().unwrap().renew(Mode::Plain, &[key], LEASE * 2).await.unwrap(),
        [true]
    );
    faulty.assert_all_eaten();
    assert!(lock.remaining().await.unwrap().unwrap() > LEASE);
    assert_eq!(lock.hold_count(guard.owner()).await.unwrap(), 1);
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn watched_hold_outlives_lost_replies() {
    let faulty = Faulty::start().await;
    // A busy machine stops a task for less than two thirds of this, the time for repeating a renewal.
    let options = LockOptions::default().watchdog_timeout(Duration::from_secs(3));
    let client = LockClient::with_options(Redis::connect(&faulty.url).await.unwrap(), &options).unwrap();
    let guard = client.get_lock("orders").unwrap().lock().await.unwrap();
    for _ in 0..4 {
        faulty.eat(1);
        let eaten = async {
            while faulty.to_eat.load(Ordering::SeqCst) > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(SOON, eaten).await.expect("nothing was renewed");
        assert!(guard.lost().now_or_never().is_none());
    }
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn indeterminate_acquire_is_rolled_back() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let lock = client.get_lock("orders").unwrap();
    for lock in [&lock, &lock.owned_by(&client.owner())] {
        faulty.eat(usize::MAX);
        let error = lock.lock().await.unwrap_err();
        assert_eq!(cause(&error).kind(), ErrorKind::Unknown, "{error:?}");
        assert!(error.is_indeterminate() && error.is_retryable());
        faulty.eat(0);
        faulty.until_free("orders").await;
    }
}

#[tokio::test]
async fn outcome_is_unknown_if_the_retry_finds_no_server() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let lock = client.get_lock("orders").unwrap();
    // From now on the server knows the script.
    lock.lock().await.unwrap().unlock().await.unwrap();
    faulty.eat(1);
    faulty.refuse.store(true, Ordering::SeqCst);
    // The retry certainly did not run, but the first sending did.
    let error = lock.lock().await.unwrap_err();
    assert_eq!(cause(&error).kind(), ErrorKind::Unknown, "{error:?}");
    assert_eq!(faulty.state("orders").await.len(), 1);
    // The rollback runs at the next connection, well before the end of the lease.
    faulty.refuse.store(false, Ordering::SeqCst);
    faulty.until_free("orders").await;
    lock.lock().await.unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn tokens_rise_when_a_reply_was_lost() {
    let faulty = Faulty::start().await;
    let lock = faulty.client().await.get_lock("orders").unwrap().fenced();
    let mut last = None;
    for _ in 0..3 {
        faulty.eat(1);
        let guard = lock.lock().await.unwrap();
        faulty.assert_all_eaten();
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
        let mut raw = faulty.raw().await;
        let counter: (Option<u64>, i64) = redis::pipe()
            .cmd("GET")
            .arg("redisson_lock_token:{orders}")
            .cmd("PTTL")
            .arg("redisson_lock_token:{orders}")
            .query_async(&mut raw)
            .await
            .unwrap();
        assert_eq!(counter, (last, -1));
        guard.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn token_that_cannot_be_had_leaves_the_lock_free() {
    let faulty = Faulty::start().await;
    let mut raw = faulty.raw().await;
    let lock = faulty.client().await.get_lock("orders").unwrap().fenced();
    for counter in ["no number", &i64::MAX.to_string()] {
        let mut set = redis::cmd("SET");
        set.arg("redisson_lock_token:{orders}").arg(counter).exec_async(&mut raw).await.unwrap();
        let error = lock.lock().await.unwrap_err();
        assert_eq!(cause(&error).kind(), ErrorKind::Refused, "{error:?}");
        assert!(faulty.state("orders").await.is_empty());
    }
}

#[tokio::test]
async fn indeterminate_release_is_repeated() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let me = client.owner();
    let lock = client.get_lock("orders").unwrap().owned_by(&me);
    let guard = lock.lock().await.unwrap();
    faulty.eat(usize::MAX);
    let error = guard.unlock().await.unwrap_err();
    assert_eq!(cause(&error).kind(), ErrorKind::Unknown, "{error:?}");
    assert!(client.metrics().releases_failed > 0);
    faulty.eat(0);
    faulty.until_free("orders").await;

    lock.lock().await.unwrap().forget();
    faulty.eat(usize::MAX);
    assert!(lock.unlock(&me).await.is_err());
    faulty.eat(0);
    assert!(
        lock.unlock(&me).await.unwrap_err().is_not_held(),
        "expected NotHeld for the second unlock of one hold"
    );
    faulty.until_free("orders").await;
}

/// The lock stays held only until a connection can be made.
#[tokio::test]
async fn release_of_a_dropped_guard_outlives_refused_connections() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let lock = client.get_lock("orders").unwrap();
    let guard = lock.lock_with_lease(Duration::from_secs(3600)).await.unwrap();
    faulty.refuse.store(true, Ordering::SeqCst);
    // The connection breaks at the release, which does not run.
    let mut kill = redis::cmd("CLIENT");
    kill.arg(&["KILL", "TYPE", "normal"]).exec_async(&mut faulty.raw().await).await.unwrap();
    drop(guard);
    let failed = async {
        while client.metrics().releases_failed < 3 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, failed).await.expect("not repeated");
    assert_eq!(client.metrics().releases_pending, 1);
    assert_eq!(faulty.state("orders").await.len(), 1);
    faulty.refuse.store(false, Ordering::SeqCst);
    faulty.until_free("orders").await;
}

#[tokio::test]
async fn release_that_was_refused_is_repeated() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let lock = client.get_lock("orders").unwrap();
    let mut raw = faulty.raw().await;
    let mut allow = async |channels: &str| {
        let mut acl = redis::cmd("ACL");
        acl.arg(&["SETUSER", "default", channels]).exec_async(&mut raw).await.unwrap();
    };
    let guard = lock.lock().await.unwrap();
    allow("resetchannels").await;
    let error = guard.unlock().await.unwrap_err();
    assert_eq!(cause(&error).kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.is_refused() && !error.is_retryable());
    assert!(lock.is_locked().await.unwrap());
    allow("allchannels").await;
    faulty.until_free("orders").await;
}

#[tokio::test]
async fn forced_release_is_not_sent_again() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let lock = client.get_lock("orders").unwrap();
    let guard = lock.lock().await.unwrap();
    faulty.eat(1);
    let error = lock.force_unlock().await.unwrap_err();
    assert_eq!(cause(&error).kind(), ErrorKind::Unknown, "{error:?}");
    assert!(
        guard.unlock().await.unwrap_err().is_not_held(),
        "expected NotHeld for the guard, as the forced unlock ran"
    );
}

#[tokio::test]
async fn release_of_a_lost_lease_reports_it_unless_its_reply_is_lost() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let (backend, name) = (client.backend::<Redis>().unwrap(), LockName::new("orders").unwrap());
    let id: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse().unwrap();
    assert_eq!(backend.release(Mode::Plain, &name, &id, None).await.unwrap(), ReleaseOutcome::NotHeld);
    faulty.eat(1);
    assert_eq!(
        backend.release(Mode::Plain, &name, &id, None).await.unwrap(),
        ReleaseOutcome::Released { receivers: 0 }
    );
    faulty.assert_all_eaten();
    let taken = backend.acquire(Mode::Plain, &name, &backend.request(&id, LEASE)).await.unwrap();
    assert_eq!(taken, AcquireOutcome::Acquired { last_token: 0 });
    faulty.eat(1);
    assert_eq!(
        backend.release(Mode::Plain, &name, &id, None).await.unwrap(),
        ReleaseOutcome::Released { receivers: 0 }
    );
    faulty.assert_all_eaten();
    assert!(faulty.state("orders").await.is_empty());
}
