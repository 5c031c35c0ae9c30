//! The Redis backend under fault injection: servers that die, stall, forget or refuse; faulty links; killed
//! processes; and unpolled futures. The tests mostly wait, so more of them run than there are cores.

#![allow(clippy::duplicate_mod, reason = "`queued` is there once for each kind of lock that has a queue")]

#[path = "../by_hand/mod.rs"]
mod by_hand;
mod calm;
mod chaos;
mod crowd;
mod day;
#[path = "../errors/mod.rs"]
mod errors;
mod fair;
#[path = "../kinds/mod.rs"]
mod kinds;
mod late_attempt;
mod lost_replies;
#[path = "../cluster/nodes.rs"]
#[allow(dead_code, unused_imports, reason = "those of plain locks use the rest")]
mod nodes;
mod outages;
mod read_write;
mod rerun;
mod unpolled;
#[path = "../waiting/mod.rs"]
mod waiting;
