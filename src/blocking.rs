//! The lock for threads: [`LockClient`](crate::LockClient), [`Lock`](crate::Lock) and
//! [`Guard`](crate::Guard), in code without an async runtime.
//!
//! Each call blocks its thread on the async call. So threads and tasks wait in the same queue and share
//! owners, errors and statistics. Each client converts into the other kind ([`LockClient::from_async`],
//! [`LockClient::as_async`]), and both may be used at the same time.
//!
//! There is no `run` here, since a thread cannot be made to drop its work: check [`Guard::is_held`] instead.
//!
//! # Inside of async code
//!
//! A call here blocks its thread, which runs no other task until the return. If the task that holds the lock
//! needs the same thread, the two deadlock. A call that blocks a thread of the runtime in which
//! `Redis::connect` was called may get neither a reply nor a timeout. `LockClient::connect` (feature `redis`)
//! has its own thread and is safe. If blocking is unavoidable, use a thread as of `spawn_blocking`.

use std::pin::pin;
use std::time::Duration;

use crate::backend::Backend;
use crate::lock::{
    HeldLock, Holder, Lease, LeaseError, LockError, LockName, LockOptions, LockStats, Metrics, Owner,
    ShutdownError, Usage, WaitingLock,
};
use crate::lock_entry::LossReason;
use crate::subscription::registry::Registry;
use crate::subscription::transport::Transport;

/// Uses the semaphore's `block_on`: before a thread blocks inside of a waker, it calls its collected wakers.
fn block_on<F: Future>(future: F) -> F::Output {
    crate::semaphore::block_on(pin!(future))
}

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
#[derive(Clone, Debug)]
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

    /// Makes one lock of several, in any order: an acquisition takes all of them, or none. Sends nothing. See
    /// [`LockClient::get_multi_lock`](crate::LockClient::get_multi_lock).
    ///
    /// # Errors
    ///
    /// The errors of [`LockClient::get_multi_lock`](crate::LockClient::get_multi_lock).
    #[doc(alias = "lock_all")]
    #[doc(alias = "RMultiLock")]
    pub fn get_multi_lock<'a>(
        &self,
        locks: impl IntoIterator<Item = &'a Lock>,
    ) -> Result<MultiLock, LockError> {
        self.inner.get_multi_lock(locks.into_iter().map(Lock::as_async)).map(MultiLock::from_async)
    }

    /// Returns the semaphore called `name`, with at most `capacity` permits in use over all processes. Sends
    /// nothing. See [`LockClient::get_semaphore`](crate::LockClient::get_semaphore).
    ///
    /// # Errors
    ///
    /// The errors of [`LockClient::get_semaphore`](crate::LockClient::get_semaphore).
    #[doc(alias = "RPermitExpirableSemaphore")]
    pub fn get_semaphore(&self, name: &str, capacity: u32) -> Result<NamedSemaphore, LockError> {
        self.inner.get_semaphore(name, capacity).map(NamedSemaphore::from_async)
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

    /// Refuses new acquisitions, serves the waiting ones, and shuts the client down: blocks this thread for
    /// `limit` at most. See [`LockClient::drain`](crate::LockClient::drain).
    ///
    /// # Errors
    ///
    /// Those of [`shutdown`](Self::shutdown).
    pub fn drain(&self, limit: Duration) -> Result<(), ShutdownError> {
        block_on(self.inner.drain(limit))
    }
}

/// A named lock, for threads: at most one [`Owner`] has the lock at a time, while its lease lasts.
///
/// The async twin [`Lock`](crate::Lock) explains fairness and safety, [`blocking`](self) use in async code.
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
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug)]
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

/// One hold on a lock, for threads. While the guard and its lease last, only its owner has the lock.
///
/// A drop, also by a panic, releases in the background; at the end of `main`,
/// [`LockClient::shutdown`](LockClient::shutdown) waits. The async twin is [`Guard`](crate::Guard).
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
#[derive(Debug)]
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

    /// The acquisition's fencing token, if the lock is [fenced](Lock::fenced).
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

    /// Keeps the lock, without renewals, until its lease ends or [`Lock::unlock`](Lock::unlock).
    pub fn forget(self) {
        self.inner.forget();
    }
}

/// Several locks as one, for threads: taken together, all or none. The async twin
/// [`MultiLock`](crate::MultiLock) explains order, fairness, leases and costs.
///
/// # Examples
///
/// ```
/// # let client = latchwork::blocking::LockClient::local();
/// let (alice, bob) = (client.get_lock("account:alice")?, client.get_lock("account:bob")?);
/// let guard = client.get_multi_lock([&alice, &bob])?.lock()?;
/// assert!(alice.try_lock()?.is_none() && bob.try_lock()?.is_none());
/// guard.unlock()?; // … after the transfer …
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "RMultiLock")]
pub struct MultiLock {
    inner: crate::MultiLock,
}

impl MultiLock {
    /// Wraps a set of locks for use by threads.
    pub fn from_async(locks: crate::MultiLock) -> Self {
        Self { inner: locks }
    }

    /// The same set, for tasks.
    pub fn as_async(&self) -> &crate::MultiLock {
        &self.inner
    }

    /// The names, each once, in the order of [`LockName`].
    pub fn names(&self) -> impl ExactSizeIterator<Item = &LockName> {
        self.inner.names()
    }

    /// Acquires all locks, blocking this thread. The watchdog renews the leases while the guard lives.
    ///
    /// # Errors
    ///
    /// The errors of [`MultiLock::lock`](crate::MultiLock::lock).
    pub fn lock(&self) -> Result<MultiGuard, LockError> {
        block_on(self.inner.lock()).map(MultiGuard::from_async)
    }

    /// As [`lock`](Self::lock), with a lease of the caller's own for each name, without renewals.
    ///
    /// # Errors
    ///
    /// The errors of [`MultiLock::lock_with_lease`](crate::MultiLock::lock_with_lease).
    pub fn lock_with_lease(&self, lease: Duration) -> Result<MultiGuard, LockError> {
        block_on(self.inner.lock_with_lease(lease)).map(MultiGuard::from_async)
    }

    /// Acquires all locks if all are free now. The watchdog renews the leases while the guard lives.
    ///
    /// # Errors
    ///
    /// The errors of [`MultiLock::try_lock`](crate::MultiLock::try_lock).
    pub fn try_lock(&self) -> Result<Option<MultiGuard>, LockError> {
        Ok(block_on(self.inner.try_lock())?.map(MultiGuard::from_async))
    }

    /// Acquires all locks, blocking this thread for at most `wait`. `None`, with no lock taken, if another
    /// owner has one of them then.
    ///
    /// # Errors
    ///
    /// The errors of [`MultiLock::try_lock_for`](crate::MultiLock::try_lock_for).
    pub fn try_lock_for(
        &self,
        wait: Duration,
        lease: impl Into<Lease>,
    ) -> Result<Option<MultiGuard>, LockError> {
        Ok(block_on(self.inner.try_lock_for(wait, lease))?.map(MultiGuard::from_async))
    }
}

/// One hold on all locks of a [`MultiLock`], for threads. Dropping the guard gives all back. The async twin
/// is [`MultiGuard`](crate::MultiGuard).
///
/// # Examples
///
/// ```
/// # let client = latchwork::blocking::LockClient::local();
/// let accounts = [client.get_lock("alice")?.fenced(), client.get_lock("bob")?.fenced()];
/// let guard = client.get_multi_lock(&accounts)?.lock()?;
/// assert!(guard.is_held() && guard.fencing_token("bob").is_some());
/// accounts[1].force_unlock()?;
/// let (name, reason) = guard.lost();
/// println!("too late: {name} was lost, {reason}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping a guard gives the locks back at once"]
pub struct MultiGuard {
    inner: crate::MultiGuard,
}

impl MultiGuard {
    /// Wraps a task's hold for use by a thread.
    pub fn from_async(guard: crate::MultiGuard) -> Self {
        Self { inner: guard }
    }

    /// Converts the hold for use by a task.
    pub fn into_async(self) -> crate::MultiGuard {
        self.inner
    }

    /// The holds on the single locks, in the order of names, for tasks.
    pub fn guards(&self) -> &[crate::Guard] {
        self.inner.guards()
    }

    /// Converts into the holds on the single locks, in the order of names.
    pub fn into_guards(self) -> Vec<Guard> {
        self.inner.into_guards().into_iter().map(Guard::from_async).collect()
    }

    /// The fencing token of a name. See [`MultiGuard::fencing_token`](crate::MultiGuard::fencing_token).
    pub fn fencing_token(&self, name: &str) -> Option<u64> {
        self.inner.fencing_token(name)
    }

    /// True if this process knows of no loss; asks no server.
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// The known time until the first of the leases ends without a renewal; zero if a hold is lost.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Blocks this thread until one of the locks is lost, and returns its name and the reason.
    pub fn lost(&self) -> (LockName, LossReason) {
        block_on(self.inner.lost())
    }

    /// Asks the store if all locks are still held.
    ///
    /// # Errors
    ///
    /// The errors of [`MultiGuard::ensure_held`](crate::MultiGuard::ensure_held).
    pub fn ensure_held(&self) -> Result<(), LockError> {
        block_on(self.inner.ensure_held())
    }

    /// Releases all locks.
    ///
    /// # Errors
    ///
    /// The errors of [`MultiGuard::unlock`](crate::MultiGuard::unlock).
    pub fn unlock(self) -> Result<(), LockError> {
        block_on(self.inner.unlock())
    }
}

/// A semaphore of a name, for threads. The async twin [`NamedSemaphore`](crate::NamedSemaphore) explains
/// capacity, leases, fairness and costs.
///
/// # Examples
///
/// ```
/// # let client = latchwork::blocking::LockClient::local();
/// let jobs = client.get_semaphore("jobs", 5)?;
/// let permits = jobs.acquire_many(3)?;
/// assert!(jobs.try_acquire_many(3)?.is_none());
/// permits.release()?; // … after the job …
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "RPermitExpirableSemaphore")]
pub struct NamedSemaphore {
    inner: crate::NamedSemaphore,
}

impl NamedSemaphore {
    /// Wraps a semaphore for use by threads.
    pub fn from_async(semaphore: crate::NamedSemaphore) -> Self {
        Self { inner: semaphore }
    }

    /// The same semaphore, for tasks.
    pub fn as_async(&self) -> &crate::NamedSemaphore {
        &self.inner
    }

    /// The semaphore's name.
    pub fn name(&self) -> &LockName {
        self.inner.name()
    }

    /// The largest number of permits in use for which this handle's acquisitions are granted.
    pub fn capacity(&self) -> u32 {
        self.inner.capacity()
    }

    /// Takes one permit, blocking this thread. The watchdog renews the lease while the guard lives.
    ///
    /// # Errors
    ///
    /// The errors of [`NamedSemaphore::acquire`](crate::NamedSemaphore::acquire).
    pub fn acquire(&self) -> Result<PermitGuard, LockError> {
        self.acquire_many(1)
    }

    /// Takes `permits` permits at once, blocking this thread: all or none.
    ///
    /// # Errors
    ///
    /// The errors of [`NamedSemaphore::acquire_many`](crate::NamedSemaphore::acquire_many).
    pub fn acquire_many(&self, permits: u32) -> Result<PermitGuard, LockError> {
        block_on(self.inner.acquire_many(permits)).map(PermitGuard::from_async)
    }

    /// Takes one permit if one is free now, and no acquisition waits.
    ///
    /// # Errors
    ///
    /// The errors of [`NamedSemaphore::try_acquire`](crate::NamedSemaphore::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<PermitGuard>, LockError> {
        self.try_acquire_many(1)
    }

    /// Takes `permits` permits if all are free now, and no acquisition waits.
    ///
    /// # Errors
    ///
    /// The errors of [`NamedSemaphore::try_acquire_many`](crate::NamedSemaphore::try_acquire_many).
    pub fn try_acquire_many(&self, permits: u32) -> Result<Option<PermitGuard>, LockError> {
        self.try_acquire_many_for(permits, Duration::ZERO, Lease::Watched)
    }

    /// Takes one permit, blocking this thread for at most `wait`.
    ///
    /// # Errors
    ///
    /// The errors of [`NamedSemaphore::try_acquire_for`](crate::NamedSemaphore::try_acquire_for).
    pub fn try_acquire_for(
        &self,
        wait: Duration,
        lease: impl Into<Lease>,
    ) -> Result<Option<PermitGuard>, LockError> {
        self.try_acquire_many_for(1, wait, lease)
    }

    /// Takes `permits` permits at once, blocking this thread for at most `wait`.
    ///
    /// # Errors
    ///
    /// The errors of [`NamedSemaphore::try_acquire_many_for`](crate::NamedSemaphore::try_acquire_many_for).
    pub fn try_acquire_many_for(
        &self,
        permits: u32,
        wait: Duration,
        lease: impl Into<Lease>,
    ) -> Result<Option<PermitGuard>, LockError> {
        Ok(block_on(self.inner.try_acquire_many_for(permits, wait, lease))?.map(PermitGuard::from_async))
    }

    /// Returns the permits in use in all clients, and their holders.
    ///
    /// # Errors
    ///
    /// The errors of [`NamedSemaphore::usage`](crate::NamedSemaphore::usage).
    pub fn usage(&self) -> Result<Usage, LockError> {
        block_on(self.inner.usage())
    }

    /// Returns how many acquisitions of this client wait for permits. Asks no server.
    pub fn waiting(&self) -> usize {
        self.inner.waiting()
    }

    /// Takes all permits away from their holders, and wakes waiters. True if permits were in use.
    ///
    /// # Errors
    ///
    /// The errors of [`NamedSemaphore::force_release`](crate::NamedSemaphore::force_release).
    pub fn force_release(&self) -> Result<bool, LockError> {
        block_on(self.inner.force_release())
    }
}

/// Permits of a [`NamedSemaphore`], for threads. Dropping the guard gives all back. The async twin is
/// [`PermitGuard`](crate::PermitGuard).
///
/// # Examples
///
/// ```
/// # let client = latchwork::blocking::LockClient::local();
/// let permit = client.get_semaphore("jobs", 5)?.acquire()?;
/// assert!(permit.is_held()); // checked before each step of the job
/// permit.release()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping a guard gives the permits back at once"]
pub struct PermitGuard {
    inner: crate::PermitGuard,
}

impl PermitGuard {
    /// Wraps a task's permits for use by a thread.
    pub fn from_async(guard: crate::PermitGuard) -> Self {
        Self { inner: guard }
    }

    /// Converts the permits for use by a task.
    pub fn into_async(self) -> crate::PermitGuard {
        self.inner
    }

    /// The semaphore's name.
    pub fn name(&self) -> &LockName {
        self.inner.name()
    }

    /// The number of permits.
    pub fn permits(&self) -> u32 {
        self.inner.permits()
    }

    /// True if this process knows of no loss; asks no server.
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// The known time until the lease ends without a renewal; zero if the permits are lost.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Blocks this thread until the permits are lost, and returns the reason.
    pub fn lost(&self) -> LossReason {
        block_on(self.inner.lost())
    }

    /// As [`lost`](Self::lost), for `timeout` at most: `None` if the permits are not lost by then.
    pub fn lost_timeout(&self, timeout: Duration) -> Option<LossReason> {
        block_on(self.inner.lost_timeout(timeout))
    }

    /// Asks the store if the permits are still held.
    ///
    /// # Errors
    ///
    /// The errors of [`PermitGuard::ensure_held`](crate::PermitGuard::ensure_held).
    pub fn ensure_held(&self) -> Result<(), LockError> {
        block_on(self.inner.ensure_held())
    }

    /// Makes the lease last for at least `lease` from now. Never shortens a lease.
    ///
    /// # Errors
    ///
    /// The errors of [`PermitGuard::extend`](crate::PermitGuard::extend).
    pub fn extend(&mut self, lease: Duration) -> Result<(), LockError> {
        block_on(self.inner.extend(lease))
    }

    /// Gives the permits back, and returns the outcome.
    ///
    /// # Errors
    ///
    /// The errors of [`PermitGuard::release`](crate::PermitGuard::release).
    pub fn release(self) -> Result<(), LockError> {
        block_on(self.inner.release())
    }

    /// Keeps the permits in use, without renewals, until the lease ends.
    pub fn forget(self) {
        self.inner.forget();
    }
}
