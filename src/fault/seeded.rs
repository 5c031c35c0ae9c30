//! Faults that a check seeds into the real code, to see that it fails: each stands for a line that must not
//! be lost.

use std::sync::OnceLock;

macro_rules! fault {
    ($fault:ident) => {
        $crate::fault::is_seeded($crate::fault::Fault::$fault)
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
    /// Of a lock inside of a process: of its queue, its holds and its leases.
    ENTRY {
        /// A release that was answered appoints the next waiter, whatever the phase is by then.
        NoPhaseCheck,
        /// A newcomer does not see that a call asks the store for another one.
        ClaimOverlooked,
        /// A release that was answered leaves the entry idle, though others have come meanwhile.
        ReturnedUnseen,
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
        /// The end of a hold that is forgotten is not looked at.
        ForgottenEndUnseen,
        /// What a grant leaves that is dropped unclaimed is looked at no earlier than before.
        DroppedGrantUnseen,
        /// A queue head that was put into the store's queue takes it for a refusal that leaves nothing at the
        /// store.
        PositionForgotten,
        /// A number whose position may have ended goes on to be used.
        LapsedNumberKept,
        /// An attempt that did not run counts for those before it, too.
        AttemptsBeforeForgotten,
        /// What the store has granted, or put into its queue, is not rolled back if the waiter has left
        /// meanwhile.
        AnswerDiesWithWaiter,
        /// A waiter that was named with a release is granted a lease that is over by then.
        NamedGrantedLate,
        /// A waiter that was named with a release is not told that it failed.
        NamedNotTold,
        /// Newcomers join the sharers of a lock for as long as one of them has it.
        TenureNeverEnds,
        /// A sharer that came after the lease was asked for gets what is left of it, though it wants more.
        LateSharerAdmitted,
        /// Those beside go on by the lease in hand, however early that ends.
        GatheredUnderShorterLease,
        /// A shared lease that is longer than a renewed one is left as others may have cut it.
        CutNotMended,
        /// What a queue head was granted before a forced unlock, and is known after it, is not asked about.
        ForcedGrantBelieved,
        /// The lease that those beside had is not given back when they go on by another one.
        GatheredLeaseKept,
        /// An owner that leaves a shared hold gives its lease back, though others have it, too.
        OneLeavesForAll,
        /// A queue head that gives up does not say so to a store that remembers it.
        WaitForgotten,
        /// A waiter for one answer only is not told it.
        TriesKept,
        /// An owner that gets a lease outside of the queue leaves its waiters there.
        NoneRecalled,
        /// Waiters that are let in together with a hold of long ago are looked after as if they had been let
        /// in as long ago.
        GrantedLongAgo,
        /// A hold that is given back by name takes another owner's along.
        GivenBackForAnother,
        /// What the store may have by commands that were not answered does not count when a lease ends.
        UnconfirmedForgotten,
        /// A lease is released, and not rolled back, though a command that leases it anew may still run.
        UnsettledReleased,
        /// A queue head forgets attempts that were not answered when a later one is.
        UnansweredAttemptsForgotten,
        /// A queue head that is refused forgets a command of the hold before that may still begin the lease
        /// anew.
        InheritedCommandForgotten,
        /// An owner keeps the lock for as long as its lease lasts, though the leases of its own are over and
        /// it is not watched.
        OwnEndsForgotten,
        /// A lease goes on to a waiter that wants a shorter one.
        LongerLeasePassedOn,
        /// A queue head that is not polled stays the queue head.
        UnpolledHeadKept,
        /// A waiter that was granted the lock, and is not polled, keeps it.
        UnpolledGrantKept,
        /// Waiters that are not polled are superseded one after another.
        SilentWaitersKept,
        /// A lease is passed on in memory for as long as there are waiters, whatever the tenure.
        TenureNeverUsedUp,
        /// A queue head that is superseded stays queued for the next message.
        SupersededStaysInLine,
        /// A message about the grant of another lease is taken for the queue head's own.
        OtherGrantBelieved,
        /// A lease that a message grants is counted from the answer that gave it its position, and not from
        /// the command.
        PositionCountedFromAnswer,
        /// A lease is counted from the answer that granted it, and not from the command.
        AcquiredFromTheAnswer,
        /// A lease that is renewed or extended is counted from the answer, and not from the command.
        ConfirmedFromTheAnswer,
        /// An extension that is about to be sent is not noted: the store may keep the lease for longer than
        /// is known.
        ExtensionNotNoted,
        /// A command for a token, which leases the name anew, is not noted as one that may still run.
        TokenCommandForgotten,
        /// A lease that the store does not keep any more goes on to the next waiter.
        GoneLeasePassedOn,
        /// A lease that an outer hold asked for with an end of its own is not renewed for an inner hold that
        /// is watched.
        ReentryNotWatched,
        /// The lease in hand counts as enough for each further hold of its owner's.
        InnerLeaseNotAskedFor,
        /// A hold ends with the first of its owner's own leases, and not with the last.
        OuterEndsWithInner,
        /// A hold whose own lease is extended ends when it would have without.
        ProlongedInName,
        /// A renewal of which it is not known whether it was done is the last one.
        FailedRenewalNotRepeated,
        /// A renewal that finds the lease gone counts as done.
        GoneCountsAsRenewed,
        /// An extension that is answered after its hold was given back is undone, though the queue head goes
        /// on by the same number.
        LateExtensionUndone,
        /// A command that has found the lease gone ends the hold of a queue head that has leased the name
        /// anew by the same number since.
        OldGoneBelieved,
        /// A hold that a message has granted is lost as gone, and its number stays in the store's queue,
        /// where an attempt has put it once more.
        PositionOfLostGrantForgotten,
        /// Waiters of an entry that is closed are not told.
        ClosedInSilence,
        /// A queue head whose entry is closed leaves what it asked for at the store.
        ClosedHeadLeavesItsTrace,
        /// A loss wakes no task that waits for it.
        LossNotTold,
    }
    /// Those that no store shows that keeps the contract: each is a second guard against one that does not.
    TWICE {
        /// A store that sets a lease to what it is told is told what was known before an extension that is
        /// under way.
        LeasedAnewForLess,
        /// A token's command that is answered after its hold was given back leaves the lease that it began
        /// anew: a store that rolls the lease back before that has come.
        LateTokenNotUndone,
    }
    /// Of the client: of what it asks the store, and of what it does with the answers.
    CLIENT {
        /// Of leases that are renewed together each is what the store says of the first.
        FirstAnswerForAll,
        /// An entry that was looked at before it was due is not looked at when it is.
        EarlyLookNotPutBack,
        /// A watchdog that sleeps is not woken for what is due earlier.
        WatchdogSleepsOn,
        /// A watchdog that has ended since nothing was due is not started again.
        WatchdogNotRestarted,
        /// A release in the background is sent once.
        ReleaseNotRepeated,
        /// A release that a caller has waited for is not repeated if it fails.
        AwaitedReleaseNotRepeated,
        /// A release whose caller does not poll it any more is not repeated.
        UnpolledReleaseForgotten,
        /// What may still run is released as if it had: the release may come before it.
        RollsBackByRelease,
        /// A release in the background appoints no waiter.
        ReturnedToNobody,
        /// A waiter that was named with a release counts on messages from before its subscription stood.
        NamedBeforeItListens,
        /// An extension that finds the lease gone counts as done.
        GoneCountsAsExtended,
        /// A task that waits for a loss is not woken by the lease's end.
        LossHasNoTimer,
        /// Work whose hold is lost takes a step before its task is told.
        WorkGoesOnUntilTold,
        /// A holder of the client that forces a lock free is not told.
        ForcedHolderNotTold,
        /// A hold counts as there, whatever the store says that was asked for it.
        EnsuredInMemory,
        /// The unlock of a hold that was lost says nothing of that.
        LostUnlockedAllTheSame,
        /// An owner's holds count as one.
        OneHoldCounted,
        /// Losses are missing in the metrics.
        LossesNotCounted,
        /// Hand-offs in memory are missing in the metrics.
        HandOffsNotCounted,
        /// A waiter does not ask once more when its subscription stands.
        NoQuestionOnceItListens,
        /// A waiter sleeps until a message comes, and not until the other lease is over.
        LeaseEndNotAwaited,
        /// A waiter does not ask again in time to keep its position.
        PositionNotKept,
        /// A position is asked for as of now, however long its waiter has waited.
        WaitNotCounted,
        /// An attempt that was not answered counts as one that did not run.
        UnansweredNeverRan,
        /// A caller's limit is counted from each stage of its wait.
        LimitBeginsAnew,
        /// A queue head whose time is over goes by its own answers, and not by those to the one before it.
        HeadForgetsTheOneBefore,
        /// A lease to read beside the owner's own writing stays at the store if its caller gives up.
        ReadBesideLeaks,
        /// A read beside the owner's own writing does not name the lease under which that writes.
        ReadsAsAStranger,
        /// A reader's lease is rolled back as a writer's.
        ReadsRolledBackAsWrites,
        /// A reader's lease is renewed as a writer's.
        ReadsRenewedAsWrites,
        /// A shutdown waits for no release.
        ShutdownForgetsReleases,
        /// Each handle of a name has an entry of its own.
        EntryForEachHandle,
    }
    /// Of the store in memory.
    LOCAL {
        /// A lease that is asked for anew lasts as long as it was asked for last, though it was longer
        /// before.
        LocalLeaseShortened,
        /// A release frees whatever lease is in place.
        LocalReleasesForAnother,
        /// The client of a waiter that is granted a lock is not told.
        LocalGrantsInSilence,
        /// Waiters have their places in the order in which they ask, and not in that in which they began to
        /// wait.
        LocalQueuedByArrival,
        /// The waiter that is named with a release comes before all others.
        LocalNamedOvertakes,
        /// Readers that waited for a writer are not let in when it leaves.
        LocalReadersHaveNoTurn,
        /// The lock is kept for readers that do not come.
        LocalReadersTurnNeverEnds,
        /// A reader that comes while others read does not wait behind writers.
        LocalReadersOvertakeWriters,
        /// Readers after a writer have the token of those before it.
        LocalReadersKeepTheirToken,
    }
    /// Of the adapter to Redis, and of its scripts.
    REDIS {
        /// A release that is sent again, and finds nothing, says that the lease was gone.
        SentAgainMeansNotHeld,
        /// An attempt that may come late is not undone.
        LateAttemptsForgotten,
        /// A grant is believed whatever its nonce.
        NonceNotChecked,
        /// The waiters of a name, and of the same one in braces, sleep on one latch.
        BracesShareALatch,
        /// A name, and the same one in braces, have the same queue.
        BracesShareAQueue,
        /// A channel that two names share is given up when the waiters of one leave it.
        LeavesForBothNames,
        /// A server that does not know a script is not sent its text.
        ScriptNotSentInFull,
        /// A lease that is asked for anew lasts as long as it was asked for last, though it was longer
        /// before.
        ScriptShortensTheLease,
        /// A release frees the lock whatever lease is in place.
        ScriptFreesForAnother,
        /// A release is not published.
        ScriptFreesInSilence,
        /// The renewal of a reader's lease leaves its own key as it is.
        ScriptForgetsTheReadersLease,
        /// The waiter that is named with a release comes before all others.
        ScriptNamedOvertakes,
        /// The lock is over soon after a reader with the longest lease has left.
        ScriptEndsWithOneReader,
        /// The lock lasts no longer for a reader that comes to others.
        ScriptLastsForTheFirstReader,
        /// Readers have the token of the writer before them.
        ScriptReadersHaveTheWritersToken,
    }
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

/// Each execution of a model begins with this: what the last one has kept is freed.
#[cfg(latchwork_loom)]
pub fn begin_execution() {
    crate::sync::begin_execution();
}

/// Does what a real thread does at its end, for a thread of a model.
#[cfg(latchwork_loom)]
pub fn end_thread() {
    crate::sync::end_thread();
}
