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

mod plain {
    use super::*;

    latchwork_conformance::part!(plain: OnCluster(ShardedMessages::Off));
}

mod sharded {
    use super::*;

    latchwork_conformance::part!(plain: OnCluster(ShardedMessages::Auto));
}

mod fair_plain {
    use super::*;

    latchwork_conformance::part!(fair: OnCluster(ShardedMessages::Off));
}

mod fair_sharded {
    use super::*;

    latchwork_conformance::part!(fair: OnCluster(ShardedMessages::Auto));
}

// By sharded messages only: of plain ones no node knows all listeners, as a property expects.
mod permits_sharded {
    use super::*;

    latchwork_conformance::part!(permits: OnCluster(ShardedMessages::Auto));
}
