//! The store in memory: the suites for every backend, programs and attacks that are drawn, and what its
//! runtime does with tasks.

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
