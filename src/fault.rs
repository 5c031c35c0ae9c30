//! Faults that a model seeds into the real code, to see that it fails: each stands for a line that must not be lost.
//!
//! In every other build there are none: `fault!` is `false`, and the branch behind it is gone.

#[cfg(not(latchwork_loom))]
macro_rules! fault {
    ($fault:ident) => {
        false
    };
}

#[cfg(latchwork_loom)]
macro_rules! fault {
    ($fault:ident) => {
        $crate::fault::is_seeded($crate::fault::Fault::$fault)
    };
}

pub(crate) use fault;

/// What a model can have go wrong.
#[cfg(latchwork_loom)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A releaser that found nobody does not look at the row again.
    NoSecondLook,
    /// A waiter that has come leaves a releaser's mark.
    MarkNotWiped,
    /// A waiter that has come does not look at the counter.
    NoLookAtCounter,
    /// A waiter that has come does not look whether the semaphore was closed.
    NoLookAtClosed,
    /// A releaser takes a cell whose owner has not come yet for the end of the row.
    RowEndsAtWhoIsSlow,
    /// A releaser goes on to those behind an owner that has not come yet, and lets it come afterwards.
    SlowComesBehindOurBack,
    /// The looks are made without the one order that everybody agrees on.
    NoCommonOrder,
    /// The grant of a waiter that is dropped at that moment is not passed on.
    GrantDiesWithWaiter,
    /// What was laid into a cancelled waiter's cell is not passed on.
    GatheredDiesWithWaiter,
    /// An owner that has changed its waker does not look whether it was served meanwhile.
    PublishWithoutLook,
    /// A waker is published without Release.
    WakerNotPublished,
    /// A permit is handed over without Release.
    PermitCarriesNothing,
    /// A lowered capacity that finds too few free permits leaves no debt.
    NoDebt,
    /// Calls that a latch keeps add up.
    CallsAddUp,
    /// A segment is swept though a hint stands on it.
    SweptUnderHint,
    /// What is retired is freed though somebody reads it.
    FreedUnderReaders,
    /// A segment is swept though not all have left it.
    SweptUnderOwner,
    /// A sweeper that is done does not look again.
    SweeperDoesNotLookAgain,
}

#[cfg(latchwork_loom)]
std::thread_local! {
    // loom runs all threads of a model on one real thread.
    static SEEDED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Seeds a fault into all that this thread models from now on.
#[cfg(latchwork_loom)]
pub fn seed(fault: Fault) {
    SEEDED.set(Some(fault));
}

#[cfg(latchwork_loom)]
pub(crate) fn is_seeded(fault: Fault) -> bool {
    SEEDED.get() == Some(fault)
}
