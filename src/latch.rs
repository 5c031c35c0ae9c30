//! [`Latch`]: a semaphore of zero permits, on which tasks and threads wait for notifications.

mod notification;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::semaphore::{AcquireOwned, AsyncSemaphore};
use crate::support::sync::Lazy;
use crate::support::unless::unless;

pub use self::notification::Notification;
pub(crate) use self::notification::NotificationFigures;

/// Where tasks and threads wait for notifications, which wake them one by one or many at once.
///
/// A notification that finds no waiter stays pending, so that a task which looked, found nothing to do and is
/// about to wait does not miss it. Pending notifications do not add up: of many that find no waiter, as many
/// stay pending as the largest [`release`](Self::release) made at once. So a burst of notifications does not
/// become a series of spurious wake-ups later.
///
/// # Fairness
///
/// Waiters are notified in the order in which they were first polled; threads and tasks wait in one queue.
///
/// # Memory ordering
///
/// What the caller of `release` did before [`release`](Self::release) happens before what the woken task
/// does.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use latchwork::latch::Latch;
///
/// let latch = Latch::new();
/// latch.release(1); // no waiter yet: stays pending
/// let notification = latch.wait().await;
/// notification.consume();
/// # });
/// ```
pub struct Latch {
    semaphore: Lazy<Arc<AsyncSemaphore>>,
    figures: Option<Arc<NotificationFigures>>,
}

crate::support::sync::maybe_const! {
    impl Latch {
        /// Makes a latch without pending notifications. The first use of it allocates.
        pub fn new() -> Self {
            Self { semaphore: Lazy::new(|| Arc::new(AsyncSemaphore::new_latch())), figures: None }
        }
    }
}

impl Latch {
    /// A latch that counts what its notifications were good for.
    pub(crate) fn counting(figures: Arc<NotificationFigures>) -> Self {
        Self { figures: Some(figures), ..Self::new() }
    }

    // === Notifying ===

    /// Notifies the `n` oldest waiters; notifications beyond the number of waiters stay pending, but do not
    /// add up with those that are pending already.
    ///
    /// If some are pending already, and are taken at the same time, the notifications come in more than one
    /// step.
    ///
    /// # Panics
    ///
    /// If `n` exceeds [`AsyncSemaphore::MAX_PERMITS`].
    pub fn release(&self, n: usize) {
        self.semaphore.notify(n);
    }

    /// Notifies all waiters that were not notified before. If there are none, one notification stays pending;
    /// and so does one for each waiter that gives up at that very moment. Takes time proportional to the
    /// number of waiters.
    pub fn release_all(&self) {
        self.release(self.sleepers().max(1));
    }

    // === Waiting ===

    /// Waits for a notification.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; a notification that it had been sent, or that has been returned
    /// and is dropped unconsumed, passes to the next waiter.
    pub async fn wait(&self) -> Notification<'_> {
        self.semaphore.acquire().await.expect("a latch's semaphore is never closed").forget();
        Notification::new(self)
    }

    /// Waits for a notification, unless `timer` is ready first: then `None`. Any runtime's sleep will do.
    ///
    /// A notification that comes together with the timer is received: the latch is polled last.
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
    /// use latchwork::latch::Latch;
    ///
    /// let latch = Latch::new();
    /// assert!(latch.wait_unless(tokio::time::sleep(Duration::from_millis(1))).await.is_none());
    /// # });
    /// ```
    pub async fn wait_unless(&self, timer: impl Future<Output = ()>) -> Option<Notification<'_>> {
        unless(pin!(self.wait()), pin!(timer)).await
    }

    /// Waits for a notification, and blocks this thread.
    pub fn blocking_wait(&self) -> Notification<'_> {
        self.semaphore.blocking_acquire().expect("a latch's semaphore is never closed").forget();
        Notification::new(self)
    }

    /// Waits for a notification, and blocks this thread, until `timeout` is over: then `None`. With a timeout
    /// of zero it is [`try_wait`](Self::try_wait).
    pub fn blocking_wait_timeout(&self, timeout: Duration) -> Option<Notification<'_>> {
        self.semaphore.blocking_acquire_timeout(1, timeout).ok()?.forget();
        Some(Notification::new(self))
    }

    /// Takes a pending notification, if there is one.
    pub fn try_wait(&self) -> Option<Notification<'_>> {
        self.semaphore.try_acquire().ok()?.forget();
        Some(Notification::new(self))
    }

    // === Looking ===

    /// The number of pending notifications.
    pub fn pending(&self) -> usize {
        self.semaphore.available_permits()
    }

    /// The number of waiters, those included that were notified and have not been polled since. Takes time
    /// proportional to it.
    pub fn waiters(&self) -> usize {
        self.semaphore.waiters()
    }

    /// Waiters that were not notified. Takes time proportional to the number of waiters.
    pub(crate) fn sleepers(&self) -> usize {
        self.semaphore.sleepers()
    }

    pub(crate) fn wait_owned(&self) -> AcquireOwned {
        Arc::clone(&self.semaphore).acquire_owned()
    }

    pub(crate) fn figures(&self) -> Option<&Arc<NotificationFigures>> {
        self.figures.as_ref()
    }
}

impl Default for Latch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch").field("pending", &self.pending()).field("waiters", &self.waiters()).finish()
    }
}
