//! Requests of acquisitions, and the holds granted to them.

use std::fmt;
use std::num::NonZeroU64;
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
