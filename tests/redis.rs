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

/// Those who wait behind a holder of their own process cost the server nothing.
#[tokio::test]
async fn waiters_of_one_process_cost_the_server_two_commands_for_all() {
    const WAITERS: usize = 32;
    let server = RedisServer::start();
    let options = LockOptions::default().tenure(Duration::from_secs(3600));
    let client = LockClient::with_options(Redis::connect(&server.url()).await.unwrap(), &options).unwrap();
    let lock = client.get_lock("crowded").unwrap();
    let guard = lock.lock().await.unwrap();
    let mut waiters = Vec::new();
    for number in 1..=WAITERS {
        let waits = lock.clone();
        waiters.push(tokio::spawn(async move { waits.lock().await.unwrap().unlock().await.unwrap() }));
        while lock.waiters() < number {
            tokio::task::yield_now().await;
        }
    }
    guard.unlock().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(lock.stats().hand_offs, WAITERS as u64);
    let scripts = scripts_run(&server).await;
    // Each of the two scripts is sent twice, as the server does not know it at first.
    assert_eq!(scripts, 4, "{:?}", lock.stats());
}

async fn scripts_run(server: &RedisServer) -> usize {
    let mut connection =
        redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
    let calls = |command: &str| -> usize {
        let calls = stats.split_once(&format!("cmdstat_{command}:calls=")).map_or("0", |(_, rest)| rest);
        calls.split(',').next().unwrap().parse().unwrap()
    };
    calls("evalsha") + calls("eval")
}
