//! [`Latch`]: a semaphore born with no permits, on which tasks and threads sleep until somebody calls.

mod answers;
mod call;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::semaphore::{AcquireOwned, AsyncSemaphore};
use crate::unless::unless;

pub(crate) use self::answers::Answers;
pub use self::call::Call;

/// Where tasks and threads wait to be called, one by one or many at once.
///
/// A call that finds nobody waiting is kept, so that a task which looked, found nothing to do and is about to wait does not
/// miss it. What is kept does not add up: of many calls that find nobody waiting, as many are kept as the largest
/// [`release`](Self::release) made at once. So a burst of calls does not become a row of pointless wake-ups later.
///
/// # Fairness
///
/// Waiters are called in the order in which they were first polled; threads and tasks stand in the same line.
///
/// # Memory ordering
///
/// What the caller did before [`release`](Self::release) happens before what the woken task does.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use latchwork::Latch;
///
/// let latch = Latch::new();
/// latch.release(1); // nobody waits yet: kept
/// let call = latch.wait().await;
/// call.consume();
/// # });
/// ```
pub struct Latch {
    semaphore: Arc<AsyncSemaphore>,
    answers: Option<Arc<Answers>>,
}

impl Latch {
    /// Makes a latch that nobody was called on.
    pub fn new() -> Self {
        Self { semaphore: Arc::new(AsyncSemaphore::new_latch()), answers: None }
    }

    /// A latch that counts what its calls were good for.
    pub(crate) fn counting(answers: Arc<Answers>) -> Self {
        Self { answers: Some(answers), ..Self::new() }
    }

    // === Calling ===

    /// Calls the `n` oldest waiters; what is left over is kept, but does not add up with what is kept already.
    ///
    /// If fewer than `n` are kept already, and others take those at the same time, the calls come in more than one step.
    ///
    /// # Panics
    ///
    /// If `n` exceeds [`AsyncSemaphore::MAX_PERMITS`].
    pub fn release(&self, n: usize) {
        self.semaphore.call(n);
    }

    /// Calls all who wait now and were not called before. If nobody does, one call is kept; and so is one for somebody who gives up
    /// at that very moment. Walks the line.
    pub fn release_all(&self) {
        self.release(self.semaphore.sleepers().max(1));
    }

    // === Waiting ===

    /// Waits until called.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, before it is ready or with the [`Call`] in hand, passes the call on to the next waiter.
    pub async fn wait(&self) -> Call<'_> {
        self.semaphore.acquire().await.expect("a latch's semaphore is never closed").forget();
        Call::new(self)
    }

    /// Waits until called, unless `timer` is ready first: then `None`. Any runtime's sleep will do.
    ///
    /// A call that comes together with the timer is heard: the last look is at the latch.
    ///
    /// # Cancel safety
    ///
    /// That of [`wait`](Self::wait).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// use std::time::Duration;
    /// use latchwork::Latch;
    ///
    /// let latch = Latch::new();
    /// assert!(latch.wait_unless(tokio::time::sleep(Duration::from_millis(1))).await.is_none());
    /// # });
    /// ```
    pub async fn wait_unless(&self, timer: impl Future<Output = ()>) -> Option<Call<'_>> {
        unless(self.wait(), timer).await
    }

    /// Waits until called, with this thread asleep.
    pub fn blocking_wait(&self) -> Call<'_> {
        self.semaphore.blocking_acquire().expect("a latch's semaphore is never closed").forget();
        Call::new(self)
    }

    /// Waits until called, with this thread asleep, or until `timeout` is over: then `None`. With a timeout of zero it is
    /// [`try_wait`](Self::try_wait).
    pub fn blocking_wait_timeout(&self, timeout: Duration) -> Option<Call<'_>> {
        self.semaphore.blocking_acquire_timeout(1, timeout).ok()?.forget();
        Some(Call::new(self))
    }

    /// Takes a kept call, if there is one.
    pub fn try_wait(&self) -> Option<Call<'_>> {
        self.semaphore.try_acquire().ok()?.forget();
        Some(Call::new(self))
    }

    // === Looking ===

    /// Calls kept for those who come later.
    pub fn kept(&self) -> usize {
        self.semaphore.available_permits()
    }

    /// How many wait now, those included that were called and have not been polled since. Walks the line.
    pub fn waiters(&self) -> usize {
        self.semaphore.waiters()
    }

    pub(crate) fn wait_owned(&self) -> AcquireOwned {
        Arc::clone(&self.semaphore).acquire_owned()
    }

    pub(crate) fn answers(&self) -> Option<&Arc<Answers>> {
        self.answers.as_ref()
    }
}

impl Default for Latch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch").field("kept", &self.kept()).field("waiters", &self.waiters()).finish()
    }
}
