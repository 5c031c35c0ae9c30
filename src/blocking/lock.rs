//! [`Lock`].

use std::fmt;
use std::time::Duration;

use crate::lock::{Holder, Lease, LockError, LockName, LockStats, Owner};

use super::{Guard, block_on};

/// A named lock, for threads: at most one [`Owner`] has it at a time, until it lets go or its lease is over.
///
/// Its twin is [`Lock`](crate::Lock), which says more about fairness and safety. What happens inside of async
/// code is told in [`blocking`](super).
///
/// # Panics
///
/// Not by itself. The local backend does if the system refuses it a background thread, when that is first
/// needed.
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
    /// The same lock, for threads.
    pub fn from_async(lock: crate::Lock) -> Self {
        Self { inner: lock }
    }

    /// The same lock, for tasks.
    pub fn as_async(&self) -> &crate::Lock {
        &self.inner
    }

    /// The same lock, taken by `owner` from now on: this owner can take it again, from any thread, and it is
    /// free when each guard is gone.
    #[must_use]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self { inner: self.inner.owned_by(owner) }
    }

    /// The same lock, with a token for each acquisition from now on. See
    /// [`Lock::fenced`](crate::Lock::fenced).
    #[must_use]
    pub fn fenced(&self) -> Self {
        Self { inner: self.inner.fenced() }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.inner.name()
    }

    /// Takes the lock, blocking this thread as long as it takes. The watchdog renews its lease while the
    /// guard lives.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock`](crate::Lock::lock).
    pub fn lock(&self) -> Result<Guard, LockError> {
        block_on(self.inner.lock()).map(Guard::from_async)
    }

    /// As [`lock`](Self::lock), with a lease of the caller's own, which is not renewed.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock_with_lease`](crate::Lock::lock_with_lease).
    pub fn lock_with_lease(&self, lease: Duration) -> Result<Guard, LockError> {
        block_on(self.inner.lock_with_lease(lease)).map(Guard::from_async)
    }

    /// Takes the lock if it is free now. The watchdog renews its lease while the guard lives.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::try_lock`](crate::Lock::try_lock).
    pub fn try_lock(&self) -> Result<Option<Guard>, LockError> {
        Ok(block_on(self.inner.try_lock())?.map(Guard::from_async))
    }

    /// Takes the lock, blocking this thread for it no longer than `wait`. `None` if it is held by another
    /// then.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::try_lock_for`](crate::Lock::try_lock_for).
    pub fn try_lock_for(&self, wait: Duration, lease: impl Into<Lease>) -> Result<Option<Guard>, LockError> {
        Ok(block_on(self.inner.try_lock_for(wait, lease))?.map(Guard::from_async))
    }

    /// Gives back one hold of `owner`: one whose guard was [forgotten](Guard::forget), or else one that a
    /// guard has. See [`Lock::unlock`](crate::Lock::unlock).
    ///
    /// # Errors
    ///
    /// Those of [`Lock::unlock`](crate::Lock::unlock).
    pub fn unlock(&self, owner: &Owner) -> Result<(), LockError> {
        block_on(self.inner.unlock(owner))
    }

    /// Frees the lock, whichever owner has it, and wakes a waiter. True if it was held. Another kind of lock
    /// of that name is left alone.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::force_unlock`](crate::Lock::force_unlock).
    pub fn force_unlock(&self) -> Result<bool, LockError> {
        block_on(self.inner.force_unlock())
    }

    /// The holder of the lock, among all clients: `None` if it is free. See
    /// [`Lock::holder`](crate::Lock::holder).
    ///
    /// # Errors
    ///
    /// Those of [`Lock::holder`](crate::Lock::holder).
    pub fn holder(&self) -> Result<Option<Holder>, LockError> {
        block_on(self.inner.holder())
    }

    /// Whether the lock is held, by any client.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::is_locked`](crate::Lock::is_locked).
    pub fn is_locked(&self) -> Result<bool, LockError> {
        block_on(self.inner.is_locked())
    }

    /// Whether `owner` has the lock.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::is_held_by`](crate::Lock::is_held_by).
    pub fn is_held_by(&self, owner: &Owner) -> Result<bool, LockError> {
        block_on(self.inner.is_held_by(owner))
    }

    /// How often `owner` has the lock; 0 if it has not.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::hold_count`](crate::Lock::hold_count).
    pub fn hold_count(&self, owner: &Owner) -> Result<u64, LockError> {
        block_on(self.inner.hold_count(owner))
    }

    /// How long the lock's lease lasts without a renewal: `None` if the lock is free, [`Duration::MAX`] if it
    /// never ends.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::remaining`](crate::Lock::remaining).
    pub fn remaining(&self) -> Result<Option<Duration>, LockError> {
        block_on(self.inner.remaining())
    }

    /// What happened to this name through this client, by tasks and threads. See
    /// [`Lock::stats`](crate::Lock::stats).
    pub fn stats(&self) -> LockStats {
        self.inner.stats()
    }

    /// How many tasks and threads of this client wait for this lock, the one that competes at the store
    /// included. See [`Lock::waiting`](crate::Lock::waiting).
    pub fn waiting(&self) -> usize {
        self.inner.waiting()
    }

    /// How many tasks and threads wait for this lock in this client's queue. The queue head, which competes
    /// at the store, is not among them: [`waiting`](Self::waiting) counts it, too.
    pub fn waiters(&self) -> usize {
        self.inner.waiters()
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Lock").field(&self.inner).finish()
    }
}
