//! For `verify`'s `suspension` alone: where threads can be stopped and accesses counted, and what only this
//! crate sees.

use crate::semaphore::AsyncSemaphore;
use crate::support::foreign;

pub use crate::support::sync::suspend::{Access, Hook, before_each_access, wakes};

/// Wakers that an operation collects, at most, before it calls some.
pub const WAKE_BATCH: usize = foreign::BATCH;

/// A latch's semaphore.
pub fn latch() -> AsyncSemaphore {
    AsyncSemaphore::new_latch()
}

/// What [`Latch::release`](crate::latch::Latch::release) does to a latch's semaphore.
pub fn notify(latch: &AsyncSemaphore, n: usize) {
    latch.notify(n);
}

/// Takes permits out of existence, free or not: what [`AsyncSemaphore::set_capacity`] does when it lowers.
pub fn lower(semaphore: &AsyncSemaphore, n: usize) {
    semaphore.lower(n);
}

/// Waiters that have neither been granted their permits nor been refused. Changes nothing.
pub fn sleepers(semaphore: &AsyncSemaphore) -> usize {
    semaphore.sleepers()
}
