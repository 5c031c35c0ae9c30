//! What the events of a [`LockEntry`](super::LockEntry) come to.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::support::moment::Moment;

use super::queue::Slot;
use super::request::{Extension, Grant, LossReason, Request};

/// A queue head that had the lock last waits for so long per step, so that other processes ask before it.
pub(crate) const BACK_OFF: Duration = Duration::from_millis(1);

/// No tokens are left, or were asked for.
#[expect(clippy::reversed_empty_ranges, reason = "it is empty")]
pub(super) const NO_TOKENS: RangeInclusive<u64> = 1..=0;

/// A waiter's place in the queue. To be [polled](super::LockEntry::poll) until it is told something, or to be
/// [cancelled](super::LockEntry::cancel). To another entry it is one that was superseded.
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// # let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// // As in the example of `LockEntry`: owner 1 has the lock, by lease 1, for 30 s.
/// let _grant = take(&entry, now);
/// use latchwork::lock_entry::{Turn, LockEntry, Request};
///
/// let Turn::Queued(ticket) =
///     entry.enter(&Request::new(2), Some(waker.clone()), now, &mut effects) else { panic!("1 has it") };
/// assert_eq!(entry.waiters(), 1);
/// entry.cancel(ticket, now, &mut effects);
/// assert_eq!(entry.waiters(), 0);
/// ```
#[derive(Debug)]
#[must_use = "a place that is neither polled nor cancelled keeps the lock from those behind it until it is superseded"]
pub struct Ticket {
    pub(super) slot: Slot,
    /// Of the waiter, as others have the slot after this one.
    pub(super) serial: u64,
}

/// The right to compete for the lock at the store. It ends by [`answered`](super::LockEntry::answered) or
/// [`abandon`](super::LockEntry::abandon). To another entry it is one that has ended.
///
/// # Examples
///
/// ```
/// # use std::time::{Instant};
/// # use latchwork::lock_entry::{Moment, Rules};
/// # let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// # let (mut effects, waker) = (latchwork::lock_entry::Effects::default(), std::task::Waker::noop());
/// use latchwork::lock_entry::{Turn, LockEntry, Request};
///
/// let Turn::Head(head) =
///     entry.enter(&Request::new(1), Some(waker.clone()), now, &mut effects) else { panic!("it is idle") };
/// assert!(entry.is_head(&head) && head.back_off().is_zero());
/// assert_eq!(head.since(), now);
/// entry.abandon(&head, now, &mut effects); // gives up
/// assert!(!entry.is_head(&head));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the others wait until the queue head has got the lock, or has given up"]
pub struct HeadTicket {
    pub(super) serial: u64,
    pub(super) steps: u32,
    pub(super) since: Moment,
    pub(super) has_position: bool,
}

impl HeadTicket {
    /// How many steps it is to let others go first; with none it asks at once.
    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    pub(crate) fn steps(&self) -> u32 {
        self.steps
    }

    /// When it began to wait: what its position in a store's queue goes by.
    pub fn since(&self) -> Moment {
        self.since
    }

    /// True if the release with which it was named has put it into the store's queue: it need not ask for
    /// that, but only wait to be told.
    pub fn has_position(&self) -> bool {
        self.has_position
    }

    /// How long to let other processes go first: this one had the lock last.
    pub fn back_off(&self) -> Duration {
        BACK_OFF * self.steps
    }
}

/// Where a caller stands once it has [entered](super::LockEntry::enter), and a waiter once its place in the
/// queue has come to an end.
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// # let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// // As in the example of `LockEntry`: owner 1 has the lock, by lease 1, for 30 s.
/// let grant = take(&entry, now);
/// use latchwork::lock_entry::{LeaveOutcome, LockEntry, Request, Turn};
///
/// let second = entry.enter(&Request::new(2), None, now, &mut effects);
/// assert!(matches!(second, Turn::Busy), "it may not wait");
/// let Turn::Queued(ticket) =
///     entry.enter(&Request::new(3), Some(waker.clone()), now, &mut effects) else { panic!("1 has it") };
/// assert!(entry.poll(&ticket, waker, now, &mut effects).is_none());
/// assert_eq!(entry.leave(grant, now, &mut effects), LeaveOutcome::Passed);
/// assert!(matches!(entry.poll(&ticket, waker, now, &mut effects), Some(Turn::Granted(_, None))));
/// ```
#[derive(Debug)]
#[must_use = "a grant is to be given back, a place to be polled or cancelled"]
#[doc(alias("Entered", "EnterOutcome", "Told", "WaitOutcome"))]
pub enum Turn {
    /// The caller has the lock: its owner re-enters, or the holder before has passed the lock on.
    Granted(Grant, Option<Extension>),
    /// The caller is the queue head, and is to ask the store.
    Head(HeadTicket),
    /// Others are ahead: the caller waits behind them. Only [`enter`](super::LockEntry::enter) says so.
    Queued(Ticket),
    /// The waiter could have had the lock, or the right to compete for it, and was not polled in time. It has
    /// to enter anew, as another owner unless its owner is shared.
    Superseded,
    /// The caller may not wait, and others are ahead; or, of [shared](super::Policy::Shared) locks, the store
    /// has said to the queue head that another process has the lock.
    Busy,
    /// The entry is closed.
    Closed,
}

/// What the queue head may send. Used up by its answer.
///
/// # Examples
///
/// ```
/// # use std::time::{Duration, Instant};
/// # use latchwork::lock_entry::{Moment, Rules};
/// # let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// # let (mut effects, waker) = (latchwork::lock_entry::Effects::default(), std::task::Waker::noop());
/// use latchwork::lock_entry::{Turn, LockEntry, Request};
///
/// let Turn::Head(head) =
///     entry.enter(&Request::new(1), Some(waker.clone()), now, &mut effects) else { panic!("it is idle") };
/// let attempt = entry.attempt(&head, 7, now, Duration::from_secs(30)).expect("it is the queue head");
/// // What to ask the store for: lease 7, for 30 s, without a fencing token.
/// assert_eq!((attempt.number(), attempt.lease().as_secs(), attempt.tokens()), (7, 30, 0));
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The serial of the queue head that asks; 0 outside of the queue.
    pub(super) head: u64,
    pub(super) number: u64,
    pub(super) tokens: u64,
    pub(super) sent: Moment,
    pub(super) lease: Duration,
    /// How long the number may be at the store.
    pub(super) until: Moment,
}

impl Attempt {
    /// An attempt that is made outside of the queue: see [`adopt`](super::LockEntry::adopt).
    pub fn outside_of_queue(number: u64, request: &Request, sent: Moment, lease: Duration) -> Self {
        Self { head: 0, number, tokens: request.fenced.into(), sent, lease, until: sent + lease }
    }

    /// The number of the lease to ask for.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How many fencing tokens to ask for.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// When it was sent, or was about to be.
    pub fn sent(&self) -> Moment {
        self.sent
    }

    /// The lease to ask for.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The same, for a caller that has it answered once.
    #[cfg(feature = "lock")]
    pub(crate) fn copy(&self) -> Self {
        Self { ..*self }
    }

    /// To be sent if its asker has gone.
    pub fn rollback(&self) -> PendingRelease {
        PendingRelease { number: self.number, until: self.until, appoints: false, rolls_back: true }
    }

    /// The tokens that it got. (There is no token 0.)
    pub(super) fn granted_tokens(&self, last_token: u64) -> RangeInclusive<u64> {
        match self.tokens.min(last_token) {
            0 => NO_TOKENS,
            tokens => last_token - (tokens - 1)..=last_token,
        }
    }
}

/// What became of an [`Attempt`].
///
/// # Examples
///
/// ```
/// # use std::time::{Duration, Instant};
/// # use latchwork::lock_entry::{Moment, Rules};
/// # let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// # let (mut effects, waker) = (latchwork::lock_entry::Effects::default(), std::task::Waker::noop());
/// use latchwork::lock_entry::{Answer, Turn, LockEntry, Request, AttemptOutcome};
///
/// let Turn::Head(head) =
///     entry.enter(&Request::new(1), Some(waker.clone()), now, &mut effects) else { panic!("it is idle") };
/// let attempt = entry.attempt(&head, 1, now, Duration::from_secs(30)).expect("it is the queue head");
/// // The store says that another process has the lock, and keeps no queue.
/// let verdict = entry.answered(&head, attempt, Answer::Held { kept: None }, now, &mut effects);
/// assert!(matches!(verdict, AttemptOutcome::Refused) && entry.is_head(&head));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The store granted the lease that was asked for.
    Granted {
        /// The last of the tokens that were asked for; 0 if none were.
        last_token: u64,
    },
    /// The store said that another process has the lock.
    Held {
        /// For how long it keeps a position for this one, or remembers that it waits, counted from when the
        /// attempt was sent. `None` if it does neither.
        kept: Option<Duration>,
    },
    /// The command did not run, and never will: nothing of it is at the store.
    DidNotRun,
    /// The store answered the release that [named](super::NextHead) the attempt, and did not say what became
    /// of that.
    Unsaid,
    /// There was no answer. The command may run still.
    Unanswered,
}

/// What an [`Answer`] came to.
///
/// # Examples
///
/// ```
/// # use std::time::{Duration, Instant};
/// # use latchwork::lock_entry::{Moment, Rules};
/// # let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// # let (mut effects, waker) = (latchwork::lock_entry::Effects::default(), std::task::Waker::noop());
/// use latchwork::lock_entry::{Answer, Turn, LockEntry, Request, AttemptOutcome};
///
/// let Turn::Head(head) =
///     entry.enter(&Request::new(1), Some(waker.clone()), now, &mut effects) else { panic!("it is idle") };
/// let attempt = entry.attempt(&head, 1, now, Duration::from_secs(30)).expect("it is the queue head");
/// // The answer comes when the lease that it grants is over.
/// let (late, granted) = (now + Duration::from_secs(31), Answer::Granted { last_token: 0 });
/// let verdict = entry.answered(&head, attempt, granted, late, &mut effects);
/// assert!(matches!(verdict, AttemptOutcome::TooLate));
/// assert_eq!(effects.roll_back().map(|pending_release| pending_release.number), Some(1));
/// ```
#[derive(Debug)]
#[must_use = "a grant is to be given back"]
#[doc(alias = "Verdict")]
pub enum AttemptOutcome {
    /// The caller has the lock.
    Granted(Grant),
    /// Another process has the lock, or the store has not answered: the caller is still the queue head. A
    /// waiter that was [named](super::NextHead) with a release is told itself.
    #[doc(alias = "Waits")]
    Refused,
    /// The lease was over by then. It is rolled back, and the caller is the queue head still.
    TooLate,
    /// The caller is the queue head no more, and what it asked for is rolled back.
    Superseded,
}

/// What giving a hold back came to.
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// # let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// // As in the example of `LockEntry`: owner 1 has the lock, by lease 1, for 30 s.
/// let grant = take(&entry, now);
/// use latchwork::lock_entry::{LeaveOutcome, LockEntry, Request};
///
/// let left = entry.leave(grant, now, &mut effects);
/// // There are no waiters.
/// assert!(matches!(left, LeaveOutcome::Return(release) if release.number == 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the store may have to be told"]
#[doc(alias = "Left")]
pub enum LeaveOutcome {
    /// The owner has others.
    Remains,
    /// The next waiter has the lock, or competes for it, or will once the release is answered that
    /// [`Effects`](super::Effects) has.
    Passed,
    /// There are no waiters here: the caller sends this release. If it [appoints](PendingRelease::appoints),
    /// the caller says [`returned`](super::LockEntry::returned) as soon as the release is under way.
    Return(PendingRelease),
    /// The hold was over before.
    Lost(LossReason),
    /// The owner has no hold.
    NotHeld,
}

/// A hold at one moment.
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// # let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// // As in the example of `LockEntry`: owner 1 has the lock, by lease 1, for 30 s.
/// let grant = take(&entry, now);
/// use latchwork::LossReason;
/// use latchwork::lock_entry::{LockEntry, Request};
///
/// let hold = entry.state_of(&grant, now).expect("it is held");
/// assert_eq!((hold.number, hold.ends), (1, now + Duration::from_secs(30)));
/// assert_eq!(entry.state_of(&grant, hold.ends), Err(LossReason::Expired));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldState {
    /// When it is over without a renewal.
    pub ends: Moment,
    /// The number of the lease that it is held by.
    pub number: u64,
}

/// A lease that the store is to have back.
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// # let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// // As in the example of `LockEntry`: owner 1 has the lock, by lease 1, for 30 s.
/// let grant = take(&entry, now);
/// use latchwork::lock_entry::{LeaveOutcome, LockEntry, Request};
///
/// let left = entry.leave(grant, now, &mut effects);
/// let LeaveOutcome::Return(release) = left else { panic!("there are no waiters") };
/// assert_eq!((release.number, release.rolls_back), (1, false));
/// // … it is sent, again and again until the store answers or `release.until` has come …
/// entry.returned(0, now, &mut effects);
/// assert!(entry.is_idle());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "GiveBack")]
pub struct PendingRelease {
    /// The lease's number.
    pub number: u64,
    /// Until when the store may keep the lease. It is released until that, or until the store has answered;
    /// once at least. One that [rolls back](Self::rolls_back) is repeated for longer, as what it undoes may
    /// come late.
    pub until: Moment,
    /// True if the next waiter is appointed once the release was answered: see
    /// [`LockEntry::returned`](super::LockEntry::returned).
    pub appoints: bool,
    /// True if a command that leases the lock under this number was not answered, and may still run: the
    /// release must not take effect before it does.
    pub rolls_back: bool,
}

/// What one owner has of a lock in this process: see [`LockEntry::each_hold`](super::LockEntry::each_hold).
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// # let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// // As in the example of `LockEntry`: owner 1 has the lock, by lease 1, for 30 s.
/// let grant = take(&entry, now);
/// use latchwork::lock_entry::{LockEntry, Request};
///
/// let (holds, waiting) = entry.each_hold(now);
/// assert_eq!((holds.len(), waiting), (1, 0));
/// assert_eq!((holds[0].owner, holds[0].holds, holds[0].number), (1, 1, 1));
/// assert!(holds[0].is_watched && !holds[0].is_forgotten);
/// # let _ = entry.leave(grant, now, &mut effects);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldHere {
    /// By its [`Request`](super::Request).
    pub owner: u64,
    /// One at least.
    pub holds: u32,
    /// Of the lease.
    pub number: u64,
    /// When the first of the holds began.
    pub since: Moment,
    /// When the last of the holds ends, unless the lease is renewed or extended.
    pub ends: Moment,
    /// True if the lease is to be renewed for this owner.
    pub is_watched: bool,
    /// True if all of the holds are [forgotten](super::LockEntry::forget).
    pub is_forgotten: bool,
}
