//! Faults that a check seeds into the real code, to see that it fails: each stands for a line that must not
//! be lost. The faults here are found by loom's models, which are built of this very code. All other faults
//! are in `checks/defects/faults.txt`, whose texts are woven into a copy of the code.

use std::env;
use std::sync::OnceLock;

macro_rules! fault {
    ($fault:ident) => {
        $crate::support::fault::is_seeded($crate::support::fault::Fault::$fault)
    };
}

pub(crate) use fault;

macro_rules! faults {
    ($($(#[$of:meta])* $group:ident { $($(#[$doc:meta])* $fault:ident,)* })*) => {
        /// What can be made to go wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($($(#[$doc])* $fault,)*)*
        }

        impl Fault {
            /// All of them.
            pub const ALL: &[Self] = &[$($(Self::$fault,)*)*];

            $(
                $(#[$of])*
                pub const $group: &[Self] = &[$(Self::$fault,)*];
            )*
        }
    };
}

faults! {
    /// Of the semaphore, and of what stands on it alone.
    SEMAPHORE {
        /// A walk that has come to the end of the queue goes on to the tail that it has read before.
        WalkToOldTail,
        /// Neither a waiter that has enqueued nor one that has cancelled looks at the credit.
        NoLook,
        /// A settler that finds the first waiter blocked goes by the credit that it has read before.
        BlockedByOldCredit,
        /// A settler claims the queue for itself, and others wait until it is done.
        SettlesUnderLock,
        /// A release grants first, and credits its permits afterwards.
        CreditsAfterGrants,
        /// Each waiter is woken before the next one is granted its permits.
        WakesAsItGoes,
        /// A settler does not look whether the semaphore was closed between the credit and a grant.
        NoLookAtClosed,
        /// The grant of a waiter that is dropped at that moment is not passed on.
        GrantDiesWithWaiter,
        /// A deficit is forgotten with the waiter that it was added to.
        DeficitDiesWithWaiter,
        /// An owner that has changed its waker does not look whether its wait has ended meanwhile.
        PublishWithoutLook,
        /// An owner that has changed its waker takes a deficit that came meanwhile for the end of its wait.
        DeficitEndsWait,
        /// A deficit is added as if the waiter slept, though its owner is at the waker's slot.
        DeficitForgetsOwner,
        /// The waker of a wait that ended while it was changed is not dropped.
        WakerOutlivesWait,
        /// A waiter that is granted its permits is not woken.
        GrantedNotWoken,
        /// Helpers leave links alone that their publishers have not set yet.
        LinkNotCompleted,
        /// A thread is told that the semaphore is closed, though waiters were not.
        ClosedNotSettled,
        /// A waiter that was closed leaves those behind it to the thread that closes.
        ClosedPollDoesNotSettle,
        /// A try fails where it would have to settle.
        TryWithoutSettle,
        /// A try fails by a credit that was read before what is consumed.
        CreditReadBeforeEnd,
        /// Free permits are counted without a second look at what was consumed.
        FreeReadOnce,
        /// A lowered capacity takes out what is free, and nothing else.
        OnlyFreeReduced,
        /// What two threads took out that lowered the capacity at once is not given back by the second one.
        LoweredTwice,
        /// Notifications that a latch keeps add up.
        NotificationsAddUp,
        /// A notification counts those that were pending as its own, though they are taken meanwhile.
        PendingCountsAsGiven,
        /// Nodes are freed under a walker.
        FreedUnderWalkers,
        /// Nodes are freed after one round, so that a walker may have set the hint to one in between.
        FreedInOneRound,
        /// The hint where walks start is not cleared of a node that was taken out.
        HintOutlivesNode,
        /// The same where the hint says that the node was not known to be final.
        MarkedHintOutlivesNode,
        /// A node is taken out though its owner has not left it.
        SweptUnderOwner,
        /// A deficit that was replaced, and not freed then, is not freed with the one that replaced it.
        ReplacedOutlivesDeficit,
        /// What a semaphore has in its queue is not freed with it.
        NeverFreed,
    }
    /// Of channels, where two threads are needed to see them, or callbacks.
    THREADS {
        /// A newcomer founds an entry without the channel's stripe.
        FoundsWithoutStripe,
        /// A newcomer, once it has the stripe, does not look whether another has founded the entry.
        NoLookWhoFounded,
        /// The last subscriber lets the channel's stripe go before it unsubscribes.
        UnsubscribesWithoutStripe,
        /// The last subscriber, once it has the stripe, does not look whether another has joined.
        NoLookWhoJoined,
        /// A subscriber that is not the last counts itself out in two steps.
        LeavesInTwoSteps,
        /// A listener's call dies with it.
        CallDiesWithListener,
        /// A call that comes while a listener is polled is not looked at.
        NoPollAfterWake,
    }
    /// Of channels and their messages.
    CHANNELS {
        /// A newcomer joins an entry whose subscription has failed.
        JoinsTheFailed,
        /// The last one out of a failed entry takes the channel's entry away, even a later one.
        AnyEntryIsOurs,
        /// What has failed is unsubscribed nevertheless.
        UnsubscribesTheFailed,
        /// A task that waits for readiness is not told of it.
        SettledSilently,
        /// What is meant for all calls one.
        CallsOne,
        /// A subscription that is back after messages may have been lost wakes no waiter.
        ResubscribedSilently,
        /// A notification that a waiter has received, and not answered, ends with it.
        NotificationDiesWithWaiter,
    }
    /// Of a lock inside of a process, where two threads are needed to see them.
    ENTRY {
        /// A newcomer does not see that a call asks the store for another one.
        ClaimOverlooked,
        /// A release that was answered leaves the entry idle, though others have come meanwhile.
        ReturnedUnseen,
    }
}

impl Fault {
    /// The fault of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|fault| format!("{fault:?}") == name)
    }
}

/// Names the fault of a process in which [`seed`] is not called.
const VARIABLE: &str = "LATCHWORK_FAULT";

/// No model checker sees this; one fault to a process, known before there is a second thread.
static SEEDED: OnceLock<Option<Fault>> = OnceLock::new();

/// Seeds a fault into all that this process does from now on.
///
/// # Panics
///
/// If the process has another one, or has run without.
pub fn seed(fault: Fault) {
    assert_eq!(*SEEDED.get_or_init(|| Some(fault)), Some(fault), "one fault to a process");
}

pub(crate) fn is_seeded(fault: Fault) -> bool {
    *SEEDED.get_or_init(named_by_environment) == Some(fault)
}

fn named_by_environment() -> Option<Fault> {
    let name = env::var(VARIABLE).ok()?;
    Some(Fault::named(&name).unwrap_or_else(|| panic!("{VARIABLE}={name}: this build has no such fault")))
}

/// Each execution of a model begins with this: what the last one has kept is freed.
#[cfg(latchwork_loom)]
pub fn begin_execution() {
    crate::support::sync::begin_execution();
}

/// Does what a real thread does at its end, for a thread of a model.
#[cfg(latchwork_loom)]
pub fn end_thread() {
    crate::support::sync::end_thread();
}
