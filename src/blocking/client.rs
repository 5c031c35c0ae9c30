//! [`LockClient`].

use std::fmt;
use std::time::Duration;

use crate::backend::Backend;
use crate::lock::{HeldLock, LeaseError, LockError, LockOptions, Metrics, Owner, ShutdownError, WaitingLock};
use crate::subscription::registry::Registry;
use crate::subscription::transport::Transport;

use super::{Lock, ReadWriteLock, block_on};

/// Makes locks by name, for threads. See [`LockClient`](crate::LockClient), whose twin this is.
///
/// The recipe [`threads`] is a program without a runtime.
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
/// // … no other task or thread has it here …
/// guard.unlock()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LockClient {
    inner: crate::LockClient,
}

#[cfg(feature = "local")]
impl LockClient {
    /// A client over a new in-process backend.
    pub fn local() -> Self {
        Self::from_async(crate::LockClient::local())
    }
}

#[cfg(feature = "redis")]
impl LockClient {
    /// A client over the Redis server at `url`; see [`Redis::connect`](crate::redis::Redis::connect) for what
    /// that may be.
    ///
    /// The connections live on one background thread. It ends with the last clone of the client, its locks
    /// and guards, once what these have begun is done. Dropping them never blocks and never panics, not even
    /// in async code.
    ///
    /// With options: `LockClient::with_options(Redis::builder().blocking_connect(url)?, &options)`.
    ///
    /// # Errors
    ///
    /// Those of [`RedisBuilder::blocking_connect`](crate::redis::RedisBuilder::blocking_connect).
    pub fn connect(url: &str) -> Result<Self, crate::redis::Error> {
        Ok(Self::new(crate::redis::Redis::builder().blocking_connect(url)?))
    }
}

impl LockClient {
    /// A client over `backend`, with a uuid of its own.
    pub fn new(backend: impl Backend) -> Self {
        Self::from_async(crate::LockClient::new(backend))
    }

    /// A client over `backend`, with a uuid of its own.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the watchdog's timeout, or a limit, cannot be a lease.
    pub fn with_options(backend: impl Backend, options: &LockOptions) -> Result<Self, LeaseError> {
        crate::LockClient::with_options(backend, options).map(Self::from_async)
    }

    /// The same client, for threads: one uuid, one watchdog, one subscription per name.
    pub fn from_async(client: crate::LockClient) -> Self {
        Self { inner: client }
    }

    /// The same client, for tasks.
    pub fn as_async(&self) -> &crate::LockClient {
        &self.inner
    }

    /// The lock called `name`. Nothing is sent.
    ///
    /// # Errors
    ///
    /// Those of [`LockClient::get_lock`](crate::LockClient::get_lock).
    pub fn get_lock(&self, name: &str) -> Result<Lock, LockError> {
        self.inner.get_lock(name).map(Lock::from_async)
    }

    /// The fair lock called `name`: its waiters, threads or tasks, in whatever process, get it in the order
    /// in which they began to wait. Nothing is sent.
    ///
    /// What it costs, and what the order does not include, is told by
    /// [`LockClient::get_fair_lock`](crate::LockClient::get_fair_lock). A thread that waits is always polled.
    ///
    /// # Errors
    ///
    /// [`LockError`] if no backend could keep a lock under that name.
    ///
    /// # Examples
    ///
    /// ```
    /// use latchwork::blocking::LockClient;
    ///
    /// let client = LockClient::local();
    /// let guard = client.get_fair_lock("tickets")?.lock()?;
    /// // … earlier waiters have had it, and later ones are served afterwards …
    /// guard.unlock()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "fair_lock")]
    pub fn get_fair_lock(&self, name: &str) -> Result<Lock, LockError> {
        self.inner.get_fair_lock(name).map(Lock::from_async)
    }

    /// The read-write lock called `name`: many have it to read, or one to write. Nothing is sent. See
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

    /// A new owner, for taking a lock more than once: see [`Lock::owned_by`].
    pub fn owner(&self) -> Owner {
        self.inner.owner()
    }

    /// The client's uuid as text, the first part of its leases' ids.
    pub fn id(&self) -> &str {
        self.inner.id()
    }

    /// What happened through this client so far, by tasks and threads.
    pub fn metrics(&self) -> Metrics {
        self.inner.metrics()
    }

    /// What this client holds now, by tasks and threads. See [`LockClient::held`](crate::LockClient::held).
    pub fn held(&self) -> Vec<HeldLock> {
        self.inner.held()
    }

    /// What tasks and threads of this client wait for now. See
    /// [`LockClient::waiting`](crate::LockClient::waiting).
    pub fn waiting(&self) -> Vec<WaitingLock> {
        self.inner.waiting()
    }

    /// The backend that was given to [`new`](Self::new).
    pub fn backend<B: Backend>(&self) -> Option<&B> {
        self.inner.backend()
    }

    /// The channels that this client's waiters listen to, and figures of them. See
    /// [`LockClient::registry`](crate::LockClient::registry).
    pub fn registry(&self) -> &Registry<dyn Transport> {
        self.inner.registry()
    }
}

impl LockClient {
    /// Ends the client in good order, and blocks this thread until every guard is gone or its lease over, and
    /// every release was answered, for `limit` at most. See
    /// [`LockClient::shutdown`](crate::LockClient::shutdown).
    ///
    /// # Errors
    ///
    /// [`ShutdownError`] names the locks that are held still, or whose release was not answered.
    pub fn shutdown(&self, limit: Duration) -> Result<(), ShutdownError> {
        block_on(self.inner.shutdown(limit))
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::LockClient").field(&self.inner).finish()
    }
}
