//! The conformance suite on a real server, with a default connection.

use std::sync::LazyLock;
use std::time::Duration;

use crate::by_hand;
use latchwork::redis::Redis;
use latchwork::{LockClient, LockOptions};
use latchwork_conformance::Store;
use latchwork_testkit::RedisServer;

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

struct OnServer;

impl Store for OnServer {
    type Backend = Redis;

    async fn connect(&self) -> Redis {
        Redis::connect(&SERVER.url()).await.unwrap()
    }

    async fn subscribers(&self, channel: &str) -> usize {
        by_hand::subscribers(&SERVER, channel).await
    }

    fn block_on<T>(&self, property: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(property)
    }
}

latchwork_conformance::suite!(plain fair read_write permits: OnServer);

/// `waiters` tasks of the holder's process hold the lock for `hold` each; returns scripts and hand-offs.
async fn crowd(waiters: usize, hold: Duration, options: &LockOptions) -> (usize, u64) {
    let server = RedisServer::start();
    let client = LockClient::with_options(Redis::connect(&server.url()).await.unwrap(), options).unwrap();
    let lock = client.get_lock("crowded").unwrap();
    let guard = lock.lock().await.unwrap();
    let mut tasks = Vec::new();
    for number in 1..=waiters {
        let waits = lock.clone();
        tasks.push(tokio::spawn(async move {
            let guard = waits.lock().await.unwrap();
            tokio::time::sleep(hold).await;
            guard.unlock().await.unwrap();
        }));
        while lock.waiters() < number {
            tokio::task::yield_now().await;
        }
    }
    guard.unlock().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    (scripts_run(&server).await, lock.stats().hand_offs)
}

/// Two scripts, each sent twice, as the server does not know them at first.
const ONCE: usize = 4;

#[tokio::test]
async fn waiters_of_one_process_cost_the_server_two_commands_for_all() {
    let options = LockOptions::default().tenure(Duration::from_secs(3600));
    assert_eq!(crowd(32, Duration::ZERO, &options).await, (ONCE, 32));
}

/// By default the lease goes back to the server now and then, for other processes.
#[tokio::test]
async fn waiters_of_one_process_cost_the_server_two_commands_a_tenure() {
    const TENURE: Duration = Duration::from_millis(30);
    let begun = std::time::Instant::now();
    let (scripts, hand_offs) = crowd(200, Duration::from_millis(1), &LockOptions::default()).await;
    let tenures = usize::try_from(begun.elapsed().as_millis() / TENURE.as_millis()).unwrap();
    assert!(scripts <= ONCE + 2 * tenures, "{scripts} scripts in {tenures} tenures");
    assert!(hand_offs > 100, "{hand_offs}");
}

async fn scripts_run(server: &RedisServer) -> usize {
    by_hand::calls(server, "evalsha").await + by_hand::calls(server, "eval").await
}
