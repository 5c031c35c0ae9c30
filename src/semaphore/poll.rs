//! [`PollSemaphore`]: for hand-written `poll` functions.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::acquire::AcquireOwned;
use super::permit::OwnedSemaphorePermit;
use super::{AsyncSemaphore, weight};

/// An [`AsyncSemaphore`] for hand-written `poll` functions: keeps a wait between polls, without a box.
///
/// Names, meaning and results are tokio-util's. With the feature `stream`, this type is a
/// `futures_core::Stream` of permits, which ends when the semaphore is closed. Recipe: [`tower_limit`].
///
/// [`tower_limit`]: https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/tower_limit.rs
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::task::{Context, Poll, Waker};
/// use latchwork::{AsyncSemaphore, PollSemaphore};
///
/// let mut waiting = PollSemaphore::new(Arc::new(AsyncSemaphore::new(0)));
/// let mut context = Context::from_waker(Waker::noop());
/// assert!(waiting.poll_acquire(&mut context).is_pending());
/// waiting.add_permits(1);
/// assert!(matches!(waiting.poll_acquire(&mut context), Poll::Ready(Some(_))));
/// ```
pub struct PollSemaphore {
    semaphore: Arc<AsyncSemaphore>,
    /// The wait under way, and its number of permits.
    wait: Option<(AcquireOwned, usize)>,
}

impl PollSemaphore {
    /// Creates a `PollSemaphore` without a wait under way.
    pub fn new(semaphore: Arc<AsyncSemaphore>) -> Self {
        Self { semaphore, wait: None }
    }

    /// Polls for one permit. Returns `None` once the semaphore is closed.
    ///
    /// The task of the last poll is woken when the permit is granted or the semaphore closed.
    ///
    /// # Cancel safety
    ///
    /// A wait that is no longer polled keeps its position, and its permit once granted, until the next poll,
    /// [`cancel`](Self::cancel), or the drop of this `PollSemaphore`.
    pub fn poll_acquire(&mut self, context: &mut Context<'_>) -> Poll<Option<OwnedSemaphorePermit>> {
        self.poll_acquire_weight(context, 1)
    }

    /// Polls for `n` permits at once. Returns `None` once the semaphore is closed.
    ///
    /// Gives up a wait under way for another number of permits, and its position in the queue.
    ///
    /// # Cancel safety
    ///
    /// As [`poll_acquire`](Self::poll_acquire).
    pub fn poll_acquire_many(
        &mut self,
        context: &mut Context<'_>,
        n: u32,
    ) -> Poll<Option<OwnedSemaphorePermit>> {
        self.poll_acquire_weight(context, weight(n))
    }

    /// As [`poll_acquire_many`](Self::poll_acquire_many), for more than 2³² − 1 permits.
    ///
    /// # Panics
    ///
    /// If `n` exceeds [`AsyncSemaphore::MAX_PERMITS`].
    #[track_caller]
    pub fn poll_acquire_weight(
        &mut self,
        context: &mut Context<'_>,
        n: usize,
    ) -> Poll<Option<OwnedSemaphorePermit>> {
        if self.wait.as_ref().is_some_and(|(_, other)| *other != n) {
            self.cancel();
        }
        let semaphore = || Arc::clone(&self.semaphore);
        let (wait, _) = self.wait.get_or_insert_with(|| (semaphore().acquire_weight_owned(n), n));
        let permit = ready!(Pin::new(wait).poll(context));
        self.wait = None;
        Poll::Ready(permit.ok())
    }

    /// Gives up the wait under way, if any.
    pub fn cancel(&mut self) {
        self.wait = None;
    }

    /// Returns the number of free permits; see [`AsyncSemaphore::available_permits`].
    pub fn available_permits(&self) -> usize {
        self.semaphore.available_permits()
    }

    /// Adds `n` permits; see [`AsyncSemaphore::add_permits`].
    ///
    /// # Panics
    ///
    /// If more than [`AsyncSemaphore::MAX_PERMITS`] would exist; nothing has changed then.
    pub fn add_permits(&self, n: usize) {
        self.semaphore.add_permits(n);
    }

    /// Closes the semaphore; see [`AsyncSemaphore::close`].
    pub fn close(&self) {
        self.semaphore.close();
    }

    /// Returns the semaphore.
    pub fn clone_inner(&self) -> Arc<AsyncSemaphore> {
        Arc::clone(&self.semaphore)
    }

    /// Gives up the wait under way, if any, and returns the semaphore.
    pub fn into_inner(self) -> Arc<AsyncSemaphore> {
        self.semaphore
    }
}

#[cfg(feature = "stream")]
impl futures_core::Stream for PollSemaphore {
    type Item = OwnedSemaphorePermit;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_acquire(context)
    }
}

impl AsRef<AsyncSemaphore> for PollSemaphore {
    fn as_ref(&self) -> &AsyncSemaphore {
        &self.semaphore
    }
}

impl Clone for PollSemaphore {
    /// Returns a `PollSemaphore` of the same semaphore, without a wait under way.
    fn clone(&self) -> Self {
        Self::new(self.clone_inner())
    }
}

impl fmt::Debug for PollSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollSemaphore").field("semaphore", &self.semaphore).field("wait", &self.wait).finish()
    }
}
