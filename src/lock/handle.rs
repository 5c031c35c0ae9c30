//! [`Lock`]: the handle of one name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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

/// A named lock: at most one [`Owner`] has the lock at a time, until the owner lets go or the lease is over.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::Duration;
/// use latchwork::Lease;
///
/// # let client = latchwork::LockClient::local();
/// let lock = client.get_lock("orders:42")?;
///
/// // Hold the lock until the guard gives it back.
/// let guard = lock.lock().await?;
/// assert!(lock.try_lock().await?.is_none());
/// guard.unlock().await?;
///
/// // Wait for two seconds at most.
/// if let Some(guard) = lock.try_lock_for(Duration::from_secs(2), Lease::Watched).await? {
///     guard.unlock().await?;
/// }
///
/// // Run work that is dropped if the lock is lost.
/// lock.run(async { /* the work */ }).await?;
///
/// // Take the lock again while holding it, by an explicit owner.
/// let mine = lock.owned_by(&client.owner());
/// let (outer, inner) = (mine.lock().await?, mine.lock().await?);
/// # drop((outer, inner));
/// # Ok::<(), latchwork::LockError>(()) }).unwrap();
/// ```
///
/// # Owners
///
/// Each acquisition has its own owner, so taking the lock twice waits, as with a mutex;
/// [`owned_by`](Self::owned_by) makes the lock re-entrant. A client's handles of one name share one lock.
///
/// # Fairness
///
/// A client serves its waiters in the order of their first polls (by a task that has not spent tokio's
/// budget); an owner that holds the lock does not wait. In each process the oldest waiter competes at the
/// store. A process that has the lock serves its own waiters for the
/// [tenure](crate::LockOptions::tenure), and then asks again behind the other processes.
///
/// A waiter whose turn has come but that is not polled is [superseded](crate::LockOptions::unpolled_limit).
///
/// # Safety of what the lock protects
///
/// A lease can end while its holder is paused or cut off, and then two owners believe in the lock. If that
/// does harm, let the protected resource refuse the stale owner by its [token](Lock::fenced).
///
/// There is no poisoning: a panic drops the guard, and the data may be half changed, as after a loss.
///
/// # Cancel safety
///
/// Dropping the future of an acquisition leaves nothing behind: no subscription, no place in the queue, no
/// lease; a command under way is rolled back in the background. The futures are `Send`, and run under any
/// time limit, such as `tokio::time::timeout`. The futures borrow the handle: move a clone of the
/// handle into a spawned task, `tokio::spawn(async move { lock.lock().await })`.
///
/// # Recipes
///
/// A lock for each user of an HTTP service ([`axum_lock_per_user`]), a cache that one process refreshes
/// ([`cache_refresh`]), a store that refuses stale holders ([`fencing_sqlite`]).
///
/// [`axum_lock_per_user`]:
/// https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/axum_lock_per_user.rs
/// [`cache_refresh`]:
/// https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/cache_refresh.rs
/// [`fencing_sqlite`]:
/// https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/fencing_sqlite.rs
///
/// # Panics
///
/// Only the backend in memory panics, if the system refuses a background thread when one is first needed.
#[derive(Clone)]
#[doc(alias = "Mutex")]
pub struct Lock {
    pub(super) entry: Arc<Entry>,
    pub(super) owner: Option<Owner>,
    pub(super) fenced: bool,
}

impl Lock {
    pub(super) fn new(entry: Arc<Entry>) -> Self {
        Self { entry, owner: None, fenced: false }
    }

    /// Returns the same lock, taken by `owner`, which can take it again; free when all guards are gone.
    ///
    /// Any number of tasks may use one owner. A loss ends all of the owner's holds; the earlier guards report
    /// the loss, and never release a later hold.
    ///
    /// # Panics
    ///
    /// If another client made `owner`.
    #[must_use]
    #[track_caller]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        assert!(self.knows(owner), "owner {owner} was made by another client");
        Self { entry: Arc::clone(&self.entry), owner: Some(*owner), fenced: self.fenced }
    }

    fn knows(&self, owner: &Owner) -> bool {
        owner.client == self.entry.context.client
    }

    /// Returns the same lock with a token for each acquisition: [`Guard::fencing_token`].
    ///
    /// A token is greater than all earlier tokens of this name for as long as the store keeps its data: a
    /// Redis server that loses its last writes may issue a token twice ([how to make that rarer]). Send the
    /// token with each request to the protected resource, and let the resource refuse a token smaller than
    /// the greatest seen: then a holder that was paused beyond its lease does no harm. Inner holds have the
    /// token of the outer hold. Concurrent [readers](crate::ReadWriteLock::read) share a token. Use
    /// `fenced` for every acquisition of the name: others get no token.
    ///
    /// [how to make that rarer]:
    /// https://github.com/latchwork/latchwork/blob/main/docs/operations.md#fencing-tokens
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
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

    /// Takes the lock, however long the wait. The watchdog renews the lease while the guard lives.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`Lock`].
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if an attempt fails; a waiter outlasts a lost connection, and retries when the
    /// connection is back or the holder's lease would be over. [`LockError::Subscribe`] if the lock's
    /// messages cannot be subscribed to. [`LockError::OtherKind`] if the name is held as another kind of
    /// lock. [`LockError::Upgrade`] if the owner reads and asks to write. [`LockError::ShutDown`],
    /// [`RuntimeEnded`](LockError::RuntimeEnded), [`Forked`](LockError::Forked) if the client is unusable.
    pub fn lock(&self) -> impl Future<Output = Result<Guard, LockError>> {
        self.acquire(Lease::Watched, None, false, only_the_lock)
    }

    /// As [`lock`](Self::lock), with a lease of the caller's own, which is not renewed.
    ///
    /// Without renewals the holder does not hear of a loss at the store: [`Guard::ensure_held`] asks.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`Lock`].
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), and [`LockError::Lease`] if the lease is invalid, or over too early.
    pub fn lock_with_lease(&self, lease: Duration) -> impl Future<Output = Result<Guard, LockError>> {
        self.acquire(Lease::For(lease), None, false, only_the_lock)
    }

    /// Takes the lock if it is free now. The watchdog renews the lease while the guard lives.
    ///
    /// `None`, without a command, if another acquisition of this client has the lock or waits for it. While
    /// another acquisition asks the store, the try waits for the store's answer, for a second at most.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`Lock`].
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), and [`LockError::NoAnswer`] as of [`try_lock_for`](Self::try_lock_for).
    pub fn try_lock(&self) -> impl Future<Output = Result<Option<Guard>, LockError>> {
        self.try_lock_for(Duration::ZERO, Lease::Watched)
    }

    /// Takes the lock, waiting for at most `wait`. `None` if another owner has the lock then.
    ///
    /// With a `wait` of zero the only attempt may take a whole round trip; otherwise an attempt still under
    /// way at the end is given up and rolled back. `lease` is a [`Duration`], or [`Lease::Watched`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`Lock`].
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), [`LockError::Lease`] if the lease is invalid, or over too early, and
    /// [`LockError::NoAnswer`] if the time is over before the store has said that the lock is held.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
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
        self.acquire(lease.into(), Some(wait), false, || None)
    }

    pub(super) fn acquire<O: From<Guard>>(
        &self,
        lease: Lease,
        wait: Option<Duration>,
        is_admitted: bool,
        time_over: impl FnOnce() -> O,
    ) -> impl Future<Output = Result<O, LockError>> {
        let owner = self.owner.map(|owner| owner.number);
        let wanted =
            AcquireParams { entry: &self.entry, owner, lease, fenced: self.fenced, wait, is_admitted };
        trace::in_span(self.name().as_str(), wanted.acquire(time_over))
    }

    /// Gives back one hold of `owner`: a [forgotten](Guard::forget) hold, or else the hold of a guard. The
    /// guard of the owner's last hold has [lost](LossReason::GivenBack) its hold then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not keep the hold: the background finishes, or repeats, the command.
    ///
    /// # Errors
    ///
    /// [`LockError::NotHeld`] if `owner` does not hold the lock through this client.
    /// [`LockError::ReleasePending`] if the command fails: the hold is over, and the release is repeated.
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
        let had_it = match left {
            Ok(None) => true,
            Ok(Some(pending_release)) => self.entry.release(pending_release, now).await?,
            Err(_) => false,
        };
        if had_it { Ok(()) } else { Err(not_held()) }
    }

    /// Frees the lock, whichever owner has it, and wakes a waiter. True if the lock was held.
    ///
    /// The holder is not asked. A guard of this client is told at once, a guard of another client at its next
    /// renewal or its release.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock may be freed or not.
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if the command fails, [`LockError::OtherKind`] if another kind is held.
    pub async fn force_unlock(&self) -> Result<bool, LockError> {
        let context = &self.entry.context;
        context.check_origin()?;
        proceed().await;
        let (sent, in_hand) = (self.entry.now(), self.entry.leases_in_hand());
        let freed = context.store.force_release(self.entry.mode, self.name()).await;
        let freed = freed.map_err(|error| context.failed(self.name(), error))?;
        for (entry, number) in in_hand {
            entry.gone(number, sent);
            entry.let_go();
        }
        // The answer to an attempt under way may still come.
        self.entry.of_the_name().for_each(|entry| entry.engine.forced(entry.now()));
        // In case the message is lost.
        self.entry.engine.latch().release_all();
        for entry in self.entry.of_the_name() {
            // Leases granted before or after the forced release: the store knows, else the next renewal asks.
            let granted_meanwhile = entry.engine.lease_numbers();
            if !granted_meanwhile.is_empty() && entry.verify_leases(&granted_meanwhile).await.is_err() {
                break;
            }
        }
        Ok(freed)
    }

    /// Returns the lock's holder, in any client; `None` if free. Of readers, the one with the longest lease.
    ///
    /// Data of another program under the name counts as a holder without id and mode: see [`Holder`].
    ///
    /// Over Redis this costs one command, or one per about 50 readers of a read lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if the command fails. [`LockError::OtherKind`] for a side of a read-write lock,
    /// if the name is held as another kind.
    pub async fn holder(&self) -> Result<Option<Holder>, LockError> {
        let mut holder = self.holders().await?.into_iter().max_by_key(|holder| holder.left);
        if let (Some(holder), mode @ (Mode::Read | Mode::Write)) = (&mut holder, self.entry.mode) {
            holder.mode = Some(mode);
        }
        Ok(holder)
    }

    /// Asks the store for all leases on the name.
    pub(super) async fn holders(&self) -> Result<Vec<Holder>, LockError> {
        proceed().await;
        let context = &self.entry.context;
        context.check_origin()?;
        let holders = context.store.holders(self.entry.mode, self.name()).await;
        holders.map_err(|error| context.failed(self.name(), error))
    }

    /// True if any client holds the lock.
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

    /// True if `owner` has the lock; false for owners of other clients, which are not known here.
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

    /// Returns how often `owner` has the lock, 0 if another client's. Asks the store, and counts in memory.
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
        // Readers may move to another lease meanwhile, which then has to be verified, too.
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

    /// Returns the lease's rest without a renewal: `None` if free, [`Duration::MAX`] if it never ends.
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

    /// Returns this client's figures of this name, since the first living handle or guard was made.
    pub fn stats(&self) -> LockStats {
        let (engine, counters) = (&self.entry.engine, &self.entry.counters);
        LockStats {
            acquisitions: engine.acquisitions(),
            hand_offs: engine.hand_offs(),
            wakes_useful: counters.useful.get(),
            wakes_spurious: counters.spurious.get(),
        }
    }

    /// Returns how many acquisitions of this client wait for this lock, the queue head included. Asks no
    /// server. 0 in a forked child. [`LockClient::waiting`](crate::LockClient::waiting) lists all locks.
    ///
    /// # Examples
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

    /// Returns the length of this client's queue; [`waiting`](Self::waiting) counts the queue head, too.
    pub fn waiters(&self) -> usize {
        if self.entry.context.is_same_process() { self.entry.engine.waiters() } else { 0 }
    }
}

/// The outcome without the lock, of a call without a limit.
pub(super) fn only_the_lock() -> Guard {
    unreachable!("only a wait with a limit ends without the lock")
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("name", self.name()).field("owner", &self.owner).finish_non_exhaustive()
    }
}
