//! Stores in memory and on a server, for tests of both.

use latchwork::local::Local;
use latchwork::redis::Redis;
use latchwork::{LockClient, LockOptions};
use latchwork_testkit::RedisServer;

/// A store with clients as in different processes.
pub(crate) enum Store {
    InMemory(Local),
    OnAServer(RedisServer),
}

impl Store {
    pub(crate) async fn client_with(&self, options: &LockOptions) -> LockClient {
        match self {
            Self::InMemory(local) => LockClient::with_options(local.clone(), options),
            Self::OnAServer(server) => {
                LockClient::with_options(Redis::connect(&server.url()).await.unwrap(), options)
            }
        }
        .unwrap()
    }

    pub(crate) async fn client(&self) -> LockClient {
        self.client_with(&LockOptions::default()).await
    }

    pub(crate) async fn two_clients(&self) -> [LockClient; 2] {
        [self.client().await, self.client().await]
    }
}

/// Runs each test over both stores.
macro_rules! on_each_store {
    ($($test:ident)*) => {
        mod in_memory {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(&crate::stores::Store::InMemory(latchwork::local::Local::new())).await;
                }
            )*
        }

        mod on_a_server {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    let server = latchwork_testkit::RedisServer::start();
                    super::$test(&crate::stores::Store::OnAServer(server)).await;
                }
            )*
        }
    };
}
pub(crate) use on_each_store;
