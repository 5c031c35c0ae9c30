//! The Redis backend on a real server, by the suite for every backend.

mod conformance;

use std::sync::LazyLock;

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
        LockClient::with_options(Redis::connect(&SERVER.url()).await.unwrap(), options).unwrap()
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
