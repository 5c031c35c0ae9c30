//! [`Handle`] and [`Held`]: a lock or a semaphore, and its guard.

use std::ops::Deref;
use std::time::Duration;

use latchwork::{
    Guard, Lease, Lock, LockClient, LockError, LossReason, MultiGuard, MultiLock, NamedSemaphore, PermitGuard,
};

use crate::program::{How, LockSide};
use crate::store::duration;
use crate::world::Nanos;

/// Wait for permits with a lease of the caller's own, for which the API has no unlimited wait.
const LONG: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone)]
pub(crate) enum Handle {
    Lock(Lock),
    Permits(NamedSemaphore),
}

/// Acquires by a lock, or by several at once: their methods have the same names.
macro_rules! acquire_by {
    ($lock:expr, $how:expr) => {
        match $how {
            How::Lock => Some($lock.lock().await?),
            How::Leased(lease) => Some($lock.lock_with_lease(duration(*lease)).await?),
            How::Try => $lock.try_lock().await?,
            How::TryFor { wait, lease } => $lock.try_lock_for(duration(*wait), lease_of(*lease)).await?,
        }
    };
}

fn lease_of(lease: Option<Nanos>) -> Lease {
    lease.map_or(Lease::Watched, |lease| Lease::For(duration(lease)))
}

pub(crate) async fn acquire_all(all: &MultiLock, how: &How) -> Result<Option<MultiGuard>, LockError> {
    Ok(acquire_by!(all, how))
}

impl Handle {
    pub(crate) fn new(client: &LockClient, side: LockSide, name: &str, all: u32) -> Result<Self, LockError> {
        match side {
            LockSide::Plain => client.get_lock(name).map(Self::Lock),
            LockSide::Fair => client.get_fair_lock(name).map(Self::Lock),
            LockSide::Read => client.get_read_write_lock(name).map(|lock| Self::Lock(lock.read().clone())),
            LockSide::Write => client.get_read_write_lock(name).map(|lock| Self::Lock(lock.write().clone())),
            LockSide::Permits => client.get_semaphore(name, all).map(Self::Permits),
        }
    }

    pub(crate) async fn acquire(&self, how: &How, permits: u32) -> Result<Option<Held>, LockError> {
        match self {
            Self::Lock(lock) => Ok(acquire_by!(lock, how).map(Held::Lock)),
            Self::Permits(all) => Ok(match how {
                How::Lock if permits == 1 => Some(all.acquire().await?),
                How::Lock => Some(all.acquire_many(permits).await?),
                How::Leased(lease) => all.try_acquire_many_for(permits, LONG, duration(*lease)).await?,
                How::Try => all.try_acquire_many(permits).await?,
                How::TryFor { wait, lease } => {
                    all.try_acquire_many_for(permits, duration(*wait), lease_of(*lease)).await?
                }
            }
            .map(Held::Permits)),
        }
    }

    pub(crate) async fn force(&self) -> Result<bool, LockError> {
        match self {
            Self::Lock(lock) => lock.force_unlock().await,
            Self::Permits(all) => all.force_release().await,
        }
    }

    pub(crate) fn waiters(&self) -> usize {
        match self {
            Self::Lock(lock) => lock.waiters(),
            Self::Permits(all) => all.waiting(),
        }
    }
}

/// The guard of a hold. The judges look at the lease behind it.
pub(crate) enum Held {
    Lock(Guard),
    Permits(PermitGuard),
}

macro_rules! both {
    ($held:expr, $guard:ident => $does:expr) => {
        match $held {
            Self::Lock($guard) => $does,
            Self::Permits($guard) => $does,
        }
    };
}

impl Held {
    pub(crate) async fn extend(&mut self, lease: Duration) -> Result<(), LockError> {
        both!(self, guard => guard.extend(lease).await)
    }

    pub(crate) async fn run(self, work: impl Future<Output = ()>) -> Result<(), LockError> {
        both!(self, guard => guard.run(work).await)
    }

    pub(crate) async fn unlock(self) -> Result<(), LockError> {
        match self {
            Self::Lock(guard) => guard.unlock().await,
            Self::Permits(guard) => guard.release().await,
        }
    }

    pub(crate) fn forget(self) {
        both!(self, guard => guard.forget())
    }

    pub(crate) async fn ensure_held(&self) -> Result<(), LockError> {
        both!(self, guard => guard.ensure_held().await)
    }

    pub(crate) async fn lost(&self) -> LossReason {
        both!(self, guard => guard.lost().await)
    }

    pub(crate) async fn lost_timeout(&self, timeout: Duration) -> Option<LossReason> {
        both!(self, guard => guard.lost_timeout(timeout).await)
    }
}

impl Deref for Held {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        match self {
            Self::Lock(guard) => guard,
            Self::Permits(guard) => guard.guard(),
        }
    }
}
