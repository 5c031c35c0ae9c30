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

/// Why a lock could not be taken, given back or looked at.
///
/// That another owner holds it is not an error: then `try_lock` and `try_lock_for` return `None`. The
/// predicates say what can be done about an error, without a look at what the backend's own is. Its text says
/// what failed and what to do, the backend's reason included.
///
/// Every other error that this crate's locks and their options, names, clients and connections fail with
/// turns into this one by `?`.
///
/// [What happens when …] says what to do about each, and which events lead to it.
///
/// [What happens when …]: https://github.com/latchwork/latchwork/blob/main/docs/failures.md
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// # let client = latchwork::LockClient::local();
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
    /// The lock was to be given back by an owner that does not hold it.
    NotHeld {
        /// The lock.
        name: LockName,
        /// The owner that was to give it back.
        owner: Owner,
    },
    /// The hold was lost before its guard was done with it.
    Lost {
        /// The lock.
        name: LockName,
        /// The owner that had it.
        owner: Owner,
        /// What became of it.
        reason: LossReason,
    },
    /// No lock can be kept under this name.
    Name(NameError),
    /// The backend keeps no locks of this mode.
    Unsupported {
        /// Its type.
        backend: &'static str,
        /// What was asked for.
        mode: Mode,
    },
    /// The lease cannot be kept; nothing was sent, or it was over before the store's answer was there, and is
    /// rolled back.
    Lease(LeaseError),
    /// The lock's messages cannot be had, so a waiter would not be woken.
    Subscribe(SubscribeError),
    /// The store cannot be connected to, or the URL that names it cannot be used. There is no client yet.
    Connect {
        /// Whether the same call may succeed later: [`Failure::Unreachable`], or [`Failure::Refused`] if the
        /// URL, the build or the store's configuration has to be changed before.
        failure: Failure,
        /// The backend's own error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The backend failed.
    Backend {
        /// The lock.
        name: LockName,
        /// What that says about the command.
        failure: Failure,
        /// The backend's own error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The hold is over, and the store has not been told: the release failed, and is repeated in the
    /// background until the store has answered or the lease is over. There is nothing left to be done, and
    /// nothing to be done again: what the lock protected was done under it.
    ReleasePending {
        /// The lock.
        name: LockName,
        /// What the error says about the first release.
        failure: Failure,
        /// The backend's own error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The name is held as another kind of lock, and nothing was changed. That is not waited for: its release
    /// wakes no waiter here. Give each kind of lock names of its own.
    OtherKind {
        /// The kind that it is held as.
        found: LockKind,
        /// The backend's own error; if that does not name the lock, one with the same text and the name.
        source: Box<dyn Error + Send + Sync>,
    },
    /// An owner that reads wants to write: it would deadlock with itself. Nothing was sent. Let it take
    /// the write lock first, and read under that; or give its read holds back before.
    Upgrade {
        /// The lock.
        name: LockName,
        /// The owner that reads.
        owner: Owner,
    },
    /// The time to wait was over, and since the call began the store had told no waiter of this client that
    /// the lock is held. Had it told one, the call would return `None`.
    NoAnswer {
        /// The lock.
        name: LockName,
        /// The time to wait.
        wait: Duration,
    },
    /// The client was [shut down](crate::LockClient::shutdown).
    ShutDown,
    /// A [shutdown](crate::LockClient::shutdown) ended before all that it waits for had.
    ShutdownUnfinished(ShutdownError),
    /// A text is not a lease's id.
    LeaseId(LeaseIdError),
    /// The runtime that the backend's timers and connections live on has ended.
    RuntimeEnded,
    /// This process was forked off from the one that made the client. The client's leases are the other
    /// process's; make a client here.
    Forked,
}

impl LockError {
    /// `error` of a backend that has found the lock `name` held as another kind.
    pub(super) fn other_kind(name: &LockName, found: LockKind, source: Box<dyn Error + Send + Sync>) -> Self {
        let names_it = source.to_string().contains(&format!("{name:?}"));
        let source = if names_it { source } else { format!("lock {name:?}: {source}").into() };
        Self::OtherKind { found, source }
    }

    pub(super) fn lost(name: &LockName, owner: Owner, reason: LossReason) -> Self {
        Self::Lost { name: name.clone(), owner, reason }
    }

    /// The backend's own error, if this one is of the backend. What its text says, this one's says as well;
    /// and [`source`](Error::source) goes on with its causes.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "redis")] {
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// use latchwork::LockError;
    /// use latchwork::redis::{self, ErrorKind, Redis};
    ///
    /// // No server listens there.
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

    /// Whether the store, or this crate, refused: it will do so again until a configuration, a right or an
    /// argument is changed.
    pub fn is_refused(&self) -> bool {
        matches!(
            self,
            Self::Name(_)
                | Self::Unsupported { .. }
                | Self::Lease(LeaseError::TooShort | LeaseError::TooLong)
                | Self::Subscribe(_)
                | Self::LeaseId(_)
                | Self::Connect { failure: Failure::Refused, .. }
                | Self::Backend { failure: Failure::Refused, .. }
                | Self::ReleasePending { failure: Failure::Refused, .. }
        )
    }

    /// Whether the store could not be reached: nothing was done, and trying again may help.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::NoAnswer { .. }
                | Self::Connect { failure: Failure::Unreachable, .. }
                | Self::Backend { failure: Failure::Unreachable, .. }
        )
    }

    /// Whether it is not known what the store did. What it may have leased is rolled back in the background,
    /// so trying again may help.
    pub fn is_indeterminate(&self) -> bool {
        matches!(self, Self::Backend { failure: Failure::Indeterminate, .. })
    }

    /// Whether the hold is over, as it was to be, and only the store has not been told yet: that is repeated
    /// in the background. Other clients may have to wait for the lock until the store answers, or until the
    /// lease is over. Likewise of a shutdown that [waits for nothing
    /// else](ShutdownError::is_release_pending).
    pub fn is_release_pending(&self) -> bool {
        match self {
            Self::ShutdownUnfinished(error) => error.is_release_pending(),
            _ => matches!(self, Self::ReleasePending { .. }),
        }
    }

    /// Whether the hold was lost before it was given back: what was done since then was not protected.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Whether the lock was not held by the owner that was to give it back, or was lost.
    pub fn is_not_held(&self) -> bool {
        matches!(self, Self::NotHeld { .. } | Self::Lost { .. })
    }

    /// Whether the client cannot be used any more: it was shut down, its runtime has ended, or it is another
    /// process's.
    pub fn is_shut_down(&self) -> bool {
        matches!(self, Self::ShutDown | Self::RuntimeEnded | Self::Forked)
    }

    /// Whether the name is held as another kind of lock, by this crate or another: names are mixed up.
    pub fn is_other_kind(&self) -> bool {
        matches!(self, Self::OtherKind { .. })
    }

    /// Whether an owner that reads wanted to write.
    pub fn is_upgrade(&self) -> bool {
        matches!(self, Self::Upgrade { .. })
    }

    /// Whether the same call may succeed later, with nothing changed. Not of a [release that is
    /// pending](Self::is_release_pending): the work under the lock is done, and is not to be repeated. Nor of
    /// a hold that was [lost](Self::is_lost): the call may succeed, but the work may have been done in part.
    ///
    /// # Examples
    ///
    /// Work that waits for the store to come back, as long as it takes:
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
                    // The backend's own text says what is to be changed.
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
            Self::ShutDown => f.write_str("the lock client was shut down; make another one"),
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
            // Its own text is a part of this error's, and a chain says each cause once.
            _ => self.backend_error()?.source(),
        }
    }
}

/// What a [shutdown](crate::LockClient::shutdown) did not see the end of.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// # let client = latchwork::LockClient::local();
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
    /// Whether this process was forked off after the client was made: its locks are the parent's, and so is
    /// its shutdown.
    pub fn is_forked(&self) -> bool {
        self.forked
    }

    /// Whether no guard is left, and only releases were not answered: no work is lost, and the program may
    /// end. The locks are free when their leases are over, if not before.
    pub fn is_release_pending(&self) -> bool {
        self.held.is_empty() && !self.forked
    }

    /// The locks whose release the store has not answered, each once, without those that are
    /// [held](Self::held) as well.
    pub fn releasing(&self) -> &[LockName] {
        &self.releasing
    }

    /// The locks that this client holds still by guards, each once.
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
                f.write_str("allow more time, or leave them to their leases")
            }
            ([], held) => write!(f, "{held:?} are held still; drop all guards before"),
            (releasing, held) => write!(
                f,
                "the release of {releasing:?} was not answered, and {held:?} are held still; allow more \
                 time, and drop all guards before"
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

    /// By its predicates: those that hold, of all.
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
        let expected: [(LockError, &[&str]); 21] = [
            (LockError::NotHeld { name: name.clone(), owner }, &["not held"]),
            (LockError::lost(&name, owner, LossReason::Gone), &["lost", "not held"]),
            (LockError::Name(NameError::Empty), &["refused"]),
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
