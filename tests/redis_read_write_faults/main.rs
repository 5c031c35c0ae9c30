//! Read-write locks over a real Redis, on bad days, with the options and timings that everybody has.
//!
//! Whoever writes waits in a queue as for a fair lock, and all that must hold of those is tried here once more. Then there are those who read.
//! What must hold for them: nobody writes beside anybody else, nobody waits beside a free lock for longer than a position lasts, what was lost
//! counts once, and nothing is left at the server.

#[path = "../redis_fair_faults/beliefs.rs"]
mod beliefs;
#[path = "../by_hand/mod.rs"]
mod by_hand;
#[cfg(target_os = "linux")]
#[path = "../redis_fair_faults/clock.rs"]
mod clock;
#[path = "../redis_fair_faults/cluster.rs"]
mod cluster;
#[path = "../redis_chaos/day.rs"]
#[allow(dead_code, reason = "those of plain locks use the rest")]
mod day;
mod downgrades;
#[path = "../redis_fair_faults/forgotten.rs"]
mod forgotten;
#[path = "../redis_fair_faults/forked.rs"]
mod forked;
#[path = "../redis_fair_faults/futures.rs"]
mod futures;
mod generations;
mod killed;
mod kind;
#[path = "../redis_fair_faults/links.rs"]
mod links;
#[path = "../redis_cluster/nodes.rs"]
#[allow(dead_code, unused_imports, reason = "those of plain locks use the rest")]
mod nodes;
#[path = "../redis_fair_faults/processes.rs"]
mod processes;
mod readers;
#[path = "../redis_fair_faults/replaced.rs"]
mod replaced;
mod replaced_readers;
#[path = "../redis_fair_faults/replies.rs"]
mod replies;
#[path = "../redis_fair_faults/stage.rs"]
mod stage;
mod turns;
#[path = "../waiting/mod.rs"]
mod waiting;

use day::SOON;
