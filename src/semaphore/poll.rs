//! [`PollSemaphore`]: for hand-written `poll` functions.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::AsyncSemaphore;
use super::acquire::AcquireOwned;
use super::permit::OwnedSemaphorePermit;

/// An [`AsyncSemaphore`] with a place to keep a wait between polls, without a box. Named after tokio-util's.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::task::{Context, Poll, Waker};
/// use latchwork::AsyncSemaphore;
/// use latchwork::semaphore::PollSemaphore;
///
/// let semaphore = Arc::new(AsyncSemaphore::new(0));
/// let mut waiting = PollSemaphore::new(Arc::clone(&semaphore));
/// let mut context = Context::from_waker(Waker::noop());
/// assert!(waiting.poll_acquire(&mut context).is_pending());
/// semaphore.add_permits(1);
/// assert!(matches!(waiting.poll_acquire(&mut context), Poll::Ready(Some(_))));
/// ```
pub struct PollSemaphore {
    semaphore: Arc<AsyncSemaphore>,
    /// The wait under way, and for how many.
    wait: Option<(AcquireOwned, usize)>,
}

impl PollSemaphore {
    /// Makes one that waits for nothing yet.
    pub fn new(semaphore: Arc<AsyncSemaphore>) -> Self {
        Self { semaphore, wait: None }
    }

    /// Polls for one permit. `None` once the semaphore is closed.
    pub fn poll_acquire(&mut self, context: &mut Context<'_>) -> Poll<Option<OwnedSemaphorePermit>> {
        self.poll_acquire_many(context, 1)
    }

    /// Polls for `n` permits. `None` once the semaphore is closed.
    ///
    /// A wait for another number of permits that was under way is given up, and with it its place in line.
    ///
    /// # Panics
    ///
    /// If `n` exceeds [`AsyncSemaphore::MAX_PERMITS`].
    #[track_caller]
    pub fn poll_acquire_many(
        &mut self,
        context: &mut Context<'_>,
        n: usize,
    ) -> Poll<Option<OwnedSemaphorePermit>> {
        if self.wait.as_ref().is_some_and(|(_, other)| *other != n) {
            self.cancel();
        }
        let (wait, _) = self.wait.get_or_insert_with(|| (self.semaphore.acquire_weight_owned(n), n));
        let permit = ready!(Pin::new(wait).poll(context));
        self.wait = None;
        Poll::Ready(permit.ok())
    }

    /// Gives up the wait under way, if there is one.
    pub fn cancel(&mut self) {
        self.wait = None;
    }

    /// The semaphore.
    pub fn semaphore(&self) -> &Arc<AsyncSemaphore> {
        &self.semaphore
    }
}

impl Clone for PollSemaphore {
    /// One for the same semaphore that waits for nothing yet.
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.semaphore))
    }
}

impl fmt::Debug for PollSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollSemaphore").field("semaphore", &self.semaphore).field("wait", &self.wait).finish()
    }
}
