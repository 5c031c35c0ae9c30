//! What the models share. See the README beside this crate for the table of models and how to run them.
//!
//! Without `--cfg latchwork_loom` this package is empty, so that it can be part of the workspace.
#![cfg(latchwork_loom)]

pub mod broken;

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Polls once. Models that end in *join, then assert* use this instead of `block_on`, which costs a hundred times as many
/// executions.
pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}
