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
pub(crate) use self::blocking::{block_on, block_on_until};
use self::engine::{Engine, Seen};
pub use self::error::{AcquireError, TryAcquireError};
use self::permit::HeldPermits;
pub use self::permit::{OwnedSemaphorePermit, SemaphorePermit};
pub use self::poll::PollSemaphore;

/// A counting semaphore whose waiters are futures, or threads.
///
/// If too few permits are free, [`acquire`](Self::acquire) waits in a FIFO queue; released permits go to the
/// oldest waiter. The semaphore needs no runtime: any executor can poll its futures, and the `blocking_…`
/// methods need none at all. Tasks and threads wait in the same queue.
///
/// # For users of `tokio::sync::Semaphore`
///
/// The names, their meaning and their errors are tokio's; `use latchwork::AsyncSemaphore as Semaphore`
/// compiles. What differs:
///
/// * `acquire` and its kin return a named future ([`Acquire`]) that is `Unpin`.
/// * `blocking_acquire` does not panic inside of an async context, as it cannot tell.
/// * [`MAX_PERMITS`](Self::MAX_PERMITS) is less, 2⁴⁰ − 1, and the limit is for all permits in existence, not
///   only for those that are free.
/// * An acquire that finds a permit yields to other tasks now and then, as tokio's does, only with the
///   feature `tokio` (which `redis` turns on). Without that feature, a loop that acquires free permits needs
///   an await of its own.
/// * A waiter that was granted its permits before [`close`](Self::close), and is polled afterwards, gets
///   them.
/// * Permits that are too few for the first waiter are not held by anything: if it is cancelled, they are
///   free at once.
///
/// More than tokio's: weights of `usize` ([`acquire_weight`](Self::acquire_weight)),
/// [`acquire_up_to`](Self::acquire_up_to), waiting with a time limit for threads
/// ([`blocking_acquire_timeout`](Self::blocking_acquire_timeout)), [`set_capacity`](Self::set_capacity), and
/// a look at the queue: [`waiters`](Self::waiters), [`held`](Self::held) and `Debug`. [`PollSemaphore`] is
/// tokio-util's.
///
/// # Fairness
///
/// Strictly first come, first served, by the order in which the futures were first polled, and whatever they
/// ask for: a request for many is not overtaken by those for few behind it, and all wait until it has its
/// permits. A request for more permits than exist waits as well, and so do those behind it, since permits
/// can be added. Requests for none never wait.
///
/// Permits are assigned by the thread that releases them. A waiter that was granted its permits and is not
/// polled keeps them from all others; see `Debug` for how to find it.
///
/// # Consistency
///
/// No permit is ever in flight: once a call that releases permits has credited them, they are free or
/// assigned, whatever any thread is doing or not doing, also while wakers run. `try_acquire` and its kin,
/// [`available_permits`](Self::available_permits), releases, [`add_permits`](Self::add_permits),
/// [`set_capacity`](Self::set_capacity) and [`close`](Self::close) are linearizable, failures included: each
/// takes effect at one moment between its call and its return. The exceptions:
///
/// * [`forget_permits`](Self::forget_permits), and what [`acquire_up_to`](Self::acquire_up_to) takes beyond
///   its least, take what is free in one or more steps of their own.
/// * `close` may overtake grants of a release that runs at the same time.
/// * While several threads change the capacity at once (`add_permits`, `set_capacity`), fewer permits may be
///   free for a moment than in any order of these calls; never more.
///
/// # Progress
///
/// The queue is in use from the first waiter on, until a permit is taken when all waiters have gone.
///
/// | operation | progress | allocates | calls wakers |
/// |---|---|---|---|
/// | `try_acquire…`, queue not in use | lock-free: a step fails only if another one succeeded | no | no |
/// | `try_acquire…`, `available_permits`, `held`, `forget_permits`, queue in use | lock-free; finishes the grants of a thread that was stopped | when a permit is taken | yes |
/// | the credit of a release | wait-free: one step in every state | no | no |
/// | the grants that follow it | lock-free; as many steps as waiters are granted | no | yes |
/// | `add_permits` | lock-free; counts what exists, and is a release then | no | yes |
/// | `acquire…`, first poll | as `try_acquire…`, and one step that enqueues | when it waits: 40 bytes | yes |
/// | a later poll | lock-free | when memory of waiters is tidied up, or `acquire_up_to` takes more | yes |
/// | dropping a future | lock-free | when memory of waiters is tidied up | yes |
/// | `close` | lock-free; as many steps as there are waiters | no | yes |
/// | `set_capacity` | lock-free | when it lowers and the queue is in use | yes |
/// | `waiters` | as many steps as there are waiters | no | no |
/// | `Debug` | as `available_permits` and `waiters` | a list of the waiters | yes |
///
/// Inside of a waker, any of them allocates when it wakes more than there is room for beside those that wait
/// to be woken already.
///
/// User wakers are excluded from these guarantees. A thread that is stopped for ever, at any
/// step, keeps no other from finishing, and none from permits that were free before its call or were released
/// by another one. What it holds back:
///
/// * The effect of its own call, as if that had not been made, until another call that finds too few permits
///   free for the first waiter, or that counts what is free, comes by and finishes it.
/// * The wake-ups of up to 32 waiters that it has granted their permits; a task that polls these finds them
///   ready.
/// * The memory of waiters that leave this semaphore, at most 56 bytes each, and that of no other semaphore.
///   Where the capacity is lowered while a task or thread waits, 80 bytes more for each call that lowers it.
///
/// The checks behind these entries: `cargo xtask verify suspension` stops the compiled code before each
/// access to what threads share, one thread or two, for ever; counts the steps of all others, and explains
/// what they were answered and which waiters sleep by an order of the calls. `cargo xtask verify model`
/// explores the algorithm through all interleavings of small programs, with any number of threads stopped at
/// any step. `tests/semaphore_memory.rs` counts allocations.
///
/// # Memory ordering
///
/// What a thread did before it released a permit (or added it) happens before what another does after
/// acquiring that permit.
///
/// # Memory
///
/// A waiter costs 40 bytes on the heap; nothing is allocated until a future waits. The memory of waiters that
/// have gone is used again, or freed, wherever they stood in the queue. Neither a release nor `close`
/// allocates, unless a waker makes it, also on a thread that never used a semaphore.
///
/// What is kept when waiters have gone:
///
/// * by a semaphore up to 28 KiB, mostly a quarter of that, and 32 bytes for each living thread that has
///   waited on any;
/// * by each thread that has waited room for up to 1024 waiters, 48 KiB, until it ends;
/// * by the process 4 KiB for every 32 threads that have waited and lived at one time, to be used again by
///   later ones.
///
/// # Panicking and re-entrant wakers
///
/// Wakers are called after all permits are where they belong. A waker may use this very semaphore, or drop
/// its futures. Waiters granted by that call are woken after the waker returns, or before it blocks in one of
/// the `blocking_…` calls. So the stack does not grow with the number of waiters or of semaphores, only with
/// that of wakers that block at the same time. A waker must not wait in any other way for a task or thread
/// that it has granted permits to. One that blocks while another one does so behind it, in the same thread,
/// returns after that, however early its own permits come. If a waker panics, the others are called all the
/// same, and the panic is [reported](crate::on_foreign_panic).
///
/// # Sources
///
/// Redisson's `AsyncSemaphore` is the seed: a counter, a lock-free queue of wakers, and a loop between them.
/// [Why no permit and no wake-up is lost] is argued lemma by lemma, with the model that checks each.
///
/// [Why no permit and no wake-up is lost]: https://github.com/latchwork/latchwork/blob/main/docs/proof.md
///
/// Recipes: [`tokio_drop_in`] is one program over this and tokio's, [`tower_limit`] limits a service.
///
/// [`tokio_drop_in`]:
/// https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/tokio_drop_in.rs
/// [`tower_limit`]: https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/tower_limit.rs
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
    engine: Engine,
}

// What is behind the pointers is only ever changed by single atomic steps, so a panic leaves it as it should
// be.
impl UnwindSafe for AsyncSemaphore {}
impl RefUnwindSafe for AsyncSemaphore {}

/// The most that tokio's calls can ask for on a machine of 16 bits is still a `usize`; on all others this is
/// no conversion.
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
        pub fn new(permits: usize) -> Self {
            Self { engine: Engine::new(permits, false) }
        }
    }
}

crate::support::sync::maybe_const! {
    impl AsyncSemaphore {
        /// The same as [`new`](Self::new), under the name that tokio has for it.
        ///
        /// # Panics
        ///
        /// If `permits` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS).
        pub fn const_new(permits: usize) -> Self {
            Self::new(permits)
        }
    }
}

impl AsyncSemaphore {
    /// The most permits that a semaphore can have: 2⁴⁰ − 1, or `usize::MAX >> 3` where a `usize` has 32 bits
    /// or less.
    ///
    /// What was ever released and ever taken is counted in words of 62 bits, which go round. A thread that is
    /// stopped between reading such a word and the step that relies on it is misled if the others take 2⁶¹
    /// permits meanwhile: these are 2²¹ acquisitions of all the permits that there can be, or 2⁶¹ of one. It
    /// may answer then that too few were free, though they were. For it to take permits that others hold,
    /// they have to take 2⁶² meanwhile, to the permit. With tokio's limit, `usize::MAX >> 3`, it would be two
    /// acquisitions, or four.
    pub const MAX_PERMITS: usize = engine::MAX_PERMITS;

    /// One without permits, for a latch: notifications that find no waiter do not add up.
    pub(crate) fn new_latch() -> Self {
        Self { engine: Engine::new(0, true) }
    }

    // === Acquiring ===

    /// Acquires a permit. If none is free, waits in the queue.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the position in the queue, without blocking. Permits that were granted
    /// already go to the next waiter; none is lost.
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

    /// Acquires `n` permits at once. If fewer are free, waits in the queue. For `n` of zero it takes none and
    /// never waits.
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
    /// If `n` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS); and when the future is polled again after it was
    /// ready.
    #[track_caller]
    #[inline]
    pub fn acquire_weight(&self, n: usize) -> Acquire<'_> {
        Acquire::new(self, n, n)
    }

    /// Acquires as many permits as are free, at least the range's start and at most its end. If fewer than
    /// the start are free, waits in the queue for so many.
    ///
    /// What is taken beyond the start is taken in a step of its own, when the others are there; after a wait,
    /// when the future is polled, and not if the semaphore was closed meanwhile.
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
    /// If the range is empty, or ends beyond [`MAX_PERMITS`](Self::MAX_PERMITS); and when the future is
    /// polled again after it was ready.
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

    /// As [`acquire_weight`](Self::acquire_weight), for a semaphore behind an [`Arc`].
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
    /// If `n` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS); and when the future is polled again after it was
    /// ready.
    #[track_caller]
    #[inline]
    pub fn acquire_weight_owned(self: Arc<Self>, n: usize) -> AcquireOwned {
        AcquireOwned::new(self, n, n)
    }

    // === Trying ===

    /// Acquires a permit if one is free now. While a task or thread waits, none is.
    ///
    /// # Errors
    ///
    /// [`TryAcquireError::NoPermits`] if none is free.
    /// [`TryAcquireError::Closed`] once the semaphore is closed.
    #[inline]
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.try_acquire_weight(1)
    }

    /// Acquires `n` permits if they are free now.
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
        let taken = self.engine.try_take(n)?;
        Ok(SemaphorePermit::new(self, HeldPermits::new(n, taken)))
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

    /// As [`try_acquire_weight`](Self::try_acquire_weight), for a semaphore behind an [`Arc`].
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire).
    #[inline]
    pub fn try_acquire_weight_owned(
        self: Arc<Self>,
        n: usize,
    ) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        let taken = self.engine.try_take(n)?;
        Ok(OwnedSemaphorePermit::new(self, HeldPermits::new(n, taken)))
    }

    // === Permits in existence ===

    /// Returns the number of permits that are free now; out of date as soon as it is read.
    ///
    /// None while a task or thread waits, also if some are there that are too few for it.
    #[inline]
    pub fn available_permits(&self) -> usize {
        self.engine.free().max(0) as usize
    }

    /// Adds `n` permits and wakes the waiters that they serve. A deficit left by
    /// [`set_capacity`](Self::set_capacity) takes what it is short of first.
    ///
    /// # Panics
    ///
    /// If more than [`MAX_PERMITS`](Self::MAX_PERMITS) would exist; nothing has changed then.
    pub fn add_permits(&self, n: usize) {
        self.engine.add(n);
    }

    /// Removes up to `n` free permits from the semaphore for good, and returns how many: fewer if fewer were
    /// free.
    ///
    /// What is free is taken in one or more steps, so permits that are released meanwhile may be among them
    /// or not. [`set_capacity`](Self::set_capacity) also removes those that are held, once they are released.
    pub fn forget_permits(&self, n: usize) -> usize {
        let forgotten = self.engine.drain(n, true);
        self.engine.forget(forgotten);
        forgotten
    }

    /// Returns the number of permits in existence: free, held, and waited for by the first waiter. Permits
    /// that [`set_capacity`](Self::set_capacity) has removed and that are still held do not count any more,
    /// so while there are some this can be less than [`held`](Self::held).
    ///
    /// Right as long as permits are removed by [`forget`](SemaphorePermit::forget) and not by `mem::forget`.
    pub fn capacity(&self) -> usize {
        self.engine.capacity()
    }

    /// Returns the number of permits that are not free, as far as [`capacity`](Self::capacity) is right:
    /// held, or too few for the first waiter.
    pub fn held(&self) -> usize {
        self.engine.held()
    }

    /// Makes the permits in existence `capacity` in all. Takes effect at once.
    ///
    /// If it is more than before, the others are added. If it is less, permits are removed, free or not: if
    /// too few are free, the rest is a deficit, and whatever is released or added next makes up for it first,
    /// before any waiter is granted. So once this has returned, nothing is granted until fewer permits are
    /// held than `capacity`.
    ///
    /// Changes of the capacity that run at the same time may, for a moment, leave fewer permits free than
    /// either; never more.
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
        self.engine.set_capacity(capacity);
    }

    /// Returns the number of waiters, those included that were granted their permits, or refused, and have
    /// not been polled since. Walks the queue.
    pub fn waiters(&self) -> usize {
        let mut waiters = 0;
        self.engine.for_each_waiter(|_| waiters += 1);
        waiters
    }

    /// Waiters that have neither been granted their permits nor been refused. Walks the queue.
    pub(crate) fn sleepers(&self) -> usize {
        let mut sleepers = 0;
        self.engine.for_each_waiter(|seen| sleepers += usize::from(matches!(seen, Seen::Waiting { .. })));
        sleepers
    }

    /// As [`add_permits`](Self::add_permits), for a latch, whose permits are notifications and no capacity.
    pub(crate) fn notify(&self, n: usize) {
        self.engine.notify(n);
    }

    /// Takes permits out of existence, free or not.
    #[cfg(latchwork_suspend)]
    pub(crate) fn lower(&self, n: usize) {
        self.engine.lower(n);
    }

    // === Closing ===

    /// Refuses all requests from now on: waiters are woken with an error, and later calls fail with one.
    ///
    /// Permits that are held stay valid; releasing them is harmless. Waiters that were granted their permits
    /// before get them.
    pub fn close(&self) {
        self.engine.close();
    }

    /// Returns whether [`close`](Self::close) was called.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.engine.is_closed()
    }
}

impl fmt::Debug for AsyncSemaphore {
    /// Shows the queue, oldest first. A waiter that was granted its permits and does not take them, because
    /// its future is not polled, shows as `Granted`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncSemaphore")
            .field("available_permits", &self.available_permits())
            .field("capacity", &self.capacity())
            .field("is_closed", &self.is_closed())
            .field("queue", &self.engine)
            .finish()
    }
}
