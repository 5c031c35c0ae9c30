#[cfg(feature = "lock")]
#[macro_use]
pub(crate) mod trace;

#[cfg(any(feature = "lock", feature = "tokio"))]
pub(crate) mod budget;
pub(crate) mod counter;
pub(crate) mod event;
// Unit tests and builds for checks seed faults.
#[cfg(any(test, latchwork_loom, latchwork_suspend, latchwork_faults, latchwork_simulation))]
pub mod fault;
/// `fault!(Name)` is false in an ordinary build, and its branch is compiled away.
#[cfg(not(any(test, latchwork_loom, latchwork_suspend, latchwork_faults, latchwork_simulation)))]
pub mod fault {
    macro_rules! fault {
        ($fault:ident) => {
            false
        };
    }
    pub(crate) use fault;
}
pub(crate) mod foreign;
pub(crate) mod moment;
#[cfg(feature = "lock")]
pub(crate) mod runtime;
pub(crate) mod sync;
#[cfg(feature = "lock")]
pub(crate) mod unless;
