//! Only for `verify`'s `suspension`: hooks to stop threads and count accesses, and internals of this crate.

use crate::semaphore::AsyncSemaphore;
use crate::support::foreign;

pub use crate::support::sync::suspend::{Access, Hook, before_each_access, wakes};

/// Largest number of wakers that an operation collects before it calls some.
pub const WAKE_BATCH: usize = foreign::BATCH;

/// Makes a latch's semaphore.
pub fn latch() -> AsyncSemaphore {
    AsyncSemaphore::new_latch()
}

/// Notifies a latch's semaphore as [`Latch::release`](crate::latch::Latch::release) does.
pub fn notify(latch: &AsyncSemaphore, n: usize) {
    latch.notify(n);
}

/// Removes permits, free or not, as [`AsyncSemaphore::set_capacity`] does to lower the capacity.
pub fn lower(semaphore: &AsyncSemaphore, n: usize) {
    semaphore.lower(n);
}

/// The number of waiters neither granted nor refused. Changes nothing.
pub fn sleepers(semaphore: &AsyncSemaphore) -> usize {
    semaphore.sleepers()
}
