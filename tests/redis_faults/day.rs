//! [`Day`]: a server, a faulty network before it, and the checks at the end of a test.

use std::time::Duration;

use latchwork::redis::{ErrorKind, Redis};
use latchwork::{Guard, LockClient, LockError, LockOptions};
use latchwork_testkit::{ChaosProxy, Link, RedisServer};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, cmd};
use tokio::task::JoinHandle;

use crate::by_hand;
use crate::errors::cause;

/// Far longer than any step here takes, and far shorter than the lease that a missed message would wait for.
pub(crate) const SOON: Duration = Duration::from_secs(10);
crate::waiting::waiting_for!(SOON);

/// The name of the lock. A day has only one.
pub(crate) const NAME: &str = "chaos";

/// Marks a script sent in full, as the first call of each script is.
pub(crate) const EVAL: &str = "\r\nEVAL\r\n";

/// A server that refuses connections. Its port stays reserved during the value's life.
pub(crate) fn refusing_server() -> RedisServer {
    let mut server = RedisServer::start();
    server.kill_9();
    server
}

pub(crate) struct Day {
    pub(crate) server: RedisServer,
    pub(crate) proxy: ChaosProxy,
}

impl Day {
    pub(crate) fn begin() -> Day {
        Day::begin_with(&[])
    }

    pub(crate) fn begin_with(args: &[&str]) -> Day {
        Day::begin_on(RedisServer::start_with(args))
    }

    pub(crate) fn begin_on(server: RedisServer) -> Day {
        let proxy = ChaosProxy::start(server.port());
        Day { server, proxy }
    }

    pub(crate) async fn client(&self) -> LockClient {
        self.client_with(Duration::from_secs(30)).await
    }

    pub(crate) async fn client_with(&self, watchdog: Duration) -> LockClient {
        let options = LockOptions::default().watchdog_timeout(watchdog);
        LockClient::with_options(Redis::connect(&self.proxy.url()).await.unwrap(), &options).unwrap()
    }

    /// A client that bypasses the proxy.
    pub(crate) async fn bystander(&self) -> LockClient {
        LockClient::new(Redis::connect(&self.server.url()).await.unwrap())
    }

    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        by_hand::connection(&self.server).await
    }

    /// Runs a command past the proxy: words separated by spaces.
    pub(crate) async fn run<T: FromRedisValue>(&self, command: &str) -> T {
        by_hand::run(&self.server, command).await
    }

    pub(crate) async fn another_holds_it(&self) {
        by_hand::another_holds(&self.server, NAME).await;
    }

    /// A task that waits for the lock, has subscribed, and has found the lock still held.
    pub(crate) async fn waiter(&self, client: &LockClient) -> JoinHandle<Result<Guard, LockError>> {
        let tries = self.proxy.count("EVALSHA");
        let lock = client.get_lock(NAME).unwrap();
        let waiter = tokio::spawn(async move { lock.lock().await });
        self.proxy.wait_for("SUBSCRIBE", 1);
        self.proxy.wait_for("EVALSHA", tries + 2);
        waiter
    }

    pub(crate) fn commands(&self) -> Link {
        self.proxy.wait_for_link_of("EVAL")
    }

    /// The link of subscriptions and heartbeats, after the first subscription.
    pub(crate) fn subscriptions(&self) -> Link {
        self.proxy.wait_for_link_of("SUBSCRIBE")
    }

    /// Checks for remains once guards and futures are gone. The clients still live, so no drop cleans up.
    pub(crate) async fn end(self, clients: &[&LockClient]) {
        for client in clients {
            // A background task drops the interest after calling the wakers.
            eventually("no interest", async || client.registry().is_empty()).await;
            let stats = client.registry().stats();
            assert_eq!((stats.entries, stats.interest), (0, 0), "{stats:?}");
            assert_eq!(
                stats.subscriptions_begun,
                stats.subscriptions_ended + stats.subscriptions_failed,
                "{stats:?}"
            );
        }
        let mut raw = self.connection().await;
        eventually("a clean server", async || {
            let keys: usize = cmd("DBSIZE").query_async(&mut raw).await.unwrap();
            let channels: Vec<String> = cmd("PUBSUB").arg("CHANNELS").query_async(&mut raw).await.unwrap();
            keys == 0 && channels.is_empty()
        })
        .await;
    }
}

/// Waits for a renewal. The server then knows the script, so the next renewal runs on arrival.
pub(crate) async fn until_renewed(guard: &Guard) {
    let mut left = guard.remaining();
    eventually("a renewal", async || {
        let before = std::mem::replace(&mut left, guard.remaining());
        left > before
    })
    .await;
}

/// Asserts that the command may or may not have run.
#[track_caller]
pub(crate) fn assert_unknown(error: &LockError) {
    assert_eq!(cause(error).kind(), ErrorKind::Unknown, "{error:?}");
}
