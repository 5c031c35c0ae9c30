//! Channels: wanted, confirmed and lingering subscriptions.
//!
//! ```text
//! Transport::subscribe ─► ChannelTable ─► subscriber ─► SUBSCRIBE
//!                             ▲              │
//!                             └──────────────┴─ confirmed, refused, messages
//!
//! with sharded messages:  ChannelTable ─► supervisor: which node has it? ─► that node's subscriber
//!                                             ▲                                 │
//!                                             └─ taken from us, node is gone ───┘
//! ```

mod channels;
mod subscriber;
mod supervisor;
mod transport;

pub use self::transport::RedisTransport;

/// Without heartbeats, only the test ends connections.
#[cfg(test)]
fn unhurried() -> std::sync::Arc<super::connection::Common> {
    use super::connection::{Common, Timing};
    use crate::support::runtime::TokioRuntime;
    let timing = Timing { heartbeat: std::time::Duration::from_secs(3600), ..Timing::unhurried() };
    std::sync::Arc::new(Common::new(timing, TokioRuntime::current()))
}

#[cfg(test)]
async fn topology_of(
    fake: &super::fake::Fake,
    common: &std::sync::Arc<super::connection::Common>,
) -> std::sync::Arc<dyn super::topology::Topology> {
    let (introduction, options) = Default::default();
    super::topology::connect(&fake.url(), introduction, options, common).await.unwrap()
}
