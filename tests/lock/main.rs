//! The lock for tasks and threads, over stores in memory, scripted stores and a server. `cargo xtask test
//! --quick` skips the modules `on_a_server` and `needs_a_server`.

mod answers;
mod blocking;
#[path = "../clashing/mod.rs"]
mod clashing;
mod composed;
mod debug;
mod drain;
mod ended;
mod errors;
mod fair_lock;
mod foreign;
mod hold_ends;
mod leases;
mod meanwhile;
mod messages;
mod metrics;
mod multi;
mod no_answer;
mod on_permits;
#[path = "../over_local/mod.rs"]
mod over_local;
mod own_backend;
mod ownership;
#[path = "../permits/mod.rs"]
mod permits;
#[path = "../polled/mod.rs"]
mod polled;
mod present;
mod prometheus;
mod questions;
mod queue_head;
mod read_write_wakers;
mod releases;
mod run;
mod runtimes;
mod stage;
mod stores;
mod traits;
mod unconfirmed;
#[path = "../waiting/mod.rs"]
mod waiting;
mod watchdog;
