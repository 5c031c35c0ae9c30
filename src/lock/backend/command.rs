//! What goes with the commands of a [`Backend`](super::Backend): what is asked for, and what is answered.

use std::time::Duration;

use crate::lock_entry::Moment;

use super::mode::Mode;
use crate::lock::backend::LockKind;
use crate::lock::name::LockName;
use crate::lock::owner::LeaseId;

/// What an attempt to take a lock asks for.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use std::time::{Duration, Instant};
/// use latchwork::backend::{AcquireOutcome, AcquireRequest, Backend, LeaseId, LockName, Mode};
/// use latchwork::local::Local;
///
/// # let id: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse()?;
/// # let (name, lease, now) = (LockName::new("orders:42")?, Duration::from_secs(30), Instant::now().into());
/// let request = AcquireRequest::new(id, lease, now).tokens(3);
/// let outcome = Local::new().acquire(Mode::Plain, &name, &request).await?;
/// assert_eq!(outcome, AcquireOutcome::Acquired { last_token: 3 }); // and with it 1 and 2
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// The lease.
    pub id: LeaseId,
    /// How long it is to last from now, at least.
    pub lease: Duration,
    /// How many fencing tokens to reserve; 0 if none. To read: above 0 if one is wanted.
    pub tokens: u64,
    /// The position that its waiter is to have if the lock is not granted; `None` if it does not wait. Of no
    /// plain lock.
    pub position: Option<QueuePosition>,
    /// The lease under which the same owner writes: it is let in beside itself. To read only.
    pub under: Option<LeaseId>,
    /// The time by the [runtime's](super::Backend::runtime) clock, which the caller has looked at anyway. A
    /// store that counts leases by that clock may count this one from then; others leave it.
    pub sent: Moment,
}

impl AcquireRequest {
    /// Asks for a lease, and for nothing beside it.
    #[inline]
    pub fn new(id: LeaseId, lease: Duration, sent: Moment) -> Self {
        Self { id, lease, tokens: 0, position: None, under: None, sent }
    }

    /// The same with so many fencing tokens.
    #[inline]
    #[must_use]
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = tokens;
        self
    }

    /// The same with a position for its waiter.
    #[inline]
    #[must_use]
    pub fn position(mut self, position: impl Into<Option<QueuePosition>>) -> Self {
        self.position = position.into();
        self
    }

    /// The same, to read under a lease to write.
    #[inline]
    #[must_use]
    pub fn under(mut self, under: impl Into<Option<LeaseId>>) -> Self {
        self.under = under.into();
        self
    }
}

/// A position in the store's queue of a name.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
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
/// // The next one has waited for 2 s in its process, and goes before all that have waited for less.
/// let position = QueuePosition { waited: Duration::from_secs(2), kept: Duration::from_secs(10) };
/// let request = AcquireRequest::new(other, lease, now).position(position);
/// let outcome = local.acquire(Mode::Fair, &name, &request).await?;
/// assert!(matches!(outcome, AcquireOutcome::Held { .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// For how long its waiter has waited. The queue is in the order in which the waiters began to wait.
    pub waited: Duration,
    /// For how long the position is kept if it is not asked for again. A lease that the store grants to it
    /// unasked ends then, too.
    pub kept: Duration,
}

/// The waiter of the releasing client that is next.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
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
    /// The lease that is asked for, new.
    pub id: LeaseId,
    /// How long it is to last from the release on.
    pub lease: Duration,
    /// How many fencing tokens to reserve.
    pub tokens: u64,
    /// Its position, should others come first.
    pub position: QueuePosition,
}

/// What an attempt to take a lock came to.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use std::time::{Duration, Instant};
/// use latchwork::backend::{AcquireOutcome, AcquireRequest, Backend, LeaseId, LockName, Mode};
/// use latchwork::local::Local;
///
/// # let id: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse()?;
/// # let other: LeaseId = "0b1a3a5e-4bd2-4b4b-9f0e-2a8f5b0f7f11:1".parse()?;
/// # let (name, lease, now) = (LockName::new("orders:42")?, Duration::from_secs(30), Instant::now().into());
/// let (local, acquire) = (Local::new(), |id| AcquireRequest::new(id, lease, now));
/// let first = local.acquire(Mode::Plain, &name, &acquire(id)).await?;
/// assert_eq!(first, AcquireOutcome::Acquired { last_token: 0 });
/// let second = local.acquire(Mode::Plain, &name, &acquire(other)).await?;
/// assert!(matches!(second, AcquireOutcome::Held { left } if left <= lease));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// The lease is granted, or lasts longer.
    Acquired {
        /// The last of the fencing tokens that were asked for; 0 if none were.
        last_token: u64,
    },
    /// Another id has the lock, or comes before this one.
    Held {
        /// When to ask again at the latest, if no message comes before: how long its lease lasts if it is not
        /// renewed, [`Duration::MAX`] if it never ends; less if its release may go unheard.
        left: Duration,
    },
}

/// What a release came to.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
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
/// let again = local.release(Mode::Plain, &name, &id, None).await?;
/// assert_eq!(again, ReleaseOutcome::NotHeld);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The lock is free, or granted to another waiter. The next waiter of this client, if one was named, is
    /// in the queue.
    Released {
        /// How many subscribers the message of a plain lock went to, beside those of this process; 0 if that
        /// is not known. For fairness between processes only.
        receivers: usize,
    },
    /// The next waiter of this client has the lock.
    GrantedToNext {
        /// The last of the fencing tokens that were asked for; 0 if none were.
        last_token: u64,
    },
    /// The id did not have the lock. It is in the queue no more, and the next waiter has not been put there.
    NotHeld,
}

/// A lease of a lock, as the store tells it.
///
/// That is all that a store keeps. It has no time at which a lock was taken: a lease says when it ends, and
/// each renewal moves that. Nor has it the [`Owner`](crate::Owner), which is known in the holder's process
/// alone; that lists [its own holds](crate::LockClient::held) with both. A
/// [label](crate::LockOptions::label) is a part of the lease's id, and so needs no field that Redisson would
/// not expect.
///
/// # What there is
///
/// | `id` | `mode` | under the name is |
/// |---|---|---|
/// | its lease and label | as what it is held | a lock of this crate, or a read-write lock of Redisson's |
/// | its lease | `None` | another lock of Redisson's |
/// | a writer's lease in memory, otherwise `None` | `Read`, `Write` | a read-write lock, and a plain or fair one was asked for |
/// | `None` | `None` | no lock: what another program keeps there. A value of another type is refused by all that takes the lock, with what to do about it |
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// # let client = latchwork::LockClient::local();
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
    /// The lease; `None` if what is there is not of the form of a [`LeaseId`].
    pub id: Option<LeaseId>,
    /// How long the lease lasts if it is not renewed; [`Duration::MAX`] if it never ends.
    pub left: Duration,
    /// As what the name is held, which need not be what was asked for; `None` if the store does not say, as
    /// of Redisson's plain and fair locks.
    pub mode: Option<Mode>,
}

impl Holder {
    /// A lease that lasts for so long, of a mode that is not known.
    pub fn new(id: Option<LeaseId>, left: Duration) -> Self {
        Self { id, left, mode: None }
    }

    /// The same, held as that.
    #[must_use]
    pub fn mode(mut self, mode: impl Into<Option<Mode>>) -> Self {
        self.mode = mode.into();
        self
    }
}

/// One lease of one name, as [`Backend::renew`](super::Backend::renew) takes them.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
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
    /// The lock.
    pub name: LockName,
    /// The lease.
    pub id: LeaseId,
}

/// Where a waiter hears that it has the lock, or is to ask for it.
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
/// assert_eq!(channels("orders:42").common, None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Channels {
    /// The one that it always listens to.
    pub own: String,
    /// Another one that all clients listen to, if there is one.
    pub common: Option<String>,
}

impl Channels {
    /// One channel, and no other.
    pub fn one(own: impl Into<String>) -> Self {
        Self { own: own.into(), common: None }
    }

    /// Both, or the one that there is.
    pub(in crate::lock) fn all(&self) -> impl Iterator<Item = &str> {
        [&*self.own].into_iter().chain(self.common.as_deref())
    }
}

/// What an error of a backend says about the command that met it.
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
/// assert_eq!(failure(&ErrorKind::TimedOut.into()), Failure::Indeterminate);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// The store answered, and refused. The command did not run; without a change of configuration or rights
    /// it never will.
    Refused,
    /// The store could not be reached. The command did not run; trying again may help.
    Unreachable,
    /// There was no answer. The command may have run.
    Indeterminate,
    /// The store answered: the name is held as another kind of lock. Nothing was changed.
    OtherKind(LockKind),
}
