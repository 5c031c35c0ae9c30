//! [`LockClient`].

use std::fmt;
use std::time::Duration;

use crate::backend::Backend;
use crate::lock::{HeldLock, LeaseError, LockError, LockOptions, Metrics, Owner, ShutdownError, WaitingLock};
use crate::subscription::registry::Registry;
use crate::subscription::transport::Transport;

use super::{Lock, ReadWriteLock, block_on};

/// Makes locks by name, for threads: the blocking twin of [`LockClient`](crate::LockClient).
///
/// A program without a runtime: [`threads`].
///
/// [`threads`]: https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/threads.rs
///
/// # Examples
///
/// ```
/// use latchwork::blocking::LockClient;
///
/// let client = LockClient::local(); // or LockClient::connect("redis://…")?
/// let lock = client.get_lock("orders:42")?;
/// let guard = lock.lock()?;
/// guard.unlock()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LockClient {
    inner: crate::LockClient,
}

#[cfg(feature = "local")]
impl LockClient {
    /// Makes a client over a new in-process backend.
    pub fn local() -> Self {
        Self::from_async(crate::LockClient::local())
    }
}

#[cfg(feature = "redis")]
impl LockClient {
    /// Connects to the Redis server at `url`, as [`Redis::connect`](crate::redis::Redis::connect) does.
    ///
    /// The connections run on one background thread, which ends after the last clone of the client, its locks
    /// and guards, and their pending work. Dropping them never blocks.
    ///
    /// With options: `LockClient::with_options(Redis::builder().blocking_connect(url)?, &options)`.
    ///
    /// # Errors
    ///
    /// The errors of [`RedisBuilder::blocking_connect`](crate::redis::RedisBuilder::blocking_connect).
    pub fn connect(url: &str) -> Result<Self, crate::redis::Error> {
        Ok(Self::new(crate::redis::Redis::builder().blocking_connect(url)?))
    }
}

impl LockClient {
    /// Makes a client over `backend`, with a uuid of its own.
    pub fn new(backend: impl Backend) -> Self {
        Self::from_async(crate::LockClient::new(backend))
    }

    /// Makes a client over `backend`, with a uuid of its own.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the watchdog's timeout, or a limit, cannot be a lease.
    pub fn with_options(backend: impl Backend, options: &LockOptions) -> Result<Self, LeaseError> {
        crate::LockClient::with_options(backend, options).map(Self::from_async)
    }

    /// Wraps a client for use by threads: uuid, watchdog and subscriptions are shared.
    pub fn from_async(client: crate::LockClient) -> Self {
        Self { inner: client }
    }

    /// The same client, for tasks.
    pub fn as_async(&self) -> &crate::LockClient {
        &self.inner
    }

    /// Returns the lock called `name`. Sends nothing.
    ///
    /// # Errors
    ///
    /// The errors of [`LockClient::get_lock`](crate::LockClient::get_lock).
    pub fn get_lock(&self, name: &str) -> Result<Lock, LockError> {
        self.inner.get_lock(name).map(Lock::from_async)
    }

    /// Returns the fair lock called `name`, whose waiters in all processes are served in order of arrival.
    /// Sends nothing. See [`LockClient::get_fair_lock`](crate::LockClient::get_fair_lock).
    ///
    /// # Errors
    ///
    /// [`LockError`] if no backend could keep a lock under that name.
    #[doc(alias = "fair_lock")]
    pub fn get_fair_lock(&self, name: &str) -> Result<Lock, LockError> {
        self.inner.get_fair_lock(name).map(Lock::from_async)
    }

    /// Returns the read-write lock called `name`, for many readers or one writer. Sends nothing. See
    /// [`LockClient::get_read_write_lock`](crate::LockClient::get_read_write_lock).
    ///
    /// # Errors
    ///
    /// [`LockError`] if no backend could keep a lock under that name.
    #[doc(alias = "read_write")]
    #[doc(alias = "RwLock")]
    pub fn get_read_write_lock(&self, name: &str) -> Result<ReadWriteLock, LockError> {
        self.inner.get_read_write_lock(name).map(|lock| ReadWriteLock::from_async(&lock))
    }

    /// Makes a new owner, for acquiring a lock more than once: see [`Lock::owned_by`].
    pub fn owner(&self) -> Owner {
        self.inner.owner()
    }

    /// The client's uuid as text, the first part of its leases' ids.
    pub fn id(&self) -> &str {
        self.inner.id()
    }

    /// The figures of this client so far, by tasks and threads.
    pub fn metrics(&self) -> Metrics {
        self.inner.metrics()
    }

    /// The current holds, by tasks and threads. See [`LockClient::held`](crate::LockClient::held).
    pub fn held(&self) -> Vec<HeldLock> {
        self.inner.held()
    }

    /// The waiting tasks and threads of this client. See [`LockClient::waiting`](crate::LockClient::waiting).
    pub fn waiting(&self) -> Vec<WaitingLock> {
        self.inner.waiting()
    }

    /// The backend passed to [`new`](Self::new), if it has the type `B`.
    pub fn backend<B: Backend>(&self) -> Option<&B> {
        self.inner.backend()
    }

    /// The channels of the waiters. See [`LockClient::registry`](crate::LockClient::registry).
    pub fn registry(&self) -> &Registry<dyn Transport> {
        self.inner.registry()
    }
}

impl LockClient {
    /// Shuts the client down: blocks this thread until all leases have ended and all releases were answered,
    /// for `limit` at most. See [`LockClient::shutdown`](crate::LockClient::shutdown).
    ///
    /// # Errors
    ///
    /// [`ShutdownError`] names the locks still held or without an answer to their release.
    pub fn shutdown(&self, limit: Duration) -> Result<(), ShutdownError> {
        block_on(self.inner.shutdown(limit))
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::LockClient").field(&self.inner).finish()
    }
}
