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
    /// The waker of a wait that ended while it was changed is not dropped.
    WakerOutlivesWait,
    /// A waiter that is granted its permits is not woken.
    GrantedNotWoken,
    /// Helpers leave links alone that their publishers have not set yet.
    LinkNotCompleted,
    /// A thread is told that the semaphore is closed, though waiters were not.
    ClosedNotSettled,
    /// A try fails where it would have to settle.
    TryWithoutSettle,
    /// A try fails by a credit that was read before what is consumed.
    CreditReadBeforeEnd,
    /// Free permits are counted without a second look at what was consumed.
    FreeReadOnce,
    /// A lowered capacity takes out what is free, and nothing else.
    OnlyFreeReduced,
    /// Notifications that a latch keeps add up.
    NotificationsAddUp,
    /// A notification counts those that were pending as its own, though they are taken meanwhile.
    PendingCountsAsGiven,
    /// Nodes are freed though somebody walks over them.
    FreedUnderWalkers,
    /// Nodes are freed after one round, so that a walker may have set the hint to one in between.
    FreedInOneRound,
    /// The hint where walks start is not cleared of a node that was taken out.
    HintOutlivesNode,
    /// The same where the hint says that the node was not known to be final.
    MarkedHintOutlivesNode,
    /// A node is taken out though its owner has not left it.
    SweptUnderOwner,
    /// What a semaphore has in its queue is not freed with it.
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
    /// A look is said to be due once, and not again when its time has passed.
    LookSaidOnce,
    /// A queue head that was put into the store's queue takes it for a refusal that leaves nothing at the store.
    PositionForgotten,
    /// A number whose position may have ended goes on to be used.
    LapsedNumberKept,
    /// An attempt that did not run counts for those before it, too.
    AttemptsBeforeForgotten,
    /// What the store has granted, or put into its queue, is not rolled back if the waiter has left meanwhile.
    AnswerDiesWithWaiter,
    /// A waiter that was named with a release is granted a lease that is over by then.
    NamedGrantedLate,
    /// A waiter that was named with a release is not told that it failed.
    NamedNotTold,
    /// Newcomers join those who share a lock for as long as somebody has it.
    TenureNeverEnds,
    /// Those beside go on by the lease in hand, however early that ends.
    GatheredUnderShorterLease,
    /// A shared lease that is longer than a renewed one is left as others may have cut it.
    CutNotMended,
    /// The lease that those beside had is not given back when they go on by another one.
    GatheredLeaseKept,
    /// Whoever leaves a shared hold gives its lease back, though others have it, too.
    OneLeavesForAll,
    /// A queue head that gives up does not say so to a store that remembers it.
    WaitForgotten,
    /// Who waits for one answer only is not told it.
    TriesKept,
    /// An owner that gets a lease outside of the queue leaves its waiters there.
    NobodyRecalled,
    /// Those who are let in together with a hold of long ago are looked after as if they had been let in as long ago.
    GrantedLongAgo,
    /// A hold that is given back by name takes another owner's along.
    GivenBackForAnother,
    /// What the store may have by commands that were not answered does not count when a lease ends.
    UnconfirmedForgotten,
    /// A lease is released, and not rolled back, though a command that leases it anew may still run.
    UnsettledReleased,
    /// A queue head forgets attempts that were not answered when a later one is.
    UnansweredAttemptsForgotten,
    /// An owner keeps the lock for as long as its lease lasts, though the leases of its own are over and nobody has it renewed.
    OwnEndsForgotten,
    /// A lease goes on to a waiter that wants a shorter one.
    LongerLeasePassedOn,
    /// A store that sets a lease to what it is told is told what was known before an extension that is under way.
    LeasedAnewForLess,
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
