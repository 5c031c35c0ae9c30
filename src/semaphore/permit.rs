//! Permits, released on drop.

use std::fmt;
use std::sync::Arc;

use super::AsyncSemaphore;
use super::engine::{Engine, Taken};

/// The number of held permits, and how they were taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct HeldPermits(usize);

impl HeldPermits {
    pub(super) const NONE: Self = Self(0);

    /// [`MAX_PERMITS`](AsyncSemaphore::MAX_PERMITS) leaves this bit free.
    const QUEUED: usize = 1 << (usize::BITS - 1);

    #[inline]
    pub(super) const fn new(permits: usize, taken: Taken) -> Self {
        match taken {
            Taken::Free => Self(permits),
            Taken::Queued => Self(permits | Self::QUEUED),
        }
    }

    #[inline]
    const fn permits(self) -> usize {
        self.0 & !Self::QUEUED
    }

    #[inline]
    const fn taken(self) -> Taken {
        if self.0 & Self::QUEUED == 0 { Taken::Free } else { Taken::Queued }
    }

    #[inline]
    pub(super) fn give_back(self, engine: &Engine) {
        engine.give_back(self.permits(), self.taken());
    }

    /// As `give_back`, but not of a latch.
    #[inline]
    fn release(self, engine: &Engine) {
        engine.release(self.permits(), self.taken());
    }

    fn forget(&mut self, engine: &Engine) {
        engine.forget(std::mem::replace(self, Self::NONE).permits());
    }

    /// The sum fits: no more permits exist.
    fn merge(&mut self, other: &mut Self) {
        let other = std::mem::replace(other, Self::NONE);
        *self = Self::new(self.permits() + other.permits(), self.taken());
    }

    fn split(&mut self, n: usize) -> Option<Self> {
        let rest = self.permits().checked_sub(n)?;
        let taken = self.taken();
        *self = Self::new(rest, taken);
        Some(Self::new(n, taken))
    }
}

/// Permits of an [`AsyncSemaphore`], released on drop.
///
/// # Examples
///
/// ```
/// use latchwork::AsyncSemaphore;
///
/// let semaphore = AsyncSemaphore::new(5);
/// let mut three = semaphore.try_acquire_many(3)?;
/// let one = three.split(1).expect("there are three");
/// drop(three);
/// assert_eq!((one.num_permits(), semaphore.available_permits()), (1, 4));
/// # Ok::<(), latchwork::TryAcquireError>(())
/// ```
#[must_use = "dropping a permit releases it at once"]
pub struct SemaphorePermit<'a> {
    semaphore: &'a AsyncSemaphore,
    held: HeldPermits,
}

impl<'a> SemaphorePermit<'a> {
    #[inline]
    pub(super) fn new(semaphore: &'a AsyncSemaphore, held: HeldPermits) -> Self {
        Self { semaphore, held }
    }

    /// Removes the permits for good: the semaphore's [`capacity`](AsyncSemaphore::capacity) falls.
    pub fn forget(mut self) {
        self.held.forget(&self.semaphore.engine);
    }

    /// Ends a latch's notification, which comes from no capacity and goes back to none.
    #[inline]
    pub(crate) fn consume(self) {
        std::mem::forget(self);
    }

    /// Merges the permits of `other` into these, to be released together.
    ///
    /// # Panics
    ///
    /// If the permits belong to different semaphores.
    #[track_caller]
    pub fn merge(&mut self, mut other: Self) {
        assert!(
            std::ptr::eq(self.semaphore, other.semaphore),
            "merging permits from different semaphore instances"
        );
        self.held.merge(&mut other.held);
    }

    /// Splits off `n` permits, to be released separately. Returns `None` if there are fewer.
    pub fn split(&mut self, n: usize) -> Option<Self> {
        Some(Self { semaphore: self.semaphore, held: self.held.split(n)? })
    }

    /// Returns the number of permits.
    #[inline]
    pub fn num_permits(&self) -> usize {
        self.held.permits()
    }

    /// Returns the semaphore of the permits.
    pub fn semaphore(&self) -> &'a AsyncSemaphore {
        self.semaphore
    }
}

impl Drop for SemaphorePermit<'_> {
    #[inline]
    fn drop(&mut self) {
        // Those of a latch are consumed as soon as they are granted.
        self.held.release(&self.semaphore.engine);
    }
}

impl fmt::Debug for SemaphorePermit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphorePermit")
            .field("permits", &self.num_permits())
            .field("semaphore", self.semaphore)
            .finish()
    }
}

/// Permits of a shared [`AsyncSemaphore`], kept alive by them; released on drop.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use latchwork::AsyncSemaphore;
///
/// let semaphore = Arc::new(AsyncSemaphore::new(1));
/// let permit = Arc::clone(&semaphore).try_acquire_owned()?;
/// let thread = std::thread::spawn(move || {
///     drop(permit);
/// });
/// thread.join().unwrap();
/// assert_eq!(semaphore.available_permits(), 1);
/// # Ok::<(), latchwork::TryAcquireError>(())
/// ```
#[must_use = "dropping a permit releases it at once"]
pub struct OwnedSemaphorePermit {
    semaphore: Arc<AsyncSemaphore>,
    held: HeldPermits,
}

impl OwnedSemaphorePermit {
    #[inline]
    pub(super) fn new(semaphore: Arc<AsyncSemaphore>, held: HeldPermits) -> Self {
        Self { semaphore, held }
    }

    /// As [`SemaphorePermit::forget`].
    pub fn forget(mut self) {
        self.held.forget(&self.semaphore.engine);
    }

    /// As [`SemaphorePermit::merge`].
    ///
    /// # Panics
    ///
    /// If the permits belong to different semaphores.
    #[track_caller]
    pub fn merge(&mut self, mut other: Self) {
        assert!(
            Arc::ptr_eq(&self.semaphore, &other.semaphore),
            "merging permits from different semaphore instances"
        );
        self.held.merge(&mut other.held);
    }

    /// As [`SemaphorePermit::split`].
    pub fn split(&mut self, n: usize) -> Option<Self> {
        Some(Self { semaphore: Arc::clone(&self.semaphore), held: self.held.split(n)? })
    }

    /// Returns the number of permits.
    #[inline]
    pub fn num_permits(&self) -> usize {
        self.held.permits()
    }

    /// Returns the semaphore of the permits.
    pub fn semaphore(&self) -> &Arc<AsyncSemaphore> {
        &self.semaphore
    }
}

impl Drop for OwnedSemaphorePermit {
    #[inline]
    fn drop(&mut self) {
        self.held.give_back(&self.semaphore.engine);
    }
}

impl fmt::Debug for OwnedSemaphorePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedSemaphorePermit")
            .field("permits", &self.num_permits())
            .field("semaphore", &self.semaphore)
            .finish()
    }
}
