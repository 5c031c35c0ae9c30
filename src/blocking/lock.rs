//! [`Lock`].

use std::fmt;
use std::time::Duration;

use crate::lock::{Holder, Lease, LockError, LockName, LockStats, Owner};

use super::{Guard, block_on};

/// A named lock, for threads: at most one [`Owner`] has the lock at a time, while its lease lasts.
///
/// The async twin [`Lock`](crate::Lock) explains fairness and safety, [`blocking`](super) use in async code.
///
/// # Panics
///
/// Only the local backend, if the system refuses a background thread at its first use.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use latchwork::Lease;
///
/// # let client = latchwork::blocking::LockClient::local();
/// let lock = client.get_lock("orders:42")?;
/// match lock.try_lock_for(Duration::from_secs(5), Lease::Watched)? {
///     Some(guard) => guard.unlock()?, // … after the work that only one may do …
///     None => println!("another worker is shipping it"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Lock {
    inner: crate::Lock,
}

impl Lock {
    /// Wraps a lock for use by threads.
    pub fn from_async(lock: crate::Lock) -> Self {
        Self { inner: lock }
    }

    /// The same lock, for tasks.
    pub fn as_async(&self) -> &crate::Lock {
        &self.inner
    }

    /// The same lock, for re-entrant use by `owner` from any thread: free once each guard is gone.
    #[must_use]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self { inner: self.inner.owned_by(owner) }
    }

    /// The same lock, with fencing tokens from now on. See [`Lock::fenced`](crate::Lock::fenced).
    #[must_use]
    pub fn fenced(&self) -> Self {
        Self { inner: self.inner.fenced() }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.inner.name()
    }

    /// Acquires the lock, blocking this thread. The watchdog renews the lease while the guard lives.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::lock`](crate::Lock::lock).
    pub fn lock(&self) -> Result<Guard, LockError> {
        block_on(self.inner.lock()).map(Guard::from_async)
    }

    /// As [`lock`](Self::lock), with a lease of the caller's own, without renewals.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::lock_with_lease`](crate::Lock::lock_with_lease).
    pub fn lock_with_lease(&self, lease: Duration) -> Result<Guard, LockError> {
        block_on(self.inner.lock_with_lease(lease)).map(Guard::from_async)
    }

    /// Acquires the lock if it is free now. The watchdog renews the lease while the guard lives.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::try_lock`](crate::Lock::try_lock).
    pub fn try_lock(&self) -> Result<Option<Guard>, LockError> {
        Ok(block_on(self.inner.try_lock())?.map(Guard::from_async))
    }

    /// Acquires the lock, blocking this thread for at most `wait`. `None` if another owner has the lock then.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::try_lock_for`](crate::Lock::try_lock_for).
    pub fn try_lock_for(&self, wait: Duration, lease: impl Into<Lease>) -> Result<Option<Guard>, LockError> {
        Ok(block_on(self.inner.try_lock_for(wait, lease))?.map(Guard::from_async))
    }

    /// Releases one hold of `owner`: a [forgotten](Guard::forget) hold, or else the hold of a guard.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::unlock`](crate::Lock::unlock).
    pub fn unlock(&self, owner: &Owner) -> Result<(), LockError> {
        block_on(self.inner.unlock(owner))
    }

    /// Frees the lock, whichever owner has it; another kind of lock stays. True if the lock was held.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::force_unlock`](crate::Lock::force_unlock).
    pub fn force_unlock(&self) -> Result<bool, LockError> {
        block_on(self.inner.force_unlock())
    }

    /// The holder of the lock, among all clients, if any. See [`Lock::holder`](crate::Lock::holder).
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::holder`](crate::Lock::holder).
    pub fn holder(&self) -> Result<Option<Holder>, LockError> {
        block_on(self.inner.holder())
    }

    /// True if the lock is held, by any client.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::is_locked`](crate::Lock::is_locked).
    pub fn is_locked(&self) -> Result<bool, LockError> {
        block_on(self.inner.is_locked())
    }

    /// True if `owner` has the lock.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::is_held_by`](crate::Lock::is_held_by).
    pub fn is_held_by(&self, owner: &Owner) -> Result<bool, LockError> {
        block_on(self.inner.is_held_by(owner))
    }

    /// The number of holds of `owner`; 0 if there is none.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::hold_count`](crate::Lock::hold_count).
    pub fn hold_count(&self, owner: &Owner) -> Result<u64, LockError> {
        block_on(self.inner.hold_count(owner))
    }

    /// The time until the lease ends without a renewal, [`Duration::MAX`] if never; `None` without a lease.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::remaining`](crate::Lock::remaining).
    pub fn remaining(&self) -> Result<Option<Duration>, LockError> {
        block_on(self.inner.remaining())
    }

    /// The events of this name in this client, by tasks and threads. See [`Lock::stats`](crate::Lock::stats).
    pub fn stats(&self) -> LockStats {
        self.inner.stats()
    }

    /// The number of tasks and threads that wait for this lock. See [`Lock::waiting`](crate::Lock::waiting).
    pub fn waiting(&self) -> usize {
        self.inner.waiting()
    }

    /// The length of this client's queue for this lock: [`waiting`](Self::waiting) without the queue head.
    pub fn waiters(&self) -> usize {
        self.inner.waiters()
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Lock").field(&self.inner).finish()
    }
}
