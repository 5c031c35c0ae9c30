//! [`AsyncSemaphore`]: permits for async tasks and for threads, without a runtime.

mod acquire;
mod blocking;
mod cell;
mod error;
mod permit;
mod poll;
mod queue;
mod row;
mod wakes;

use std::fmt;
use std::ops::RangeInclusive;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

pub use self::acquire::{Acquire, AcquireOwned};
pub(crate) use self::blocking::{block_on, block_on_until};
use self::cell::State;
pub use self::error::{AcquireError, TryAcquireError};
pub use self::permit::{OwnedSemaphorePermit, SemaphorePermit};
pub use self::poll::PollSemaphore;
use self::queue::Queue;

/// A counting semaphore whose waiters are futures, or threads.
///
/// It hands out permits. Who finds too few waits in line, and what comes back goes to the oldest waiter. It needs no runtime:
/// any executor can poll its futures, and the `blocking_…` methods need none at all; both stand in one line. It takes no lock
/// and blocks nobody, whatever is going on: acquiring, releasing, cancelling, closing.
///
/// # For users of `tokio::sync::Semaphore`
///
/// The names, their meaning and their errors are tokio's; `use latchwork::AsyncSemaphore as Semaphore` compiles. What differs:
///
/// * `acquire` and its kin return a named future ([`Acquire`]) that is `Unpin`.
/// * `blocking_acquire` does not panic inside of an async context, as it cannot tell.
/// * The limit of [`MAX_PERMITS`](Self::MAX_PERMITS) is for all permits in existence, not only for those that are free.
/// * There is no cooperative budget: an acquire that finds a permit never yields.
/// * A waiter that was granted its permits before [`close`](Self::close), and is polled afterwards, gets them.
///
/// More than tokio's: weights of `usize` ([`acquire_weight`](Self::acquire_weight)), [`acquire_up_to`](Self::acquire_up_to),
/// waiting with a time limit for threads ([`blocking_acquire_timeout`](Self::blocking_acquire_timeout)),
/// [`set_capacity`](Self::set_capacity), and a look at the line: [`waiters`](Self::waiters), [`held`](Self::held) and `Debug`.
///
/// # Fairness
///
/// Strictly first come, first served, by the order in which the futures were first polled, and whatever they ask for: a request
/// for many is not overtaken by those for few behind it, and all wait until it is served. A request for more permits than will
/// ever exist is such a one; it is not refused, since permits can be added. Requests for none are not kept waiting.
///
/// Permits go from hand to hand. A waiter that was granted its permits and is not polled keeps them from all others; see `Debug`
/// for how to find it.
///
/// # Memory ordering
///
/// What a thread did before it gave a permit back (or added it) happens before what another does after taking that permit.
///
/// # Memory
///
/// A waiter costs 32 bytes at most, in blocks for 32 waiters; nothing is allocated until somebody waits. A block is freed when
/// all its waiters have gone, wherever it stands in line; one waiter among 31 that gave up keeps a block.
///
/// # Panicking and re-entrant wakers
///
/// Wakers are called after all permits are where they belong. A waker may use this very semaphore, or drop its futures;
/// whom it thereby serves is woken when it returns, or goes to sleep in one of the `blocking_…` calls. A waker must not wait in any
/// other way for somebody that it has served. If one panics, the others are called all the same, and then the panic goes
/// on in whoever released.
///
/// # Sources
///
/// Redisson's `AsyncSemaphore` is the seed. The row of cells is after the CancellableQueueSynchronizer of Koval, Khalanskiy and
/// Alistarh, *CQS: A Formally-Verified Framework for Fair and Abortable Synchronization* (PLDI 2023). `semaphore/queue.rs` begins
/// with the proof, and says exactly how far "lock-free" goes; `loom-tests` checks it.
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

// What is behind the pointers is only ever changed by single atomic steps, so a panic leaves it as it should be.
impl UnwindSafe for AsyncSemaphore {}
impl RefUnwindSafe for AsyncSemaphore {}

/// The most that tokio's calls can ask for on a machine of 16 bits is still a `usize`; on all others this is no conversion.
fn weight(permits: u32) -> usize {
    usize::try_from(permits).unwrap_or(usize::MAX)
}

impl AsyncSemaphore {
    /// The most permits that a semaphore can have: `usize::MAX >> 3`.
    pub const MAX_PERMITS: usize = queue::MAX_PERMITS;

    /// Makes a semaphore with `permits` free permits.
    ///
    /// # Panics
    ///
    /// If `permits` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS).
    #[cfg(not(latchwork_loom))]
    pub const fn new(permits: usize) -> Self {
        Self { queue: Queue::new(permits, false) }
    }

    #[cfg(latchwork_loom)]
    #[expect(missing_docs, reason = "documented above; loom's atomics cannot be made in a const")]
    pub fn new(permits: usize) -> Self {
        Self { queue: Queue::new(permits, false) }
    }

    /// One without permits, for a latch: those that come while nobody waits do not add up, as many are kept as came at once.
    pub(crate) fn new_latch() -> Self {
        Self { queue: Queue::new(0, true) }
    }

    /// The same as [`new`](Self::new), under the name that tokio has for it.
    ///
    /// # Panics
    ///
    /// If `permits` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS).
    #[cfg(not(latchwork_loom))]
    pub const fn const_new(permits: usize) -> Self {
        Self::new(permits)
    }

    // === Acquiring ===

    /// Takes a permit, waiting in line for it if none is free.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in line, without blocking. Permits that had come already go on to the next; none
    /// is lost.
    ///
    /// # Errors
    ///
    /// [`AcquireError`] once the semaphore is closed.
    ///
    /// # Panics
    ///
    /// When the future is polled again after it was ready.
    #[inline]
    pub fn acquire(&self) -> Acquire<'_> {
        Acquire::new(self, 1, 1)
    }

    /// Takes `n` permits at once, waiting in line for them if fewer are free. None are taken for `n` of zero, and nobody is
    /// waited for.
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
    #[inline]
    pub fn acquire_many(&self, n: u32) -> Acquire<'_> {
        self.acquire_weight(weight(n))
    }

    /// [`acquire_many`](Self::acquire_many) for more than 2³² − 1.
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
    /// If `n` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS); and when the future is polled again after it was ready.
    #[track_caller]
    #[inline]
    pub fn acquire_weight(&self, n: usize) -> Acquire<'_> {
        Acquire::new(self, n, n)
    }

    /// Takes as many permits as are free, but at least the range's start, waiting in line for those, and at most its end. After a
    /// wait, what is taken beyond the start is what is free when the future is polled.
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
    /// If the range is empty, or ends beyond [`MAX_PERMITS`](Self::MAX_PERMITS); and when the future is polled again after it was
    /// ready.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// use latchwork::AsyncSemaphore;
    ///
    /// let workers = AsyncSemaphore::new(8);
    /// let team = workers.acquire_up_to(2..=5).await?;
    /// assert_eq!(team.num_permits(), 5);
    /// let rest = workers.acquire_up_to(2..=5).await?;
    /// assert_eq!(rest.num_permits(), 3);
    /// # Ok::<(), latchwork::AcquireError>(()) }).unwrap();
    /// ```
    #[track_caller]
    #[inline]
    pub fn acquire_up_to(&self, n: RangeInclusive<usize>) -> Acquire<'_> {
        Acquire::new(self, *n.start(), *n.end())
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
    #[inline]
    pub fn acquire_owned(self: Arc<Self>) -> AcquireOwned {
        AcquireOwned::new(self, 1, 1)
    }

    /// As [`acquire_many`](Self::acquire_many), for a semaphore behind an [`Arc`].
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
    #[inline]
    pub fn acquire_many_owned(self: Arc<Self>, n: u32) -> AcquireOwned {
        AcquireOwned::new(self, weight(n), weight(n))
    }

    /// As [`acquire_weight`](Self::acquire_weight), for a semaphore behind an [`Arc`], which is only borrowed.
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
    /// If `n` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS); and when the future is polled again after it was ready.
    #[track_caller]
    #[inline]
    pub fn acquire_weight_owned(self: &Arc<Self>, n: usize) -> AcquireOwned {
        AcquireOwned::new(Arc::clone(self), n, n)
    }

    // === Trying ===

    /// Takes a permit if one is free now.
    ///
    /// # Errors
    ///
    /// [`TryAcquireError::NoPermits`] if none is free. That may also be said in the few instructions in which another thread
    /// has a free permit in its hand, looking for somebody to give it to.
    /// [`TryAcquireError::Closed`] once the semaphore is closed.
    #[inline]
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.try_acquire_weight(1)
    }

    /// Takes `n` permits if they are free now.
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire).
    #[inline]
    pub fn try_acquire_many(&self, n: u32) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.try_acquire_weight(weight(n))
    }

    /// [`try_acquire_many`](Self::try_acquire_many) for more than 2³² − 1.
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire).
    #[inline]
    pub fn try_acquire_weight(&self, n: usize) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.queue.try_take(n)?;
        Ok(SemaphorePermit::new(self, n))
    }

    /// As [`try_acquire`](Self::try_acquire), for a semaphore behind an [`Arc`].
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire).
    #[inline]
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_acquire_weight_owned(1)
    }

    /// As [`try_acquire_many`](Self::try_acquire_many), for a semaphore behind an [`Arc`].
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire).
    #[inline]
    pub fn try_acquire_many_owned(self: Arc<Self>, n: u32) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_acquire_weight_owned(weight(n))
    }

    /// As [`try_acquire_weight`](Self::try_acquire_weight), for a semaphore behind an [`Arc`], which is only borrowed.
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire).
    #[inline]
    pub fn try_acquire_weight_owned(
        self: &Arc<Self>,
        n: usize,
    ) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.queue.try_take(n)?;
        Ok(OwnedSemaphorePermit::new(Arc::clone(self), n))
    }

    // === Permits in existence ===

    /// Permits that are free now; out of date as soon as it is read.
    ///
    /// None while somebody waits, also if a request for many has gathered some: those are laid aside for it.
    #[inline]
    pub fn available_permits(&self) -> usize {
        self.queue.available()
    }

    /// Adds `n` permits and wakes whom they serve. If a debt is in line ([`set_capacity`](Self::set_capacity)), they pay it in its turn.
    ///
    /// # Panics
    ///
    /// If more than [`MAX_PERMITS`](Self::MAX_PERMITS) would exist; nothing has changed then.
    pub fn add_permits(&self, n: usize) {
        self.queue.add(n);
    }

    /// Takes up to `n` free permits out of existence. Says how many: fewer if fewer were free.
    ///
    /// [`set_capacity`](Self::set_capacity) also takes those that are held, once they come back.
    pub fn forget_permits(&self, n: usize) -> usize {
        let forgotten = self.queue.drain(n);
        self.queue.forget(forgotten);
        forgotten
    }

    /// Permits in existence: free, held, and laid aside for whoever is first in line. What a debt waits for
    /// ([`set_capacity`](Self::set_capacity)) does not count any more, so while some are held this can be less than
    /// [`held`](Self::held).
    ///
    /// Right as long as permits are taken out of existence by [`forget`](SemaphorePermit::forget) and not by `mem::forget`.
    pub fn capacity(&self) -> usize {
        self.queue.capacity()
    }

    /// Permits that are not free, as far as [`capacity`](Self::capacity) is right: held, or laid aside for whoever is first in
    /// line.
    pub fn held(&self) -> usize {
        self.queue.held()
    }

    /// Makes the permits in existence `capacity` in all.
    ///
    /// More: debts that are still in line are struck off, and the others added at once. Fewer: those that are free go at once, and what is missing to the number becomes a debt, which takes
    /// its place in line like a request for as many. So those who wait already are served first, from what comes back; then the debt
    /// swallows what comes, and then those behind it are served.
    ///
    /// # Panics
    ///
    /// If `capacity` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS); nothing has changed then.
    ///
    /// # Examples
    ///
    /// ```
    /// use latchwork::AsyncSemaphore;
    ///
    /// let semaphore = AsyncSemaphore::new(3);
    /// let busy = [semaphore.try_acquire()?, semaphore.try_acquire()?];
    /// semaphore.set_capacity(1);
    /// assert_eq!((semaphore.available_permits(), semaphore.held()), (0, 2));
    /// drop(busy);
    /// assert_eq!((semaphore.available_permits(), semaphore.held()), (1, 0));
    /// # Ok::<(), latchwork::TryAcquireError>(())
    /// ```
    pub fn set_capacity(&self, capacity: usize) {
        self.queue.set_capacity(capacity);
    }

    /// How many wait now, those included that were granted their permits, or sent home, and have not been polled since. Walks the
    /// line.
    pub fn waiters(&self) -> usize {
        let mut waiters = 0;
        self.queue.for_each_waiter(|seen| waiters += usize::from(seen.state != State::Debt));
        waiters
    }

    /// How many are in line and have neither been granted their permits nor been sent home. Walks the line.
    pub(crate) fn sleepers(&self) -> usize {
        let mut sleepers = 0;
        self.queue.for_each_waiter(|seen| {
            sleepers += usize::from(matches!(seen.state, State::Updating | State::Waiting));
        });
        sleepers
    }

    /// As [`add_permits`](Self::add_permits), for a latch, whose permits are calls and no capacity.
    pub(crate) fn call(&self, n: usize) {
        self.queue.call(n);
    }

    // === Closing ===

    /// Refuses everybody from now on: those in line are woken with an error, and so is who comes later.
    ///
    /// Permits that are out stay valid; giving them back is harmless. What was laid aside for somebody in line is free once its future
    /// is polled or dropped.
    pub fn close(&self) {
        self.queue.close();
    }

    /// Whether [`close`](Self::close) was called.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }
}

impl fmt::Debug for AsyncSemaphore {
    /// Shows the line, oldest first. A waiter that was granted its permits and does not come for them, because nobody polls it,
    /// shows as `Granted`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncSemaphore")
            .field("available_permits", &self.available_permits())
            .field("capacity", &self.capacity())
            .field("is_closed", &self.is_closed())
            .field("line", &self.queue)
            .finish()
    }
}
