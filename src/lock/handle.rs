//! [`Lock`]: the handle of one name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::lock_entry::LeaveOutcome;
#[cfg(doc)]
use crate::lock_entry::LossReason;

use crate::lock::acquire::AcquireParams;
use crate::lock::backend::{Holder, Mode};
use crate::lock::context::proceed;
use crate::lock::entry::Entry;
use crate::lock::error::LockError;
use crate::lock::guard::Guard;
use crate::lock::lease::Lease;
use crate::lock::metrics::LockStats;
use crate::lock::name::LockName;
use crate::lock::owner::Owner;
use crate::support::trace;

/// A named lock: at most one [`Owner`] has it at a time, until it lets go or its lease is over.
///
/// Each acquisition is by an owner of its own, so taking the lock twice without letting go waits for itself,
/// as with a mutex; [`owned_by`](Self::owned_by) makes it re-entrant. All handles of a client that
/// have the same name are handles of the same lock.
///
/// The store leases the lock to the client; inside of it, the lock passes from waiter to waiter, and from an
/// owner's outer hold to its inner ones, in memory.
///
/// # Fairness
///
/// Waiters of one client are served strictly in the order in which they were first polled (with the feature
/// `tokio`: by a task that has not spent tokio's budget), and newcomers queue behind them: explicit owners as
/// well, unless they hold the lock already. Of each process the oldest waiter competes at the store. Once a
/// process has the lock, its waiters have it one after another for as long as its
/// [tenure](crate::LockOptions::tenure); then it asks again behind the other processes that wait.
///
/// A future that is kept and not polled is [superseded](crate::LockOptions::unpolled_limit) when it is its
/// turn. Until then the others wait for it, as with any fair async mutex.
///
/// # Safety of what the lock protects
///
/// A lease can end while its holder is paused or cut off, and then two owners believe in it. Where
/// that must not be, the resource itself has to refuse the stale one, by its [token](Lock::fenced).
///
/// There is no poisoning: a holder that panics drops its guard, and the next one has the lock. What the lock
/// protects may be half done then, as after a loss.
///
/// # Cancel safety
///
/// Dropping the future of [`lock`](Self::lock), [`try_lock`](Self::try_lock) or
/// [`try_lock_for`](Self::try_lock_for) at any point leaves nothing behind: no subscription, no place in the
/// queue, and no lease past the one command that may be under way, which is rolled back in the background.
///
/// Recipes: a lock for each user of an HTTP service ([`axum_lock_per_user`]), a cache that one process
/// refreshes ([`cache_refresh`]), a store that refuses stale holders ([`fencing_sqlite`]).
///
/// [`axum_lock_per_user`]:
/// https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/axum_lock_per_user.rs
/// [`cache_refresh`]:
/// https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/cache_refresh.rs
/// [`fencing_sqlite`]:
/// https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/fencing_sqlite.rs
///
/// Its futures are `Send`, and may be put under any runtime's time limit, such as `tokio::time::timeout`.
///
/// # Panics
///
/// Not by itself. The backend in memory does if the system refuses it a background thread, when that is first
/// needed.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// # let client = latchwork::LockClient::local();
/// let lock = client.get_lock("orders:42")?;
/// let guard = lock.lock().await?;
/// assert!(lock.try_lock().await?.is_none());
/// guard.unlock().await?;
/// # Ok::<(), latchwork::LockError>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[doc(alias = "Mutex")]
pub struct Lock {
    entry: Arc<Entry>,
    owner: Option<Owner>,
    fenced: bool,
}

impl Lock {
    pub(super) fn new(entry: Arc<Entry>) -> Self {
        Self { entry, owner: None, fenced: false }
    }

    /// The same lock, taken by `owner` from now on: an owner that has it can take it again, and it is free
    /// when each guard is gone.
    ///
    /// Any number of tasks may use one owner at the same time. When the owner's holds are lost, all of them
    /// are: the next acquisition is a first one, and the guards from before it are told so, and do not give
    /// it back.
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
        assert!(self.knows(owner), "owner {owner} was made by another client");
        Self { entry: Arc::clone(&self.entry), owner: Some(*owner), fenced: self.fenced }
    }

    /// Whether this client made `owner`, and so knows what it holds.
    fn knows(&self, owner: &Owner) -> bool {
        owner.client == self.entry.context.client
    }

    /// The same lock, with a token for each acquisition from now on: [`Guard::fencing_token`].
    ///
    /// A token is greater than all tokens of this name before it, of all holders, for as long as the store
    /// keeps its data: a Redis server that fails over, or restarts, with the last writes missing may issue a
    /// token a second time ([how to make that rarer]). Send it along with each request to what the lock
    /// protects, and let that refuse a token smaller than the greatest it has seen: then a holder that was
    /// paused for longer than its lease does no harm when it goes on. An owner's inner
    /// holds have the token of its outer one. Concurrent [readers](crate::ReadWriteLock::read) have one
    /// token: greater than that of each writer before them. An owner that takes the lock without asking for a
    /// token has none, so let all users of a name ask.
    ///
    /// [how to make that rarer]:
    /// https://github.com/latchwork/latchwork/blob/main/docs/operations.md#fencing-tokens
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
        &self.entry.name
    }

    /// Takes the lock, waiting for it as long as it takes. The watchdog renews its lease while the guard
    /// lives.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`Lock`].
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if an attempt fails; a wait that has begun goes on through a lost connection,
    /// until the lease it waits for would be over or the connection is back, and then tries again.
    /// [`LockError::Subscribe`] if the lock's messages cannot be had. [`LockError::OtherKind`] if the name is
    /// held as another kind of lock. [`LockError::Upgrade`] if the owner reads and asks to write.
    /// [`LockError::ShutDown`], [`RuntimeEnded`](LockError::RuntimeEnded) and
    /// [`Forked`](LockError::Forked) if the client cannot be used any more.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// # let client = latchwork::LockClient::local();
    /// let guard = client.get_lock("orders:42")?.lock().await?;
    /// // … the guard may be kept, sent to another task, and outlives the `Lock` …
    /// guard.unlock().await?;
    /// # Ok::<(), latchwork::LockError>(()) }).unwrap();
    /// ```
    pub fn lock(&self) -> impl Future<Output = Result<Guard, LockError>> {
        self.acquire(Lease::Watched, None, None)
    }

    /// As [`lock`](Self::lock), with a lease of the caller's own, which is not renewed.
    ///
    /// So no renewal tells its holder that the store has it no more: [`Guard::ensure_held`] asks.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`Lock`].
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), and [`LockError::Lease`] if the lease cannot be kept, or is over before
    /// the store's answer is there.
    pub fn lock_with_lease(&self, lease: Duration) -> impl Future<Output = Result<Guard, LockError>> {
        self.acquire(Lease::For(lease), None, None)
    }

    /// Takes the lock if it is free now. The watchdog renews its lease while the guard lives.
    ///
    /// `None` without a command if another acquisition of this client has the lock, or waits for it: this one
    /// does not go before it. If another one is asking the store at this moment, this one waits for that
    /// answer, for a second at most.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`Lock`].
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), and [`LockError::NoAnswer`] as [`try_lock_for`](Self::try_lock_for).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// # let client = latchwork::LockClient::local();
    /// let lock = client.get_lock("report")?;
    /// match lock.try_lock().await? {
    ///     Some(guard) => guard.unlock().await?, // … after the work …
    ///     None => println!("another process writes it already"),
    /// }
    /// # Ok::<(), latchwork::LockError>(()) }).unwrap();
    /// ```
    pub fn try_lock(&self) -> impl Future<Output = Result<Option<Guard>, LockError>> {
        self.try_lock_for(Duration::ZERO, Lease::Watched)
    }

    /// Takes the lock, waiting for it no longer than `wait`. `None` if it is held by another then.
    ///
    /// With a `wait` of zero the one attempt takes the round trip that it takes; otherwise an attempt under
    /// way when the time is over is given up and rolled back. `lease` is a [`Duration`], or
    /// [`Lease::Watched`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`Lock`].
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), [`LockError::Lease`] if the lease cannot be kept, or is over before the
    /// store's answer is there, and [`LockError::NoAnswer`] if the time is over before the store has said, to
    /// this waiter or another one of this client, whether the lock is held.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// use std::time::Duration;
    /// use latchwork::Lease;
    ///
    /// # let client = latchwork::LockClient::local();
    /// let lock = client.get_lock("orders:42")?;
    /// match lock.try_lock_for(Duration::from_secs(2), Lease::Watched).await {
    ///     Ok(Some(guard)) => guard.unlock().await?, // … after the work …
    ///     Ok(None) => println!("busy: HTTP 423"),
    ///     Err(error) if error.is_retryable() => println!("{error}: HTTP 503"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok::<(), latchwork::LockError>(()) }).unwrap();
    /// ```
    pub fn try_lock_for(
        &self,
        wait: Duration,
        lease: impl Into<Lease>,
    ) -> impl Future<Output = Result<Option<Guard>, LockError>> {
        self.acquire(lease.into(), Some(wait), Some(None))
    }

    fn acquire<O: From<Guard>>(
        &self,
        lease: Lease,
        wait: Option<Duration>,
        time_over: Option<O>,
    ) -> impl Future<Output = Result<O, LockError>> {
        let owner = self.owner.map(|owner| owner.number);
        let wanted = AcquireParams { entry: &self.entry, owner, lease, fenced: self.fenced, wait };
        trace::acquiring(self.name().as_str(), wanted.acquire(time_over))
    }

    /// Gives back one hold of `owner`: one whose guard was [forgotten](Guard::forget), or else one that a
    /// guard has. If it was the owner's last one, that guard's hold is [lost](LossReason::GivenBack) by it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not keep the hold: the command is finished in the background, and repeated if
    /// need be.
    ///
    /// # Errors
    ///
    /// [`LockError::NotHeld`] if `owner` does not hold the lock through this client.
    /// [`LockError::ReleasePending`] if the command fails: the hold is over all the same, and the release is
    /// repeated in the background.
    pub async fn unlock(&self, owner: &Owner) -> Result<(), LockError> {
        let not_held = || LockError::NotHeld { name: self.name().clone(), owner: *owner };
        self.entry.context.check_origin()?;
        if !self.knows(owner) {
            return Err(not_held());
        }
        let now = self.entry.now();
        let owner = owner.number;
        let left = self.entry.event(|engine, effects| engine.leave_by_name(owner, now, effects));
        self.entry.let_go();
        // As far as is known here or at the store.
        let had_it = match left {
            LeaveOutcome::Remains | LeaveOutcome::Passed => true,
            LeaveOutcome::NotHeld | LeaveOutcome::Lost(_) => false,
            LeaveOutcome::Return(pending_release) => self.entry.release(pending_release, now).await?,
        };
        if had_it { Ok(()) } else { Err(not_held()) }
    }

    /// Frees the lock, whichever owner has it, and wakes a waiter. True if it was held. Another kind of lock
    /// of that name is left alone.
    ///
    /// The holder is not asked. If it is of this client, its guard is told at once. Another client's learns
    /// of it when its lease is renewed or verified, at the latest when it lets go.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves it open whether the lock is freed: the command may run or not.
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if the command fails, [`LockError::OtherKind`] if the name is held as another
    /// kind of lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// # let client = latchwork::LockClient::local();
    /// let lock = client.get_lock("orders:42")?;
    /// let guard = lock.lock().await?;
    /// assert!(lock.force_unlock().await?);
    /// assert!(!guard.is_held(), "its holder is told");
    /// # Ok::<(), latchwork::LockError>(()) }).unwrap();
    /// ```
    pub async fn force_unlock(&self) -> Result<bool, LockError> {
        let context = &self.entry.context;
        context.check_origin()?;
        proceed().await;
        let (sent, in_hand) = (self.entry.now(), self.entry.leases_in_hand());
        let freed = context.store.force_release(self.entry.mode, self.name()).await;
        let freed = freed.map_err(|error| context.failed(self.name(), error))?;
        for (entry, number) in in_hand {
            entry.gone(number, sent);
        }
        // The answer to what was under way may come later still.
        self.entry.both_sides().for_each(|entry| entry.engine.forced(entry.now()));
        // Should the message be lost.
        self.entry.engine.latch().release_all();
        for entry in self.entry.both_sides() {
            // Before it ran, or after: the store knows. Should it not answer, the next renewal does.
            let granted_meanwhile = entry.engine.lease_numbers();
            if !granted_meanwhile.is_empty() {
                _ = entry.verify_leases(&granted_meanwhile).await;
            }
        }
        Ok(freed)
    }

    /// The holder of the lock, among all clients: `None` if it is free. Of several readers the one whose
    /// lease lasts longest.
    ///
    /// What another program has written under the name counts as held, since no lease is granted there: then
    /// neither the id nor the mode is known. [`Holder`] has a table of what there may be.
    ///
    /// Over Redis it costs one command; of a lock to read, one for about 50 readers, as the longest of their
    /// leases is looked for, here and in [`is_locked`](Self::is_locked) and [`remaining`](Self::remaining).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if the command fails. [`LockError::OtherKind`] of a side of a read-write lock,
    /// if the name is held as another kind.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// use latchwork::{LockClient, LockOptions, local::Local};
    ///
    /// let client = LockClient::with_options(Local::new(), &LockOptions::default().label("worker-3"))?;
    /// let lock = client.get_lock("orders")?;
    /// let guard = lock.lock().await?;
    /// let holder = lock.holder().await?.expect("it is held");
    /// let id = holder.id.expect("a client of this crate has it");
    /// assert_eq!((id.client_id().as_str(), id.label()), (client.id(), Some("worker-3")));
    /// println!("for {:?} still", holder.left);
    /// # drop(guard);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub async fn holder(&self) -> Result<Option<Holder>, LockError> {
        proceed().await;
        let (mode, context) = (self.entry.mode, &self.entry.context);
        context.check_origin()?;
        let holders = context.store.holders(mode, self.name()).await;
        let holders = holders.map_err(|error| context.failed(self.name(), error))?;
        let mut holder = holders.into_iter().max_by_key(|holder| holder.left);
        // A side of a read-write lock has holders of its own only.
        if let (Some(holder), Mode::Read | Mode::Write) = (&mut holder, mode) {
            holder.mode = Some(mode);
        }
        Ok(holder)
    }

    /// Whether the lock is held, by any client.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// Those of [`holder`](Self::holder).
    pub async fn is_locked(&self) -> Result<bool, LockError> {
        Ok(self.holder().await?.is_some())
    }

    /// Whether `owner` has the lock. Owners of other clients are not known here, and the answer for them is
    /// no.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if the command fails.
    pub async fn is_held_by(&self, owner: &Owner) -> Result<bool, LockError> {
        Ok(self.hold_count(owner).await? > 0)
    }

    /// How often `owner` has the lock; 0 if it has not, or is another client's. Asks the store whether this
    /// client has it, and counts in memory.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if the command fails.
    pub async fn hold_count(&self, owner: &Owner) -> Result<u64, LockError> {
        self.entry.context.check_origin()?;
        if !self.knows(owner) {
            return Ok(0);
        }
        proceed().await;
        // Leases of readers are merged meanwhile, and the other lease is not verified by that.
        let mut verified = Vec::new();
        loop {
            let holds = self.entry.engine.holds_of(owner.number, self.entry.now());
            let numbers = holds.iter().map(|(number, _)| *number);
            let unverified: Vec<u64> = numbers.filter(|number| !verified.contains(number)).collect();
            if unverified.is_empty() {
                return Ok(holds.into_iter().map(|(_, count)| u64::from(count)).sum());
            }
            self.entry.verify_leases(&unverified).await?;
            verified.extend(unverified);
        }
    }

    /// How long the lock's lease lasts without a renewal: `None` if the lock is free, [`Duration::MAX`]
    /// if it never ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// Those of [`holder`](Self::holder).
    pub async fn remaining(&self) -> Result<Option<Duration>, LockError> {
        Ok(self.holder().await?.map(|holder| holder.left))
    }

    /// What happened to this name through this client, since the first of the handles and guards that are
    /// alive was made.
    pub fn stats(&self) -> LockStats {
        let (engine, counters) = (&self.entry.engine, &self.entry.counters);
        LockStats {
            acquisitions: engine.acquisitions(),
            hand_offs: engine.hand_offs(),
            wakes_useful: counters.wakes_useful.get(),
            wakes_spurious: counters.wakes_spurious.get(),
        }
    }

    /// How many acquisitions of this client wait for this lock, the one that competes at the store included:
    /// as [`LockClient::waiting`](crate::LockClient::waiting) says of all locks. Asks no server; says nothing
    /// of waiters in other processes. 0 in a child that was forked off.
    ///
    /// # Examples
    ///
    /// A limit for the waiters of one name, without a command:
    ///
    /// ```
    /// use latchwork::{Guard, Lock, LockError};
    ///
    /// async fn lock_unless_crowded(lock: &Lock) -> Result<Option<Guard>, LockError> {
    ///     if lock.waiting() >= 5 { Ok(None) } else { Ok(Some(lock.lock().await?)) }
    /// }
    /// ```
    pub fn waiting(&self) -> usize {
        if self.entry.context.is_same_process() { self.entry.engine.waiting().0 } else { 0 }
    }

    /// How many wait for this lock in this client's queue. The queue head, which competes at the store, is
    /// not among them: [`waiting`](Self::waiting) counts it, too.
    pub fn waiters(&self) -> usize {
        if self.entry.context.is_same_process() { self.entry.engine.waiters() } else { 0 }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("name", self.name()).field("owner", &self.owner).finish_non_exhaustive()
    }
}
