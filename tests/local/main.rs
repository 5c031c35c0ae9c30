//! The store in memory: the suites for every backend, random programs and attacks, and the runtime's tasks.

mod differential;
mod fair_attack;
mod many;
#[path = "../over_local/mod.rs"]
mod over_local;
#[path = "../polled/mod.rs"]
mod polled;
mod read_write;
mod read_write_attack;
mod runtime;
mod suite;
