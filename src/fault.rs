//! Faults that a check seeds into the real code, to see that it fails: each stands for a line that must not be lost.
//!
//! In every other build but that of this crate's own unit tests there are none: `fault!` is `false`, and the branch behind it is gone.

#[cfg(not(any(
    test,
    latchwork_loom,
    latchwork_shuttle,
    latchwork_suspend,
    latchwork_faults,
    latchwork_simulation
)))]
macro_rules! fault {
    ($fault:ident) => {
        false
    };
}

#[cfg(any(
    test,
    latchwork_loom,
    latchwork_shuttle,
    latchwork_suspend,
    latchwork_faults,
    latchwork_simulation
))]
macro_rules! fault {
    ($fault:ident) => {
        $crate::fault::is_seeded($crate::fault::Fault::$fault)
    };
}

pub(crate) use fault;

#[cfg(any(
    test,
    latchwork_loom,
    latchwork_shuttle,
    latchwork_suspend,
    latchwork_faults,
    latchwork_simulation
))]
mod seeded;
#[cfg(any(
    test,
    latchwork_loom,
    latchwork_shuttle,
    latchwork_suspend,
    latchwork_faults,
    latchwork_simulation
))]
pub(crate) use self::seeded::is_seeded;
#[cfg(any(
    test,
    latchwork_loom,
    latchwork_shuttle,
    latchwork_suspend,
    latchwork_faults,
    latchwork_simulation
))]
pub use self::seeded::{Fault, seed};

/// Each execution of a model begins with this: what the last one has kept is freed.
#[cfg(any(latchwork_loom, latchwork_shuttle))]
pub fn begin_execution() {
    crate::sync::begin_execution();
}

/// Does what a real thread does at its end, for a thread of a model.
#[cfg(any(latchwork_loom, latchwork_shuttle))]
pub fn end_thread() {
    crate::sync::end_thread();
}
