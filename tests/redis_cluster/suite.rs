//! The suite for every backend, with both kinds of messages.

use std::sync::LazyLock;

use latchwork::redis::{Redis, ShardedMessages};
use latchwork::{LockClient, LockOptions};
use latchwork_testkit::RedisCluster;

use crate::conformance::Store;
use crate::nodes;

/// One for all tests of this file; it ends with the process.
static CLUSTER: LazyLock<RedisCluster> = LazyLock::new(|| RedisCluster::start_with(&[]));

struct OnCluster(ShardedMessages);

impl Store for OnCluster {
    type Backend = Redis;

    async fn client_with(&self, options: &LockOptions) -> LockClient {
        nodes::client_with(&CLUSTER, self.0, options).await
    }

    async fn subscribers(&self, channel: &str) -> usize {
        nodes::subscribers(&CLUSTER, channel)
    }
}

mod plain {
    use super::{OnCluster, ShardedMessages};
    use crate::conformance::{self, conformance};

    conformance!(OnCluster(ShardedMessages::Off));
}

mod sharded {
    use super::{OnCluster, ShardedMessages};
    use crate::conformance::{self, conformance};

    conformance!(OnCluster(ShardedMessages::Auto));
}

mod fair_plain {
    use super::{OnCluster, ShardedMessages};
    use crate::conformance::{self, conformance_of_every_kind};

    conformance_of_every_kind!(conformance::Fair(OnCluster(ShardedMessages::Off)));
}

mod fair_sharded {
    use super::{OnCluster, ShardedMessages};
    use crate::conformance::{self, conformance_of_every_kind};

    conformance_of_every_kind!(conformance::Fair(OnCluster(ShardedMessages::Auto)));
}
