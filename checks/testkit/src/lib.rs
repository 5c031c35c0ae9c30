//! Real Redis servers for tests, benches and `cargo xtask`.
//!
//! A [`RedisServer`] listens on a loopback port of its own, keeps nothing on disk, and ends with its owner:
//! on drop, on a panic, on `process::exit`, and when the owner is killed with SIGKILL. Any number of servers,
//! in any number of processes, run side by side. Unix only, as Redis is.
//!
//! A [`RedisCluster`] consists of several servers. A [`ChaosProxy`] is a faulty network before a server, a
//! [`ServerClock`] a clock that a test sets while the server runs. A [`SentinelSet`] is a master with a
//! replica, and three Sentinels that monitor both.

mod chaos;
mod clock;
mod cluster;
mod error;
mod find;
mod port;
mod process;
mod ready;
mod run;
mod sentinel;
mod server;
mod wakers;

pub use chaos::{Afterwards, ChaosProxy, Cut, Link, Way};
pub use clock::ServerClock;
pub use cluster::RedisCluster;
pub use error::StartError;
pub use find::{NotFound, SERVER_VARIABLE, find_server, is_older_than_7};
pub use process::{pause, resume};
pub use sentinel::SentinelSet;
pub use server::RedisServer;
pub use wakers::{Bell, waker};
