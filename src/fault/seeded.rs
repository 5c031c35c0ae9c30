//! The faults, and which of them is seeded into this process.

use std::sync::OnceLock;

macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident,)*) => {
        /// What can be made to go wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($(#[$doc])* $fault,)*
        }

        impl Fault {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$fault,)*];
        }
    };
}

faults! {
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
    /// The waker that was published is not dropped when the wait ends.
    WakerOutlivesWait,
    /// Who is served while it sleeps is not woken.
    ServedNotWoken,
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
    /// What is retired is never freed.
    NeverFreed,
    /// A newcomer founds an entry without the channel's stripe.
    FoundsWithoutStripe,
    /// A newcomer, once it has the stripe, does not look whether somebody has founded the entry.
    NoLookWhoFounded,
    /// The last subscriber lets the channel's stripe go before it unsubscribes.
    UnsubscribesWithoutStripe,
    /// The last subscriber, once it has the stripe, does not look whether somebody has joined.
    NoLookWhoJoined,
    /// A subscriber that is not the last counts itself out in two steps.
    LeavesInTwoSteps,
    /// A newcomer joins an entry whose subscription has failed.
    JoinsTheFailed,
    /// The last one out of a failed entry takes the channel's entry away, whosever it is.
    AnyEntryIsOurs,
    /// What has failed is unsubscribed nevertheless.
    UnsubscribesTheFailed,
    /// Who waits for readiness is not told of it.
    SettledSilently,
    /// What is meant for all calls one.
    CallsOne,
    /// A listener's call dies with it.
    CallDiesWithListener,
    /// A call that comes while a listener is polled is not looked at.
    NoPollAfterWake,
    /// A release that was answered appoints the next waiter, whatever the phase is by then.
    NoPhaseCheck,
    /// A guard gives back whatever hold is in place, and a former queue head acts as the present one.
    NoSerialCheck,
    /// Other waiters of the owner that gets the lock stay in the queue.
    NoSameOwnerGrant,
    /// A lease is granted, or claimed, that was over by then.
    GrantedAfterDeadline,
    /// Tokens of the lease before are granted beside those of the present one.
    TokenBlockKept,
    /// A queue head that is dropped leaves what it asked for at the store.
    HeadForgetsItsAttempt,
    /// A hand-off to a waiter that is dropped at that moment is not passed on.
    HandOffDiesWithWaiter,
    /// The last waiter leaves with the lease that it was to go on with.
    LeaseDiesWithLastWaiter,
}

/// No model checker sees this; one fault to a process, set before there is a second thread.
static SEEDED: OnceLock<Fault> = OnceLock::new();

/// Seeds a fault into all that this process does from now on.
///
/// # Panics
///
/// If another one was seeded before.
pub fn seed(fault: Fault) {
    assert_eq!(*SEEDED.get_or_init(|| fault), fault, "one fault to a process");
}

pub(crate) fn is_seeded(fault: Fault) -> bool {
    SEEDED.get() == Some(&fault)
}
