//! Permits: what an acquire gives, and gives back when it is dropped.

use std::fmt;
use std::sync::Arc;

use super::AsyncSemaphore;

/// Permits of an [`AsyncSemaphore`], given back when this is dropped.
#[must_use = "dropping a permit gives it back at once"]
pub struct SemaphorePermit<'a> {
    semaphore: &'a AsyncSemaphore,
    permits: usize,
}

impl<'a> SemaphorePermit<'a> {
    #[inline]
    pub(super) fn new(semaphore: &'a AsyncSemaphore, permits: usize) -> Self {
        Self { semaphore, permits }
    }

    /// Keeps the permits for good: the semaphore has so many less from now on.
    ///
    /// [`AsyncSemaphore::add_permits`] makes up for it.
    pub fn forget(mut self) {
        self.semaphore.queue.forget(std::mem::take(&mut self.permits));
    }

    /// Adds the permits of `other` to these, to be given back together.
    ///
    /// # Panics
    ///
    /// If they are not of the same semaphore.
    #[track_caller]
    pub fn merge(&mut self, mut other: Self) {
        assert!(
            std::ptr::eq(self.semaphore, other.semaphore),
            "merging permits from different semaphore instances"
        );
        // Permits in existence are never more than fit.
        self.permits += std::mem::take(&mut other.permits);
    }

    /// Takes `n` of the permits off into one of their own; `None` if these are fewer.
    pub fn split(&mut self, n: usize) -> Option<Self> {
        self.permits = self.permits.checked_sub(n)?;
        Some(Self { semaphore: self.semaphore, permits: n })
    }

    /// How many permits this is.
    #[inline]
    pub fn num_permits(&self) -> usize {
        self.permits
    }

    /// The semaphore that they belong to.
    pub fn semaphore(&self) -> &'a AsyncSemaphore {
        self.semaphore
    }
}

impl Drop for SemaphorePermit<'_> {
    #[inline]
    fn drop(&mut self) {
        self.semaphore.queue.give_back(self.permits);
    }
}

impl fmt::Debug for SemaphorePermit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphorePermit")
            .field("permits", &self.permits)
            .field("semaphore", self.semaphore)
            .finish()
    }
}

/// Permits of a shared [`AsyncSemaphore`], which they keep alive; given back when this is dropped.
#[must_use = "dropping a permit gives it back at once"]
pub struct OwnedSemaphorePermit {
    semaphore: Arc<AsyncSemaphore>,
    permits: usize,
}

impl OwnedSemaphorePermit {
    #[inline]
    pub(super) fn new(semaphore: Arc<AsyncSemaphore>, permits: usize) -> Self {
        Self { semaphore, permits }
    }

    /// Keeps the permits for good: the semaphore has so many less from now on.
    ///
    /// [`AsyncSemaphore::add_permits`] makes up for it.
    pub fn forget(mut self) {
        self.semaphore.queue.forget(std::mem::take(&mut self.permits));
    }

    /// As [`SemaphorePermit::merge`].
    ///
    /// # Panics
    ///
    /// If they are not of the same semaphore.
    #[track_caller]
    pub fn merge(&mut self, mut other: Self) {
        assert!(
            Arc::ptr_eq(&self.semaphore, &other.semaphore),
            "merging permits from different semaphore instances"
        );
        self.permits += std::mem::take(&mut other.permits);
    }

    /// As [`SemaphorePermit::split`].
    pub fn split(&mut self, n: usize) -> Option<Self> {
        self.permits = self.permits.checked_sub(n)?;
        Some(Self { semaphore: Arc::clone(&self.semaphore), permits: n })
    }

    /// How many permits this is.
    #[inline]
    pub fn num_permits(&self) -> usize {
        self.permits
    }

    /// The semaphore that they belong to.
    pub fn semaphore(&self) -> &Arc<AsyncSemaphore> {
        &self.semaphore
    }
}

impl Drop for OwnedSemaphorePermit {
    #[inline]
    fn drop(&mut self) {
        self.semaphore.queue.give_back(self.permits);
    }
}

impl fmt::Debug for OwnedSemaphorePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedSemaphorePermit")
            .field("permits", &self.permits)
            .field("semaphore", &self.semaphore)
            .finish()
    }
}
