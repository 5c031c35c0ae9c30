//! [`NamedSemaphore`]: at most a number of permits of one name in use, over all processes.

use std::time::Duration;

use crate::lock::backend::{Holder, Permits};
use crate::lock::error::LockError;
use crate::lock::guard::Guard;
use crate::lock::handle::{Lock, only_the_lock};
use crate::lock::lease::Lease;
use crate::lock::name::LockName;
use crate::lock::permit_guard::PermitGuard;

/// A semaphore of a name: at most [`capacity`](Self::capacity) permits are in use at a time, by the holders
/// in all processes together.
///
/// Made by [`LockClient::get_semaphore`](crate::LockClient::get_semaphore). For permits within one process
/// and without leases, [`AsyncSemaphore`](crate::AsyncSemaphore) is faster.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// use std::time::Duration;
/// use latchwork::Lease;
///
/// // At most five jobs run at a time.
/// let jobs = client.get_semaphore("jobs", 5)?;
/// jobs.run(async { /* the job */ }).await?;
///
/// // All three permits, or none.
/// let three = jobs.acquire_many(3).await?;
/// assert!(jobs.try_acquire_many(3).await?.is_none()); // two are left
/// assert_eq!(jobs.usage().await?.used, 3);
/// three.release().await?;
///
/// // Wait for two seconds at most.
/// if let Some(permit) = jobs.try_acquire_for(Duration::from_secs(2), Lease::Watched).await? {
///     permit.release().await?;
/// }
/// # Ok::<(), latchwork::LockError>(()) }).unwrap();
/// ```
///
/// # The capacity is the handle's
///
/// The store keeps no capacity: nothing has to be created first, and nothing is left behind. A handle's
/// acquisition is granted if the permits in use, with its own, are at most the handle's capacity. So two
/// deployments with different capacities each keep their own promise: when an acquisition came in, at most
/// its own capacity was in use. A smaller capacity throws nobody out: the next acquisition waits until few
/// enough permits are in use.
///
/// # Leases
///
/// Each acquisition has a lease of its own, renewed by the watchdog. The permits of a process that ends
/// without a release come back when its leases are over; a lease gained after a wait lasts for the waiter's
/// position at least, up to 10 s, if the process ends at once. A holder whose lease is over has lost its
/// permits, and learns of the [loss](PermitGuard::lost) before the store grants the permits to others, if
/// clocks run at the same speed. (Over Redis leases end in steps of a 64th, of 100 ms at most.)
///
/// There is no owner and no re-entry: a task that holds permits and acquires more may wait for itself. There
/// is no fencing token, since several holders are right at a time.
///
/// # The end
///
/// A name cannot be closed. [`LockClient::drain`](crate::LockClient::drain) refuses new acquisitions of a
/// client, serves the waiting ones, and waits until the client holds nothing; other clients go on.
///
/// # Fairness
///
/// First come, first served, over all processes, also behind an acquisition that asks for more permits than
/// are free. So no acquisition starves, and permits may stay free while an acquisition of many is the first.
/// Except:
///
/// * a client queues 32 acquisitions of a name at the store; its further ones wait in the process, and come
///   to the store in order, each with its waiting time;
/// * a waiter whose process is cut off from the store's messages is passed over. If its process has just
///   ended, the next waiter learns of free permits within 4 s;
/// * a waiter that is kept unpolled is [superseded](crate::LockOptions::unpolled_limit), holds up the
///   others for 2 s at most, and waits anew once polled; a waiter whose process stands still holds them up
///   for a third of the [watchdog's timeout](crate::LockOptions::watchdog_timeout), 10 s at most;
/// * after a failover or flush of the store the waiters queue anew, in order of arrival.
///
/// [`try_acquire`](Self::try_acquire) overtakes no waiter at the store, and none of its own client.
///
/// # Cancel safety
///
/// Dropping the future of an acquisition leaves nothing behind: no position, no permit; a command under way
/// is rolled back in the background.
///
/// # Costs
///
/// Over Redis two commands a hold, with and without a wait, and a message per wait; a third command for a
/// lease of the caller's own after a wait. Waiting costs no polling: each queued acquisition renews its
/// position after a third of the time of [`QueuePosition::kept`](crate::backend::QueuePosition::kept), and
/// one per client asks when the earliest lease ends.
///
/// # Names
///
/// A name is a semaphore or a lock, not both: see [`LockError::OtherKind`]. Redisson's semaphores keep other
/// data, and cannot share a name.
#[derive(Clone, Debug)]
#[doc(alias = "DistributedSemaphore")]
#[doc(alias = "RSemaphore")]
#[doc(alias = "RPermitExpirableSemaphore")]
pub struct NamedSemaphore {
    /// The handle of the name, by which nothing is acquired.
    lock: Lock,
    capacity: u32,
}

impl NamedSemaphore {
    pub(super) fn new(lock: Lock, capacity: u32) -> Result<Self, LockError> {
        let this = Self { lock, capacity };
        if capacity == 0 { Err(this.refused(0)) } else { Ok(this) }
    }

    /// The semaphore's name.
    pub fn name(&self) -> &LockName {
        self.lock.name()
    }

    /// The largest number of permits in use for which this handle's acquisitions are granted.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Takes one permit, however long the wait. The watchdog renews the lease while the guard lives.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`NamedSemaphore`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock`](crate::Lock::lock), without [`LockError::Upgrade`].
    pub async fn acquire(&self) -> Result<PermitGuard, LockError> {
        self.acquire_many(1).await
    }

    /// Takes `permits` permits at once, however long the wait: all or none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`NamedSemaphore`].
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire), and [`LockError::Permits`] for 0 and for more than the capacity.
    pub async fn acquire_many(&self, permits: u32) -> Result<PermitGuard, LockError> {
        let guard = self.acquire_for(permits, None, Lease::Watched, only_the_lock).await?;
        Ok(PermitGuard::new(guard, permits))
    }

    /// Takes one permit if one is free now, and no acquisition waits. The watchdog renews the lease.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`NamedSemaphore`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::try_lock`](crate::Lock::try_lock), without [`LockError::Upgrade`].
    pub async fn try_acquire(&self) -> Result<Option<PermitGuard>, LockError> {
        self.try_acquire_many(1).await
    }

    /// Takes `permits` permits if all are free now, and no acquisition waits.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`NamedSemaphore`].
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire), and [`LockError::Permits`] for 0 and for more than the
    /// capacity.
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<PermitGuard>, LockError> {
        self.try_acquire_many_for(permits, Duration::ZERO, Lease::Watched).await
    }

    /// Takes one permit, waiting for at most `wait`: see [`Lock::try_lock_for`](crate::Lock::try_lock_for).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`NamedSemaphore`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::try_lock_for`](crate::Lock::try_lock_for), without [`LockError::Upgrade`].
    pub async fn try_acquire_for(
        &self,
        wait: Duration,
        lease: impl Into<Lease>,
    ) -> Result<Option<PermitGuard>, LockError> {
        self.try_acquire_many_for(1, wait, lease).await
    }

    /// Takes `permits` permits at once, waiting for at most `wait`. `None` if too few are free then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: see [`NamedSemaphore`].
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire_for`](Self::try_acquire_for), and [`LockError::Permits`] for 0 and for more
    /// than the capacity.
    pub async fn try_acquire_many_for(
        &self,
        permits: u32,
        wait: Duration,
        lease: impl Into<Lease>,
    ) -> Result<Option<PermitGuard>, LockError> {
        let guard = self.acquire_for(permits, Some(wait), lease.into(), || None).await?;
        Ok(guard.map(|guard: Guard| PermitGuard::new(guard, permits)))
    }

    async fn acquire_for<O: From<Guard>>(
        &self,
        permits: u32,
        wait: Option<Duration>,
        lease: Lease,
        time_over: impl FnOnce() -> O,
    ) -> Result<O, LockError> {
        if permits == 0 || permits > self.capacity {
            return Err(self.refused(permits));
        }
        // In a child the table of entries may stay locked.
        self.lock.entry.context.check_origin()?;
        let entry = self.lock.entry.acquisition(Permits { count: permits, capacity: self.capacity });
        Lock::new(entry).acquire(lease, wait, false, time_over).await
    }

    fn refused(&self, wanted: u32) -> LockError {
        LockError::Permits { name: self.name().clone(), wanted, capacity: self.capacity }
    }

    /// Takes one permit as [`acquire`](Self::acquire) does, runs `work`, and gives the permit back. If the
    /// permit is lost before `work` is ready, `work` is dropped at once: see [`Guard::run`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`, and gives the permit back if it was taken.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire), with `work` never polled, and those of [`Guard::run`].
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, LockError> {
        self.run_many(1, work).await
    }

    /// As [`run`](Self::run), with `permits` permits at once.
    ///
    /// # Cancel safety
    ///
    /// Same as [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Same as [`run`](Self::run), and [`LockError::Permits`] for 0 and for more than the capacity.
    pub async fn run_many<T>(&self, permits: u32, work: impl Future<Output = T>) -> Result<T, LockError> {
        self.acquire_many(permits).await?.run(work).await
    }

    /// Returns the permits in use in all clients, and their holders.
    ///
    /// Over Redis this costs one command, whose time grows with the number of holders.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if the command fails, [`LockError::OtherKind`] if a lock has the name.
    pub async fn usage(&self) -> Result<Usage, LockError> {
        let holders = self.lock.holders().await?;
        Ok(Usage { used: holders.iter().map(|holder| u64::from(holder.permits)).sum(), holders })
    }

    /// Returns how many acquisitions of this client wait for permits. Asks no server. 0 in a forked child.
    pub fn waiting(&self) -> usize {
        if !self.lock.entry.context.is_same_process() {
            return 0;
        }
        self.lock.entry.of_the_name().map(|entry| entry.engine.waiting().0).sum()
    }

    /// Takes all permits away from their holders, and wakes waiters. True if permits were in use.
    ///
    /// The holders are not asked. A guard of this client is told at once, a guard of another client at its
    /// next renewal or its release.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the permits may be free or not.
    ///
    /// # Errors
    ///
    /// [`LockError::Backend`] if the command fails, [`LockError::OtherKind`] if a lock has the name.
    pub async fn force_release(&self) -> Result<bool, LockError> {
        self.lock.force_unlock().await
    }
}

/// The use of a semaphore, in all clients: see [`NamedSemaphore::usage`].
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// let jobs = client.get_semaphore("jobs", 5)?;
/// let _permits = jobs.acquire_many(2).await?;
/// let usage = jobs.usage().await?;
/// assert_eq!((usage.used, usage.holders.len()), (2, 1));
/// assert_eq!(usage.holders[0].id.as_ref().expect("it is ours").client_id(), client.id());
/// # Ok::<(), latchwork::LockError>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The permits in use, at least one for each holder.
    pub used: u64,
    /// The leases, each with its permits, in no order.
    pub holders: Vec<Holder>,
}
