//! `AsyncSemaphore` against a sequential model, on one thread: what its documentation promises, one operation
//! after the other.
//!
//! A script is made of bytes. What needs interleavings is in loom-tests.

mod op;
mod run;
mod sequential;
mod subject;

pub(crate) use op::Script;
pub(crate) use run::run;
