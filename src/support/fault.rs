//! Faults seeded into the real code, to see that a check fails: each removes a necessary line. Loom's models
//! detect the faults here. All others are in `checks/defects/faults.txt`, woven into a copy of the code.

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
        /// The faults that can be seeded.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($($(#[$doc])* $fault,)*)*
        }

        impl Fault {
            /// All faults.
            pub const ALL: &[Self] = &[$($(Self::$fault,)*)*];

            $(
                $(#[$of])*
                pub const $group: &[Self] = &[$(Self::$fault,)*];
            )*
        }
    };
}

faults! {
    /// Faults of the semaphore and of types built on it alone.
    SEMAPHORE {
        /// A walk that has reached the end of the queue goes on to an outdated tail.
        WalkToOldTail,
        /// Neither an enqueued nor a cancelled waiter rechecks the credit.
        NoLook,
        /// A settler that finds the first waiter blocked relies on an outdated credit.
        BlockedByOldCredit,
        /// A settler locks the queue, and other settlers wait.
        SettlesUnderLock,
        /// A release grants before it credits its permits.
        CreditsAfterGrants,
        /// Each waiter is woken before the grant to the next.
        WakesAsItGoes,
        /// A settler does not recheck for a close between the credit and a grant.
        NoLookAtClosed,
        /// The grant of a waiter dropped at the same moment is not passed on.
        GrantDiesWithWaiter,
        /// A cancelled waiter's deficit is lost.
        DeficitDiesWithWaiter,
        /// An owner that has changed its waker does not recheck for the end of its wait.
        PublishWithoutLook,
        /// An owner that has changed its waker mistakes a concurrent deficit for the end of its wait.
        DeficitEndsWait,
        /// A deficit is added as to a sleeping waiter, though its owner is at the waker's slot.
        DeficitForgetsOwner,
        /// The waker of a wait that ended during its change is not dropped.
        WakerOutlivesWait,
        /// A granted waiter is not woken.
        GrantedNotWoken,
        /// Helpers do not complete links that their publishers have not set yet.
        LinkNotCompleted,
        /// A thread learns of the close before the waiters do.
        ClosedNotSettled,
        /// A closed waiter leaves later waiters to the closing thread.
        ClosedPollDoesNotSettle,
        /// A try fails instead of settling.
        TryWithoutSettle,
        /// Free permits are counted without a second read of the consumed count.
        FreeReadOnce,
        /// A lowered capacity removes free permits only.
        OnlyFreeReduced,
        /// Of two threads that lower the capacity at once, the second does not return its excess.
        LoweredTwice,
        /// Pending notifications of a latch add up.
        NotificationsAddUp,
        /// A notification counts pending ones as its own, though they are consumed meanwhile.
        PendingCountsAsGiven,
        /// Nodes are freed during a walk.
        FreedUnderWalkers,
        /// Nodes are freed after one round, in which a walker may have set the hint to a freed node.
        FreedInOneRound,
        /// The walks' start hint keeps a removed node.
        HintOutlivesNode,
        /// The start hint keeps a removed node if the hint is marked as not known to be final.
        MarkedHintOutlivesNode,
        /// A node is removed before its owner has left.
        SweptUnderOwner,
        /// A session ends though the tail's owner has not left.
        SessionEndsUnderOwner,
        /// A session ends though other nodes than the tail remain.
        SessionForgetsNodes,
        /// A replaced deficit is not freed with its replacement.
        ReplacedOutlivesDeficit,
        /// The last permit of a closed semaphore comes back, and no draining task is woken.
        LastReleaseNotTold,
        /// A draining task counts the held permits before it publishes where it waits.
        CountsBeforePlace,
        /// Held permits are counted though the consumption has changed meanwhile.
        HeldReadOnce,
        /// A call that may bring back the last permit counts the held permits before reading of the close.
        CountsWhileOpen,
        /// A dropped semaphore does not free its queue.
        NeverFreed,
    }
    /// Faults of channels that show only with two threads or callbacks.
    THREADS {
        /// A newcomer creates an entry without the channel's stripe.
        FoundsWithoutStripe,
        /// A newcomer with the stripe does not recheck for another creator.
        NoLookWhoFounded,
        /// The last subscriber releases the channel's stripe before it unsubscribes.
        UnsubscribesWithoutStripe,
        /// The last subscriber with the stripe does not recheck for a newcomer.
        NoLookWhoJoined,
        /// A subscriber that is not the last decrements the count in two steps.
        LeavesInTwoSteps,
        /// A dropped listener's notification is lost.
        CallDiesWithListener,
        /// A notification during a listener's poll is not polled for.
        NoPollAfterWake,
    }
    /// Faults of channels and their messages.
    CHANNELS {
        /// A newcomer joins an entry with a failed subscription.
        JoinsTheFailed,
        /// The last subscriber of a failed entry removes the channel's entry, even a later one.
        AnyEntryIsOurs,
        /// A failed subscription is unsubscribed.
        UnsubscribesTheFailed,
        /// A task waiting for readiness is not notified.
        SettledSilently,
        /// A notification for all waiters wakes one.
        CallsOne,
        /// A waiter looks for messages for all before it joins the queue, and not after.
        LooksBeforeQueueing,
        /// A resubscription after a possible loss of messages wakes no waiter.
        ResubscribedSilently,
        /// A notification received and not consumed by a waiter is lost with the waiter.
        NotificationDiesWithWaiter,
    }
    /// Faults of a lock within a process that show only with two threads.
    ENTRY {
        /// A newcomer overlooks a call that asks the store at the same time.
        ClaimOverlooked,
        /// An answered release leaves the entry idle, though others have come meanwhile.
        ReturnedUnseen,
    }
}

impl Fault {
    /// Returns the fault called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|fault| format!("{fault:?}") == name)
    }
}

/// Environment variable with the fault of a process that does not call [`seed`].
const VARIABLE: &str = "LATCHWORK_FAULT";

/// Invisible to model checkers: one fault per process, fixed before a second thread starts.
static SEEDED: OnceLock<Option<Fault>> = OnceLock::new();

/// Seeds a fault for the rest of this process.
///
/// # Panics
///
/// If the process has another fault, or has run code without a fault.
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

/// Begins an execution of a model: frees the memory kept by the previous one.
#[cfg(latchwork_loom)]
pub fn begin_execution() {
    crate::support::sync::begin_execution();
}

/// Runs the exit function of a model's thread, as at the end of a real thread.
#[cfg(latchwork_loom)]
pub fn end_thread() {
    crate::support::sync::end_thread();
}
