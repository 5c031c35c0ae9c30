//! [`ReadWriteLock`].

use std::fmt;

use crate::lock::LockName;

use super::Lock;

/// A named lock for threads, held by many readers or one writer: a [`ReadWriteLock`](crate::ReadWriteLock).
///
/// # Examples
///
/// ```
/// use latchwork::blocking::LockClient;
///
/// let prices = LockClient::local().get_read_write_lock("prices")?;
/// let readers = (prices.read().lock()?, prices.read().lock()?);
/// assert!(prices.write().try_lock()?.is_none());
/// drop(readers);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[doc(alias = "RwLock")]
pub struct ReadWriteLock {
    read: Lock,
    write: Lock,
}

impl ReadWriteLock {
    /// Wraps a lock for use by threads.
    pub fn from_async(lock: &crate::ReadWriteLock) -> Self {
        let [read, write] = [lock.read(), lock.write()].map(|side| Lock::from_async(side.clone()));
        Self { read, write }
    }

    /// The read lock: held by many owners at a time.
    pub fn read(&self) -> &Lock {
        &self.read
    }

    /// The write lock: held by one owner, while there are no readers.
    pub fn write(&self) -> &Lock {
        &self.write
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.read.name()
    }
}

impl fmt::Debug for ReadWriteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadWriteLock").field("name", self.name()).finish_non_exhaustive()
    }
}
