//! Requests and answers of the commands of a [`Backend`](super::Backend).

use std::time::Duration;

use crate::lock_entry::Moment;

use super::mode::Mode;
use crate::lock::backend::LockKind;
use crate::lock::name::LockName;
use crate::lock::owner::LeaseId;

/// An attempt to acquire a lock.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::{Duration, Instant};
/// use latchwork::backend::{AcquireOutcome, AcquireRequest, Backend, LeaseId, LockName, Mode};
/// use latchwork::local::Local;
///
/// # let id: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse()?;
/// # let (name, lease, now) = (LockName::new("orders:42")?, Duration::from_secs(30), Instant::now().into());
/// let request = AcquireRequest::new(id, lease, now).tokens(3);
/// let outcome = Local::new().acquire(Mode::Plain, &name, &request).await?;
/// assert_eq!(outcome, AcquireOutcome::Acquired { last_token: 3 }); // tokens 1, 2 and 3
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// The lease to acquire.
    pub id: LeaseId,
    /// The least time from now for which the lease lasts.
    pub lease: Duration,
    /// The number of fencing tokens to reserve; 0 for none. To read: any number above 0 asks for one token.
    pub tokens: u64,
    /// The waiter's position if the lock is not granted; `None` without a wait, and for plain locks unless
    /// the store [calls waiters](super::Backend::calls_waiters).
    pub position: Option<QueuePosition>,
    /// Leaves a free plain lock to the clients that wait, as this client held the lock last.
    pub yields: bool,
    /// The lease under which the same owner writes and may therefore read. To read only.
    pub under: Option<LeaseId>,
    /// The permits to take, for [`Permits`](Mode::Permits) only.
    pub permits: Option<Permits>,
    /// The send time, by the clock of the [runtime](super::Backend::runtime). A store that counts leases by
    /// that clock may count this lease from `sent`; other stores ignore the field.
    pub sent: Moment,
}

impl AcquireRequest {
    /// Asks for a lease alone: no token, no position.
    #[inline]
    pub fn new(id: LeaseId, lease: Duration, sent: Moment) -> Self {
        Self { id, lease, tokens: 0, position: None, yields: false, under: None, permits: None, sent }
    }

    /// Sets the number of fencing tokens to reserve.
    #[inline]
    #[must_use]
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = tokens;
        self
    }

    /// Sets the queue position of the waiter.
    #[inline]
    #[must_use]
    pub fn position(mut self, position: impl Into<Option<QueuePosition>>) -> Self {
        self.position = position.into();
        self
    }

    /// Leaves a free plain lock to the clients that wait.
    #[inline]
    #[must_use]
    pub fn yields(mut self, yields: bool) -> Self {
        self.yields = yields;
        self
    }

    /// Sets the permits to take.
    #[inline]
    #[must_use]
    pub fn permits(mut self, permits: impl Into<Option<Permits>>) -> Self {
        self.permits = permits.into();
        self
    }

    /// Sets the lease to write under which the owner reads.
    #[inline]
    #[must_use]
    pub fn under(mut self, under: impl Into<Option<LeaseId>>) -> Self {
        self.under = under.into();
        self
    }
}

/// Permits of a semaphore, for one lease.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::{Duration, Instant};
/// use latchwork::backend::{AcquireOutcome, AcquireRequest, Backend, LeaseId, LockName, Mode, Permits};
/// use latchwork::local::Local;
///
/// # let id: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse()?;
/// # let other: LeaseId = "0b1a3a5e-4bd2-4b4b-9f0e-2a8f5b0f7f11:1".parse()?;
/// # let (name, lease, now) = (LockName::new("jobs")?, Duration::from_secs(30), Instant::now().into());
/// let (local, two_of_three) = (Local::new(), Permits { count: 2, capacity: 3 });
/// let acquire = |id| AcquireRequest::new(id, lease, now).permits(two_of_three);
/// let outcome = local.acquire(Mode::Permits, &name, &acquire(id)).await?;
/// assert_eq!(outcome, AcquireOutcome::Acquired { last_token: 0 });
/// let outcome = local.acquire(Mode::Permits, &name, &acquire(other)).await?;
/// assert!(matches!(outcome, AcquireOutcome::Held { .. })); // one permit is left
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Permits {
    /// The number of permits to take, from 1 to `capacity`.
    pub count: u32,
    /// The largest number of permits in use, by all leases, for which this lease is granted.
    pub capacity: u32,
}

/// One permit of one: the permits of a request that names none.
impl Default for Permits {
    fn default() -> Self {
        Self { count: 1, capacity: 1 }
    }
}

/// A position in the store's queue of a name.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::{Duration, Instant};
/// use latchwork::backend::{AcquireOutcome, AcquireRequest, Backend, LeaseId, LockName, Mode, QueuePosition};
/// use latchwork::local::Local;
///
/// # let id: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse()?;
/// # let other: LeaseId = "0b1a3a5e-4bd2-4b4b-9f0e-2a8f5b0f7f11:1".parse()?;
/// # let (name, lease, now) = (LockName::new("orders:42")?, Duration::from_secs(30), Instant::now().into());
/// let local = Local::new();
/// local.acquire(Mode::Fair, &name, &AcquireRequest::new(id, lease, now)).await?;
///
/// // This waiter began to wait 2 s ago in its process, and precedes all later waiters.
/// let position = QueuePosition { waited: Duration::from_secs(2), kept: Duration::from_secs(10) };
/// let request = AcquireRequest::new(other, lease, now).position(position);
/// let outcome = local.acquire(Mode::Fair, &name, &request).await?;
/// assert!(matches!(outcome, AcquireOutcome::Held { .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// The time for which the waiter has waited. The queue is ordered by the start of the wait.
    pub waited: Duration,
    /// The time until the position ends unless the waiter asks again. A lease that a queue grants ends at the
    /// same time; a store that only [calls waiters](super::Backend::calls_waiters) may remember them longer.
    pub kept: Duration,
}

/// The next waiter of the releasing client.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::{Duration, Instant};
/// use latchwork::backend::{
///     AcquireRequest, Backend, LeaseId, LockName, Mode, NextWaiter, QueuePosition, ReleaseOutcome,
/// };
/// use latchwork::local::Local;
///
/// # let id: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse()?;
/// # let other: LeaseId = "0b1a3a5e-4bd2-4b4b-9f0e-2a8f5b0f7f11:1".parse()?;
/// # let (name, lease, now) = (LockName::new("orders:42")?, Duration::from_secs(30), Instant::now().into());
/// let local = Local::new();
/// local.acquire(Mode::Fair, &name, &AcquireRequest::new(id.clone(), lease, now)).await?;
/// let position = QueuePosition { waited: Duration::ZERO, kept: Duration::from_secs(10) };
/// # let own = local.channels(Mode::Fair, &name, &other.client_id()).own;
/// # let _listens = local.registry().subscribe(&own);
/// let next = NextWaiter { id: other, lease, tokens: 0, position };
/// let outcome = local.release(Mode::Fair, &name, &id, Some(&next)).await?;
/// assert_eq!(outcome, ReleaseOutcome::GrantedToNext { last_token: 0 });
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextWaiter {
    /// The new lease for the waiter.
    pub id: LeaseId,
    /// The duration of the lease, from the release on.
    pub lease: Duration,
    /// The number of fencing tokens to reserve.
    pub tokens: u64,
    /// The waiter's position, in case others come first.
    pub position: QueuePosition,
}

/// The outcome of an attempt to acquire a lock.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::{Duration, Instant};
/// use latchwork::backend::{AcquireOutcome, AcquireRequest, Backend, LeaseId, LockName, Mode};
/// use latchwork::local::Local;
///
/// # let id: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse()?;
/// # let other: LeaseId = "0b1a3a5e-4bd2-4b4b-9f0e-2a8f5b0f7f11:1".parse()?;
/// # let (name, lease, now) = (LockName::new("orders:42")?, Duration::from_secs(30), Instant::now().into());
/// let (local, acquire) = (Local::new(), |id| AcquireRequest::new(id, lease, now));
/// local.acquire(Mode::Plain, &name, &acquire(id)).await?;
/// let second = local.acquire(Mode::Plain, &name, &acquire(other)).await?;
/// assert!(matches!(second, AcquireOutcome::Held { left } if left <= lease));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// The lease is granted or prolonged.
    Acquired {
        /// The last of the reserved fencing tokens; 0 if none were requested.
        last_token: u64,
    },
    /// Another id has the lock, or comes before this one.
    Held {
        /// The longest time before the next attempt if no message comes: the rest of the holder's lease,
        /// [`Duration::MAX`] if the lease never ends; less if the release may go unheard.
        left: Duration,
    },
    /// As `Held`, from a store that [calls waiters](super::Backend::calls_waiters): the holder's release will
    /// call no client, and is published on the [common](Channels::common) channel only.
    HeldUncalled {
        /// Same as in `Held`.
        left: Duration,
    },
}

/// The outcome of a release.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::{Duration, Instant};
/// use latchwork::backend::{AcquireRequest, Backend, LeaseId, LockName, Mode, ReleaseOutcome};
/// use latchwork::local::Local;
///
/// # let id: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse()?;
/// # let (name, lease, now) = (LockName::new("orders:42")?, Duration::from_secs(30), Instant::now().into());
/// let local = Local::new();
/// local.acquire(Mode::Plain, &name, &AcquireRequest::new(id.clone(), lease, now)).await?;
/// let first = local.release(Mode::Plain, &name, &id, None).await?;
/// assert_eq!(first, ReleaseOutcome::Released { receivers: 0 });
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The lock is free, or granted to another waiter. The client's next waiter, if any, is in the queue.
    Released {
        /// Subscribers reached by a plain lock's message in other processes, for fairness; 0 if unknown.
        receivers: usize,
    },
    /// The client's next waiter has the lock.
    GrantedToNext {
        /// The last of the reserved fencing tokens; 0 if none were requested.
        last_token: u64,
    },
    /// The id did not have the lock. The id has left the queue, and the next waiter was not enqueued.
    NotHeld,
}

/// A lease on a lock, as the store reports it.
///
/// Only the holder's client knows the [`Owner`](crate::Owner) and the time of acquisition: see
/// [`held`](crate::LockClient::held). The [label](crate::LockOptions::label) is part of the id.
///
/// # Fields by what the name holds
///
/// | `id` | `mode` | under the name is |
/// |---|---|---|
/// | the holder's lease, with its label | the mode of the hold | a lock of this crate, or a read-write lock of Redisson's |
/// | the holder's lease | `None` | another lock of Redisson's |
/// | in memory a writer's lease, otherwise `None` | `Read`, `Write` | a read-write lock, and the question was about a plain or fair lock |
/// | `None` | `None` | data of another program. If the data have another type, acquiring the lock fails, and the error says how to proceed |
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// let lock = client.get_lock("orders:42")?;
/// let guard = lock.lock().await?;
/// let holder = lock.holder().await?.expect("it is held");
/// let id = holder.id.expect("a client of this crate has it");
/// assert_eq!(id.client_id(), client.id());
/// guard.unlock().await?;
/// assert_eq!(lock.holder().await?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The lease; `None` if the text under the name is not a [`LeaseId`].
    pub id: Option<LeaseId>,
    /// The time until the lease ends without a renewal; [`Duration::MAX`] if it never ends.
    pub left: Duration,
    /// The mode of the hold; `None` if unknown, as of Redisson's plain and fair locks.
    pub mode: Option<Mode>,
    /// The number of permits; 1 for a lock.
    pub permits: u32,
}

impl Holder {
    /// A lease that ends after `left`, of an unknown mode.
    pub fn new(id: Option<LeaseId>, left: Duration) -> Self {
        Self { id, left, mode: None, permits: 1 }
    }

    /// Sets the number of permits.
    #[must_use]
    pub fn permits(mut self, permits: u32) -> Self {
        self.permits = permits;
        self
    }

    /// Sets the mode of the hold.
    #[must_use]
    pub fn mode(mut self, mode: impl Into<Option<Mode>>) -> Self {
        self.mode = mode.into();
        self
    }
}

/// One lease of one name, for [`Backend::renew`](super::Backend::renew).
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::{Duration, Instant};
/// use latchwork::backend::{AcquireRequest, Backend, LeaseId, LeaseKey, LockName, Mode};
/// use latchwork::local::Local;
///
/// # let id: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse()?;
/// # let other: LeaseId = "0b1a3a5e-4bd2-4b4b-9f0e-2a8f5b0f7f11:1".parse()?;
/// # let (name, lease, now) = (LockName::new("orders:42")?, Duration::from_secs(30), Instant::now().into());
/// let local = Local::new();
/// local.acquire(Mode::Plain, &name, &AcquireRequest::new(id.clone(), lease, now)).await?;
/// let leases = [id, other].map(|id| LeaseKey { name: name.clone(), id });
/// assert_eq!(local.renew(Mode::Plain, &leases, lease).await?, [true, false]);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseKey {
    /// The name of the lock.
    pub name: LockName,
    /// The lease to renew.
    pub id: LeaseId,
}

/// The channels on which a waiter listens for a grant, or for a free lock.
///
/// # Examples
///
/// ```
/// use latchwork::backend::Channels;
///
/// /// One channel for each lock: all waiters of all clients listen to it.
/// fn channels(name: &str) -> Channels {
///     Channels::one(format!("released:{name}"))
/// }
///
/// assert_eq!(channels("orders:42").own, "released:orders:42");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Channels {
    /// The channel of each wait.
    pub own: String,
    /// A second channel, common to all clients, if the store has one.
    pub common: Option<String>,
}

impl Channels {
    /// Makes an own channel without a common one.
    pub fn one(own: impl Into<String>) -> Self {
        Self { own: own.into(), common: None }
    }

    pub(in crate::lock) fn all(&self) -> impl Iterator<Item = &str> {
        [&*self.own].into_iter().chain(self.common.as_deref())
    }
}

/// The class of a backend's error: tells if the failed command may have run.
///
/// # Examples
///
/// ```
/// use std::io::{Error, ErrorKind};
/// use latchwork::backend::Failure;
///
/// /// For `Backend::failure` of a store behind a socket.
/// fn failure(error: &Error) -> Failure {
///     match error.kind() {
///         ErrorKind::ConnectionRefused => Failure::Unreachable,
///         ErrorKind::PermissionDenied => Failure::Refused,
///         _ => Failure::Indeterminate, // the command may have run
///     }
/// }
///
/// assert_eq!(failure(&ErrorKind::ConnectionRefused.into()), Failure::Unreachable);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// The store refused. The command did not run, and cannot without a change of configuration or rights.
    Refused,
    /// The store could not be reached. The command did not run; a retry may help.
    Unreachable,
    /// No answer came. The command may have run.
    Indeterminate,
    /// The name is held as another kind of lock. The command changed nothing.
    OtherKind(LockKind),
}
