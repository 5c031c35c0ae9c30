//! The rights that the page of `redis` asks for: they suffice, and each is needed, and named where it is missing.

mod conformance;

use std::error::Error as _;
use std::sync::LazyLock;
use std::time::Duration;

use conformance::{Store, conformance};
use latchwork::redis::{Error, Redis};
use latchwork::{Lease, LockClient, LockError, LockOptions};
use latchwork_testkit::RedisServer;
use redis::FromRedisValue;

/// As the page says them.
fn documented() -> Vec<&'static str> {
    let page = include_str!("../src/redis.rs");
    let list = page.split_once("# Rights").unwrap().1.split("```").nth(1).unwrap();
    list.trim_start_matches("text").split_whitespace().filter(|word| *word != "//!").collect()
}

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

async fn run<T: FromRedisValue>(server: &RedisServer, command: &[&str]) -> T {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd(command[0]).arg(&command[1..]).query_async(&mut connection).await.unwrap()
}

/// A user with `rights`, for all names that locks have here: none begins as the counters of tokens do.
async fn user(server: &RedisServer, name: &str, rights: &[&str]) -> String {
    let rights = rights.iter().map(|right| if *right == "~orders:*" { "~[^r]*" } else { right });
    let words = ["ACL", "SETUSER", name, "reset", "resetchannels", "on", ">secret"].into_iter().chain(rights);
    let () = run(server, &words.collect::<Vec<_>>()).await;
    server.url().replace("redis://", &format!("redis://{name}:secret@"))
}

struct ByDocumentedRights;

impl Store for ByDocumentedRights {
    type Backend = Redis;

    async fn client_with(&self, options: &LockOptions) -> LockClient<Redis> {
        // Once: some versions end the subscriptions of a user whose rights are written anew, though they are the same.
        static URL: tokio::sync::OnceCell<String> = tokio::sync::OnceCell::const_new();
        let url = URL.get_or_init(|| async { user(&SERVER, "locks", &documented()).await }).await;
        let redis = Redis::builder().linger(Duration::from_millis(20)).connect(url).await.unwrap();
        LockClient::with_options(redis, options).unwrap()
    }

    async fn subscribers(&self, channel: &str) -> usize {
        run::<(String, usize)>(&SERVER, &["PUBSUB", "NUMSUB", channel]).await.1
    }
}

conformance!(ByDocumentedRights);

/// Uses all that there is, until something is refused.
async fn use_everything(url: &str, server: &RedisServer) -> Result<(), String> {
    let texts = |error: &dyn std::error::Error| {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(error) = next {
            text += &format!("; {error}");
            next = error.source();
        }
        text
    };
    let redis = Redis::connect(url).await.map_err(|error| texts(&error))?;
    let options = LockOptions::default().watchdog_timeout(Duration::from_millis(600));
    let client = LockClient::with_options(redis, &options).unwrap();
    let used = async {
        let lock = client.get_lock("orders:1")?.fenced();
        let guard = lock.lock().await?;
        lock.is_locked().await?;
        // A renewal that is refused is told as a loss, and by nothing else: so it is asked for by hand.
        guard.owner();
        let again = lock.owned_by(guard.owner()).lock_with_lease(Duration::from_secs(5)).await?;
        again.unlock().await?;
        guard.unlock().await?;
        let _held = lock.lock_with_lease(Duration::from_secs(60)).await?;
        lock.force_unlock().await?;
        let () = run(server, &["HSET", "orders:2", "somebody:1", "1"]).await;
        let waits = client.get_lock("orders:2")?;
        waits.try_lock_for(Duration::from_millis(300), Lease::Watched).await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    used.await.map_err(|error| texts(&*error))
}

#[tokio::test]
async fn each_right_that_is_missing_is_named() {
    let server = RedisServer::start();
    let all = documented();
    let url = user(&server, "whole", &all).await;
    use_everything(&url, &server).await.expect("the documented rights suffice");
    // Told by an event, as nobody waits for it; see `tests/tracing.rs`.
    let rights = all.iter().filter(|right| right.starts_with('+') && **right != "+unsubscribe");
    for right in rights {
        let () = run(&server, &["FLUSHALL"]).await;
        let () = run(&server, &["SCRIPT", "FLUSH"]).await;
        let rest: Vec<&str> = all.iter().copied().filter(|other| other != right).collect();
        let url = user(&server, "poor", &rest).await;
        let said = use_everything(&url, &server).await;
        let said = said.expect_err(&format!("{right} is asked for, and not needed"));
        assert!(said.contains(&right[1..].to_uppercase()), "without {right}: {said}");
        assert!(said.contains("permission"), "without {right}: {said}");
    }
}

#[tokio::test]
async fn channel_that_is_missing_is_named() {
    let server = RedisServer::start();
    let rest: Vec<&str> = documented().into_iter().filter(|right| !right.starts_with('&')).collect();
    let client = LockClient::new(Redis::connect(&user(&server, "deaf", &rest).await).await.unwrap());
    let () = run(&server, &["HSET", "orders:1", "somebody:1", "1"]).await;
    let error = client.get_lock("orders:1").unwrap().lock().await.unwrap_err();
    let LockError::Subscribe(refused) = &error else { panic!("{error:?}") };
    let cause: &Error = refused.source().and_then(|source| source.downcast_ref()).unwrap();
    assert!(cause.to_string().contains("SUBSCRIBE on \"redisson_lock__channel:{orders:1}\""), "{cause}");
}
