//! [`Guard`]: one hold on a lock.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::lock_entry::{Extension, Grant, HoldState, LossReason, Moment, PendingRelease};

use crate::lock::backend::Boxed;
use crate::lock::context::proceed;
use crate::lock::entry::Entry;
use crate::lock::error::LockError;
use crate::lock::lease::{Lease, LeaseError};
use crate::lock::name::LockName;
use crate::lock::owner::Owner;

/// One hold on a lock. While the guard and its lease last, only its owner has the lock.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// use std::time::Duration;
///
/// // Give the lock back and hear how that went.
/// let lock = client.get_lock("orders:42")?;
/// let guard = lock.lock().await?;
/// guard.unlock().await?;
///
/// // Stop the work if the lock is lost: in short, `lock.run(work)`.
/// let guard = lock.lock().await?;
/// tokio::select! {
///     () = async { /* the work */ } => guard.unlock().await?,
///     reason = guard.lost() => eprintln!("stopped: {reason}"),
/// }
///
/// // Before a step that cannot be undone, ask the store, and make the lease last longer.
/// let mut guard = lock.lock().await?;
/// guard.ensure_held().await?;
/// guard.extend(Duration::from_secs(60)).await?;
/// drop(guard); // gives the lock back
/// # Ok::<(), latchwork::LockError>(()) }).unwrap();
/// ```
///
/// # Giving the lock back
///
/// [`unlock`](Self::unlock) gives the hold back and returns the outcome. Dropping the guard gives the hold to
/// the next waiter of this client at once, or to the store in the background. A release that fails, or is no
/// longer awaited, is repeated until the store answers or the lease is over; at the end of `main`,
/// [`LockClient::shutdown`](crate::LockClient::shutdown) waits for releases. A guard never frees a lock that
/// another owner has got meanwhile.
///
/// Recipes: a job that stops when its lock is lost ([`one_process`]), the election of a leader ([`leader`]).
///
/// [`one_process`]: https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/one_process.rs
/// [`leader`]: https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/leader.rs
#[must_use = "dropping a guard gives the lock back at once"]
pub struct Guard {
    entry: Arc<Entry>,
    owner: Owner,
    grant: Grant,
    /// Time at which the guard was made; `None` once the hold was given back or forgotten.
    since: Option<Moment>,
}

impl Guard {
    pub(super) fn new(entry: Arc<Entry>, owner: Owner, grant: Grant, since: Moment) -> Self {
        Self { entry, owner, grant, since: Some(since) }
    }

    pub(super) fn since(&self) -> Option<Moment> {
        self.since
    }

    pub(super) fn grant(&self) -> &Grant {
        &self.grant
    }

    pub(super) fn set_token(&mut self, token: Option<u64>) {
        if let Some(token) = token {
            self.grant = self.grant.copy().with_token(token);
        }
    }

    /// Fails if the hold is over: the store's answer may have come late, or the caller may not have polled.
    pub(super) fn lasts(&self) -> Result<(), LockError> {
        let now = self.entry.now();
        match self.entry.engine.state_of(&self.grant, now) {
            Ok(_) => Ok(()),
            Err(_) if self.grant.ends() <= now => Err(LockError::Lease(LeaseError::OverBeforeAnswer)),
            Err(reason) => Err(self.lost_for(reason)),
        }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.entry.name
    }

    /// The owner of the hold.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The acquisition's fencing token, if the lock is [fenced](crate::Lock::fenced): greater than the token
    /// of every acquisition before, for as long as the store keeps its data.
    pub fn fencing_token(&self) -> Option<u64> {
        self.grant.token()
    }

    /// True if the lock is still held, as far as this process knows; asks no server.
    ///
    /// The lease counts from before its command was sent: `is_held` turns false before the store gives the
    /// lock to others, if clocks run at the same speed. This process hears of a
    /// [forced](crate::Lock::force_unlock) release elsewhere within a second if others of this client wait,
    /// otherwise at the next renewal; [`ensure_held`](Self::ensure_held) asks.
    pub fn is_held(&self) -> bool {
        self.entry.context.is_same_process()
            && self.entry.engine.state_of(&self.grant, self.entry.now()).is_ok()
    }

    /// Returns how long the lease lasts without a renewal, as far as this process knows: zero if the hold is
    /// lost, [`Duration::MAX`] if the lease never ends.
    pub fn remaining(&self) -> Duration {
        if !self.entry.context.is_same_process() {
            return Duration::ZERO;
        }
        let now = self.entry.now();
        match self.entry.engine.state_of(&self.grant, now) {
            Ok(hold) => hold.ends.saturating_duration_since(now),
            Err(_) => Duration::ZERO,
        }
    }

    /// Number of the lease behind the hold: the simulator's judges compare it with the store.
    #[cfg(latchwork_simulation)]
    #[doc(hidden)]
    pub fn lease_number(&self) -> Option<u64> {
        let hold = self.entry.engine.state_of(&self.grant, self.entry.now()).ok()?;
        Some(hold.number)
    }

    /// Waits until the hold is lost, and returns the reason. The end of the backend's runtime counts as a
    /// loss, as no renewal follows. In a forked child returns [`LossReason::Forked`] at once.
    ///
    /// News of a loss at the store come as for [`is_held`](Self::is_held): with the next renewal, a third of
    /// the [watchdog's timeout](crate::LockOptions::watchdog_timeout) later at most, if no task of this
    /// client waits. A shorter timeout brings earlier news.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> LossReason {
        loop {
            if !self.entry.context.is_same_process() {
                return LossReason::Forked;
            }
            let some_loss = self.entry.engine.some_loss();
            // Listen first, so that a loss from now on is either seen here or notified.
            match self.entry.engine.state_of(&self.grant, self.entry.now()) {
                Err(reason) => return reason,
                Ok(_) if self.entry.context.has_ended() => return LossReason::Unreachable,
                // A renewal moves the end during the sleep: then look again.
                Ok(hold) => {
                    self.entry.context.until(hold.ends, pin!(some_loss)).await;
                }
            }
        }
    }

    /// As [`lost`](Self::lost), for `timeout` at most by the backend's clock: `None` if the hold is not lost
    /// by then. A timeout of zero looks once.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn lost_timeout(&self, timeout: Duration) -> Option<LossReason> {
        if !self.entry.context.is_same_process() {
            return Some(LossReason::Forked);
        }
        self.entry.context.until(self.entry.now() + timeout, pin!(self.lost())).await
    }

    /// Asks the store if the lock is still held: the strongest answer without a [token](Self::fencing_token).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the hold is lost, with the reason. [`LockError::Backend`] if the store could
    /// not be asked; then the lock is held for as long as [`is_held`](Self::is_held) is true.
    pub async fn ensure_held(&self) -> Result<(), LockError> {
        proceed().await;
        self.entry.context.check_origin()?;
        loop {
            let number = self.state()?.number;
            self.entry.verify_leases(&[number]).await?;
            // Meanwhile the lease may have ended, or a shared hold may have moved to another lease.
            if self.state()?.number == number {
                return Ok(());
            }
        }
    }

    /// Makes the lease last for at least `lease` from now. Never shortens a lease.
    ///
    /// A watched lease is renewed anyway; an extension keeps it for `lease` even if this process stalls.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the hold ends as before. The store may have extended the lease, so the
    /// client then releases the lease.
    ///
    /// # Errors
    ///
    /// [`LockError::Lease`] if the lease cannot be kept, [`LockError::Lost`] if the hold is lost, with the
    /// reason, [`LockError::Backend`] if the command fails; then the hold lasts as long as before.
    pub async fn extend(&mut self, lease: Duration) -> Result<(), LockError> {
        let lease = Lease::check(lease)?;
        self.entry.context.check_origin()?;
        proceed().await;
        let sent = self.entry.now();
        let number = self.state()?.number;
        self.entry.extend(self.owner, &self.grant, Extension { number, lease, fenced: false }).await?;
        self.entry.engine.prolong(&mut self.grant, sent + lease, self.entry.now());
        self.state().map(|_| ())
    }

    /// Gives this hold back: to the next waiter of this client in memory, otherwise to the store.
    ///
    /// `Ok` means that the hold lasted until now: by the store's answer or, if a task of this client waits
    /// for the lock, as far as this process knows; [`ensure_held`](Self::ensure_held) asks.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, or not polling it after its first poll, does not keep the lock: the background
    /// finishes the release.
    ///
    /// # Errors
    ///
    /// Any error ends the hold, and none is [retryable](LockError::is_retryable). The work under the hold:
    ///
    /// | error | the work |
    /// |---|---|
    /// | [`LockError::ReleasePending`] | was done under the lock, as with `Ok`: do not repeat the work. The release failed, and is repeated in the background until the store has answered, or the lease is over |
    /// | [`LockError::Lost`] | was not protected to its end: another owner may have had the lock meanwhile. Inspect the work before repeating any part. An owner that has taken the lock anew since then still has the lock |
    /// | [`LockError::OtherKind`] | was not protected to its end, and the name is held as another kind of lock now |
    /// | [`LockError::RuntimeEnded`] | was done under the lock; the store is not told, and the lease ends by itself |
    /// | [`LockError::Forked`] | is the parent's, and so is the hold: nothing was sent |
    #[expect(clippy::manual_async_fn, reason = "the future of an `async fn` has room for the guard twice")]
    pub fn unlock(mut self) -> impl Future<Output = Result<(), LockError>> {
        async move {
            match self.begin_unlock()? {
                None => Ok(()),
                Some(answer) => answer.await,
            }
        }
    }

    /// Leaves the hold. Not `async`, and so compiled here: an `async fn` is compiled where it is awaited.
    fn begin_unlock(&mut self) -> Result<Option<Boxed<'static, Result<(), LockError>>>, LockError> {
        self.entry.context.check_origin()?;
        let now = self.entry.now();
        let since = self.since.take();
        // The owner may have the lock for longer than this grant's own lease.
        let lasted = if self.grant.ends() <= now { Err(LossReason::Expired) } else { Ok(()) };
        let outcome = match &self.leave(since, now) {
            Ok(None) => lasted,
            Err(reason) => Err(*reason),
            Ok(Some(pending_release)) => match self.entry.release_synchronously(pending_release, now) {
                Some(had_it) => released(lasted, had_it),
                None => return Ok(Some(self.release_awaited(*pending_release, now, lasted))),
            },
        };
        outcome.map(|()| None).map_err(|reason| self.lost_for(reason))
    }

    fn release_awaited(
        &self,
        pending_release: PendingRelease,
        now: Moment,
        lasted: Result<(), LossReason>,
    ) -> Boxed<'static, Result<(), LockError>> {
        let (entry, owner) = (Arc::clone(&self.entry), self.owner);
        Box::pin(async move {
            let had_it = entry.release(pending_release, now).await?;
            released(lasted, had_it).map_err(|reason| LockError::lost(&entry.name, owner, reason))
        })
    }

    /// Lets go of the guard but not of the lock, which its owner holds until the lease is over, or until
    /// [`Lock::unlock`](crate::Lock::unlock).
    ///
    /// The lease is no longer renewed, and no [shutdown](crate::LockClient::shutdown) waits for the hold.
    pub fn forget(mut self) {
        if !self.entry.context.is_same_process() {
            return;
        }
        let now = self.entry.now();
        self.since = None;
        // Before the effects: a look meanwhile must find the entry and its forgotten hold.
        self.entry.event(|engine, effects| {
            engine.forget(self.grant.copy(), now, effects);
            self.entry.keep();
        });
    }

    #[inline(always)]
    fn leave(&self, since: Option<Moment>, now: Moment) -> Result<Option<PendingRelease>, LossReason> {
        let entry = &self.entry;
        entry.context.recorder.holds.add(now.micros_since(since.unwrap_or(now)));
        let left = entry.event(|engine, effects| engine.leave(self.grant.copy(), now, effects));
        // A forgotten hold may have ended with this hold.
        entry.let_go();
        left
    }

    fn state(&self) -> Result<HoldState, LockError> {
        let state = self.entry.engine.state_of(&self.grant, self.entry.now());
        state.map_err(|reason| self.lost_for(reason))
    }

    fn lost_for(&self, reason: LossReason) -> LockError {
        LockError::lost(&self.entry.name, self.owner, reason)
    }
}

/// Combines the end of a hold that was given back: `lasted` by its lease, `had_it` by the store's answer.
fn released(lasted: Result<(), LossReason>, had_it: bool) -> Result<(), LossReason> {
    if had_it { lasted } else { Err(LossReason::Gone) }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // In a child the parent's lock is not ours to give back.
        let Some(since) = self.since.take() else { return };
        if self.entry.context.check_origin().is_err() {
            return;
        }
        let now = self.entry.now();
        if let Ok(Some(pending_release)) = &self.leave(Some(since), now) {
            self.entry.release_unawaited(pending_release, now);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", self.name())
            .field("owner", self.owner())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
