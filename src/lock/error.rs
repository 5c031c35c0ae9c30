//! [`LockError`].

use std::error::Error;
use std::fmt;

use crate::transport::SubscribeError;

use super::backend::HoldKey;
use super::hold::Lost;
use super::lease::LeaseError;
use super::name::LockName;
use super::owner::Owner;

/// Why a lock could not be taken, given back or looked at.
///
/// That somebody else holds it is not an error: then `try_lock` and `try_lock_for` return `None`.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockError {
    /// The lock was to be given back by an owner that does not hold it.
    NotHeld {
        /// The lock.
        name: LockName,
        /// Who wanted to give it back.
        owner: Owner,
    },
    /// The hold was lost before its guard was done with it.
    Lost {
        /// The lock.
        name: LockName,
        /// Who had it.
        owner: Owner,
        /// What became of it.
        why: Lost,
    },
    /// The lease cannot be kept; nothing was sent.
    Lease(LeaseError),
    /// The lock's messages cannot be had, so nobody would wake a waiter.
    Subscribe(SubscribeError),
    /// The backend failed. Its own error is the [`source`](Error::source).
    Backend(Box<dyn Error + Send + Sync>),
}

impl LockError {
    pub(super) fn backend(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Backend(Box::new(error))
    }

    pub(super) fn lost(hold: &HoldKey, why: Lost) -> Self {
        Self::Lost { name: hold.name.clone(), owner: hold.owner.clone(), why }
    }

    /// Whether the lock was not held by the owner that wanted to give it back, or was lost.
    pub fn is_not_held(&self) -> bool {
        matches!(self, Self::NotHeld { .. } | Self::Lost { .. })
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld { name, owner } => write!(
                f,
                "lock {name:?} is not held by {owner}: it was given back already, its lease was over, or it was forced free"
            ),
            Self::Lost { name, owner, why } => {
                write!(
                    f,
                    "lock {name:?} was lost by {owner}: {why}; what was done since then was not protected"
                )
            }
            Self::Lease(error) => error.fmt(f),
            Self::Subscribe(error) => error.fmt(f),
            Self::Backend(_) => f.write_str("the lock's backend failed"),
        }
    }
}

impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NotHeld { .. } | Self::Lost { .. } => None,
            Self::Lease(error) => error.source(),
            Self::Subscribe(error) => error.source(),
            Self::Backend(error) => Some(&**error),
        }
    }
}

impl From<LeaseError> for LockError {
    fn from(error: LeaseError) -> Self {
        Self::Lease(error)
    }
}
