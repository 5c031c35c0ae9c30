//! The lock for tasks and for threads, over stores in memory, over one that plays a part, and in a few files
//! over a server too. `cargo xtask test --quick` leaves out what is in a module `on_a_server` or
//! `needs_a_server`.

mod answers;
mod blocking;
mod composed;
mod debug;
mod ended;
mod errors;
mod fair_lock;
mod foreign;
mod hold_ends;
mod leases;
mod meanwhile;
mod messages;
mod metrics;
mod no_answer;
mod one_client;
#[path = "../over_local/mod.rs"]
mod over_local;
mod own_backend;
mod ownership;
#[path = "../polled/mod.rs"]
mod polled;
mod present;
mod prometheus;
mod questions;
mod queue_head;
mod read_write_wakers;
mod releases;
mod run;
mod traits;
mod unconfirmed;
#[path = "../waiting/mod.rs"]
mod waiting;
mod watchdog;
