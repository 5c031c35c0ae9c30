//! [`Latch`]: a semaphore born with no permits, on which tasks sleep until somebody calls.

use std::fmt;
use std::sync::Arc;

use crate::semaphore::{AcquireOwned, AsyncSemaphore};

/// Where tasks wait to be called, one by one or many at once.
///
/// A call that finds nobody waiting is kept, so that a task which looked, found nothing to do and is about to wait does not
/// miss it. What is kept does not add up: of many calls that find nobody waiting, as many are kept as the largest
/// [`release`](Self::release) made at once. So a burst of calls does not become a row of pointless wake-ups later.
///
/// # Fairness
///
/// Waiters are called in the order in which they were first polled.
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
}

impl Latch {
    /// Makes a latch that nobody was called on.
    pub fn new() -> Self {
        Self { semaphore: Arc::new(AsyncSemaphore::new_latch()) }
    }

    /// Calls the `n` oldest waiters; what is left over is kept, but never more than `n` calls in all.
    ///
    /// # Panics
    ///
    /// If `n` exceeds [`AsyncSemaphore::MAX_PERMITS`].
    pub fn release(&self, n: usize) {
        self.semaphore.call(n);
    }

    /// Waits until called.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, before it is ready or with the [`Call`] in hand, passes the call on to the next waiter.
    pub async fn wait(&self) -> Call<'_> {
        self.semaphore.acquire().await.expect("a latch's semaphore is never closed").forget();
        Call(Some(self))
    }

    /// Takes a kept call, if there is one.
    pub fn try_wait(&self) -> Option<Call<'_>> {
        self.semaphore.try_acquire().ok()?.forget();
        Some(Call(Some(self)))
    }

    /// Calls kept for those who come later.
    pub fn kept(&self) -> usize {
        self.semaphore.available_permits()
    }

    pub(crate) fn wait_owned(&self) -> AcquireOwned {
        Arc::clone(&self.semaphore).acquire_owned()
    }
}

impl Default for Latch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch").field("kept", &self.kept()).finish_non_exhaustive()
    }
}

/// A call that was heard but not yet answered.
///
/// Dropping it passes it on to the next waiter: a task that is cancelled between waking up and doing what it was woken for
/// must not take the call with it. [`consume`](Self::consume) says that it was answered.
#[derive(Debug)]
#[must_use = "dropping a call passes it on to the next waiter"]
pub struct Call<'a>(Option<&'a Latch>);

impl Call<'_> {
    /// The call was answered: nobody else needs to wake up for it.
    pub fn consume(mut self) {
        self.0 = None;
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(latch) = self.0 {
            latch.release(1);
        }
    }
}
