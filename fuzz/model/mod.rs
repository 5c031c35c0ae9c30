//! `AsyncSemaphore` against a sequential model, on one thread: the promises of its documentation, operation
//! by operation.
//!
//! A script is a string of bytes. Properties of interleavings are in loom-tests.

mod op;
mod run;
mod sequential;
mod subject;

pub(crate) use op::Script;
pub(crate) use run::run;
