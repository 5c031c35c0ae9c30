//! `AsyncSemaphore` against a sequential model, on one thread: what its documentation promises, one operation
//! after the other.
//!
//! Used by `tests/semaphore/random.rs` and by the fuzz target, which includes this module by its path. Both
//! make their scripts of bytes, by one decoder. What needs interleavings is in loom-tests.

mod op;
mod run;
mod sequential;
mod subject;

pub(crate) use op::Script;
pub(crate) use run::run;
