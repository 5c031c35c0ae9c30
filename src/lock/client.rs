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
use crate::lock::name::{LockName, NameMapper};
use crate::lock::options::LockOptions;
use crate::lock::owner::{LeaseId, Owner};
use crate::lock::read_write_lock::ReadWriteLock;

/// Makes locks by name, over one [`Backend`].
///
/// A client is what Redisson calls one too: it has a uuid, which is the first part of each of its leases'
/// ids, one subscription per name however many wait, and one watchdog. Make one per process and clone it;
/// clones are cheap and share everything.
///
/// Recipes: [`memory_or_redis`] has one client over either store, and [`one_process`] ends it well.
///
/// [`memory_or_redis`]:
/// https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/memory_or_redis.rs
/// [`one_process`]: https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/one_process.rs
///
/// # Forks and snapshots
///
/// After a fork, make another client, over a backend made in the child. There every call of this one that
/// takes, gives back or looks at a lock is an [error](LockError::Forked), and its holds are
/// [lost](crate::LossReason::Forked). A client made in the child over a backend in memory that was made
/// before is refused by [`LockError::RuntimeEnded`]: the backend's threads are not there. In the child, do
/// not poll futures that were begun before, nor ask for [`metrics`](Self::metrics) and
/// [`stats`](Lock::stats): they may wait for a thread that is not there.
///
/// A snapshot of the process or of its machine that is restored while the original goes on cannot detect
/// that: both use the same leases until these end. Make clients after restoring, and where it must not
/// happen, let what the lock protects check its [token](Lock::fenced).
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
/// // … no other task of this process has it here …
/// guard.unlock().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct LockClient {
    context: Arc<Context>,
    tables: Arc<Tables<Entry>>,
    name_mapper: NameMapper,
}

impl LockClient {
    /// A client over `backend`, with a uuid of its own.
    pub fn new(backend: impl Backend) -> Self {
        Self::build(backend.erased(), &LockOptions::default())
    }

    /// A client over `backend`, with a uuid of its own.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the watchdog's timeout, or a limit, cannot be a lease.
    pub fn with_options(backend: impl Backend, options: &LockOptions) -> Result<Self, LeaseError> {
        options.check()?;
        Ok(Self::build(backend.erased(), options))
    }

    fn build(backend: AnyBackend, options: &LockOptions) -> Self {
        let context = Arc::new(Context::new(backend, options.rules(), options.label.clone()));
        Self { context, tables: Arc::default(), name_mapper: options.name_mapper.clone() }
    }

    /// The lock called `name`. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`LockError::Name`] if no backend could keep a lock under that name, or this one cannot.
    /// [`LockError::Forked`] in a child that was forked off.
    pub fn get_lock(&self, name: &str) -> Result<Lock, LockError> {
        self.lock_of(name, Mode::Plain)
    }

    /// The fair lock called `name`: its waiters, in whatever process, get it in the order in which
    /// they began to wait. Nothing is sent.
    ///
    /// Fairness costs commands: every release goes to the store, and what the plain lock passes on in
    /// memory takes a command. The release itself grants the lock to the next waiter, so that a hand-off
    /// between processes is one hop.
    ///
    /// A name is to be one kind of lock. While it is held as another kind, this one is refused by
    /// [`LockError::OtherKind`].
    ///
    /// # Fairness
    ///
    /// First come, first served, up to the time that messages take. Except:
    ///
    /// * an owner that has the lock already takes it once more without waiting;
    /// * a waiter that cannot be told when its turn has come, because its process is cut off from the store's
    ///   messages, is passed over, and keeps its position for when it is back;
    /// * a waiter whose future is kept and not polled, or whose process stands still, holds up the others for
    ///   a third of the [watchdog's timeout](crate::LockOptions::watchdog_timeout) at most, and for 10 s at
    ///   most. It waits anew then;
    /// * the waiters of the client whose lock was forced free, or whose lease ended by itself, are in the
    ///   store's queue within a second after that, by when they began to wait. One that had just been
    ///   granted the lock, and had not been polled since, waits anew;
    /// * after a failover or flush of the store the waiters queue anew, by when they began to wait.
    ///
    /// [`Lock::try_lock`] overtakes no waiter.
    ///
    /// # Errors
    ///
    /// [`LockError::Name`] if no backend could keep a lock under that name, or this one cannot;
    /// [`LockError::Unsupported`] if it keeps no such locks.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// use latchwork::LockClient;
    ///
    /// let client = LockClient::local();
    /// let guard = client.get_fair_lock("tickets")?.lock().await?;
    /// assert!(client.get_lock("tickets")?.try_lock().await.unwrap_err().is_other_kind());
    /// guard.unlock().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    #[doc(alias = "fair_lock")]
    pub fn get_fair_lock(&self, name: &str) -> Result<Lock, LockError> {
        self.lock_of(name, Mode::Fair)
    }

    /// The read-write lock called `name`: many have it to read, or one to write. Nothing is sent.
    ///
    /// A name is to be one kind of lock. While it is held as another kind, this one is refused by
    /// [`LockError::OtherKind`].
    ///
    /// # Errors
    ///
    /// [`LockError::Name`] if no backend could keep a lock under that name, or this one cannot;
    /// [`LockError::Unsupported`] if it keeps no such locks.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// use latchwork::LockClient;
    ///
    /// let prices = LockClient::local().get_read_write_lock("prices")?;
    /// let readers = (prices.read().lock().await?, prices.read().lock().await?);
    /// drop(readers);
    /// let writer = prices.write().lock().await?;
    /// assert!(prices.read().try_lock().await?.is_none());
    /// writer.unlock().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    #[doc(alias = "read_write")]
    #[doc(alias = "RwLock")]
    pub fn get_read_write_lock(&self, name: &str) -> Result<ReadWriteLock, LockError> {
        let (read, write) = (self.lock_of(name, Mode::Read)?, self.lock_of(name, Mode::Write)?);
        Ok(ReadWriteLock::new(read, write))
    }

    fn lock_of(&self, name: &str, mode: Mode) -> Result<Lock, LockError> {
        // The table may be locked by a thread that a child does not have.
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
        Ok(Lock::new(table.get(&name, || Entry::new(&self.context, &self.tables, &name, mode))))
    }

    /// A new owner, for taking a lock more than once: see [`Lock::owned_by`].
    pub fn owner(&self) -> Owner {
        self.context.owner(self.context.number())
    }

    /// The client's uuid as text, the first part of its leases' ids.
    pub fn id(&self) -> &str {
        &self.context.id
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
        let (context, held, waiting) = (&self.context, self.held(), self.waiting());
        Metrics {
            held: held.len() as u64,
            waiting: waiting.iter().map(|lock| lock.waiters as u64).sum(),
            reconnects: context.store.reconnects(),
            commands_waiting: context.store.commands_waiting(),
            ..context.recorder.snapshot(&context.registry.stats(), context.releases.len())
        }
    }

    /// What this client holds now, by guards and by holds that were [forgotten](crate::Guard::forget): an
    /// item for each owner of each lock, in the order of modes and names. As far as this process knows; asks
    /// no server. [`Lock::holder`] asks it, for the holder in any process.
    ///
    /// Each lock is looked at by itself while things go on. Empty in a child that was forked off.
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
                waiters,
            };
            holds.into_iter().map(held)
        };
        self.entries().into_iter().flat_map(each).collect()
    }

    /// What acquisitions of this client wait for now, in the order of modes and names. Asks no server; says
    /// nothing of waiters in other processes.
    ///
    /// Each lock is looked at by itself while things go on. Empty in a child that was forked off.
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
        self.entries().into_iter().filter_map(each).collect()
    }

    /// What is in use. In a child that was forked off, none: a mutex may be locked for ever there.
    fn entries(&self) -> Vec<Arc<Entry>> {
        if self.context.is_same_process() { self.tables.all() } else { Vec::new() }
    }

    /// The backend that was given to [`new`](Self::new), if it is a `B`.
    pub fn backend<B: Backend>(&self) -> Option<&B> {
        let store: &dyn Any = &*self.context.store;
        store.downcast_ref()
    }

    /// The channels that this process waits on: one entry per name whose queue head waits. The backend's, and
    /// so shared by all of its clients.
    pub fn registry(&self) -> &Registry<dyn Transport> {
        &self.context.registry
    }

    /// Ends the client in good order: no lock is granted by it from now on, and its waiters are told
    /// so. Then waits until every guard is gone or its lease over, and every release was answered, for
    /// `limit` at most. Releases are also the rollbacks of acquisitions that were not answered. A hold that
    /// was [forgotten](crate::Guard::forget) is not waited for: the store keeps it until its lease is over.
    ///
    /// Call it at the end of `main`, and when Ctrl-C has come: a release that is under way in the background
    /// is lost with the runtime, and its lock is held for the rest of its lease then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not undo the shutdown. It can be called again, to wait longer.
    ///
    /// # Errors
    ///
    /// [`ShutdownError`] names the locks that guards hold still, or whose release was not answered; it [says
    /// whether](ShutdownError::is_release_pending) there are only the latter. In a child that was forked off
    /// it [says so](ShutdownError::is_forked) at once, and changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// use std::time::Duration;
    /// use latchwork::LockClient;
    ///
    /// let client = LockClient::local();
    /// let lock = client.get_lock("orders")?;
    /// drop(lock.lock().await?);
    /// // tokio::select! { _ = work() => {}, _ = tokio::signal::ctrl_c() => {} }
    /// client.shutdown(Duration::from_secs(5)).await?;
    /// assert!(lock.lock().await.unwrap_err().is_shut_down());
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub async fn shutdown(&self, limit: Duration) -> Result<(), ShutdownError> {
        if !self.context.is_same_process() {
            return Err(ShutdownError { releasing: Vec::new(), held: Vec::new(), forked: true });
        }
        self.context.shut_down();
        for entry in self.tables.all() {
            entry.event(LockEntry::close);
        }
        let give_up = self.context.now() + limit;
        loop {
            let done = self.context.releases.done();
            let (mut held, mut awaited, mut wake) = (Vec::new(), Vec::new(), give_up);
            // After we listen, so that what is done now is either seen here or told. What is held first, and
            // what is in the background last: a hold is released next, and seen in one of the three.
            for entry in self.tables.all() {
                // The watchdog may look later than this, and what has ended may have a lease to be released.
                entry.event(|engine, effects| engine.end_what_is_over(entry.now(), effects));
                let holds = entry.engine.each_hold(entry.now()).0;
                if let Some(ends) = holds.iter().filter(|hold| !hold.is_forgotten).map(|hold| hold.ends).min()
                {
                    held.push(entry.name.clone());
                    // A guard may be kept beyond its lease: no call tells the end of that.
                    wake = wake.min(ends);
                }
                // By a caller that waits for it; or a caller has asked the store for what is released if it
                // is granted, beside the queue.
                if entry.engine.is_returning() || entry.is_unreleased() || entry.has_abandon_guards() {
                    awaited.push(entry.name.clone());
                }
            }
            let mut releasing = self.context.releases.names();
            releasing.extend(awaited);
            if releasing.is_empty() && held.is_empty() {
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

/// A lock that a client holds, with one of its owners: see [`LockClient::held`](crate::LockClient::held).
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// # let client = latchwork::LockClient::local();
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
    /// The lock.
    pub name: LockName,
    /// As what it is held.
    pub mode: Mode,
    /// The owner that has it.
    pub owner: Owner,
    /// How often the owner has it: its guards, and its holds that were [forgotten](crate::Guard::forget).
    pub holds: u32,
    /// The lease that it stands on, as [`Lock::holder`](crate::Lock::holder) says it in every process.
    pub lease: LeaseId,
    /// For how long the owner has had it, by the backend's clock.
    pub held_for: Duration,
    /// For how long it has it still if the lease is not renewed or extended; [`Duration::MAX`] if that never
    /// ends.
    pub left: Duration,
    /// Whether the watchdog renews the lease for this owner.
    pub is_watched: bool,
    /// How many acquisitions of this client wait for it.
    pub waiters: usize,
}

/// A lock that acquisitions of a client wait for: see [`LockClient::waiting`](crate::LockClient::waiting).
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// # let client = latchwork::LockClient::local();
/// for wait in client.waiting() {
///     println!("{} acquisitions wait for {} ({})", wait.waiters, wait.name, wait.mode);
/// }
/// # });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingLock {
    /// The lock.
    pub name: LockName,
    /// As what it is asked for.
    pub mode: Mode,
    /// How many acquisitions wait, the one that competes at the store included.
    pub waiters: usize,
    /// For how long the one has waited that competes at the store; `None` if none does, as the lock is held
    /// in this process.
    pub competes_for: Option<Duration>,
}
