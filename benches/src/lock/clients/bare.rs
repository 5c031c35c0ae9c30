//! Our own scripts, without our client.

use std::time::Duration;

use super::raw::Pair;
use super::{Client, Many};

/// Sends our scripts with the same arguments, each by EVALSHA over a connection like ours: the difference to
/// ours is the client's cost, the difference to [`Raw`](super::Raw) that of the scripts.
#[derive(Debug)]
pub struct Bare(Pair);

const SCRIPTS: [&str; 2] = [
    include_str!("../../../../src/redis/scripts/acquire.lua"),
    include_str!("../../../../src/redis/scripts/release.lua"),
];

impl Client for Bare {
    const NAME: &'static str = "bare";
    const POLLS: Option<Duration> = None;
    type Guard = ();

    async fn connect(url: &str, name: &str) -> Self {
        Self(Pair::one(url, name, SCRIPTS).await)
    }

    async fn lock(&self) {
        self.0.lock(None).await;
    }

    async fn unlock(&self, (): ()) {
        let Pair { channel, owner, .. } = &self.0;
        let heard: i64 = self.0.unlock(|release| _ = release.arg(owner).arg(channel)).await;
        assert!(heard >= 0, "it was held");
    }
}

impl Many for Bare {
    async fn connect_all(url: &str, names: &[String]) -> Vec<Self> {
        Pair::all(url, names, SCRIPTS).await.into_iter().map(Self).collect()
    }
}
