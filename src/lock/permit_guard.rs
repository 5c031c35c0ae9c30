//! [`PermitGuard`]: permits of a semaphore, by one lease.

use std::time::Duration;

use crate::lock_entry::LossReason;

use crate::lock::error::LockError;
use crate::lock::guard::Guard;
use crate::lock::name::LockName;

/// Permits of a [`NamedSemaphore`](crate::NamedSemaphore), taken by one acquisition. Dropping the guard gives
/// all of them back, as dropping a [`Guard`] does.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// let permit = client.get_semaphore("jobs", 5)?.acquire().await?;
/// tokio::select! {
///     () = async { /* the job */ } => permit.release().await?,
///     reason = permit.lost() => eprintln!("stopped: {reason}"),
/// }
/// # Ok::<(), latchwork::LockError>(()) }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "dropping a guard gives the permits back at once"]
pub struct PermitGuard {
    guard: Guard,
    permits: u32,
}

impl PermitGuard {
    pub(super) fn new(guard: Guard, permits: u32) -> Self {
        Self { guard, permits }
    }

    /// The semaphore's name.
    pub fn name(&self) -> &LockName {
        self.guard.name()
    }

    /// The number of permits.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// True if the permits are still held, as far as this process knows: see [`Guard::is_held`]. This process
    /// hears of a forced release elsewhere at the next renewal; [`ensure_held`](Self::ensure_held) asks.
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// The guard of the lease: the simulator's judges compare it with the store.
    #[cfg(latchwork_simulation)]
    #[doc(hidden)]
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Returns how long the lease lasts without a renewal: see [`Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Waits until the permits are lost, and returns the reason: see [`Guard::lost`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> LossReason {
        self.guard.lost().await
    }

    /// As [`lost`](Self::lost), for `timeout` at most: see [`Guard::lost_timeout`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn lost_timeout(&self, timeout: Duration) -> Option<LossReason> {
        self.guard.lost_timeout(timeout).await
    }

    /// Asks the store if the permits are still held.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// Those of [`Guard::ensure_held`].
    pub async fn ensure_held(&self) -> Result<(), LockError> {
        self.guard.ensure_held().await
    }

    /// Makes the lease last for at least `lease` from now. Never shortens a lease.
    ///
    /// # Cancel safety
    ///
    /// Same as [`Guard::extend`].
    ///
    /// # Errors
    ///
    /// Those of [`Guard::extend`].
    pub async fn extend(&mut self, lease: Duration) -> Result<(), LockError> {
        self.guard.extend(lease).await
    }

    /// Runs `work` with these permits, and gives the permits back. If the permits are lost before `work` is
    /// ready, `work` is dropped at once: see [`Guard::run`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`, and gives the permits back.
    ///
    /// # Errors
    ///
    /// Those of [`Guard::run`].
    pub async fn run<T>(self, work: impl Future<Output = T>) -> Result<T, LockError> {
        self.guard.run(work).await
    }

    /// Gives the permits back, and returns the outcome.
    ///
    /// # Cancel safety
    ///
    /// Same as [`Guard::unlock`].
    ///
    /// # Errors
    ///
    /// Those of [`Guard::unlock`], whose table says what each means for the work.
    pub async fn release(self) -> Result<(), LockError> {
        self.guard.unlock().await
    }

    /// Lets go of the guard but not of the permits, which are in use until the lease is over: a limit of so
    /// many starts in the time of a lease. See [`Guard::forget`].
    pub fn forget(self) {
        self.guard.forget();
    }
}
