//! The only module to name `std::sync::atomic` or loom.
//!
//! All lock-free code of this crate takes its atomics, cells and queues from here, so `--cfg latchwork_loom`
//! replaces them by types visible to the model checker. An atomic taken from std elsewhere would be
//! invisible, and a model would pass whatever the code does; `tests/tidy` prevents this. With `--cfg
//! latchwork_suspend`, the types are std's, and a thread can be stopped before any access.

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
