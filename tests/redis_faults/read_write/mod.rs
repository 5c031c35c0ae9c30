//! Read-write locks over a real Redis under fault injection, with default options and timings.
//!
//! A writer waits in a queue as for a fair lock, and all that must hold of those is tried here once more.
//! Then there are the readers: a writer excludes all others, a free lock is not waited for longer than a
//! position lasts, what was lost counts once, and nothing is left at the server.

mod downgrades;
mod generations;
mod kind;
#[path = "../queued/mod.rs"]
mod queued;
mod readers;
mod replaced_readers;
mod turns;
