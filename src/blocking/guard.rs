//! [`Guard`].

use std::fmt;
use std::time::Duration;

use crate::lock::{LockError, LockName, Owner};
use crate::lock_entry::LossReason;

use super::block_on;

/// One hold on a lock, for threads. While the guard and its lease last, only its owner has the lock.
///
/// A drop, also by a panic, releases in the background; at the end of `main`,
/// [`LockClient::shutdown`](super::LockClient::shutdown) waits. The async twin is [`Guard`](crate::Guard).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// # let client = latchwork::blocking::LockClient::local();
/// let guard = client.get_lock("orders:42")?.lock_with_lease(Duration::from_millis(20))?;
/// assert!(guard.is_held());
/// println!("too late: {}", guard.lost());
/// assert!(guard.unlock().unwrap_err().is_not_held());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a guard gives the lock back at once"]
pub struct Guard {
    inner: crate::Guard,
}

impl Guard {
    /// Wraps a task's hold for use by a thread.
    pub fn from_async(guard: crate::Guard) -> Self {
        Self { inner: guard }
    }

    /// Converts the hold for use by a task.
    pub fn into_async(self) -> crate::Guard {
        self.inner
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.inner.name()
    }

    /// The owner of the hold.
    pub fn owner(&self) -> &Owner {
        self.inner.owner()
    }

    /// The acquisition's fencing token, if the lock is [fenced](super::Lock::fenced).
    pub fn fencing_token(&self) -> Option<u64> {
        self.inner.fencing_token()
    }

    /// True if this process knows of no loss; asks no server. See [`Guard::is_held`](crate::Guard::is_held).
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// The known time until the lease ends without a renewal; zero if the hold is lost.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Blocks this thread until the hold is lost, and returns the reason.
    pub fn lost(&self) -> LossReason {
        block_on(self.inner.lost())
    }

    /// As [`lost`](Self::lost), for at most `timeout`, then `None`. A timeout of zero checks once.
    pub fn lost_timeout(&self, timeout: Duration) -> Option<LossReason> {
        block_on(self.inner.lost_timeout(timeout))
    }

    /// Asks the store if the lock is still held. See [`Guard::ensure_held`](crate::Guard::ensure_held).
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the hold is lost. [`LockError::Backend`] if the store could not be asked.
    pub fn ensure_held(&self) -> Result<(), LockError> {
        block_on(self.inner.ensure_held())
    }

    /// Makes the lease last for at least `lease` from now. See [`Guard::extend`](crate::Guard::extend).
    ///
    /// # Errors
    ///
    /// The errors of [`Guard::extend`](crate::Guard::extend).
    pub fn extend(&mut self, lease: Duration) -> Result<(), LockError> {
        block_on(self.inner.extend(lease))
    }

    /// Releases this hold. [`Guard::unlock`](crate::Guard::unlock) explains `Ok`.
    ///
    /// # Errors
    ///
    /// The errors of [`Guard::unlock`](crate::Guard::unlock), with their meaning for the work.
    pub fn unlock(self) -> Result<(), LockError> {
        block_on(self.inner.unlock())
    }

    /// Keeps the lock, without renewals, until its lease ends or [`Lock::unlock`](super::Lock::unlock).
    pub fn forget(self) {
        self.inner.forget();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Guard").field(&self.inner).finish()
    }
}
