//! The only module to name `std::sync::atomic` or loom. All lock-free code of this crate takes its atomics,
//! cells and queues from here: `--cfg latchwork_loom` makes them visible to the model checker, and `--cfg
//! latchwork_suspend` lets a thread stop before any access. A model does not see an atomic taken from std,
//! and would pass whatever the code does; `tests/tidy` prevents this.

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
