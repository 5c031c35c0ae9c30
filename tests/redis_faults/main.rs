//! The Redis backend under fault injection: servers that end, stand still, forget or refuse, links between
//! that are cut or fall silent, processes that are killed, and futures that are not polled.
//!
//! Most of the time these tests wait, for times that are the default ones. `cargo xtask test` runs more of
//! them at a time than there are cores.

#![allow(clippy::duplicate_mod, reason = "`queued` is there once for each kind of lock that has a queue")]

#[path = "../by_hand/mod.rs"]
mod by_hand;
mod calm;
mod chaos;
mod crowd;
mod day;
mod fair;
mod late_attempt;
mod late_release;
mod lost_replies;
#[path = "../cluster/nodes.rs"]
#[allow(dead_code, unused_imports, reason = "those of plain locks use the rest")]
mod nodes;
mod outages;
mod read_write;
mod rerun;
mod server;
mod unpolled;
#[path = "../waiting/mod.rs"]
mod waiting;
