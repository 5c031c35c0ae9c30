//! [`LockError`].

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::lock_entry::LossReason;
use crate::subscription::transport::SubscribeError;

use crate::lock::backend::{Failure, LockKind, Mode};
use crate::lock::lease::LeaseError;
use crate::lock::name::{LockName, NameError};
use crate::lock::owner::{LeaseIdError, Owner};

/// An error of taking, giving back or inspecting a lock.
///
/// A lock that another owner holds is no error: `try_lock` and `try_lock_for` return `None`. Predicates tell
/// how to react, whatever the backend. Every other error of this crate's locks converts by `?`. [Failures]
/// lists each error's causes and remedies.
///
/// [Failures]: https://github.com/latchwork/latchwork/blob/main/docs/failures.md
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// let lock = client.get_lock("orders")?;
/// let guard = lock.lock().await?;
/// lock.force_unlock().await?;
/// let error = guard.unlock().await.unwrap_err();
/// assert!(error.is_lost() && !error.is_retryable());
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum LockError {
    /// The owner that gave the lock back does not hold the lock.
    NotHeld {
        /// The lock.
        name: LockName,
        /// The owner that gave the lock back.
        owner: Owner,
    },
    /// The hold was lost before the guard gave it back.
    Lost {
        /// The lock.
        name: LockName,
        /// The owner that had the lock.
        owner: Owner,
        /// The reason of the loss.
        reason: LossReason,
    },
    /// No lock can be kept under this name.
    Name(NameError),
    /// These locks cannot be taken together.
    MultiLock(MultiLockError),
    /// A semaphore cannot grant so many permits at once, however long the wait: ask for 1 at least, and for
    /// the handle's capacity at most. Nothing was sent.
    Permits {
        /// The semaphore.
        name: LockName,
        /// The number of permits that were asked for; 0 for a handle without permits.
        wanted: u32,
        /// The capacity of the handle.
        capacity: u32,
    },
    /// The backend keeps no locks of this mode.
    Unsupported {
        /// Type of the backend.
        backend: &'static str,
        /// The mode that was asked for.
        mode: Mode,
    },
    /// The lease cannot be kept and nothing was sent, or it ended before the answer and is rolled back.
    Lease(LeaseError),
    /// The lock's messages cannot be subscribed to, so a waiter would not be woken.
    Subscribe(SubscribeError),
    /// The store cannot be connected to, or its URL cannot be used. There is no client yet.
    Connect {
        /// [`Failure::Unreachable`] if the same call may succeed later, as without a server, and also if the
        /// server refused the password or the database; [`Failure::Refused`] if the URL's form, the build or
        /// the store's configuration has to be changed first.
        failure: Failure,
        /// The backend's own error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The backend failed.
    Backend {
        /// The lock.
        name: LockName,
        /// Meaning of the error for the command.
        failure: Failure,
        /// The backend's own error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The hold is over, but the release failed, and is repeated in the background until the store has
    /// answered or the lease is over. The work was done under the lock: do not repeat it.
    ReleasePending {
        /// The lock.
        name: LockName,
        /// Meaning of the error for the first release.
        failure: Failure,
        /// The backend's own error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The name is held as another kind of lock, and nothing was changed. Waiting would not help, as the
    /// other kind's release wakes no waiter here. Give each kind of lock names of its own.
    OtherKind {
        /// The kind that is held under the name.
        found: LockKind,
        /// The backend's own error, with the lock's name added if its text lacks the name.
        source: Box<dyn Error + Send + Sync>,
    },
    /// An owner that reads asked to write, and would wait for itself. Nothing was sent. Take the write lock
    /// first and read under it, or give the read holds back before.
    Upgrade {
        /// The lock.
        name: LockName,
        /// The owner that reads.
        owner: Owner,
    },
    /// The time to wait is over, and since the call began the store has told no waiter of this client that
    /// the lock is held. With such an answer the call would have returned `None`.
    NoAnswer {
        /// The lock.
        name: LockName,
        /// The time to wait.
        wait: Duration,
    },
    /// The client was [shut down](crate::LockClient::shutdown), or [drains](crate::LockClient::drain).
    ShutDown,
    /// A [shutdown](crate::LockClient::shutdown) ended before the holds and releases that it waits for.
    ShutdownUnfinished(ShutdownError),
    /// A text is not the id of a lease.
    LeaseId(LeaseIdError),
    /// The runtime of the backend's timers and connections has ended.
    RuntimeEnded,
    /// This process was forked off from the client's, which has the leases; make a client here.
    Forked,
}

impl LockError {
    pub(super) fn other_kind(name: &LockName, found: LockKind, source: Box<dyn Error + Send + Sync>) -> Self {
        let names_it = source.to_string().contains(&format!("{name:?}"));
        let source = if names_it { source } else { format!("lock {name:?}: {source}").into() };
        Self::OtherKind { found, source }
    }

    pub(super) fn lost(name: &LockName, owner: Owner, reason: LossReason) -> Self {
        Self::Lost { name: name.clone(), owner, reason }
    }

    /// Returns the backend's own error, whose text is in this error's; [`source`](Error::source) goes on.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "redis")] {
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use latchwork::LockError;
    /// use latchwork::redis::{self, ErrorKind, Redis};
    ///
    /// let error = LockError::from(Redis::connect("redis://127.0.0.1:1").await.unwrap_err());
    /// let own: &redis::Error = error.backend_error().unwrap().downcast_ref().unwrap();
    /// assert_eq!(own.kind(), ErrorKind::Connection);
    /// # }); }
    /// ```
    pub fn backend_error(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        match self {
            Self::Backend { source, .. }
            | Self::ReleasePending { source, .. }
            | Self::OtherKind { source, .. }
            | Self::Connect { source, .. } => Some(&**source),
            Self::Subscribe(error) => Some(error.reason()),
            _ => None,
        }
    }

    /// True if the store, or this crate, refuses until a configuration, a right or an argument is changed.
    /// False for a refused password, which the server may accept later: see [`Connect`](Self::Connect).
    pub fn is_refused(&self) -> bool {
        matches!(
            self,
            Self::Name(_)
                | Self::MultiLock(_)
                | Self::Permits { .. }
                | Self::Unsupported { .. }
                | Self::Lease(LeaseError::TooShort | LeaseError::TooLong)
                | Self::Subscribe(_)
                | Self::LeaseId(_)
                | Self::Connect { failure: Failure::Refused, .. }
                | Self::Backend { failure: Failure::Refused, .. }
                | Self::ReleasePending { failure: Failure::Refused, .. }
        )
    }

    /// True if the store could not be reached: nothing was done, and trying again may help.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::NoAnswer { .. }
                | Self::Connect { failure: Failure::Unreachable, .. }
                | Self::Backend { failure: Failure::Unreachable, .. }
        )
    }

    /// True if the store may have run the command; a lease is rolled back then, so trying again may help.
    pub fn is_indeterminate(&self) -> bool {
        matches!(self, Self::Backend { failure: Failure::Indeterminate, .. })
    }

    /// True if the hold is over, and only its release is still repeated in the background. Also for a
    /// shutdown that [waits only for releases](ShutdownError::is_release_pending).
    pub fn is_release_pending(&self) -> bool {
        match self {
            Self::ShutdownUnfinished(error) => error.is_release_pending(),
            _ => matches!(self, Self::ReleasePending { .. }),
        }
    }

    /// True if the hold was lost before it was given back: work since the loss was not protected.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// True if the owner that gave the lock back did not hold the lock, or had lost it.
    pub fn is_not_held(&self) -> bool {
        matches!(self, Self::NotHeld { .. } | Self::Lost { .. })
    }

    /// True if the client is unusable: shut down, without its runtime, or another process's.
    pub fn is_shut_down(&self) -> bool {
        matches!(self, Self::ShutDown | Self::RuntimeEnded | Self::Forked)
    }

    /// True if the name is held as another kind of lock, by this crate or another: names are mixed up.
    pub fn is_other_kind(&self) -> bool {
        matches!(self, Self::OtherKind { .. })
    }

    /// True if an owner that reads asked to write.
    pub fn is_upgrade(&self) -> bool {
        matches!(self, Self::Upgrade { .. })
    }

    /// True if the same call may succeed later, unchanged. False for a [pending
    /// release](Self::is_release_pending), whose work is done, and for a [lost](Self::is_lost) hold, whose
    /// work may be done in part.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use latchwork::{Lock, LockError};
    ///
    /// async fn settle(invoices: &Lock) -> Result<usize, LockError> {
    ///     loop {
    ///         match invoices.run(async { /* … the work … */ 7 }).await {
    ///             Err(error) if error.is_retryable() => {
    ///                 eprintln!("{error}");
    ///                 tokio::time::sleep(Duration::from_secs(1)).await;
    ///             }
    ///             outcome => return outcome,
    ///         }
    ///     }
    /// }
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # let lock = latchwork::LockClient::local().get_lock("invoices").unwrap();
    /// # assert_eq!(block_on(settle(&lock)).unwrap(), 7);
    /// ```
    pub fn is_retryable(&self) -> bool {
        self.is_unreachable()
            || self.is_indeterminate()
            || matches!(self, Self::Lease(LeaseError::OverBeforeAnswer))
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld { name, owner } => write!(
                f,
                "lock {name:?} is not held by {owner}: it was given back already, its lease was over, or it was forced free"
            ),
            Self::Lost { name, owner, reason } => write!(
                f,
                "lock {name:?} was lost by {owner}: {reason}; what was done since then was not protected"
            ),
            Self::Upgrade { name, owner } => write!(
                f,
                "{owner} reads {name:?} and would wait for itself to write; take the write lock first, or give the read lock back before"
            ),
            Self::Name(error) => error.fmt(f),
            Self::MultiLock(error) => error.fmt(f),
            Self::Permits { name, capacity: 0, .. } => {
                write!(f, "semaphore {name:?} has a capacity of 0, and would never grant a permit; use at least 1")
            }
            Self::Permits { name, wanted: 0, capacity } => {
                write!(f, "0 permits of semaphore {name:?} were asked for; ask for 1 to {capacity}")
            }
            Self::Permits { name, wanted, capacity } => write!(
                f,
                "{wanted} permits of semaphore {name:?} were asked for by a handle with a capacity of {capacity}, which \
                 would never be granted; ask for at most {capacity}, or make the handle with a greater capacity"
            ),
            Self::Unsupported { backend, mode } => write!(
                f,
                "{backend} keeps no {mode} locks; use a backend that does, such as the one in memory or Redis, or another mode"
            ),
            Self::Lease(error) => error.fmt(f),
            Self::Subscribe(error) => error.fmt(f),
            Self::Connect { source, .. } => source.fmt(f),
            Self::ShutdownUnfinished(error) => error.fmt(f),
            Self::LeaseId(error) => error.fmt(f),
            Self::Backend { name, failure, source } => {
                let advice = match failure {
                    Failure::Unreachable | Failure::Indeterminate => "; try again later",
                    // The backend's own text tells what to change.
                    Failure::Refused | Failure::OtherKind(_) => "",
                };
                write!(f, "lock {name:?}: {source}{advice}")
            }
            Self::OtherKind { source, .. } => write!(f, "{source}; give each kind of lock names of its own"),
            Self::ReleasePending { name, source, .. } => write!(
                f,
                "the hold on lock {name:?} is over, but its release failed ({source}) and is repeated in the \
                 background until the lease ends: do not repeat the work that the lock protected"
            ),
            Self::NoAnswer { name, wait } => write!(
                f,
                "the store did not say within {wait:?} whether lock {name:?} is held; wait longer, or try again later"
            ),
            Self::ShutDown => f.write_str(
                "the lock client drains or was shut down; make another one if the process goes on",
            ),
            Self::RuntimeEnded => f.write_str(
                "the runtime that the lock's backend lives on has ended; keep it for as long as the client",
            ),
            Self::Forked => f.write_str(
                "this process was forked off from the one that made the lock client; make a client after the fork",
            ),
        }
    }
}

impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Subscribe(error) => error.source(),
            // This error's text includes the backend error's, and a chain says each cause once.
            _ => self.backend_error()?.source(),
        }
    }
}

/// Why locks cannot be taken together. Nothing was sent.
///
/// # Examples
///
/// ```
/// use latchwork::{LockClient, LockError, MultiLockError};
///
/// let client = LockClient::local();
/// let error = client.get_multi_lock([]).unwrap_err();
/// assert!(matches!(error, LockError::MultiLock(MultiLockError::Empty)) && error.is_refused());
///
/// let prices = client.get_read_write_lock("prices")?;
/// let error = client.get_multi_lock([prices.read(), prices.write()]).unwrap_err();
/// assert!(matches!(error, LockError::MultiLock(MultiLockError::TwoKinds { .. })));
/// # Ok::<(), LockError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MultiLockError {
    /// The set has no lock.
    Empty,
    /// The lock was made by another client than the set.
    OtherClient {
        /// The lock.
        name: LockName,
    },
    /// The set has the name as two kinds of lock, or to read and to write.
    TwoKinds {
        /// The lock.
        name: LockName,
        /// The two modes.
        modes: [Mode; 2],
    },
    /// The set has the name for two owners, and would wait for itself. A handle without an
    /// [owner](crate::Lock::owned_by) and a handle with an owner are two.
    TwoOwners {
        /// The lock.
        name: LockName,
    },
}

impl fmt::Display for MultiLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the set of locks is empty; give it at least one lock"),
            Self::OtherClient { name } => write!(
                f,
                "lock {name:?} was made by another client than the set; make the set and all of its locks by one client"
            ),
            Self::TwoKinds { name, modes: [one, other] } => write!(
                f,
                "the set has lock {name:?} as {one} and as {other}; give the name once, and to read and write give the write lock"
            ),
            Self::TwoOwners { name } => write!(
                f,
                "the set has lock {name:?} for two owners, and would wait for itself; give the name once, or for one owner"
            ),
        }
    }
}

impl Error for MultiLockError {}

/// Holds and releases that a [shutdown](crate::LockClient::shutdown) did not see the end of.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// use std::time::Duration;
///
/// let guard = client.get_lock("orders:42")?.lock().await?;
/// let error = client.shutdown(Duration::ZERO).await.unwrap_err();
/// assert_eq!(error.held(), [guard.name().clone()]);
/// guard.unlock().await?;
/// client.shutdown(Duration::from_secs(5)).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShutdownError {
    pub(super) releasing: Vec<LockName>,
    pub(super) held: Vec<LockName>,
    pub(super) forked: bool,
}

impl ShutdownError {
    /// True in a process forked off after the client was made: locks and shutdown are the parent's.
    pub fn is_forked(&self) -> bool {
        self.forked
    }

    /// True if only releases were not answered: no work is lost, and the locks are free by their leases' end.
    pub fn is_release_pending(&self) -> bool {
        self.held.is_empty() && !self.forked
    }

    /// Locks whose release the store has not answered, each once; without the [held](Self::held) ones.
    pub fn releasing(&self) -> &[LockName] {
        &self.releasing
    }

    /// Locks that guards of this client still hold, each once.
    pub fn held(&self) -> &[LockName] {
        &self.held
    }
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.forked {
            return f.write_str(
                "the lock client was made before this process was forked off; shut it down in the parent",
            );
        }
        f.write_str("the lock client was shut down too soon: ")?;
        match (&*self.releasing, &*self.held) {
            (releasing, []) => {
                write!(f, "the release of {releasing:?} was not answered; ")?;
                f.write_str("call shutdown again to wait longer, or leave them to their leases")
            }
            ([], held) => write!(f, "{held:?} are held still; drop their guards and call shutdown again"),
            (releasing, held) => write!(
                f,
                "the release of {releasing:?} was not answered, and {held:?} are held still; drop their guards \
                 and call shutdown again"
            ),
        }
    }
}

impl Error for ShutdownError {}

impl From<NameError> for LockError {
    fn from(error: NameError) -> Self {
        Self::Name(error)
    }
}

impl From<MultiLockError> for LockError {
    fn from(error: MultiLockError) -> Self {
        Self::MultiLock(error)
    }
}

impl From<LeaseError> for LockError {
    fn from(error: LeaseError) -> Self {
        Self::Lease(error)
    }
}

impl From<SubscribeError> for LockError {
    fn from(error: SubscribeError) -> Self {
        Self::Subscribe(error)
    }
}

impl From<ShutdownError> for LockError {
    fn from(error: ShutdownError) -> Self {
        Self::ShutdownUnfinished(error)
    }
}

impl From<LeaseIdError> for LockError {
    fn from(error: LeaseIdError) -> Self {
        Self::LeaseId(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Predicate = fn(&LockError) -> bool;

    fn said_of(error: &LockError) -> Vec<&'static str> {
        let all: [(_, Predicate); 10] = [
            ("refused", LockError::is_refused),
            ("unreachable", LockError::is_unreachable),
            ("indeterminate", LockError::is_indeterminate),
            ("retryable", LockError::is_retryable),
            ("release pending", LockError::is_release_pending),
            ("lost", LockError::is_lost),
            ("not held", LockError::is_not_held),
            ("shut down", LockError::is_shut_down),
            ("other kind", LockError::is_other_kind),
            ("upgrade", LockError::is_upgrade),
        ];
        all.iter().filter(|(_, holds)| holds(error)).map(|(said, _)| *said).collect()
    }

    #[test]
    fn each_error_is_what_it_is_and_nothing_else() {
        let (name, owner) = (LockName::new("orders").unwrap(), Owner::new(uuid::Uuid::nil(), 1));
        let source = || Box::<dyn Error + Send + Sync>::from("busy");
        let of_backend = |failure| LockError::Backend { name: name.clone(), failure, source: source() };
        let pending = |failure| LockError::ReleasePending { name: name.clone(), failure, source: source() };
        let connect = |failure| LockError::Connect { failure, source: source() };
        let backend = "Local";
        let expected: [(LockError, &[&str]); 23] = [
            (LockError::NotHeld { name: name.clone(), owner }, &["not held"]),
            (LockError::lost(&name, owner, LossReason::Gone), &["lost", "not held"]),
            (LockError::Name(NameError::Empty), &["refused"]),
            (LockError::MultiLock(MultiLockError::Empty), &["refused"]),
            (LockError::Permits { name: name.clone(), wanted: 6, capacity: 5 }, &["refused"]),
            (LockError::Unsupported { backend, mode: Mode::Fair }, &["refused"]),
            (LockError::Lease(LeaseError::TooShort), &["refused"]),
            (LockError::Lease(LeaseError::TooLong), &["refused"]),
            (LockError::Lease(LeaseError::OverBeforeAnswer), &["retryable"]),
            (LockError::Subscribe(SubscribeError::new("no right")), &["refused"]),
            (connect(Failure::Refused), &["refused"]),
            (connect(Failure::Unreachable), &["unreachable", "retryable"]),
            (of_backend(Failure::Refused), &["refused"]),
            (of_backend(Failure::Unreachable), &["unreachable", "retryable"]),
            (of_backend(Failure::Indeterminate), &["indeterminate", "retryable"]),
            (pending(Failure::Refused), &["refused", "release pending"]),
            (pending(Failure::Unreachable), &["release pending"]),
            (LockError::other_kind(&name, LockKind::Fair, source()), &["other kind"]),
            (LockError::Upgrade { name: name.clone(), owner }, &["upgrade"]),
            (LockError::NoAnswer { name: name.clone(), wait: Duration::ZERO }, &["unreachable", "retryable"]),
            (LockError::ShutDown, &["shut down"]),
            (LockError::RuntimeEnded, &["shut down"]),
            (LockError::Forked, &["shut down"]),
        ];
        for (error, said) in expected {
            assert_eq!(said_of(&error), said, "{error:?}");
        }
    }

    #[test]
    fn error_of_a_backend_is_there_as_it_was() {
        let name = LockName::new("orders").unwrap();
        let source = || Box::<dyn Error + Send + Sync>::from("busy");
        let error = LockError::Backend { name: name.clone(), failure: Failure::Refused, source: source() };
        assert_eq!(error.backend_error().map(ToString::to_string).as_deref(), Some("busy"));
        let error = LockError::from(SubscribeError::new("no right"));
        assert_eq!(error.backend_error().map(ToString::to_string).as_deref(), Some("no right"));
        assert!(LockError::Name(NameError::Empty).backend_error().is_none());
    }

    #[test]
    fn lock_of_another_kind_is_named_once() {
        let name = LockName::new("orders").unwrap();
        for said in ["it is a fair lock", "lock \"orders\" is a fair lock"] {
            let text = LockError::other_kind(&name, LockKind::Fair, said.into()).to_string();
            assert!(text.contains(said) && text.matches("\"orders\"").count() == 1, "{text}");
        }
    }
}
