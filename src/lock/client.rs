//! [`LockClient`].

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::lock_entry::{HeldHere, LockEntry};
use crate::subscription::registry::Registry;

use crate::subscription::transport::Transport;

use crate::lock::backend::{AnyBackend, Backend, Mode};
use crate::lock::context::Context;
use crate::lock::entry::Entry;
use crate::lock::entry::table::Tables;
use crate::lock::error::{LockError, ShutdownError};
use crate::lock::handle::Lock;
use crate::lock::lease::LeaseError;
use crate::lock::metrics::Metrics;
use crate::lock::multi_lock::MultiLock;
use crate::lock::name::{LockName, NameMapper};
use crate::lock::named_semaphore::NamedSemaphore;
use crate::lock::options::LockOptions;
use crate::lock::owner::{LeaseId, Owner};
use crate::lock::read_write_lock::ReadWriteLock;

/// Makes locks by name, over one [`Backend`].
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::Duration;
/// use latchwork::LockClient;
///
/// // Made once per process. Over Redis: LockClient::new(Redis::connect("redis://127.0.0.1").await?)
/// let client = LockClient::local();
///
/// // One owner at a time.
/// let guard = client.get_lock("orders:42")?.lock().await?;
/// guard.unlock().await?;
///
/// // First come, first served, among all processes.
/// client.get_fair_lock("tickets")?.run(async { /* the work */ }).await?;
///
/// // Many readers, or one writer.
/// let prices = client.get_read_write_lock("prices")?;
/// drop((prices.read().lock().await?, prices.read().lock().await?));
/// prices.write().run(async { /* the work */ }).await?;
///
/// // At the end of `main`.
/// client.shutdown(Duration::from_secs(5)).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// # One client per process
///
/// Like Redisson's, a client has a uuid, with which its leases' ids begin, a subscription per name, and a
/// watchdog. Make a single client per process and clone it: clones are cheap and share everything.
///
/// Recipes: [`memory_or_redis`] has one client over either store, and [`one_process`] ends it well.
///
/// [`memory_or_redis`]:
/// https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/memory_or_redis.rs
/// [`one_process`]: https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/one_process.rs
///
/// # Forks and snapshots
///
/// After a fork, make another client, over a backend made in the child. There the old client's calls fail
/// with [`LockError::Forked`], its holds are [lost](crate::LossReason::Forked), and a new client over the
/// parent's backend in memory fails with [`LockError::RuntimeEnded`]. In the child, do not poll the parent's
/// futures, nor call [`metrics`](Self::metrics) and [`stats`](Lock::stats): both may wait for a missing
/// thread.
///
/// A process cannot detect that a snapshot of it, or of its machine, was restored beside the original: both
/// use the same leases until the leases end. Make clients after restoring, or use [tokens](Lock::fenced).
#[derive(Clone)]
pub struct LockClient {
    context: Arc<Context>,
    tables: Arc<Tables<Entry>>,
    name_mapper: NameMapper,
}

impl LockClient {
    /// Makes a client over `backend`, with a new uuid.
    pub fn new(backend: impl Backend) -> Self {
        Self::build(backend.erased(), &LockOptions::default())
    }

    /// Makes a client over `backend`, with a new uuid and these options.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the watchdog's timeout, or a limit, cannot be a lease.
    pub fn with_options(backend: impl Backend, options: &LockOptions) -> Result<Self, LeaseError> {
        options.check()?;
        Ok(Self::build(backend.erased(), options))
    }

    fn build(backend: AnyBackend, options: &LockOptions) -> Self {
        let context = Arc::new(Context::new(backend, options));
        Self { context, tables: Arc::default(), name_mapper: options.name_mapper.clone() }
    }

    /// Returns the lock called `name`. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`LockError::Name`] for a refused name, [`LockError::Forked`] in a child that was forked off.
    pub fn get_lock(&self, name: &str) -> Result<Lock, LockError> {
        self.lock_of(name, Mode::Plain)
    }

    /// Returns the fair lock called `name`, whose waiters in all processes are served in order of arrival.
    ///
    /// Sends nothing. Every release of a fair lock goes to the store, which grants the lock to the next
    /// waiter; a plain lock's release to a waiter of the same client sends nothing.
    ///
    /// Use a name for one kind of lock: while another kind is held, calls fail with [`LockError::OtherKind`].
    ///
    /// # Fairness
    ///
    /// First come, first served, up to the time that messages take. Except:
    ///
    /// * an owner that already has the lock takes the lock once more without waiting;
    /// * a waiter whose process is cut off from the store's messages cannot hear of its grant: the store
    ///   passes the waiter over, and keeps its position for its return;
    /// * a waiter that is kept unpolled, or whose process stands still, holds up the others for a third of
    ///   the [watchdog's timeout](crate::LockOptions::watchdog_timeout) or 10 s at most, and then waits anew;
    /// * after a forced release, or a lease that ended by itself, the waiters of the holder's client are in
    ///   the store's queue within a second, in order of arrival;
    /// * after a failover or flush of the store the waiters queue anew, in order of arrival.
    ///
    /// [`Lock::try_lock`] overtakes no waiter.
    ///
    /// # Errors
    ///
    /// [`LockError::Name`] for a refused name, [`LockError::Unsupported`] if the backend has no such locks.
    #[doc(alias = "fair_lock")]
    pub fn get_fair_lock(&self, name: &str) -> Result<Lock, LockError> {
        self.lock_of(name, Mode::Fair)
    }

    /// Returns the read-write lock called `name`, for many readers or one writer. Sends nothing.
    ///
    /// Use a name for one kind of lock: while another kind is held, calls fail with [`LockError::OtherKind`].
    ///
    /// # Errors
    ///
    /// [`LockError::Name`] for a refused name, [`LockError::Unsupported`] if the backend has no such locks.
    #[doc(alias = "read_write")]
    #[doc(alias = "RwLock")]
    pub fn get_read_write_lock(&self, name: &str) -> Result<ReadWriteLock, LockError> {
        let (read, write) = (self.lock_of(name, Mode::Read)?, self.lock_of(name, Mode::Write)?);
        Ok(ReadWriteLock::new(read, write))
    }

    /// Returns the semaphore called `name`, with at most `capacity` permits in use over all processes. Sends
    /// nothing.
    ///
    /// The capacity is the handle's, and not the store's: see [`NamedSemaphore`].
    ///
    /// # Errors
    ///
    /// [`LockError::Name`] for a refused name, [`LockError::Permits`] for a capacity of 0,
    /// [`LockError::Unsupported`] if the backend has no semaphores, [`LockError::Forked`] in a child that was
    /// forked off.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let client = latchwork::LockClient::local();
    /// let jobs = client.get_semaphore("jobs", 5)?;
    /// jobs.run(async { /* one of five at a time */ }).await?;
    /// # Ok::<(), latchwork::LockError>(()) }).unwrap();
    /// ```
    #[doc(alias = "RPermitExpirableSemaphore")]
    pub fn get_semaphore(&self, name: &str, capacity: u32) -> Result<NamedSemaphore, LockError> {
        NamedSemaphore::new(self.lock_of(name, Mode::Permits)?, capacity)
    }

    /// Makes one lock of several, in any order: an acquisition takes all of them, or none. Sends nothing.
    ///
    /// Any handles of this client: of every kind, [fenced](Lock::fenced) and [owned](Lock::owned_by). A name
    /// given twice, by handles of the same kind and owner, is taken once, and fenced if one of the two is.
    ///
    /// # Errors
    ///
    /// [`LockError::MultiLock`] without a lock, for a lock of another client, and for a name given as two
    /// kinds, to read and to write, or for two owners. [`LockError::Forked`] in a child that was forked off.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let client = latchwork::LockClient::local();
    /// let (alice, bob) = (client.get_lock("account:alice")?, client.get_lock("account:bob")?);
    /// client.get_multi_lock([&alice, &bob])?.run(async { /* the transfer */ }).await?;
    /// # Ok::<(), latchwork::LockError>(()) }).unwrap();
    /// ```
    #[doc(alias = "lock_all")]
    #[doc(alias = "RMultiLock")]
    pub fn get_multi_lock<'a>(
        &self,
        locks: impl IntoIterator<Item = &'a Lock>,
    ) -> Result<MultiLock, LockError> {
        self.context.check_origin()?;
        Ok(MultiLock::new(&self.context, locks.into_iter().cloned().collect())?)
    }

    fn lock_of(&self, name: &str, mode: Mode) -> Result<Lock, LockError> {
        // In a child the table may stay locked, by a thread that the child does not have.
        self.context.check_origin()?;
        let (name, table) = (self.name_mapper.map(name), self.tables.of(mode));
        if let Some(entry) = table.find_text(&name) {
            return Ok(Lock::new(entry));
        }
        let name = LockName::new(&name)?;
        self.context.store.check_name(&name)?;
        if !self.context.store.supports(mode) {
            return Err(LockError::Unsupported { backend: self.context.store.type_name(), mode });
        }
        Ok(Lock::new(table.get(&name, 0, || Entry::new(&self.context, &self.tables, &name, mode, None))))
    }

    /// Makes an owner that can take a lock more than once: see [`Lock::owned_by`].
    pub fn owner(&self) -> Owner {
        self.context.owner(self.context.number())
    }

    /// The client's uuid as text, the first part of its leases' ids.
    pub fn id(&self) -> &str {
        &self.context.id
    }

    /// Returns the client's figures so far.
    pub fn metrics(&self) -> Metrics {
        let (context, held, waiting) = (&self.context, self.held(), self.waiting());
        Metrics {
            held: held.len() as u64,
            waiting: waiting.iter().map(|lock| lock.waiters as u64).sum(),
            reconnects: context.store.reconnects(),
            commands_waiting: context.store.commands_waiting(),
            ..context.recorder.snapshot(&context.registry.stats(), context.releases.len())
        }
    }

    /// Lists this client's holds, [forgotten](crate::Guard::forget) ones included, by owner and lock, in
    /// order of modes and names. Asks no server.
    ///
    /// Looks at each lock separately, while other locks change. Empty in a child that was forked off.
    pub fn held(&self) -> Vec<HeldLock> {
        let each = |entry: Arc<Entry>| {
            let now = entry.now();
            let (holds, waiters) = entry.engine.each_hold(now);
            let held = move |hold: HeldHere| HeldLock {
                name: entry.name.clone(),
                mode: entry.mode,
                owner: entry.context.owner(hold.owner),
                holds: hold.holds,
                lease: entry.context.lease_id(hold.number),
                held_for: now.saturating_duration_since(hold.since),
                left: hold.ends.saturating_duration_since(now),
                is_watched: hold.is_watched,
                permits: entry.permits().map_or(1, |permits| permits.count),
                waiters,
            };
            holds.into_iter().map(held)
        };
        let mut held: Vec<HeldLock> = self.entries().into_iter().flat_map(each).collect();
        if held.iter().any(|held| held.mode == Mode::Permits) {
            let waiting = self.waiting();
            for held in held.iter_mut().filter(|held| held.mode == Mode::Permits) {
                let key = (held.mode, &held.name);
                let of_name = waiting.binary_search_by(|waiting| (waiting.mode, &waiting.name).cmp(&key));
                held.waiters = of_name.map_or(0, |at| waiting[at].waiters);
            }
        }
        held
    }

    /// Lists this client's waiters by lock, in the order of modes and names. Asks no server.
    ///
    /// Looks at each lock separately, while other locks change. Empty in a child that was forked off.
    pub fn waiting(&self) -> Vec<WaitingLock> {
        let each = |entry: Arc<Entry>| {
            let now = entry.now();
            let (waiters, head) = entry.engine.waiting();
            (waiters > 0).then(|| WaitingLock {
                name: entry.name.clone(),
                mode: entry.mode,
                waiters,
                competes_for: head.map(|since| now.saturating_duration_since(since)),
            })
        };
        let mut waiting: Vec<WaitingLock> = self.entries().into_iter().filter_map(each).collect();
        // Each acquisition of a semaphore's permits has an entry of its own.
        waiting.dedup_by(|next, one| {
            let is_same = next.mode == one.mode && next.name == one.name;
            if is_same {
                one.waiters += next.waiters;
                one.competes_for = one.competes_for.max(next.competes_for);
            }
            is_same
        });
        waiting
    }

    /// All entries; none in a child that was forked off, where a mutex may stay locked forever.
    fn entries(&self) -> Vec<Arc<Entry>> {
        if self.context.is_same_process() { self.tables.all() } else { Vec::new() }
    }

    /// Returns the backend that was given to [`new`](Self::new), if its type is `B`.
    pub fn backend<B: Backend>(&self) -> Option<&B> {
        let store: &dyn Any = &*self.context.store;
        store.downcast_ref()
    }

    /// The channels that the backend's clients wait on: an entry per name whose queue head waits.
    pub fn registry(&self) -> &Registry<dyn Transport> {
        &self.context.registry
    }

    /// Ends the client: from now on no lock is granted, and waiters get an error. Waits for at most `limit`
    /// until every guard is gone or its lease over, and every release and rollback is answered; not for
    /// [forgotten](crate::Guard::forget) holds.
    ///
    /// Call `shutdown` at the end of `main` and after Ctrl-C: a runtime that ends drops the releases in the
    /// background, and their locks stay held for the rest of their leases.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not undo the shutdown. Call `shutdown` again to wait longer.
    ///
    /// # Errors
    ///
    /// [`ShutdownError`] names the locks that guards still hold, or whose release was not answered: see
    /// [`is_release_pending`](ShutdownError::is_release_pending). A forked child gets an error at once, with
    /// [`is_forked`](ShutdownError::is_forked), and nothing changes.
    pub async fn shutdown(&self, limit: Duration) -> Result<(), ShutdownError> {
        if self.context.is_same_process() {
            self.context.shut_down();
        }
        for entry in self.entries() {
            entry.event(LockEntry::close);
        }
        self.until_idle(limit).await
    }

    /// Refuses new acquisitions from now on, serves the waiting ones, and then [shuts down](Self::shutdown).
    /// Both end after `limit` at the latest, with an error for acquisitions that still wait.
    ///
    /// An owner that holds a lock can take the same lock again until all is given back. Call `drain` when the
    /// process is told to end, as by SIGTERM ([`drain_on_sigterm`]).
    ///
    /// [`drain_on_sigterm`]:
    /// https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/drain_on_sigterm.rs
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not admit new acquisitions again. Call `drain` again to wait longer, or
    /// `shutdown`.
    ///
    /// # Errors
    ///
    /// Those of [`shutdown`](Self::shutdown).
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # let client = latchwork::LockClient::local();
    /// let lock = client.get_lock("orders:42")?;
    /// let guard = lock.lock().await?;
    /// let (drained, ()) = tokio::join!(client.drain(Duration::from_secs(10)), async {
    ///     assert!(lock.lock().await.is_err());
    ///     drop(guard); // the work is done
    /// });
    /// drained?;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub async fn drain(&self, limit: Duration) -> Result<(), ShutdownError> {
        if !self.context.is_same_process() {
            return self.shutdown(limit).await;
        }
        self.context.drain();
        let give_up = self.context.now() + limit;
        _ = self.until_idle(limit).await;
        self.shutdown(give_up.saturating_duration_since(self.context.now())).await
    }

    /// Waits until no guard, no release and, unless the client is shut down, no waiter is left.
    async fn until_idle(&self, limit: Duration) -> Result<(), ShutdownError> {
        // Before the clock is read: in a child the clock's mutex may stay locked, too.
        if !self.context.is_same_process() {
            return Err(ShutdownError { releasing: Vec::new(), held: Vec::new(), forked: true });
        }
        let give_up = self.context.now() + limit;
        loop {
            let done = self.context.releases.done();
            let (mut held, mut awaited, mut wake) = (Vec::new(), Vec::new(), give_up);
            let mut waits = false;
            // Listen first: an end from now on is seen here or notified. Look at holds first and at
            // background releases last: a hold becomes a release, and is seen in one of the three places.
            for entry in self.tables.all() {
                // The watchdog may look later, and an ended hold may have a lease to release.
                entry.event(|engine, effects| engine.end_what_is_over(entry.now(), effects));
                waits |= !self.context.is_shut_down() && entry.engine.waiting().0 > 0;
                let holds = entry.engine.each_hold(entry.now()).0;
                if let Some(ends) = holds.iter().filter(|hold| !hold.is_forgotten).map(|hold| hold.ends).min()
                {
                    held.push(entry.name.clone());
                    // A guard may be kept beyond its lease, whose end notifies nothing.
                    wake = wake.min(ends);
                }
                // A caller awaits the release, or may have to release after a question outside of the queue.
                if entry.engine.is_returning() || entry.is_unreleased() || entry.has_abandon_guards() {
                    awaited.push(entry.name.clone());
                }
            }
            let mut releasing = self.context.releases.names();
            releasing.extend(awaited);
            if releasing.is_empty() && held.is_empty() && !waits {
                return Ok(());
            }
            let is_told = self.context.until(wake, pin!(done)).await.is_some();
            if self.context.has_ended() || !is_told && give_up <= self.context.now() {
                let mut named = HashSet::new();
                for names in [&mut held, &mut releasing] {
                    names.retain(|name| named.insert(name.clone()));
                }
                return Err(ShutdownError { releasing, held, forked: false });
            }
        }
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("id", &self.id())
            .field("channels", &self.registry().len())
            .finish_non_exhaustive()
    }
}

/// A lock that a client holds, by one owner: see [`LockClient::held`](crate::LockClient::held).
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// let guard = client.get_lock("orders:42")?.lock().await?;
/// for held in client.held() {
///     println!("{} ({}), by {} for {:?}", held.name, held.mode, held.owner, held.held_for);
///     assert!(held.owner == *guard.owner() && held.is_watched);
/// }
/// # Ok::<(), latchwork::LockError>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldLock {
    /// Name of the lock.
    pub name: LockName,
    /// Mode in which the lock is held.
    pub mode: Mode,
    /// The owner that has the lock.
    pub owner: Owner,
    /// Count of the owner's guards and of its [forgotten](crate::Guard::forget) holds.
    pub holds: u32,
    /// The lease of the hold, which [`Lock::holder`](crate::Lock::holder) returns in every process.
    pub lease: LeaseId,
    /// Time for which the owner has had the lock, by the backend's clock.
    pub held_for: Duration,
    /// Time left unless the lease is renewed or extended; [`Duration::MAX`] if the lease never ends.
    pub left: Duration,
    /// True if the watchdog renews the lease for this owner.
    pub is_watched: bool,
    /// Count of a semaphore's permits; 1 for a lock.
    pub permits: u32,
    /// Count of this client's acquisitions that wait for the lock.
    pub waiters: usize,
}

/// A lock that acquisitions of a client wait for: see [`LockClient::waiting`](crate::LockClient::waiting).
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// for wait in client.waiting() {
///     println!("{} acquisitions wait for {} ({})", wait.waiters, wait.name, wait.mode);
/// }
/// # });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingLock {
    /// Name of the lock.
    pub name: LockName,
    /// Mode in which the lock is asked for.
    pub mode: Mode,
    /// Count of waiting acquisitions, the queue head included.
    pub waiters: usize,
    /// Time for which the queue head has waited; `None` if the lock is held in this process.
    pub competes_for: Option<Duration>,
}
