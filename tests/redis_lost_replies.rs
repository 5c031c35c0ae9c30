//! The Redis backend when a command has run and its reply is lost with the connection.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use latchwork::redis::{Error, ErrorKind, Redis};
use latchwork::{Backend, HoldKey, LockClient, LockError, LockName, LockOptions, Released, Tried};
use latchwork_testkit::RedisServer;
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_secs(30);

/// A server, and a way to it that eats replies.
struct Faulty {
    server: RedisServer,
    url: String,
    /// So many more replies to scripts are eaten, and their connections cut.
    to_eat: Arc<AtomicUsize>,
    /// While true, replies to scripts are kept back.
    stall: watch::Sender<bool>,
    /// While true, nobody gets a new connection.
    refuse: Arc<AtomicBool>,
}

impl Faulty {
    async fn start() -> Self {
        let server = RedisServer::start();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let to_eat = Arc::new(AtomicUsize::new(0));
        let stall = watch::Sender::new(false);
        let refuse = Arc::new(AtomicBool::new(false));
        let refused = Arc::clone(&refuse);
        let (port, eat, stalled) = (server.port(), Arc::clone(&to_eat), stall.subscribe());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if refused.load(Ordering::SeqCst) {
                    continue;
                }
                let (eat, stalled) = (Arc::clone(&eat), stalled.clone());
                tokio::spawn(async move {
                    let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    let _ = forward(client, server, &eat, stalled).await;
                });
            }
        });
        Self { server, url, to_eat, stall, refuse }
    }

    async fn client(&self) -> LockClient<Redis> {
        LockClient::new(Redis::connect(&self.url).await.unwrap())
    }

    fn eat(&self, replies: usize) {
        self.to_eat.store(replies, Ordering::SeqCst);
    }

    fn assert_all_eaten(&self) {
        assert_eq!(self.to_eat.load(Ordering::SeqCst), 0, "no reply was lost, so nothing was tested");
    }

    async fn raw(&self) -> MultiplexedConnection {
        redis::Client::open(self.server.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
    }

    /// The lock as Redisson would find it.
    async fn state(&self, name: &str) -> HashMap<String, String> {
        redis::cmd("HGETALL").arg(name).query_async(&mut self.raw().await).await.unwrap()
    }

    async fn until_free(&self, name: &str) {
        let free = async { while !self.state(name).await.is_empty() {} };
        timeout(SOON, free).await.expect("the lock stayed held");
    }
}

/// Carries bytes both ways, until a reply to a script is eaten: then both ends are cut. A server that does not know the script
/// has not run it, and may say so.
async fn forward(
    mut client: TcpStream,
    mut server: TcpStream,
    to_eat: &AtomicUsize,
    mut stalled: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let (mut sent, mut replied) = ([0; 16 * 1024], [0; 16 * 1024]);
    let mut script = false;
    loop {
        let kept_back = script && *stalled.borrow_and_update() && to_eat.load(Ordering::SeqCst) == 0;
        tokio::select! {
            n = client.read(&mut sent) => {
                let n = n?;
                script = sent[..n].windows(4).any(|window| window == b"EVAL");
                server.write_all(&sent[..n]).await?;
                if n == 0 { return Ok(()) }
            }
            Ok(()) = stalled.changed() => {}
            n = server.read(&mut replied), if !kept_back => {
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

/// The backend's own error behind a lock's.
fn cause(error: &LockError) -> &Error {
    error.source().and_then(|source| source.downcast_ref()).expect("an error of the backend")
}

#[tokio::test]
async fn lost_reply_of_acquire_costs_a_retry() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let me = client.owner();
    let lock = client.get_lock("orders").unwrap().owned_by(&me);
    let mut guards = Vec::new();
    for holds in 1..=3 {
        faulty.eat(1);
        guards.push(lock.lock().await.unwrap());
        faulty.assert_all_eaten();
        let wanted = HashMap::from([(me.to_string(), holds.to_string())]);
        assert_eq!(faulty.state("orders").await, wanted);
    }
    for guard in guards {
        assert!(lock.is_locked().await.unwrap());
        guard.unlock().await.unwrap();
    }
    assert!(!lock.is_locked().await.unwrap(), "a retry was counted");
}

#[tokio::test]
async fn lost_reply_of_release_costs_a_retry() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let me = client.owner();
    let lock = client.get_lock("orders").unwrap().owned_by(&me);
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    let innermost = lock.lock().await.unwrap();
    let mut messages = redis::Client::open(faulty.server.url()).unwrap().get_async_pubsub().await.unwrap();
    messages.subscribe("redisson_lock__channel:{orders}").await.unwrap();

    for (guard, left) in [(innermost, "2"), (inner, "1")] {
        faulty.eat(1);
        guard.unlock().await.unwrap();
        faulty.assert_all_eaten();
        assert_eq!(faulty.state("orders").await, HashMap::from([(me.to_string(), left.to_owned())]));
    }
    faulty.eat(1);
    outer.unlock().await.unwrap();
    faulty.assert_all_eaten();
    assert!(faulty.state("orders").await.is_empty());

    // And the waiters were told once.
    let mut messages = messages.into_on_message();
    assert!(timeout(SOON, messages.next()).await.expect("nobody was told").is_some());
    let mut end = redis::cmd("PUBLISH");
    end.arg("redisson_lock__channel:{orders}").arg("the end");
    end.exec_async(&mut faulty.raw().await).await.unwrap();
    let last = timeout(SOON, messages.next()).await.unwrap().unwrap();
    assert_eq!(last.get_payload::<String>().unwrap(), "the end");
}

#[tokio::test]
async fn release_that_ran_does_not_free_the_next_holders_lock_when_it_is_sent_again() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let lock = client.get_lock("orders").unwrap();
    let guard = lock.lock().await.unwrap();
    // Waits for the lock straight at the server, and so has it before the release is sent again, or soon after.
    let direct = LockClient::new(Redis::connect(&faulty.server.url()).await.unwrap());
    let next = tokio::spawn({
        let lock = direct.get_lock("orders").unwrap();
        async move { lock.lock().await.unwrap() }
    });
    faulty.eat(1);
    guard.unlock().await.unwrap();
    faulty.assert_all_eaten();
    let next = timeout(SOON, next).await.expect("the next in line was not woken").unwrap();
    assert!(lock.is_held_by(next.owner()).await.unwrap());
    next.unlock().await.unwrap();
}

#[tokio::test]
async fn lost_reply_of_renewal_costs_a_retry() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let lock = client.get_lock("orders").unwrap();
    let guard = lock.lock_with_lease(LEASE).await.unwrap();
    let key = HoldKey { name: guard.name().clone(), owner: guard.owner().clone() };
    faulty.eat(1);
    assert_eq!(client.backend().renew(&[key], LEASE * 2).await.unwrap(), [true]);
    faulty.assert_all_eaten();
    assert!(lock.remaining().await.unwrap().unwrap() > LEASE);
    assert_eq!(lock.hold_count(guard.owner()).await.unwrap(), 1);
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn watched_hold_outlives_lost_replies() {
    let faulty = Faulty::start().await;
    let options = LockOptions::default().watchdog_timeout(Duration::from_millis(900));
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
async fn acquire_whose_outcome_stays_unknown_is_undone() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let me = client.owner();
    let (anyones, mine) =
        (client.get_lock("orders").unwrap(), client.get_lock("orders").unwrap().owned_by(&me));
    for lock in [&anyones, &mine] {
        faulty.eat(2);
        let error = lock.lock().await.unwrap_err();
        assert_eq!(cause(&error).kind(), ErrorKind::Unknown, "{error:?}");
        faulty.assert_all_eaten();
        faulty.until_free("orders").await;
    }

    // On top of another hold of the same owner, which is not given back with it.
    let outer = mine.lock().await.unwrap();
    faulty.eat(2);
    assert!(mine.lock().await.is_err());
    faulty.assert_all_eaten();
    // The owner's next command waits until it is undone.
    let inner = mine.lock().await.unwrap();
    assert_eq!(mine.hold_count(&me).await.unwrap(), 2);
    inner.unlock().await.unwrap();
    assert_eq!(mine.hold_count(&me).await.unwrap(), 1);
    assert!(outer.is_held());
    outer.unlock().await.unwrap();
    assert!(!mine.is_locked().await.unwrap());
}

#[tokio::test]
async fn outcome_is_unknown_if_the_retry_finds_nobody() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let me = client.owner();
    let lock = client.get_lock("orders").unwrap().owned_by(&me);
    // So that the server knows the script.
    lock.lock().await.unwrap().unlock().await.unwrap();
    faulty.eat(1);
    faulty.refuse.store(true, Ordering::SeqCst);
    // The retry did not run, for certain; but what it was a retry of did.
    let error = lock.lock().await.unwrap_err();
    assert_eq!(cause(&error).kind(), ErrorKind::Unknown, "{error:?}");
    assert_eq!(faulty.state("orders").await.len(), 1);
    faulty.refuse.store(false, Ordering::SeqCst);
    lock.lock().await.unwrap().unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

#[tokio::test]
async fn next_command_of_an_owner_waits_until_the_last_one_is_undone() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let me = client.owner();
    let lock = client.get_lock("orders").unwrap().owned_by(&me);
    // So that the server knows the scripts.
    lock.lock().await.unwrap().unlock().await.unwrap();
    let outer = lock.lock().await.unwrap();
    // The replies to the acquire and to its retry are eaten, and the one to its being undone does not come yet.
    faulty.stall.send_replace(true);
    faulty.eat(2);
    assert!(lock.lock().await.is_err());
    let undone = HashMap::from([(me.to_string(), "1".to_owned())]);
    timeout(SOON, async { while faulty.state("orders").await != undone {} }).await.expect("not undone");
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    });
    // Far more round trips than the one that it would take. What is undone after the next one has counted would undo that one.
    for _ in 0..100 {
        assert_eq!(faulty.state("orders").await, undone);
    }
    faulty.stall.send_replace(false);
    let inner = timeout(SOON, next).await.expect("never had its turn").unwrap();
    assert_eq!(lock.hold_count(&me).await.unwrap(), 2);
    inner.unlock().await.unwrap();
    outer.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

#[tokio::test]
async fn token_is_the_same_when_its_reply_was_lost() {
    let faulty = Faulty::start().await;
    let lock = faulty.client().await.get_lock("orders").unwrap().fenced();
    for round in 1..=3 {
        faulty.eat(1);
        let guard = lock.lock().await.unwrap();
        faulty.assert_all_eaten();
        assert_eq!(guard.fencing_token(), Some(round), "a retry used up a token");
        let mut raw = faulty.raw().await;
        let counter: (String, i64) = redis::pipe()
            .cmd("GET")
            .arg("redisson_lock_token:{orders}")
            .cmd("PTTL")
            .arg("redisson_lock_token:{orders}")
            .query_async(&mut raw)
            .await
            .unwrap();
        assert_eq!(counter, (round.to_string(), -1));
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
async fn release_whose_outcome_stays_unknown_is_made_good_by_the_next_one() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let me = client.owner();
    let lock = client.get_lock("orders").unwrap().owned_by(&me);
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    faulty.eat(2);
    let error = inner.unlock().await.unwrap_err();
    assert_eq!(cause(&error).kind(), ErrorKind::Unknown, "{error:?}");
    outer.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());

    // Without a guard it is the caller who tries again, and that counts once.
    for _ in 0..2 {
        lock.lock().await.unwrap().forget();
    }
    faulty.eat(2);
    assert!(lock.unlock(&me).await.is_err());
    faulty.assert_all_eaten();
    lock.unlock(&me).await.unwrap();
    assert_eq!(lock.hold_count(&me).await.unwrap(), 1);
    lock.unlock(&me).await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

#[tokio::test]
async fn release_that_was_refused_can_be_had_later() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let lock = client.get_lock("orders").unwrap();
    let mut raw = faulty.raw().await;
    let mut allow = async |channels: &str| {
        let mut acl = redis::cmd("ACL");
        acl.arg(&["SETUSER", "default", channels]).exec_async(&mut raw).await.unwrap();
    };
    let guard = lock.lock().await.unwrap();
    let owner = guard.owner().clone();
    allow("resetchannels").await;
    let error = guard.unlock().await.unwrap_err();
    assert_eq!(cause(&error).kind(), ErrorKind::Refused, "{error:?}");
    assert!(lock.is_held_by(&owner).await.unwrap());
    allow("allchannels").await;
    lock.unlock(&owner).await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
    assert!(lock.unlock(&owner).await.unwrap_err().is_not_held());
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
    assert!(guard.unlock().await.unwrap_err().is_not_held(), "it ran");
}

#[tokio::test]
async fn release_of_a_hold_that_is_gone_is_told_apart_unless_its_reply_is_lost() {
    let faulty = Faulty::start().await;
    let client = faulty.client().await;
    let (backend, me, name) = (client.backend(), client.owner(), LockName::new("orders").unwrap());
    assert_eq!(backend.release(&name, &me, 0).await.unwrap(), Released::NotHeld);
    assert_eq!(backend.try_acquire(&name, &me, 2, LEASE, false).await.unwrap(), Tried::Lost);
    for (left, answer) in [(0, Released::Free), (1, Released::NotHeld)] {
        faulty.eat(1);
        assert_eq!(backend.release(&name, &me, left).await.unwrap(), answer);
        faulty.assert_all_eaten();
    }
    faulty.eat(1);
    assert_eq!(backend.try_acquire(&name, &me, 2, LEASE, false).await.unwrap(), Tried::Lost);
    assert!(faulty.state("orders").await.is_empty());
}
