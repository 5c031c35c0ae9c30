//! [`Guard`].

use std::fmt;
use std::time::Duration;

use crate::lock::{LockError, LockName, Owner};
use crate::lock_entry::LossReason;

use super::block_on;

/// One hold on a lock, for threads. While it lives, and its lease with it, only its owner has the lock.
///
/// [`unlock`](Self::unlock) gives the hold back and says how that went. Dropping it, by a panic too, gives it
/// back in the background and does not block; at the end of `main`,
/// [`LockClient::shutdown`](super::LockClient::shutdown) waits for that. Its twin is [`Guard`](crate::Guard).
/// No method panics.
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
    /// The same hold, for a thread.
    pub fn from_async(guard: crate::Guard) -> Self {
        Self { inner: guard }
    }

    /// The same hold, for a task.
    pub fn into_async(self) -> crate::Guard {
        self.inner
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.inner.name()
    }

    /// The owner that holds it.
    pub fn owner(&self) -> &Owner {
        self.inner.owner()
    }

    /// The acquisition's fencing token, if the lock is [fenced](super::Lock::fenced).
    pub fn fencing_token(&self) -> Option<u64> {
        self.inner.fencing_token()
    }

    /// Whether the lock is still held, as far as this process knows; asks no server. See
    /// [`Guard::is_held`](crate::Guard::is_held).
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// How long the lease lasts without a renewal, as far as this process knows; zero if the hold is lost.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Blocks this thread until the hold is lost, and says why.
    pub fn lost(&self) -> LossReason {
        block_on(self.inner.lost())
    }

    /// As [`lost`](Self::lost), for `timeout` at most: `None` if it is not lost by then. With a timeout of
    /// zero it looks once.
    pub fn lost_timeout(&self, timeout: Duration) -> Option<LossReason> {
        block_on(self.inner.lost_timeout(timeout))
    }

    /// Asks the store whether the lock is still held. See [`Guard::ensure_held`](crate::Guard::ensure_held).
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the hold is lost. [`LockError::Backend`] if the store could not be asked.
    pub fn ensure_held(&self) -> Result<(), LockError> {
        block_on(self.inner.ensure_held())
    }

    /// Makes the lease last for `lease` from now at least. See [`Guard::extend`](crate::Guard::extend).
    ///
    /// # Errors
    ///
    /// [`LockError::Lease`] if the lease cannot be kept, [`LockError::Lost`] if the hold is lost,
    /// [`LockError::Backend`] if the command fails.
    pub fn extend(&mut self, lease: Duration) -> Result<(), LockError> {
        block_on(self.inner.extend(lease))
    }

    /// Gives this hold back. See [`Guard::unlock`](crate::Guard::unlock) for what `Ok` says.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the owner did not have the lock any more. [`LockError::ReleasePending`] if the
    /// command failed: the work is done and the hold is over, and the release is repeated in the background
    /// until the store has answered, or the lease is over. The others are told by
    /// [`Guard::unlock`](crate::Guard::unlock), with what each says of the work.
    pub fn unlock(self) -> Result<(), LockError> {
        block_on(self.inner.unlock())
    }

    /// Lets go of the guard but not of the lock: it stays held until its lease is over, or until
    /// [`Lock::unlock`] by its owner. It is not renewed from now on.
    ///
    /// [`Lock::unlock`]: super::Lock::unlock
    pub fn forget(self) {
        self.inner.forget();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Guard").field(&self.inner).finish()
    }
}
