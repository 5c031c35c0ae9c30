//! [`AsyncSemaphore`]: permits for async tasks and for threads, without a runtime.

mod acquire;
mod cell;
mod error;
mod permit;
mod queue;

use std::fmt;
use std::sync::Arc;

use crate::sync::block_on;

pub use self::acquire::{Acquire, AcquireOwned};
pub use self::error::{AcquireError, TryAcquireError};
pub use self::permit::{OwnedSemaphorePermit, SemaphorePermit};
use self::queue::Queue;

/// A counting semaphore whose waiters are futures.
///
/// It hands out permits; who finds none waits in line without blocking a thread, and a permit that comes back goes to the
/// oldest waiter. It needs no runtime: any executor can poll its futures, and [`blocking_acquire`](Self::blocking_acquire)
/// needs none at all. The names and their meaning are those of `tokio::sync::Semaphore`.
///
/// It is the semaphore of Redisson's subscription service (`AsyncSemaphore`), with its lost wake-up repaired; the essay at
/// the head of `semaphore/queue.rs` says how, and `loom-tests` checks it.
///
/// # Fairness
///
/// Waiters are served in the order in which they were first polled. A newcomer does not join the line while a permit is
/// free and nobody waits; in the few instructions between a permit coming back and its being handed to the oldest waiter,
/// [`try_acquire`](Self::try_acquire) may take it first.
///
/// # Memory ordering
///
/// What a thread did before it gave a permit back (or added it) happens before what another does after taking that permit.
///
/// # Memory
///
/// A waiter costs one allocation. A cancelled waiter's allocation stays until its turn would have come.
///
/// # Examples
///
/// At most three requests at a time:
///
/// ```
/// use latchwork::AsyncSemaphore;
///
/// static REQUESTS: AsyncSemaphore = AsyncSemaphore::new(3);
///
/// async fn fetch() {
///     let _permit = REQUESTS.acquire().await.expect("never closed");
///     // … at most three tasks are here at once …
/// }
/// ```
pub struct AsyncSemaphore {
    queue: Queue,
}

impl AsyncSemaphore {
    /// The most permits a semaphore can have.
    pub const MAX_PERMITS: usize = queue::MAX_PERMITS;

    /// Makes a semaphore with `permits` free permits.
    ///
    /// # Panics
    ///
    /// If `permits` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS).
    #[cfg(not(latchwork_loom))]
    pub const fn new(permits: usize) -> Self {
        Self { queue: Queue::new(permits) }
    }

    #[cfg(latchwork_loom)]
    #[expect(missing_docs, reason = "documented above; loom's atomics cannot be made in a const")]
    pub fn new(permits: usize) -> Self {
        Self { queue: Queue::new(permits) }
    }

    /// Permits that are free now; out of date as soon as it is read.
    pub fn available_permits(&self) -> usize {
        self.queue.available()
    }

    /// Takes a permit, waiting in line for it if none is free.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in line. A permit that had come already, but had not been seen by a poll, goes
    /// to the next in line; none is lost.
    ///
    /// # Errors
    ///
    /// [`AcquireError`] once the semaphore is closed.
    ///
    /// # Panics
    ///
    /// When the future is polled again after it was ready.
    pub fn acquire(&self) -> Acquire<'_> {
        Acquire::new(self)
    }

    /// As [`acquire`](Self::acquire), for a semaphore behind an [`Arc`]: the permit has no lifetime.
    ///
    /// # Cancel safety
    ///
    /// That of [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// [`AcquireError`] once the semaphore is closed.
    ///
    /// # Panics
    ///
    /// When the future is polled again after it was ready.
    pub fn acquire_owned(self: Arc<Self>) -> AcquireOwned {
        AcquireOwned::new(self)
    }

    /// Takes a permit, parking this thread until one is free.
    ///
    /// Threads and tasks stand in one line. In async code this blocks the executor's thread; use it there only where the
    /// permits are held for a moment, and by code that does not await.
    ///
    /// # Errors
    ///
    /// [`AcquireError`] once the semaphore is closed.
    pub fn blocking_acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        block_on(self.acquire())
    }

    /// Takes a permit if one is free now.
    ///
    /// # Errors
    ///
    /// [`TryAcquireError::NoPermits`] if none is free. That may also be said in the few instructions in which another thread
    /// has a free permit in its hand, looking for somebody to give it to.
    /// [`TryAcquireError::Closed`] once the semaphore is closed.
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.queue.try_take()?;
        Ok(SemaphorePermit::new(self))
    }

    /// As [`try_acquire`](Self::try_acquire), for a semaphore behind an [`Arc`].
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire).
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.queue.try_take()?;
        Ok(OwnedSemaphorePermit::new(self))
    }

    /// Adds `n` permits and wakes whom they serve.
    ///
    /// # Panics
    ///
    /// If more than [`MAX_PERMITS`](Self::MAX_PERMITS) would be free; nothing has changed then.
    pub fn add_permits(&self, n: usize) {
        self.queue.add(n);
    }

    /// Adds up to `n` permits, but leaves no more than `n` free when nobody waits for them: a latch's release.
    pub(crate) fn add_permits_keeping(&self, n: usize) {
        self.queue.add_keeping(n);
    }

    /// Refuses everybody from now on: those in line are woken with an error, and so is who comes later.
    ///
    /// Permits that are out stay valid; giving them back is harmless.
    pub fn close(&self) {
        self.queue.close();
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }
}

impl fmt::Debug for AsyncSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncSemaphore")
            .field("available_permits", &self.available_permits())
            .field("queued", &self.queue.queued())
            .field("is_closed", &self.is_closed())
            .finish()
    }
}
