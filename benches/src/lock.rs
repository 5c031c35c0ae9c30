//! The benchmark of the lock on Redis; the program is `src/bin/lock.rs`.
//!
//! * [`clients`]: the locks under comparison, behind one trait.
//! * [`semaphores`]: semaphores over Redis, behind another.
//! * [`scenarios`]: the measurements, one file each, as [`Figure`]s.
//! * [`server`], [`monitor`]: the shared server, and the count of its commands.
//! * [`children`], [`board`], [`turns`], [`convoy`], [`reading`]: processes that take turns, or read
//!   together, and the board that proves it.

pub mod board;
pub mod children;
pub mod clients;
pub mod convoy;
pub mod figure;
pub mod monitor;
pub mod reading;
pub mod scenarios;
pub mod semaphores;
pub mod server;
pub mod turns;

pub use self::figure::Figure;

/// A single-threaded runtime, as in the processes of most scenarios, which share two cores with the server.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}
