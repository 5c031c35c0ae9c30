//! [`Guard`]: one hold on a lock.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::runtime::Runtime;

use super::backend::Backend;
use super::client::Shared;
use super::error::LockError;
use super::finished::finished;
use super::hold::{Hold, Lost};
use super::name::LockName;
use super::owner::Owner;
use super::supervised::supervised;
use super::until::until;
use super::watchdog::WatchId;

/// One hold on a lock. While it lives, and its lease with it, nobody but its owner has the lock.
///
/// [`unlock`](Self::unlock) gives the hold back and says how that went. Dropping it gives it back in the background: over
/// Redis the command is sent without anyone waiting for it, and if it fails, or the runtime ends first, the lock is free when
/// its lease is over.
///
/// A guard never frees a lock that somebody else has got meanwhile.
#[must_use = "dropping a guard gives the lock back at once"]
pub struct Guard<B: Backend> {
    shared: Arc<Shared<B>>,
    hold: Arc<Hold>,
    /// Whether, and as what, the watchdog renews the lease.
    watch: Option<WatchId>,
    /// Whether the hold is ours to give back.
    armed: bool,
    since: Instant,
}

impl<B: Backend> Guard<B> {
    pub(super) fn new(shared: Arc<Shared<B>>, hold: Arc<Hold>, watched: bool) -> Self {
        event!(DEBUG, lock = hold.key.name.as_str(), owner = hold.key.owner.as_str(), watched, "acquired");
        let watch = watched.then(|| shared.client.watch(Arc::clone(&hold)));
        shared.client.successors.holds(&hold);
        let since = shared.client.backend.runtime().now();
        Self { shared, hold, watch, armed: true, since }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.hold.key.name
    }

    /// Who holds it.
    pub fn owner(&self) -> &Owner {
        &self.hold.key.owner
    }

    /// The acquisition's fencing token, if the lock is [fenced](crate::Lock::fenced): greater than that of every acquisition before
    /// it.
    pub fn fencing_token(&self) -> Option<u64> {
        self.hold.token
    }

    /// Whether the lock is still held, as far as this process knows; asks nobody.
    ///
    /// The lease is counted from before the command was sent that began it, so this turns false before the store gives the lock
    /// to anybody else, as long as clocks run at the same speed. Between this answer and what is done on the strength of
    /// it, time passes.
    pub fn is_held(&self) -> bool {
        self.hold.lost_at(self.shared.client.backend.runtime().now()).is_none()
    }

    /// How long the lease lasts if nobody renews it, as far as this process knows; zero if the hold is lost.
    pub fn remaining(&self) -> Duration {
        self.hold.left_at(self.shared.client.backend.runtime().now()).unwrap_or(Duration::ZERO)
    }

    /// Waits until the hold is lost, and says why.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> Lost {
        self.hold.lost(self.shared.client.backend.runtime()).await
    }

    /// As [`lost`](Self::lost), for `timeout` at most by the backend's clock; what blocking code cannot build from `lost`.
    pub(crate) async fn lost_timeout(&self, timeout: Duration) -> Option<Lost> {
        let runtime = self.shared.client.backend.runtime();
        until(runtime, runtime.now().checked_add(timeout), self.lost()).await
    }

    /// Asks the store whether the lock is still held: the strongest answer that there is without a [token](Self::fencing_token).
    ///
    /// It held at the moment when the store answered. Between that and what is done on the strength of it, time passes here, too;
    /// [`remaining`](Self::remaining) says how much of it there is.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the hold is lost, with the reason. [`LockError::Backend`] if the store could not be asked; the lock
    /// is held then for as long as [`is_held`](Self::is_held) says so.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// # let client = latchwork::LockClient::local();
    /// let lock = client.get_lock("orders:42")?;
    /// let guard = lock.lock().await?;
    /// guard.ensure_held().await?;
    /// lock.force_unlock().await?;
    /// assert!(guard.ensure_held().await.unwrap_err().is_not_held());
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub async fn ensure_held(&self) -> Result<(), LockError> {
        let (backend, key) = (&self.shared.client.backend, &self.hold.key);
        if self.is_held() && backend.hold_count(&key.name, &key.owner).await.map_err(LockError::backend)? == 0
        {
            self.hold.lose(Lost::Gone);
        }
        // The lease may have ended while we asked.
        match self.hold.lost_at(backend.runtime().now()) {
            None => Ok(()),
            Some(why) => Err(LockError::lost(key, why)),
        }
    }

    /// Gives this hold back.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not keep the lock: the command is finished in the background. One that is kept and not polled may not
    /// have sent it yet; then the lock is free when its lease is over.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the hold was lost: the owner does not have the lock any more, or has taken it anew since then,
    /// which is not touched. [`LockError::Backend`] if the command failed. The hold is over for this process all the same: the
    /// owner's next command for this lock tells the store so, and if there is none, the lock is free when its lease is over.
    pub async fn unlock(self) -> Result<(), LockError> {
        let (shared, hold) = self.into_parts();
        let client = Arc::clone(&shared.client);
        let runtime = client.backend.runtime();
        if hold.key.owner.has_one_handle() && !client.successors.has_any(&shared.name) {
            // Nobody waits for this to be done, so it does no harm if the caller leaves it unpolled for a while.
            finished(runtime, Box::pin(async move { shared.release_to_all(&hold).await })).await
        } else {
            let release = Box::pin(async move { shared.release(&hold).await });
            supervised(runtime, release).await.unwrap_or_else(|ended| Err(LockError::backend(ended)))
        }
    }

    /// Lets go of the guard but not of the lock: it stays held until its lease is over, or until
    /// [`Lock::unlock`](crate::Lock::unlock) by its owner.
    ///
    /// Nobody renews it from now on.
    pub fn forget(self) {
        let (shared, hold) = self.into_parts();
        shared.client.successors.lets_go(&hold);
        hold.forget();
    }

    /// Ends the guard and its renewal, and leaves the hold to the caller.
    fn into_parts(mut self) -> (Arc<Shared<B>>, Arc<Hold>) {
        self.end();
        (Arc::clone(&self.shared), Arc::clone(&self.hold))
    }

    fn end(&mut self) {
        self.armed = false;
        let client = &self.shared.client;
        client.recorder.holds.add(client.backend.runtime().now().saturating_duration_since(self.since));
        if let Some(id) = self.watch.take() {
            client.unwatch(&id);
        }
    }
}

impl<B: Backend> Drop for Guard<B> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        self.end();
        let (shared, hold) = (Arc::clone(&self.shared), Arc::clone(&self.hold));
        self.shared.client.backend.runtime().spawn(async move {
            // Nobody is left to tell. If it fails, the lease ends the hold.
            let _ = shared.release(&hold).await;
        });
    }
}

impl<B: Backend> fmt::Debug for Guard<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", self.name())
            .field("owner", self.owner())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
