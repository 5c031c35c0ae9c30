//! Mutants: the algorithm with one part missing or wrong. A passing check means little unless the check can
//! fail, so the run fails unless a small program finds each mutant, with the violation recorded here. The
//! checks of the memory ([`Memory::check_step`](crate::memory::Memory::check_step)) are off for mutants: only
//! the threads' answers count.
//!
//! [`SPARE`] lists changes that no program has found yet: parts of the algorithm that the present checks do
//! not need under sequential consistency. Runs skip spare changes.

use clap::ValueEnum;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Mutant {
    NoLook,
    LookReturnsAtOnce,
    GrantedPollDoesNotSettle,
    GrantIsNeverOfMore,
    ClosedPollDoesNotSettle,
    ClosedDoesNotSettle,
    GrantDoesNotReadE,
    GrantIsAStore,
    GrantForgetsDebt,
    BlockedIsPassedOver,
    BlockedReadsSOnce,
    TakeIsAStore,
    EnqueueIsAStore,
    NullNextIsTheEnd,
    FrontTooHigh,
    FrontTooHighWhenSettled,
    DoneIsTheBlockedNode,
    ReleaseDoesNotSettle,
    SessionEndsBehindWaiter,
    CancelDoesNotLook,
    CancelOfClosedDoesNotSettle,
    CancelLosesDebt,
    CloseLosesDebt,
    CloseIsAStore,
    LowerDecreasesS,
    DebtIsAStore,
    AvailableReadsEOnce,
    NotifyReadsEOnce,
    NotifyAddsBlindly,
    ComparedInThreeBits,
    ConsumedInThreeBits,

    TailReadsEOnce,
    LookIgnoresClosed,
    LookReadsSAfterE,
    AcquireReadsFrontAfterE,
    CancelOfOneDoesNotLook,
    HintsAreNeverStored,
}

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Mutants(u64);

impl Mutants {
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn has(self, mutant: Mutant) -> bool {
        self.0 >> mutant as u32 & 1 == 1
    }
}

impl FromIterator<Mutant> for Mutants {
    fn from_iter<I: IntoIterator<Item = Mutant>>(mutants: I) -> Self {
        Mutants(mutants.into_iter().fold(0, |bits, mutant| bits | 1 << mutant as u32))
    }
}

pub(crate) struct Kill {
    pub(crate) mutant: Mutant,
    pub(crate) what: &'static str,
    pub(crate) program: &'static str,
    pub(crate) permits: i8,
    /// Name of the [`Violation`](crate::violation::Violation).
    pub(crate) expected: &'static str,
}

const fn kill(
    mutant: Mutant,
    what: &'static str,
    program: &'static str,
    permits: i8,
    expected: &'static str,
) -> Kill {
    Kill { mutant, what, program, permits, expected }
}

const LOST: &str = "lost wake-up";
const ORDER: &str = "not linearizable";
const TOO_MANY: &str = "over-admission";
const COUNT: &str = "conservation";
const LOOP: &str = "livelock";

pub(crate) const MUTANTS: &[Kill] = {
    use Mutant::*;
    &[
        kill(NoLook, "a waiter does not look at S after publishing its node", "c2 | w1", 1, LOST),
        kill(
            LookReturnsAtOnce,
            "LOOK returns without settling if the node is final",
            "a2 | w1 | w1",
            0,
            LOST,
        ),
        kill(GrantedPollDoesNotSettle, "a poll that finds Granted does not settle", "a2 | w1 | w1", 0, LOST),
        kill(
            GrantIsNeverOfMore,
            "a grant does not say that the credit went further",
            "a2 | w1 | w1",
            0,
            LOST,
        ),
        kill(ClosedPollDoesNotSettle, "a poll that finds Void does not settle", "x | w1 | w1", 0, LOST),
        kill(ClosedDoesNotSettle, "an acquisition that reads CLOSED does not settle", "x | w1 | w1", 0, LOST),
        kill(GrantDoesNotReadE, "E is not read again between S and a grant", "x | w2 | w1", 1, ORDER),
        kill(GrantIsAStore, "a grant is a store", "c2 | c1", 1, COUNT),
        kill(GrantForgetsDebt, "a grant consumes the need without the debt", "l1 a2 | w1", 0, COUNT),
        kill(BlockedIsPassedOver, "waiters behind the blocked one are granted", "w2 | w1", 1, ORDER),
        kill(BlockedReadsSOnce, "S is not read again when a waiter is blocked", "c2 w2 | v x | a1", 1, ORDER),
        kill(TakeIsAStore, "E is stored when permits are taken from FREE", "w1 | w1", 1, ORDER),
        kill(EnqueueIsAStore, "E is stored when a node is enqueued", "c1 l1 | w1", 0, COUNT),
        kill(NullNextIsTheEnd, "null in next is taken for the queue's end", "c1 l1 | w1", 0, LOOP),
        kill(FrontTooHigh, "front counts the blocked waiter's need", "c2 | w1", 1, ORDER),
        kill(
            FrontTooHighWhenSettled,
            "front is one more than what a settled queue has consumed",
            "c2 | w1",
            1,
            ORDER,
        ),
        kill(DoneIsTheBlockedNode, "done is the blocked node", "a1 | w2", 1, LOST),
        kill(
            ReleaseDoesNotSettle,
            "a release does not settle though done is not the tail",
            "a1 | w1",
            0,
            LOST,
        ),
        kill(
            SessionEndsBehindWaiter,
            "a take closes the session whose tail is final, though a node before waits",
            "w2 | c1 | a1 t1",
            0,
            ORDER,
        ),
        kill(CancelDoesNotLook, "a cancellation does not look at S", "c2 | w1", 1, LOST),
        kill(
            CancelOfClosedDoesNotSettle,
            "a cancellation that finds Void does not settle",
            "x | c2 | w1",
            1,
            LOST,
        ),
        kill(CancelLosesDebt, "a debt is lost when its waiter cancels", "l1 | c1", 0, COUNT),
        kill(CloseLosesDebt, "a debt is lost when its waiter is closed", "l1 x | w1", 0, COUNT),
        kill(CloseIsAStore, "a waiter is closed by a store", "c2 x | w1", 1, COUNT),
        kill(LowerDecreasesS, "lowering decreases S", "l1 | w1", 1, TOO_MANY),
        kill(DebtIsAStore, "a debt is added by a store", "l1 a2 | c1", 0, COUNT),
        kill(AvailableReadsEOnce, "available_permits does not read E again", "w1 r | v", 1, ORDER),
        kill(NotifyReadsEOnce, "a notification does not read E again", "n | w1 | n", 0, COUNT),
        kill(NotifyAddsBlindly, "a notification credits by an addition, not a CAS", "n | n", 0, COUNT),
        // With three permits, the words are as narrow as if `MAX_PERMITS` were half of the range.
        kill(
            ComparedInThreeBits,
            "all permits and one more are too many to be compared",
            "w1 | a3 a1 t1",
            0,
            ORDER,
        ),
        kill(
            ConsumedInThreeBits,
            "what is consumed comes back under a step after two acquisitions of all permits and two of one",
            "t1 | t1 r t1 r t3 r t3",
            3,
            TOO_MANY,
        ),
    ]
};

pub(crate) const SPARE: &[(Mutant, &str)] = {
    use Mutant::*;
    &[
        (TailReadsEOnce, "settle does not read E again at the tail"),
        (LookIgnoresClosed, "LOOK does not look at CLOSED"),
        (LookReadsSAfterE, "LOOK reads E before S"),
        (AcquireReadsFrontAfterE, "an acquisition reads E before front"),
        (CancelOfOneDoesNotLook, "a cancellation of one permit does not look at S"),
        (HintsAreNeverStored, "front and done keep their first values"),
    ]
};
