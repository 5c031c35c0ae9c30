//! Read-write locks over a real Redis under fault injection, with default options and timings.
//!
//! Writers queue as for a fair lock, and all of that lock's tests run here once more. The tests of readers
//! check: a writer excludes all others, no waiter waits for a free lock for longer than a position lasts, a
//! repeated command counts once, and no key is left at the server.

mod kind;
#[path = "../queued/mod.rs"]
mod queued;
mod readers;
