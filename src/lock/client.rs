//! [`LockClient`] and [`Lock`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::registry::Registry;
use crate::sync::atomic::{AtomicU64, Ordering};

use super::acquire;
use super::backend::Backend;
use super::error::LockError;
use super::guard::Guard;
use super::lease::{Lease, LeaseError};
use super::metrics::{Metrics, Recorder};
use super::name::{LockName, NameError};
use super::name_mapper::NameMapper;
use super::owner::Owner;
use super::span;
use super::stats::{Counters, LockStats};
use super::successors::Successors;
use super::supervised::supervised;
use super::watchdog::Watchdog;

/// Makes locks by name, over one [`Backend`].
///
/// A client is what Redisson calls one too: it has a uuid, which is the first half of each of its owners' names, one
/// subscription per name however many wait, and one watchdog. Make one per process and clone it; clones are cheap and share
/// everything.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use latchwork::LockClient;
///
/// let client = LockClient::local();
/// let lock = client.get_lock("orders:42")?;
/// let guard = lock.lock().await?;
/// // … nobody else in this process is here …
/// guard.unlock().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
pub struct LockClient<B: Backend> {
    inner: Arc<Inner<B>>,
}

/// What a client's locks, guards and watchdog share.
pub(super) struct Inner<B: Backend> {
    pub(super) backend: B,
    pub(super) watchdog: Watchdog,
    pub(super) watchdog_timeout: Duration,
    pub(super) successors: Successors<B>,
    pub(super) hand_overs: HandOverLimit,
    pub(super) max_hold: Option<Duration>,
    name_mapper: NameMapper,
    pub(super) recorder: Arc<Recorder>,
    id: String,
    next_owner: AtomicU64,
}

/// How a [`LockClient`] behaves.
#[derive(Clone, Debug)]
pub struct LockOptions {
    watchdog_timeout: Duration,
    max_hold: Option<Duration>,
    hand_overs: HandOverLimit,
    name_mapper: NameMapper,
}

/// How long a lock may stay with one client while others may want it.
#[derive(Clone, Debug)]
pub(super) struct HandOverLimit {
    pub(super) at_most: u32,
    pub(super) within: Duration,
}

impl LockOptions {
    /// The lease of a lock that is taken without one: it is renewed each time a third of it is over, and runs out this long
    /// after the process died.
    ///
    /// 30 s by default, as in Redisson. Shorter frees the locks of a dead process sooner, and loses those of one that is
    /// paused, or cut off, for that long.
    #[must_use]
    pub fn watchdog_timeout(mut self, timeout: Duration) -> Self {
        self.watchdog_timeout = timeout;
        self
    }

    /// For how long an owner may have a lock by a watched lease: the watchdog renews it up to then and no further, and the hold
    /// is [lost](crate::Lost::HeldTooLong). Without a limit by default.
    ///
    /// Against holders that hang and do not die: without it their locks are renewed for as long as their process lives. Leases
    /// of the caller's own have their end anyway, and are not touched.
    #[must_use]
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self
    }

    /// Under which name the store keeps the lock that [`get_lock`](LockClient::get_lock) calls `name`; under just that by default.
    ///
    /// For a prefix to all names, and for the name mapper that Redisson's clients of the same locks are configured with. It must come
    /// to the same each time. Everything is by what it comes to: keys, channels, and [`Lock::name`].
    ///
    /// # Examples
    ///
    /// ```
    /// use latchwork::{LockClient, LockOptions, local::Local};
    ///
    /// let options = LockOptions::default().name_mapper(|name| format!("shop:{name}"));
    /// let client = LockClient::with_options(Local::new(), &options)?;
    /// assert_eq!(client.get_lock("orders")?.name().as_str(), "shop:orders");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn name_mapper(mut self, map: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.name_mapper = NameMapper::new(map);
        self
    }

    /// How often in a row, and for how long, this client may hand a lock from one of its own waiters to the next, before it lets
    /// everybody have a chance. 32 times and 100 ms by default; 0 times is never.
    ///
    /// Who gives a lock back while others of the same client wait for it hands it to the first of them, by one command and
    /// without a message. Waiters of other processes do not hear of that, and are not let in. So after so many hand-overs, or
    /// when the lock has been with this client for so long, it is given back in full: a message tells everybody, and whoever asks
    /// first has it. With more, a crowd in one process costs the store less; with less, the other processes wait
    /// less long.
    #[must_use]
    pub fn hand_overs(mut self, at_most: u32, within: Duration) -> Self {
        self.hand_overs = HandOverLimit { at_most, within };
        self
    }
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            watchdog_timeout: Duration::from_secs(30),
            max_hold: None,
            hand_overs: HandOverLimit { at_most: 32, within: Duration::from_millis(100) },
            name_mapper: NameMapper::default(),
        }
    }
}

#[cfg(feature = "local")]
impl LockClient<crate::local::Local> {
    /// A client over a new in-process backend.
    pub fn local() -> Self {
        Self::new(crate::local::Local::new())
    }
}

impl<B: Backend> LockClient<B> {
    /// A client over `backend`, with a uuid of its own.
    pub fn new(backend: B) -> Self {
        Self::build(backend, LockOptions::default())
    }

    /// A client over `backend`, with a uuid of its own.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the watchdog's timeout, or the limit on holds, cannot be a lease.
    pub fn with_options(backend: B, options: &LockOptions) -> Result<Self, LeaseError> {
        Lease::check(options.watchdog_timeout)?;
        options.max_hold.map(Lease::check).transpose()?;
        Ok(Self::build(backend, options.clone()))
    }

    fn build(backend: B, options: LockOptions) -> Self {
        Self {
            inner: Arc::new(Inner {
                backend,
                watchdog: Watchdog::default(),
                watchdog_timeout: options.watchdog_timeout,
                successors: Successors::default(),
                hand_overs: options.hand_overs,
                max_hold: options.max_hold,
                name_mapper: options.name_mapper,
                recorder: Arc::default(),
                id: uuid::Uuid::new_v4().to_string(),
                next_owner: AtomicU64::new(1),
            }),
        }
    }

    /// The lock called `name`. Nothing is sent, and nothing is kept for it until somebody takes it or waits.
    ///
    /// # Errors
    ///
    /// [`NameError`] if no backend could keep a lock under that name, or this one cannot.
    pub fn get_lock(&self, name: &str) -> Result<Lock<B>, NameError> {
        let name = LockName::new(&self.inner.name_mapper.map(name))?;
        self.inner.backend.check_name(&name)?;
        let channel = self.inner.backend.channel(&name);
        let shared = Shared { client: Arc::clone(&self.inner), name, channel, counters: Counters::default() };
        Ok(Lock { shared: Arc::new(shared), owner: None, fenced: false })
    }

    /// A new owner, for taking a lock more than once: see [`Lock::owned_by`].
    pub fn owner(&self) -> Owner {
        self.inner.new_owner()
    }

    /// The client's uuid as text, the first half of its owners' names.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// What happened through this client so far.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// # let client = latchwork::LockClient::local();
    /// client.get_lock("orders:42")?.lock().await?.unlock().await?;
    /// let metrics = client.metrics();
    /// assert_eq!((metrics.waits.count(), metrics.leases_lost), (1, 0));
    /// println!("99 of 100 waited for less than {:?}", metrics.waits.quantile(0.99));
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn metrics(&self) -> Metrics {
        self.inner.metrics()
    }

    /// The backend that was given to [`new`](Self::new).
    pub fn backend(&self) -> &B {
        &self.inner.backend
    }

    /// Who waits for what in this process: one entry per name that somebody waits for. The backend's, and so shared by all
    /// of its clients.
    pub fn registry(&self) -> &Registry<B::Transport> {
        self.inner.backend.registry()
    }
}

impl<B: Backend> Inner<B> {
    fn new_owner(&self) -> Owner {
        // Ordering: Relaxed, only the number's being used once matters.
        Owner::new(&self.id, self.next_owner.fetch_add(1, Ordering::Relaxed))
    }

    /// How long a watched lease lasts if nobody renews it.
    pub(super) fn watched_lease(&self) -> Duration {
        self.max_hold.map_or(self.watchdog_timeout, |limit| limit.min(self.watchdog_timeout))
    }

    /// Whether this client made `owner`, and so knows what it holds.
    fn knows(&self, owner: &Owner) -> bool {
        owner.as_str().starts_with(&self.id)
    }
}

/// A named lock: at most one [`Owner`] has it at a time, until it lets go or its lease is over.
///
/// Each acquisition is by an owner of its own, so taking the lock twice without letting go waits for itself, as with a
/// mutex; [`owned_by`](Self::owned_by) makes it re-entrant. Clones are the same lock and share their
/// [`stats`](Self::stats).
///
/// # Fairness
///
/// Who waits through one client is served in the order in which it came, and newcomers stand behind; one in a process competes for
/// the lock with other processes, where whoever asks first has it. Once a process has the lock, its own waiters hand it on among
/// themselves, within [limits](LockOptions::hand_overs). Out of line come: an attempt that does not wait
/// ([`try_lock`](Self::try_lock)), and an explicit owner ([`owned_by`](Self::owned_by)), as those in line may be waiting for it to
/// get in once more, and out again.
///
/// # Safety of what the lock protects
///
/// A lease can end while its holder is paused or cut off, and then there are two who believe in it. Where that must not
/// be, the resource itself has to refuse the stale one, by its [token](Lock::fenced).
///
/// # Cancel safety
///
/// Dropping the future of [`lock`](Self::lock), [`try_lock`](Self::try_lock) or [`try_lock_for`](Self::try_lock_for) at any
/// point leaves nothing behind: no subscription, no place in line, and no lock past the one command that may be under way,
/// which is finished in the background and undone. One that is kept and not polled for as long as a lease lasts can come to a guard
/// whose hold is [lost](crate::Lost::Expired) already.
pub struct Lock<B: Backend> {
    pub(super) shared: Arc<Shared<B>>,
    pub(super) owner: Option<Owner>,
    pub(super) fenced: bool,
}

/// What the clones of a lock, and its guards, share.
pub(super) struct Shared<B: Backend> {
    pub(super) client: Arc<Inner<B>>,
    pub(super) name: LockName,
    pub(super) channel: String,
    pub(super) counters: Counters,
}

impl<B: Backend> Lock<B> {
    /// The same lock, taken by `owner` from now on: who has it can take it again, and it is free when each guard is gone.
    ///
    /// Any number of tasks may use one owner at the same time; its commands for one name go to the store one after another.
    /// When the owner's holds are lost, all of them are: the next acquisition is a first one, and the guards from before it are
    /// told so, and do not give it back.
    ///
    /// # Panics
    ///
    /// If another client made `owner`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// # let client = latchwork::LockClient::local();
    /// let me = client.owner();
    /// let lock = client.get_lock("orders")?.owned_by(&me);
    /// let outer = lock.lock().await?;
    /// let inner = lock.lock().await?; // does not wait for itself
    /// assert_eq!(lock.hold_count(&me).await?, 2);
    /// # drop((inner, outer));
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    #[must_use]
    #[track_caller]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        assert!(self.shared.client.knows(owner), "owner {owner} was made by another client");
        Self { shared: Arc::clone(&self.shared), owner: Some(owner.clone()), fenced: self.fenced }
    }

    /// The same lock, with a token for each acquisition from now on: [`Guard::fencing_token`].
    ///
    /// A token is greater than all tokens of this name before it, whoever had them. Send it along with each request to what the
    /// lock protects, and let that refuse a token smaller than the greatest it has seen: then a holder that was paused for
    /// longer than its lease does no harm when it goes on. An owner's inner holds have the token of its outer one. Whoever
    /// takes the lock without asking for a token has none, so let all ask who use one name.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// # let client = latchwork::LockClient::local();
    /// let lock = client.get_lock("orders")?.fenced();
    /// let late = lock.lock().await?;
    /// lock.force_unlock().await?;
    /// let next = lock.lock().await?;
    /// assert!(late.fencing_token() < next.fencing_token());
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn fenced(&self) -> Self {
        Self { fenced: true, ..self.clone() }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.shared.name
    }

    /// Takes the lock, waiting for it as long as it takes. The watchdog renews its lease while the guard lives.
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if an attempt fails; a wait that has begun goes on through a lost connection, until the lease
    /// it waits for would be over or the connection is back, and then tries again. [`LockError::Subscribe`] if the lock's
    /// messages cannot be had.
    pub async fn lock(&self) -> Result<Guard<B>, LockError> {
        self.wait_for(Lease::Watched).await
    }

    /// As [`lock`](Self::lock), with a lease of the caller's own, which nobody renews.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), and [`LockError::Lease`] if the lease cannot be kept.
    pub async fn lock_for(&self, lease: Duration) -> Result<Guard<B>, LockError> {
        self.wait_for(Lease::For(lease)).await
    }

    async fn wait_for(&self, lease: Lease) -> Result<Guard<B>, LockError> {
        let guard = span::acquiring(self.name(), acquire::acquire(self, lease, None)).await?;
        Ok(guard.expect("only a wait with a limit ends without the lock"))
    }

    /// Takes the lock if it is free now. The watchdog renews its lease while the guard lives.
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if the attempt fails.
    pub async fn try_lock(&self) -> Result<Option<Guard<B>>, LockError> {
        self.try_lock_for(Duration::ZERO, Lease::Watched).await
    }

    /// Takes the lock, waiting for it no longer than `wait`. `None` if it was not to be had in that time.
    ///
    /// With a `wait` of zero the one attempt takes the round trip that it takes; otherwise an attempt under way when the time is
    /// over is abandoned and undone. `lease` is a [`Duration`], or [`Lease::Watched`].
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), and [`LockError::Lease`] if the lease cannot be kept.
    pub async fn try_lock_for(
        &self,
        wait: Duration,
        lease: impl Into<Lease>,
    ) -> Result<Option<Guard<B>>, LockError> {
        span::acquiring(self.name(), acquire::acquire(self, lease.into(), Some(wait))).await
    }

    /// Gives back one hold of `owner`, whose guard was [forgotten](Guard::forget), or failed to give back the only one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not keep the hold: the command is finished in the background.
    ///
    /// # Errors
    ///
    /// [`LockError::NotHeld`] if `owner` does not hold the lock through this client. [`LockError::Backend`] if the command fails;
    /// then it can be called again, and counts once.
    pub async fn unlock(&self, owner: &Owner) -> Result<(), LockError> {
        if !self.shared.client.knows(owner) {
            return Err(LockError::NotHeld { name: self.name().clone(), owner: owner.clone() });
        }
        let (shared, owner) = (Arc::clone(&self.shared), owner.clone());
        let release = async move { shared.release_forgotten(&owner).await };
        let runtime = self.shared.client.backend.runtime();
        supervised(runtime, release).await.unwrap_or_else(|ended| Err(LockError::backend(ended)))
    }

    /// Frees the lock, whoever has it, and wakes a waiter. True if somebody had it.
    ///
    /// The holder is not asked. If it is watched it learns of it at its next renewal, otherwise when it lets go.
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if the command fails.
    pub async fn force_unlock(&self) -> Result<bool, LockError> {
        let freed = self.shared.client.backend.force_release(&self.shared.name).await;
        // Who comes now is not to wait for somebody who has lost it.
        self.shared.client.successors.nobody_holds(&self.shared.name);
        freed.map_err(LockError::backend)
    }

    /// Whether anybody has the lock.
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if the command fails.
    pub async fn is_locked(&self) -> Result<bool, LockError> {
        Ok(self.remaining().await?.is_some())
    }

    /// Whether `owner` has the lock.
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if the command fails.
    pub async fn is_held_by(&self, owner: &Owner) -> Result<bool, LockError> {
        Ok(self.hold_count(owner).await? > 0)
    }

    /// How often `owner` has the lock; 0 if it has not.
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if the command fails.
    pub async fn hold_count(&self, owner: &Owner) -> Result<u64, LockError> {
        self.shared.client.backend.hold_count(&self.shared.name, owner).await.map_err(LockError::backend)
    }

    /// How long the lock's lease lasts if nobody renews it: `None` if nobody has the lock, [`Duration::MAX`] if it never ends.
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if the command fails.
    pub async fn remaining(&self) -> Result<Option<Duration>, LockError> {
        self.shared.client.backend.remaining(&self.shared.name).await.map_err(LockError::backend)
    }

    /// What happened through this lock and its clones so far.
    pub fn stats(&self) -> LockStats {
        self.shared.counters.snapshot()
    }

    /// The owner to acquire by.
    pub(super) fn acquiring_owner(&self) -> Owner {
        self.owner.clone().unwrap_or_else(|| self.shared.client.new_owner())
    }
}

impl<B: Backend> Clone for LockClient<B> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<B: Backend> Clone for Lock<B> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), owner: self.owner.clone(), fenced: self.fenced }
    }
}

impl<B: Backend> fmt::Debug for LockClient<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("id", &self.inner.id)
            .field("registry", self.registry())
            .finish_non_exhaustive()
    }
}

impl<B: Backend> fmt::Debug for Lock<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.shared.name)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
