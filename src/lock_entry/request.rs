//! What an acquisition asks for, and what it gets.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::support::moment::Moment;

/// What an acquisition asks of a [`LockEntry`](super::LockEntry).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use latchwork::lock_entry::Request;
///
/// let request = Request::new(7).shared_owner().lease(Duration::from_secs(5)).fenced();
/// assert_eq!(request.owner(), 7);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub(super) owner: u64,
    pub(super) shared_owner: bool,
    pub(super) lease: Option<Duration>,
    pub(super) fenced: bool,
}

impl Request {
    /// A request of `owner`, by a lease that the client renews while the lock is held.
    pub fn new(owner: u64) -> Self {
        Self { owner, shared_owner: false, lease: None, fenced: false }
    }

    /// Other acquisitions have the same owner: all of an owner's waiters get the lock together. Without this,
    /// an owner that waits twice waits for itself.
    #[must_use]
    pub fn shared_owner(self) -> Self {
        Self { shared_owner: true, ..self }
    }

    /// By a lease of exactly this long, that is not renewed.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// With a fencing token.
    #[must_use]
    pub fn fenced(self) -> Self {
        Self { fenced: true, ..self }
    }

    /// By a lease that the client renews.
    pub fn is_watched(&self) -> bool {
        self.lease.is_none()
    }

    /// The owner that asks.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// The lease to ask the store for, if it is not one that the client renews.
    pub fn own_lease(&self) -> Option<Duration> {
        self.lease
    }

    /// Whether a fencing token is asked for.
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }
}

/// A hold that an acquisition was granted. Used up when it is given back, or forgotten; to another
/// [`LockEntry`](super::LockEntry), it is a hold that is over.
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// # let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// // As in the example of `LockEntry`: owner 1 has the lock, by lease 1, for 30 s.
/// let grant = take(&entry, now);
/// use latchwork::lock_entry::{Turn, LockEntry, Request};
///
/// assert!(grant.is_watched() && grant.token().is_none() && grant.ends() == Moment::NEVER);
/// let entered = entry.enter(&Request::new(1), Some(waker.clone()), now, &mut effects);
/// let Turn::Granted(inner, None) = entered else { panic!("owner 1 has it already") };
/// assert_eq!(inner.serial(), grant.serial());
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    pub(super) serial: u64,
    pub(super) token: Option<NonZeroU64>,
    /// When its own lease ends; `None` if the client renews the lease for it.
    pub(super) own_end: Option<Moment>,
}

impl Grant {
    #[inline]
    pub(super) fn new(serial: u64, token: Option<u64>, own_end: Option<Moment>) -> Self {
        Self { serial, token: token.and_then(NonZeroU64::new), own_end }
    }

    /// The same, for a caller that gives it back once.
    pub(crate) fn copy(&self) -> Self {
        Self { ..*self }
    }

    /// The number of the hold. Rises from one hold of a [`LockEntry`](super::LockEntry) to the next, and no
    /// hold of another one has it; all of an owner's re-entries have the same one.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The fencing token, if one was asked for.
    pub fn token(&self) -> Option<u64> {
        self.token.map(NonZeroU64::get)
    }

    /// Whether the client renews the lease for this acquisition.
    pub fn is_watched(&self) -> bool {
        self.own_end.is_none()
    }

    /// When this acquisition's own lease ends; never, if it did not ask for one. The hold itself may last
    /// longer.
    pub fn ends(&self) -> Moment {
        self.own_end.unwrap_or(Moment::NEVER)
    }

    /// The same hold, with the token that an [`Extension`] brought.
    #[must_use]
    pub fn with_token(self, token: u64) -> Self {
        Self { token: NonZeroU64::new(token), ..self }
    }
}

/// What an acquisition by an owner that has the lock already wants of the store, since the lease in hand is
/// not enough for it.
///
/// # Examples
///
/// ```
#[doc = include_str!("example.md")]
/// # let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// // As in the example of `LockEntry`: owner 1 has the lock, by lease 1, for 30 s.
/// let _grant = take(&entry, now);
/// use latchwork::lock_entry::{Turn, Extension, LockEntry, Request};
///
/// // The same owner takes it once more, for longer than the lease in hand lasts.
/// let minute = Duration::from_secs(60);
/// let entered = entry.enter(&Request::new(1).lease(minute), Some(waker.clone()), now, &mut effects);
/// let Turn::Granted(_, Some(extension)) = entered else { panic!("owner 1 has it already") };
/// assert_eq!(extension, Extension::Renew { number: 1, lease: minute });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// The lease is to last at least as long.
    Renew {
        /// The lease's number.
        number: u64,
        /// How long it is to last from now.
        lease: Duration,
    },
    /// A fencing token is wanted.
    Token {
        /// The lease's number.
        number: u64,
        /// How long it is to last from now, exactly.
        lease: Duration,
    },
}

impl Extension {
    /// The lease's number.
    pub fn number(&self) -> u64 {
        let (Self::Renew { number, .. } | Self::Token { number, .. }) = self;
        *number
    }

    /// The same, of another lease: the one by which the hold goes on.
    #[must_use]
    pub fn of(self, number: u64) -> Self {
        match self {
            Self::Renew { lease, .. } => Self::Renew { number, lease },
            Self::Token { lease, .. } => Self::Token { number, lease },
        }
    }
}

/// Why a hold is over although it was not given back.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// # let client = latchwork::LockClient::local();
/// use latchwork::LossReason;
///
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
    /// It was held for as long as `max_hold` allows.
    HeldTooLong,
    /// The store says that this client does not hold the lock any more: it was forced free, evicted, or lost
    /// in a failover.
    Gone,
    /// A renewal went out, and nothing confirmed it before the lease ended, so it counts as ended: no answer
    /// came, or the store refused.
    Unreachable,
    /// The owner's holds were given back by name, beside a guard that was alive.
    GivenBack,
    /// This process was forked off: the lease is its parent's.
    Forked,
}

impl LossReason {
    /// Whether time has ended the hold, and no call.
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
