//! Fair locks over a real Redis, on bad days, with the options and timings that everybody has: processes that are killed or stand still, links
//! that are cut or fall silent, replies that are lost, servers that forget, stand still or are replaced, and futures that nobody polls.
//!
//! What must hold on each of them: no two have the lock at a time, nobody waits beside a free lock for longer than a position in its queue
//! lasts, everybody who still waits gets the lock in the end, and nothing is left at the server.

mod beliefs;
#[path = "../by_hand/mod.rs"]
mod by_hand;
#[cfg(target_os = "linux")]
mod clock;
mod cluster;
#[path = "../redis_chaos/day.rs"]
#[allow(dead_code, reason = "those of plain locks use the rest")]
mod day;
mod forgotten;
mod forked;
mod futures;
mod kind;
mod links;
#[path = "../redis_cluster/nodes.rs"]
#[allow(dead_code, unused_imports, reason = "those of plain locks use the rest")]
mod nodes;
mod processes;
mod replaced;
mod replies;
mod stage;
#[path = "../waiting/mod.rs"]
mod waiting;

use day::SOON;
