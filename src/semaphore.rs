//! [`AsyncSemaphore`]: permits for async tasks and for threads, without a runtime.

mod acquire;
mod blocking;
mod engine;
mod error;
mod permit;
mod poll;

use std::fmt;
use std::ops::RangeInclusive;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

pub use self::acquire::{Acquire, AcquireOwned};
#[cfg(feature = "lock")]
pub(crate) use self::blocking::block_on;
pub(crate) use self::blocking::block_on_timeout;
use self::engine::{Engine, Seen};
pub use self::error::{AcquireError, TryAcquireError};
use self::permit::HeldPermits;
pub use self::permit::{OwnedSemaphorePermit, SemaphorePermit};
pub use self::poll::PollSemaphore;

/// A counting semaphore, which limits how many tasks and threads do something at once.
///
/// If too few permits are free, [`acquire`](Self::acquire) waits in a FIFO queue; released permits go to the
/// oldest waiter. Tasks of any executor, and threads without an executor, wait in the same queue.
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
///
/// At most three spawned tasks at a time. Each task owns its permit, and releases it when done:
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// # async fn work(_number: u32) {}
/// use std::sync::Arc;
/// use latchwork::AsyncSemaphore;
///
/// let limit = Arc::new(AsyncSemaphore::new(3));
/// for number in 0..10 {
///     let permit = Arc::clone(&limit).acquire_owned().await?;
///     tokio::spawn(async move {
///         work(number).await;
///         drop(permit);
///     });
/// }
/// # Ok::<(), latchwork::AcquireError>(()) }).unwrap();
/// ```
///
/// Try without waiting, or wait with a time limit. A future that is dropped leaves the queue:
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use std::time::Duration;
/// use latchwork::{AsyncSemaphore, TryAcquireError};
///
/// let semaphore = AsyncSemaphore::new(1);
/// let _permit = semaphore.try_acquire()?;
/// assert_eq!(semaphore.try_acquire().unwrap_err(), TryAcquireError::NoPermits);
/// assert!(tokio::time::timeout(Duration::from_millis(1), semaphore.acquire()).await.is_err());
/// assert_eq!(semaphore.waiters(), 0);
/// # Ok::<(), TryAcquireError>(()) }).unwrap();
/// ```
///
/// Block threads; with a time limit, by [`blocking_acquire_timeout`](Self::blocking_acquire_timeout):
///
/// ```
/// use latchwork::AsyncSemaphore;
///
/// let semaphore = AsyncSemaphore::new(2);
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| {
///             let _permit = semaphore.blocking_acquire().expect("never closed");
///             // … at most two threads are here at once …
///         });
///     }
/// });
/// assert_eq!(semaphore.available_permits(), 2);
/// ```
///
/// Close the semaphore to end all waits and refuse new requests. Held permits stay valid:
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use latchwork::AsyncSemaphore;
///
/// let semaphore = AsyncSemaphore::new(1);
/// let permit = semaphore.acquire().await?;
/// semaphore.close();
/// assert!(semaphore.acquire().await.is_err());
/// assert_eq!(permit.num_permits(), 1);
/// # Ok::<(), latchwork::AcquireError>(()) }).unwrap();
/// ```
///
/// Recipes: [`tower_limit`] limits a service; `tokio_drop_in` beside it runs on this semaphore and tokio's.
///
/// [`tower_limit`]: https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/tower_limit.rs
///
/// # Fairness
///
/// Strictly first come, first served, in the order of first polls and for requests of any size: small
/// requests do not overtake a request for many permits. A request for more permits than exist waits as well,
/// with all requests behind it, since permits can be added. Requests for zero permits never wait.
///
/// The releasing thread assigns permits. A granted waiter that is not polled keeps them; `Debug` shows it.
///
/// # For users of `tokio::sync::Semaphore`
///
/// Names, meaning and errors are tokio's; `use latchwork::AsyncSemaphore as Semaphore` compiles. Differences:
///
/// * `acquire` and its kin return a named future ([`Acquire`]) that is `Unpin`.
/// * `blocking_acquire` does not panic inside of an async context, as it cannot detect one.
/// * [`MAX_PERMITS`](Self::MAX_PERMITS) is smaller, 2⁴⁰ − 1, and limits all permits, free or held.
/// * An acquire of a free permit yields to other tasks now and then, as tokio's does, only with the feature
///   `tokio` (turned on by `redis`). Without the feature, a loop over free permits needs an await of its own.
/// * A waiter granted before [`close`](Self::close) gets its permits even if polled afterwards.
/// * Permits too few for the first waiter are not held: if the waiter is cancelled, they are free at once.
///
/// Additions: [`acquire_weight`](Self::acquire_weight), [`acquire_up_to`](Self::acquire_up_to), timeouts for
/// threads, [`drain`](Self::drain), [`set_capacity`](Self::set_capacity), [`waiters`](Self::waiters),
/// [`held`](Self::held), `Debug` with the queue. [`PollSemaphore`] is tokio-util's.
///
/// # Panicking and re-entrant wakers
///
/// Wakers are called after all permits are free or assigned. A waker may use this very semaphore, or drop its
/// futures; waiters granted thereby are woken after the waker returns, or before the waker blocks in a
/// `blocking_…` call. A waker must not wait in any other way for a task or thread granted by that waker. Of
/// two wakers blocked in one thread, the outer returns last. If a waker panics, all others are still called,
/// and the panic is [reported](crate::on_foreign_panic).
///
/// # Memory ordering
///
/// Work done before a permit is released (or added) happens before work done after that permit is acquired,
/// or after [`drain`](Self::drain) returns. Other calls promise no order, unlike tokio's: a failed try,
/// [`available_permits`](Self::available_permits), [`is_closed`](Self::is_closed), [`close`](Self::close).
///
/// # Consistency
///
/// No permit is ever in flight: once a releasing call has credited its permits, they are free or assigned,
/// whatever any thread does or stops doing, also while wakers run. `try_acquire` and its kin,
/// [`available_permits`](Self::available_permits), releases, [`add_permits`](Self::add_permits),
/// [`set_capacity`](Self::set_capacity) and [`close`](Self::close) are linearizable, failures included: each
/// takes effect at one moment between its call and its return. Exceptions:
///
/// * [`forget_permits`](Self::forget_permits), and [`acquire_up_to`](Self::acquire_up_to) beyond its minimum,
///   take free permits in one or more separate steps.
/// * `close` may overtake grants of a concurrent release.
/// * While several threads change the capacity at once (`add_permits`, `set_capacity`), fewer permits may be
///   free for a moment than in any order of these calls; never more.
///
/// # Progress
///
/// The queue is in use from the first waiter on, until a permit is taken after all waiters have left.
///
/// | operation | progress | allocates | calls wakers |
/// |---|---|---|---|
/// | `try_acquire…`, queue not in use | lock-free: a step fails only if another thread's succeeds | no | no |
/// | `try_acquire…`, `available_permits`, `held`, `forget_permits`, queue in use | lock-free; finishes the grants of a stopped thread | if a permit is taken | yes |
/// | the credit of a release | wait-free: one step in every state | no | no |
/// | the grants after the credit | lock-free; one step per granted waiter | no | yes |
/// | `add_permits` | lock-free; counts the permits, then releases them | no | yes |
/// | `acquire…`, first poll | as `try_acquire…`, and one step to enqueue | 40 bytes if it waits | yes |
/// | `acquire…`, a later poll | lock-free | if memory of waiters is reclaimed, or `acquire_up_to` takes more | yes |
/// | dropping a future | lock-free | if memory of waiters is reclaimed | yes |
/// | `close` | lock-free; one step per waiter | no | yes |
/// | `drain`, each poll | lock-free | at the first call, and 40 bytes if it waits | yes |
/// | `set_capacity` | lock-free | if it lowers and the queue is in use | yes |
/// | `waiters` | one step per waiter | no | no |
/// | `Debug` | as `available_permits` and `waiters` | a list of the waiters | yes |
///
/// Called by a waker, an operation also allocates once the thread's batch of wakers is full. User wakers are
/// excluded from these guarantees. A thread stopped for ever, at any step, keeps no other thread from
/// finishing, nor from permits free before the call or released by another. The stopped thread holds back:
///
/// * The effect of its call, until another call finds too few permits free for the first waiter, or counts
///   the free permits, and finishes the stopped call.
/// * The wake-ups of up to 32 waiters granted by the thread; a waiter polled meanwhile gets its permits.
/// * The memory of waiters leaving this semaphore (no other), at most 72 bytes each; and 80 bytes for each
///   call that lowers the capacity while a task or thread waits.
///
/// `cargo xtask verify suspension` checks the compiled code with stopped threads, `cargo xtask verify model`
/// checks all interleavings of small programs; `tests/semaphore_memory.rs` counts allocations.
///
/// # Memory
///
/// A waiter costs 40 bytes on the heap; before the first wait nothing is allocated. Memory of waiters that
/// have left is reused or freed, wherever they stood in the queue. Except in a waker, neither a release nor
/// `close` allocates, even in a thread that never used a semaphore. After waiters have left,
///
/// * a semaphore keeps up to 28 KiB, mostly a quarter of it, and 32 bytes for each living thread that has
///   waited on any semaphore;
/// * a thread that has waited keeps room for up to 1024 waiters, 40 KiB, until it ends;
/// * the process keeps 4 KiB for every 32 threads that have waited and lived at one time, for later threads.
///
/// # Sources
///
/// The seed is Redisson's `AsyncSemaphore`. A proof argues [why no permit and no wake-up is lost], by lemmas.
///
/// [why no permit and no wake-up is lost]: https://github.com/latchwork/latchwork/blob/main/docs/proof.md
pub struct AsyncSemaphore {
    engine: Engine,
}

// Memory behind the pointers changes only by single atomic steps, so a panic leaves it consistent.
impl UnwindSafe for AsyncSemaphore {}
impl RefUnwindSafe for AsyncSemaphore {}

/// Converts a number of permits of tokio's calls; saturates where a `usize` has 16 bits.
fn weight(permits: u32) -> usize {
    usize::try_from(permits).unwrap_or(usize::MAX)
}

crate::support::sync::maybe_const! {
    impl AsyncSemaphore {
        /// Creates a semaphore with `permits` free permits.
        ///
        /// # Panics
        ///
        /// If `permits` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS).
        #[track_caller]
        pub fn new(permits: usize) -> Self {
            Self { engine: Engine::new(permits, false) }
        }
    }
}

crate::support::sync::maybe_const! {
    impl AsyncSemaphore {
        /// As [`new`](Self::new), under tokio's name.
        ///
        /// # Panics
        ///
        /// If `permits` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS).
        #[track_caller]
        pub fn const_new(permits: usize) -> Self {
            Self::new(permits)
        }
    }
}

impl AsyncSemaphore {
    /// The most permits of a semaphore: 2⁴⁰ − 1, or `usize::MAX >> 3` where a `usize` has 32 bits or less.
    ///
    /// All permits ever released and ever taken are counted in words of 62 bits, which wrap. If others take
    /// 2⁶¹ permits within one step of a thread, by 2²¹ acquisitions of all permits, the thread may find too
    /// few free permits; after 2⁶², to the permit, it may take held permits.
    pub const MAX_PERMITS: usize = engine::MAX_PERMITS;

    /// Creates a semaphore without permits, for a latch: notifications without a waiter do not add up.
    pub(crate) fn new_latch() -> Self {
        Self { engine: Engine::new(0, true) }
    }

    /// Acquires a permit. If none is free, waits in the queue.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue, without blocking. Permits already granted go to the next waiter.
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

    /// Acquires `n` permits at once. If fewer are free, waits in the queue. Zero permits never wait.
    ///
    /// Cancellation, errors and panics are as for [`acquire`](Self::acquire).
    #[inline]
    pub fn acquire_many(&self, n: u32) -> Acquire<'_> {
        self.acquire_weight(weight(n))
    }

    /// As [`acquire_many`](Self::acquire_many), for more than 2³² − 1 permits.
    ///
    /// Cancellation and errors are as for [`acquire`](Self::acquire).
    ///
    /// # Panics
    ///
    /// If `n` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS), or the future is polled again after it was ready.
    #[track_caller]
    #[inline]
    pub fn acquire_weight(&self, n: usize) -> Acquire<'_> {
        Acquire::new(self, n, n)
    }

    /// Acquires the free permits up to the range's end. If fewer than its start are free, waits in the queue.
    ///
    /// Permits beyond the start are taken in a separate step: after a wait, when the future is polled, and
    /// only if the semaphore was not closed meanwhile.
    ///
    /// Cancellation and errors are as for [`acquire`](Self::acquire).
    ///
    /// # Panics
    ///
    /// If the range is empty or exceeds [`MAX_PERMITS`](Self::MAX_PERMITS), or the future is polled again
    /// after it was ready.
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

    /// As [`acquire`](Self::acquire), for a semaphore behind an [`Arc`]: the permit can move to another task.
    ///
    /// Cancellation, errors and panics are as for [`acquire`](Self::acquire).
    #[inline]
    pub fn acquire_owned(self: Arc<Self>) -> AcquireOwned {
        AcquireOwned::new(self, 1, 1)
    }

    /// As [`acquire_many`](Self::acquire_many), for a semaphore behind an [`Arc`].
    ///
    /// Cancellation, errors and panics are as for [`acquire`](Self::acquire).
    #[inline]
    pub fn acquire_many_owned(self: Arc<Self>, n: u32) -> AcquireOwned {
        AcquireOwned::new(self, weight(n), weight(n))
    }

    /// As [`acquire_weight`](Self::acquire_weight), for a semaphore behind an [`Arc`].
    ///
    /// Cancellation and errors are as for [`acquire`](Self::acquire).
    ///
    /// # Panics
    ///
    /// If `n` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS), or the future is polled again after it was ready.
    #[track_caller]
    #[inline]
    pub fn acquire_weight_owned(self: Arc<Self>, n: usize) -> AcquireOwned {
        AcquireOwned::new(self, n, n)
    }

    /// Acquires a permit if one is free now. No permit is free while a task or thread waits.
    ///
    /// # Errors
    ///
    /// [`TryAcquireError::NoPermits`] if no permit is free, [`TryAcquireError::Closed`] once closed.
    #[inline]
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.try_acquire_weight(1)
    }

    /// Acquires `n` permits if they are free now.
    ///
    /// # Errors
    ///
    /// As for [`try_acquire`](Self::try_acquire).
    #[inline]
    pub fn try_acquire_many(&self, n: u32) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.try_acquire_weight(weight(n))
    }

    /// As [`try_acquire_many`](Self::try_acquire_many), for more than 2³² − 1 permits.
    ///
    /// # Errors
    ///
    /// As for [`try_acquire`](Self::try_acquire).
    #[inline]
    pub fn try_acquire_weight(&self, n: usize) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        let taken = self.engine.try_take(n)?;
        Ok(SemaphorePermit::new(self, HeldPermits::new(n, taken)))
    }

    /// As [`try_acquire`](Self::try_acquire), for a semaphore behind an [`Arc`].
    ///
    /// # Errors
    ///
    /// As for [`try_acquire`](Self::try_acquire).
    #[inline]
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_acquire_weight_owned(1)
    }

    /// As [`try_acquire_many`](Self::try_acquire_many), for a semaphore behind an [`Arc`].
    ///
    /// # Errors
    ///
    /// As for [`try_acquire`](Self::try_acquire).
    #[inline]
    pub fn try_acquire_many_owned(self: Arc<Self>, n: u32) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_acquire_weight_owned(weight(n))
    }

    /// As [`try_acquire_weight`](Self::try_acquire_weight), for a semaphore behind an [`Arc`].
    ///
    /// # Errors
    ///
    /// As for [`try_acquire`](Self::try_acquire).
    #[inline]
    pub fn try_acquire_weight_owned(
        self: Arc<Self>,
        n: usize,
    ) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        let taken = self.engine.try_take(n)?;
        Ok(OwnedSemaphorePermit::new(self, HeldPermits::new(n, taken)))
    }

    /// Returns the number of free permits; out of date as soon as read.
    ///
    /// Zero while a task or thread waits, even if permits are left that are too few for the waiter.
    #[inline]
    pub fn available_permits(&self) -> usize {
        self.engine.free().max(0) as usize
    }

    /// Adds `n` permits, first to a deficit of [`set_capacity`](Self::set_capacity), and wakes waiters.
    ///
    /// # Panics
    ///
    /// If more than [`MAX_PERMITS`](Self::MAX_PERMITS) would exist; nothing has changed then.
    #[track_caller]
    pub fn add_permits(&self, n: usize) {
        self.engine.add(n);
    }

    /// Removes up to `n` free permits for good. Returns the number removed, less than `n` if fewer were free.
    ///
    /// Works in one or more steps. [`set_capacity`](Self::set_capacity) also removes held permits.
    pub fn forget_permits(&self, n: usize) -> usize {
        let forgotten = self.engine.take_free(n, true);
        self.engine.forget(forgotten);
        forgotten
    }

    /// Returns the number of permits in existence: free, held, and left for the first waiter. Less than
    /// [`held`](Self::held) in a deficit of [`set_capacity`](Self::set_capacity). Wrong after
    /// `mem::forget` of a permit instead of [`forget`](SemaphorePermit::forget).
    pub fn capacity(&self) -> usize {
        self.engine.capacity()
    }

    /// Counts the permits held, or too few for the first waiter. Right if [`capacity`](Self::capacity) is.
    pub fn held(&self) -> usize {
        self.engine.held()
    }

    /// Sets the number of permits in existence, with effect at once.
    ///
    /// If too few permits are free to be removed, the rest is a deficit: permits released or added next cover
    /// the deficit before any waiter is granted, so no grant makes `held` exceed `capacity`.
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
    #[track_caller]
    pub fn set_capacity(&self, capacity: usize) {
        self.engine.set_capacity(capacity);
    }

    /// Returns the number of waiters, even if granted or refused and not polled since. Walks the queue.
    pub fn waiters(&self) -> usize {
        let mut waiters = 0;
        self.engine.for_each_waiter(|_| waiters += 1);
        waiters
    }

    /// Number of waiters neither granted nor refused. Walks the queue.
    pub(crate) fn sleepers(&self) -> usize {
        let mut sleepers = 0;
        self.engine.for_each_waiter(|seen| sleepers += usize::from(matches!(seen, Seen::Waiting { .. })));
        sleepers
    }

    /// As [`add_permits`](Self::add_permits), for a latch: notifications do not count as capacity.
    pub(crate) fn notify(&self, n: usize) {
        self.engine.notify(n);
    }

    /// Takes permits out of existence, free or not.
    #[cfg(latchwork_suspend)]
    pub(crate) fn lower(&self, n: usize) {
        self.engine.lower(n);
    }

    /// Refuses all requests from now on: waiters are woken with an error, and later calls fail.
    ///
    /// Held permits stay valid, and can be released. Waiters granted before still get their permits.
    pub fn close(&self) {
        self.engine.close();
    }

    /// [Closes](Self::close) the semaphore, and waits until no permit is [held](Self::held).
    ///
    /// Waiters granted before the close hold permits, until they are dropped or release the permits. Permits
    /// given to `mem::forget` count as held for ever.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the semaphore closed. Call `drain` again to wait longer.
    ///
    /// # Memory ordering
    ///
    /// Work done before a permit is released happens before the end of the wait.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// use std::sync::Arc;
    /// use latchwork::AsyncSemaphore;
    ///
    /// let requests = Arc::new(AsyncSemaphore::new(3));
    /// let permit = Arc::clone(&requests).acquire_owned().await?;
    /// tokio::spawn(async move {
    ///     // … the last request …
    ///     drop(permit);
    /// });
    /// requests.drain().await;
    /// assert_eq!(requests.held(), 0);
    /// assert!(requests.acquire().await.is_err());
    /// # Ok::<(), latchwork::AcquireError>(()) }).unwrap();
    /// ```
    pub async fn drain(&self) {
        self.engine.drain().await;
    }

    /// True if [`close`](Self::close) was called.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.engine.is_closed()
    }
}

impl fmt::Debug for AsyncSemaphore {
    /// Shows the queue, oldest first. A waiter shown as `Granted` has permits and is not polled to take them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncSemaphore")
            .field("available_permits", &self.available_permits())
            .field("capacity", &self.capacity())
            .field("is_closed", &self.is_closed())
            .field("queue", &self.engine)
            .finish()
    }
}
