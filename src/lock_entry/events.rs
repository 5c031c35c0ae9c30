//! Parameters and outcomes of the events of a [`LockEntry`](super::LockEntry).

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::support::moment::Moment;

/// Parameters of an acquisition of a [`LockEntry`](super::LockEntry).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use latchwork::lock_entry::Request;
/// let request = Request::new(7).shared_owner().lease(Duration::from_secs(5)).fenced();
/// assert_eq!(request.owner(), 7);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub(super) owner: u64,
    pub(super) shared_owner: bool,
    pub(super) lease: Option<Duration>,
    pub(super) fenced: bool,
    pub(super) superseded: u32,
}

impl Request {
    /// Returns a request of `owner`, by a lease that the client renews while the lock is held.
    pub fn new(owner: u64) -> Self {
        Self { owner, shared_owner: false, lease: None, fenced: false, superseded: 0 }
    }

    /// Lets several acquisitions have this owner: all of an owner's waiters get the lock together. Without
    /// this, an owner that waits twice waits for itself.
    #[must_use]
    pub fn shared_owner(self) -> Self {
        Self { shared_owner: true, ..self }
    }

    /// Asks for a lease of exactly this length, without renewals.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// Asks for a fencing token.
    #[must_use]
    pub fn fenced(self) -> Self {
        Self { fenced: true, ..self }
    }

    /// Tells how often this call was superseded. Each time doubles the limit for its next poll as queue head,
    /// up to a third of a renewed lease: a caller whose polls always come late would ask anew for ever.
    #[must_use]
    pub fn superseded(self, times: u32) -> Self {
        Self { superseded: times, ..self }
    }

    /// True if the client renews the lease.
    pub fn is_watched(&self) -> bool {
        self.lease.is_none()
    }

    /// Returns the owner.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Returns the lease to ask the store for, unless the client renews the lease.
    pub fn own_lease(&self) -> Option<Duration> {
        self.lease
    }

    /// True if the request asks for a fencing token.
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }
}

/// A hold granted to an acquisition, until given back or forgotten. To another entry the hold is over.
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// use latchwork::lock_entry::{Turn, LockEntry, Request};
/// let grant = take(&entry, now); // owner 1 acquires lease 1, for 30 s
/// assert!(grant.is_watched() && grant.token().is_none() && grant.ends() == Moment::NEVER);
/// let entered = entry.enter(&Request::new(1), Some(waker.clone()), now, &mut effects);
/// let Turn::Granted(inner, None) = entered else { panic!("owner 1 has it already") };
/// assert_eq!(inner.serial(), grant.serial());
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    pub(super) serial: u64,
    pub(super) token: Option<NonZeroU64>,
    /// End of the acquisition's own lease; `None` if the client renews the lease for the acquisition.
    pub(super) own_end: Option<Moment>,
}

impl Grant {
    #[inline]
    pub(super) fn new(serial: u64, token: Option<u64>, own_end: Option<Moment>) -> Self {
        Self { serial, token: token.and_then(NonZeroU64::new), own_end }
    }

    pub(crate) fn copy(&self) -> Self {
        Self { ..*self }
    }

    /// Returns the number of the hold, which all re-entries of its owner share. Serials rise from hold to
    /// hold, and no two entries share a serial.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns the fencing token, if the acquisition asked for a token.
    pub fn token(&self) -> Option<u64> {
        self.token.map(NonZeroU64::get)
    }

    /// True if the client renews the lease for this acquisition.
    pub fn is_watched(&self) -> bool {
        self.own_end.is_none()
    }

    /// Returns the end of this acquisition's own lease, or never. The hold itself may last longer.
    pub fn ends(&self) -> Moment {
        self.own_end.unwrap_or(Moment::NEVER)
    }

    /// Returns the same hold with the token that an [`Extension`] brought.
    #[must_use]
    pub fn with_token(self, token: u64) -> Self {
        Self { token: NonZeroU64::new(token), ..self }
    }
}

/// A command for a re-entry that needs a longer lease than the lease in hand, or a fencing token.
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// use latchwork::lock_entry::{Turn, Extension, LockEntry, Request};
/// let _grant = take(&entry, now); // owner 1 acquires lease 1, for 30 s
/// // The same owner re-enters, for longer than the lease in hand lasts.
/// let minute = Duration::from_secs(60);
/// let entered = entry.enter(&Request::new(1).lease(minute), Some(waker.clone()), now, &mut effects);
/// let Turn::Granted(_, Some(extension)) = entered else { panic!("owner 1 has it already") };
/// assert_eq!(extension, Extension { number: 1, lease: minute, fenced: false });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Number of the lease.
    pub number: u64,
    /// Least length of the lease, from the command on.
    pub lease: Duration,
    /// True if the command asks for a fencing token, and so leases the name anew.
    pub fenced: bool,
}

/// Why a hold ended before its guard gave it back.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// # let client = latchwork::LockClient::local();
/// use latchwork::LossReason;
/// let lock = client.get_lock("orders:42")?;
/// let guard = lock.lock().await?;
/// lock.force_unlock().await?;
/// assert_eq!(guard.lost().await, LossReason::Gone);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease ended.
    Expired,
    /// The hold lasted as long as `max_hold` allows.
    HeldTooLong,
    /// The store no longer has this client's lease: unlocked by force, evicted, or lost in a failover.
    Gone,
    /// A renewal was sent, and not confirmed before the lease ended: no answer came, or the store refused.
    Unreachable,
    /// The owner gave its holds back by name, while this guard lived.
    GivenBack,
    /// This process was forked off: the lease belongs to its parent.
    Forked,
}

impl LossReason {
    /// True if the hold ended by time, and not by a call.
    pub fn is_by_time(self) -> bool {
        matches!(self, Self::Expired | Self::HeldTooLong | Self::Unreachable)
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the lease ended",
            Self::HeldTooLong => "it was held for as long as the client's options allow",
            Self::Gone => "the lock is no longer held by this client",
            Self::Unreachable => "no renewal was confirmed before the lease ended",
            Self::GivenBack => "it was given back by the owner's name, beside this guard",
            Self::Forked => "this process was forked off, and the lock is its parent's",
        })
    }
}

/// Length of a back-off step, in which other processes go first, as this process had the lock last.
pub(crate) const BACK_OFF: Duration = Duration::from_millis(1);

#[expect(clippy::reversed_empty_ranges, reason = "it is empty")]
pub(super) const NO_TOKENS: RangeInclusive<u64> = 1..=0;

/// A waiter's node in the queue. Valid until `Queue::remove`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(pub(super) NonZeroU32);

/// A waiter's position in the queue, until [`poll`](super::LockEntry::poll) returns its [`Turn`] or
/// [`cancel`](super::LockEntry::cancel) removes the waiter. To another entry the ticket is superseded.
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// use latchwork::lock_entry::{Turn, LockEntry, Request};
/// let _grant = take(&entry, now); // owner 1 acquires lease 1, for 30 s
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
    /// Serial of the waiter: later waiters may have the same slot.
    pub(super) serial: u64,
}

/// The right to compete for the lock at the store, until [`answered`](super::LockEntry::answered) grants the
/// lock or [`abandon`](super::LockEntry::abandon) gives up. To another entry the ticket has ended.
///
/// # Examples
///
/// ```
/// # use std::time::Instant;
/// use latchwork::lock_entry::{Effects, LockEntry, Moment, Request, Rules, Turn};
/// # let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// # let mut effects = Effects::default();
/// let Turn::Head(head) = entry.enter(&Request::new(1), None, now, &mut effects) else { panic!() };
/// assert!(entry.is_head(&head) && head.back_off().is_zero());
/// assert_eq!(head.since(), now);
/// entry.abandon(&head, now, &mut effects);
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
    /// Time at which the queue head began to wait, which decides its position in a store's queue.
    pub fn since(&self) -> Moment {
        self.since
    }

    /// True if a release has [named](super::NextHead) and queued the head, which only waits and need not ask.
    pub fn has_position(&self) -> bool {
        self.has_position
    }

    /// Time in which other processes go first, because this process had the lock last; zero to ask at once.
    pub fn back_off(&self) -> Duration {
        BACK_OFF * self.steps
    }
}

/// State of a caller after [`enter`](super::LockEntry::enter), of a waiter after its wait, or of the queue
/// head after the answer to an [`Attempt`].
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// use latchwork::lock_entry::{LockEntry, Request, Turn};
/// let grant = take(&entry, now); // owner 1 acquires lease 1, for 30 s
/// let second = entry.enter(&Request::new(2), None, now, &mut effects);
/// assert!(matches!(second, Turn::Busy), "it may not wait");
/// let Turn::Queued(ticket) =
///     entry.enter(&Request::new(3), Some(waker.clone()), now, &mut effects) else { panic!("1 has it") };
/// assert!(entry.poll(&ticket, waker, now, &mut effects).is_none());
/// assert_eq!(entry.leave(grant, now, &mut effects), Ok(None));
/// assert!(matches!(entry.poll(&ticket, waker, now, &mut effects), Some(Turn::Granted(_, None))));
/// ```
#[derive(Debug)]
#[must_use = "a grant is to be given back, a place to be polled or cancelled"]
#[doc(alias("AttemptOutcome", "Entered", "EnterOutcome", "Told", "Verdict", "WaitOutcome"))]
pub enum Turn {
    /// The caller has the lock: its owner re-enters, the previous holder has handed the lock off, or the
    /// store has granted the lease.
    Granted(Grant, Option<Extension>),
    /// The caller is the queue head, and asks the store. After an answer: asks anew, under another number, as
    /// the lease was over before the answer, or the position may be.
    Head(HeadTicket),
    /// The caller is queued. Only [`enter`](super::LockEntry::enter) returns this.
    Queued(Ticket),
    /// The caller was not polled in time, or evicted with its owner, and enters anew. An attempt is rolled
    /// back if the store may have it.
    Superseded,
    /// The caller may not wait and the lock is not free, or the store has refused a
    /// [shared](super::Policy::Shared) lock's queue head, whose answer the caller awaited.
    Busy,
    /// The entry is closed.
    Closed,
}

/// A question of the queue head to the store, used up by its answer.
///
/// # Examples
///
/// ```
/// # use std::time::{Duration, Instant};
/// use latchwork::lock_entry::{Effects, LockEntry, Moment, Request, Rules, Turn};
/// # let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// # let mut effects = Effects::default();
/// let Turn::Head(head) = entry.enter(&Request::new(1), None, now, &mut effects) else { panic!() };
/// let attempt = entry.attempt(&head, 7, now, Duration::from_secs(30)).expect("it is the queue head");
/// // The client asks the store for lease 7, for 30 s, without a fencing token.
/// assert_eq!((attempt.number(), attempt.lease().as_secs(), attempt.tokens()), (7, 30, 0));
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Serial of the asking queue head; 0 outside of the queue.
    pub(super) head: u64,
    pub(super) number: u64,
    pub(super) tokens: u64,
    pub(super) sent: Moment,
    pub(super) lease: Duration,
    /// End of the time for which the store may keep the number.
    pub(super) until: Moment,
}

impl Attempt {
    /// Returns an attempt outside of the queue: see [`adopt`](super::LockEntry::adopt).
    pub fn outside_of_queue(number: u64, request: &Request, sent: Moment, lease: Duration) -> Self {
        Self { head: 0, number, tokens: request.fenced.into(), sent, lease, until: sent + lease }
    }

    /// Number of the lease to ask for.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Count of fencing tokens to ask for.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Send time, taken before the command goes out.
    pub fn sent(&self) -> Moment {
        self.sent
    }

    /// Length of the lease to ask for.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    #[cfg(feature = "lock")]
    pub(crate) fn copy(&self) -> Self {
        Self { ..*self }
    }

    /// Returns the release to send if the asking queue head has left.
    pub fn rollback(&self) -> PendingRelease {
        PendingRelease { number: self.number, until: self.until, appoints: false, rolls_back: true }
    }

    /// Returns the tokens granted with this attempt. Token 0 does not exist.
    pub(super) fn granted_tokens(&self, last_token: u64) -> RangeInclusive<u64> {
        match self.tokens.min(last_token) {
            0 => NO_TOKENS,
            tokens => last_token - (tokens - 1)..=last_token,
        }
    }
}

/// The store's answer to an [`Attempt`].
///
/// # Examples
///
/// ```
/// # use std::time::{Duration, Instant};
/// use latchwork::lock_entry::{Answer, Effects, LockEntry, Moment, Request, Rules, Turn};
/// # let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// # let mut effects = Effects::default();
/// let Turn::Head(head) = entry.enter(&Request::new(1), None, now, &mut effects) else { panic!() };
/// let attempt = entry.attempt(&head, 1, now, Duration::from_secs(30)).expect("it is the queue head");
/// // Another process has the lock, and the store keeps no queue.
/// let turn = entry.answered(&head, attempt, Answer::Held { kept: None }, now, &mut effects);
/// assert!(turn.is_none() && entry.is_head(&head));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The store granted the lease.
    Granted {
        /// Last of the granted tokens; 0 if the attempt asked for no token.
        last_token: u64,
    },
    /// The store refused: another process has the lock.
    Held {
        /// Time from the sending on for which the store keeps a position or remembers the wait, if it does.
        kept: Option<Duration>,
    },
    /// The command did not run and never will: it leaves nothing at the store.
    DidNotRun,
    /// The store answered the release that [named](super::NextHead) the attempt, but not the attempt.
    Unsaid,
    /// No answer came. The command may still run.
    Unanswered,
}

/// A hold at one moment.
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// use latchwork::lock_entry::{LockEntry, LossReason, Request};
/// let grant = take(&entry, now); // owner 1 acquires lease 1, for 30 s
/// let hold = entry.state_of(&grant, now).expect("it is held");
/// assert_eq!((hold.number, hold.ends), (1, now + Duration::from_secs(30)));
/// assert_eq!(entry.state_of(&grant, hold.ends), Err(LossReason::Expired));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldState {
    /// End of the hold if no renewal follows.
    pub ends: Moment,
    /// Number of the lease.
    pub number: u64,
}

/// A lease that goes back to the store.
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// use latchwork::lock_entry::{LockEntry, Request};
/// let grant = take(&entry, now); // owner 1 acquires lease 1, for 30 s
/// let release = entry.leave(grant, now, &mut effects).expect("held").expect("there are no waiters");
/// assert_eq!((release.number, release.rolls_back), (1, false));
/// // … the client sends the release until the store answers or `release.until` has come …
/// entry.appoint_next(0, now, &mut effects);
/// assert!(entry.is_idle());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "GiveBack")]
pub struct PendingRelease {
    /// Number of the lease.
    pub number: u64,
    /// End of the time for which the store may keep the lease. The client sends the release at least once,
    /// and repeats it until the store answers or this time has come; longer if it [rolls
    /// back](Self::rolls_back), as the command to undo may run late.
    pub until: Moment,
    /// True if the entry waits for this release before it appoints the next queue head: newcomers queue until
    /// the client calls [`appoint_next`](super::LockEntry::appoint_next), once
    /// the release is under way or answered.
    pub appoints: bool,
    /// True if an unanswered leasing command may still run: the release must not take effect before it.
    pub rolls_back: bool,
}

/// The holds of one owner in this process: see [`LockEntry::each_hold`](super::LockEntry::each_hold).
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// use latchwork::lock_entry::{LockEntry, Request};
/// let grant = take(&entry, now); // owner 1 acquires lease 1, for 30 s
/// let (holds, waiting) = entry.each_hold(now);
/// assert_eq!((holds.len(), waiting), (1, 0));
/// assert_eq!((holds[0].owner, holds[0].holds, holds[0].number), (1, 1, 1));
/// assert!(holds[0].is_watched && !holds[0].is_forgotten);
/// # let _ = entry.leave(grant, now, &mut effects);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldHere {
    /// Owner of the [`Request`](super::Request)s.
    pub owner: u64,
    /// Count of holds, at least one.
    pub holds: u32,
    /// Number of the lease.
    pub number: u64,
    /// Start of the first hold.
    pub since: Moment,
    /// End of the last hold, unless the lease is renewed or extended.
    pub ends: Moment,
    /// True if the client renews the lease for this owner.
    pub is_watched: bool,
    /// True if all holds are [forgotten](super::LockEntry::forget).
    pub is_forgotten: bool,
}
