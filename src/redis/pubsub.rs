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
