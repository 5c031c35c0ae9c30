//! The one place that names `std::sync::atomic` or loom.
//!
//! Everything lock-free in this crate takes its atomics, cells and queues from here, so that
//! `--cfg latchwork_loom` swaps them all for ones the model checker sees. An atomic taken from std elsewhere
//! would be invisible to it, and a model over it would pass whatever the code does; `tests/tidy` keeps that
//! from happening. With `--cfg latchwork_suspend` they are std's, and a thread can be stopped before any
//! access.

#[cfg(any(latchwork_loom, latchwork_suspend))]
pub(crate) mod atomic;
#[cfg(latchwork_loom)]
mod loom;
#[cfg(not(latchwork_loom))]
mod std;
#[cfg(latchwork_suspend)]
pub(crate) mod suspend;

#[cfg(latchwork_loom)]
pub(crate) use self::loom::*;
#[cfg(not(any(latchwork_loom, latchwork_suspend)))]
pub(crate) use self::std::*;
#[cfg(latchwork_suspend)]
pub(crate) use self::suspend::*;
