//! The Redis backend on a real server, by the suite for every backend.

mod conformance;

use std::sync::LazyLock;
use std::time::Duration;

use conformance::{Store, conformance};
use latchwork::redis::Redis;
use latchwork::{LockClient, LockOptions};
use latchwork_testkit::RedisServer;

/// One server for all tests of this file; it ends with the process.
static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

struct OnServer;

impl Store for OnServer {
    type Backend = Redis;

    async fn client_with(&self, options: &LockOptions) -> LockClient<Redis> {
        // Nobody is to wait for the end of a subscription for long.
        let builder = Redis::builder().linger(Duration::from_millis(20));
        LockClient::with_options(builder.connect(&SERVER.url()).await.unwrap(), options).unwrap()
    }

    async fn subscribers(&self, channel: &str) -> usize {
        let client = redis::Client::open(SERVER.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let (_, subscribers): (String, usize) =
            redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).query_async(&mut connection).await.unwrap();
        subscribers
    }
}

conformance!(OnServer);

/// Each waiter asked for itself: twice when it came, and once more with every lease that ended. And then each asked, and was told
/// by a message when to.
#[tokio::test]
async fn waiters_cost_the_server_one_command_each() {
    const WAITERS: usize = 32;
    let server = RedisServer::start();
    let options = LockOptions::default().hand_overs(u32::MAX, Duration::from_secs(3600));
    let client = LockClient::with_options(Redis::connect(&server.url()).await.unwrap(), &options).unwrap();
    let lock = client.get_lock("crowded").unwrap();
    let guard = lock.lock().await.unwrap();
    let mut waiters = Vec::new();
    for number in 1..=WAITERS {
        let lock = lock.clone();
        waiters.push(tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() }));
        while client.registry().stats().interest < number as u64 {
            tokio::task::yield_now().await;
        }
    }
    guard.unlock().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }

    let mut connection =
        redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
    let calls = |command: &str| -> usize {
        let calls = stats.split_once(&format!("cmdstat_{command}:calls=")).map_or("0", |(_, rest)| rest);
        calls.split(',').next().unwrap().parse().unwrap()
    };
    // One to take it and one to give it to the next, or back at last; the first waiter asks twice before it sleeps, and each of three
    // scripts is sent twice, as the server does not know it at first.
    let at_most = 1 + WAITERS + 1 + 2 + 3;
    let scripts = calls("evalsha") + calls("eval");
    assert!(scripts <= at_most, "{scripts} instead of {at_most}: {:?} {stats}", lock.stats());
}
