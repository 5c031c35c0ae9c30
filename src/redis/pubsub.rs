//! Channels: which are desired, which are confirmed, and how long they linger.
//!
//! ```text
//! Transport::subscribe ─► Desired ─► supervisor: which node has it? ─► that node's subscriber ─► SUBSCRIBE
//!                            ▲                     ▲                              │
//!                            └── confirmed, refused, messages ────────────────────┤
//!                                                  └── taken from us, node is gone ┘
//! ```

mod deliveries;
mod desired;
mod subscriber;
mod supervisor;
mod transport;

pub use self::transport::RedisTransport;

/// As a client finds it by the URL.
#[cfg(test)]
async fn topology_of(
    fake: &super::fake::Fake,
    common: &std::sync::Arc<super::connection::Common>,
) -> std::sync::Arc<dyn super::topology::Topology> {
    let (introduction, options) = Default::default();
    super::topology::connect(&fake.url(), introduction, options, common).await.unwrap()
}
