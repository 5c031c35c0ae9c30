//! Permits: what an acquire gives, and gives back when it is dropped.

use std::fmt;
use std::sync::Arc;

use super::AsyncSemaphore;

/// One permit of an [`AsyncSemaphore`], given back when it is dropped.
#[must_use = "dropping a permit gives it back at once"]
pub struct SemaphorePermit<'a> {
    semaphore: &'a AsyncSemaphore,
}

impl<'a> SemaphorePermit<'a> {
    pub(super) fn new(semaphore: &'a AsyncSemaphore) -> Self {
        Self { semaphore }
    }

    /// Keeps the permit for good: the semaphore has one less from now on.
    ///
    /// [`AsyncSemaphore::add_permits`] makes up for it.
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for SemaphorePermit<'_> {
    fn drop(&mut self) {
        self.semaphore.queue.give_back();
    }
}

impl fmt::Debug for SemaphorePermit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphorePermit").field("semaphore", self.semaphore).finish()
    }
}

/// One permit of a shared [`AsyncSemaphore`], which it keeps alive; given back when it is dropped.
#[must_use = "dropping a permit gives it back at once"]
pub struct OwnedSemaphorePermit {
    /// `None` once forgotten, so that the semaphore's reference count goes down all the same.
    semaphore: Option<Arc<AsyncSemaphore>>,
}

impl OwnedSemaphorePermit {
    pub(super) fn new(semaphore: Arc<AsyncSemaphore>) -> Self {
        Self { semaphore: Some(semaphore) }
    }

    /// Keeps the permit for good: the semaphore has one less from now on.
    pub fn forget(mut self) {
        self.semaphore = None;
    }
}

impl Drop for OwnedSemaphorePermit {
    fn drop(&mut self) {
        if let Some(semaphore) = &self.semaphore {
            semaphore.queue.give_back();
        }
    }
}

impl fmt::Debug for OwnedSemaphorePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedSemaphorePermit").field("semaphore", &self.semaphore).finish()
    }
}
