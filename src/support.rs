#[cfg(feature = "lock")]
#[macro_use]
pub(crate) mod trace;

#[cfg(any(feature = "lock", feature = "tokio"))]
pub(crate) mod budget;
pub(crate) mod counter;
pub(crate) mod event;
// `fault!(Name)` is `false` in an ordinary build. Unit tests and builds for checks seed faults.
#[cfg_attr(
    any(test, latchwork_loom, latchwork_suspend, latchwork_faults, latchwork_simulation),
    path = "support/fault/seeded.rs"
)]
pub mod fault;
pub(crate) mod foreign;
pub(crate) mod moment;
#[cfg(feature = "lock")]
pub(crate) mod runtime;
pub(crate) mod sync;
pub(crate) mod unless;
