//! What the benchmark of the lock on Redis is made of; the program is `src/bin/lock.rs`.
//!
//! * [`clients`]: the locks under comparison, behind one trait.
//! * [`scenarios`]: what is measured, one file each, as [`Figure`]s.
//! * [`server`], [`monitor`]: the server they all meet on, and the count of what it is sent.
//! * [`children`], [`board`], [`turns`], [`convoy`], [`reading`]: processes that take turns, or read
//!   together, and what shows that they do.

pub mod board;
pub mod children;
pub mod clients;
pub mod convoy;
pub mod figure;
pub mod monitor;
pub mod reading;
pub mod scenarios;
pub mod server;
pub mod turns;

pub use self::figure::Figure;

/// A runtime on this thread, as the processes of most scenarios have it: two cores are shared by them and the
/// server.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}
