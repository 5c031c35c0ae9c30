//! The store in memory: the suites for every backend, random programs and attacks, and the runtime's tasks.

mod attack;
mod differential;
mod many;
#[path = "../over_local/mod.rs"]
mod over_local;
#[path = "../polled/mod.rs"]
mod polled;
mod read_write;
mod runtime;
mod suite;
