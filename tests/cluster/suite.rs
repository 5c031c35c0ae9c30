//! The conformance suite on a Cluster, with both kinds of messages.

use std::sync::LazyLock;

use latchwork::redis::{Redis, ShardedMessages};
use latchwork_conformance::Store;
use latchwork_testkit::RedisCluster;

use crate::nodes;

static CLUSTER: LazyLock<RedisCluster> = LazyLock::new(|| RedisCluster::start_with(&[]));

struct OnCluster(ShardedMessages);

impl Store for OnCluster {
    type Backend = Redis;

    async fn connect(&self) -> Redis {
        nodes::redis(&CLUSTER, self.0).await
    }

    async fn subscribers(&self, channel: &str) -> usize {
        nodes::subscribers(&CLUSTER, channel)
    }

    fn block_on<T>(&self, property: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(property)
    }
}

macro_rules! parts {
    ($($module:ident: $part:ident, $messages:ident;)*) => {
        $(mod $module {
            use super::*;

            latchwork_conformance::part!($part: OnCluster(ShardedMessages::$messages));
        })*
    };
}

// Permits by sharded messages only: of plain ones no node knows all listeners, as a property expects.
parts! {
    plain: plain, Off;
    sharded: plain, Auto;
    fair_plain: fair, Off;
    fair_sharded: fair, Auto;
    permits_sharded: permits, Auto;
}
