//! [`Latch`]: notifications that wake waiting tasks and threads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::semaphore::{AcquireOwned, AsyncSemaphore};
use crate::support::counter::Counter;
use crate::support::fault::fault;
use crate::support::sync::Lazy;
use crate::support::sync::atomic::{AtomicU64, Ordering};

/// A place where tasks and threads wait for notifications.
///
/// A notification without a waiter stays pending, for a task that found nothing to do and is about to wait.
/// Pending notifications do not add up: as many stay pending as the largest [`release`](Self::release) made
/// at once, so a burst of releases causes few spurious wake-ups.
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
///
/// # Fairness
///
/// Waiters are notified in the order of their first polls; threads and tasks wait in one queue.
///
/// # Memory ordering
///
/// Work done before a [`release`](Self::release) happens before work done by the woken task.
pub struct Latch {
    semaphore: Lazy<Arc<AsyncSemaphore>>,
    figures: Option<Arc<NotificationFigures>>,
}

crate::support::sync::maybe_const! {
    impl Latch {
        /// Makes a latch without pending notifications. The first use allocates.
        pub fn new() -> Self {
            Self { semaphore: Lazy::new(|| Arc::new(AsyncSemaphore::new_latch())), figures: None }
        }
    }
}

impl Latch {
    /// Makes a latch with counts of useful and spurious notifications.
    pub(crate) fn counting(figures: Arc<NotificationFigures>) -> Self {
        Self { figures: Some(figures), ..Self::new() }
    }

    /// Notifies the `n` oldest waiters. Excess notifications stay pending, not added to earlier ones.
    ///
    /// # Panics
    ///
    /// If `n` exceeds [`AsyncSemaphore::MAX_PERMITS`].
    pub fn release(&self, n: usize) {
        self.semaphore.notify(n);
    }

    /// Notifies all waiters not yet notified. Without a waiter, one notification stays pending, and another
    /// for each waiter giving up at that moment. Takes time proportional to the number of waiters.
    pub fn release_all(&self) {
        self.release(self.sleepers().max(1));
    }

    /// Waits for a notification.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue. Its notification, if not consumed, passes to the next waiter.
    pub async fn wait(&self) -> Notification<'_> {
        self.semaphore.acquire().await.expect("a latch's semaphore is never closed").consume();
        Notification::new(self)
    }

    /// Blocks this thread until a notification comes.
    pub fn blocking_wait(&self) -> Notification<'_> {
        self.semaphore.blocking_acquire().expect("a latch's semaphore is never closed").consume();
        Notification::new(self)
    }

    /// As [`blocking_wait`](Self::blocking_wait), but returns `None` after `timeout`. Zero does not wait.
    pub fn blocking_wait_timeout(&self, timeout: Duration) -> Option<Notification<'_>> {
        self.semaphore.blocking_acquire_timeout(1, timeout).ok()?.consume();
        Some(Notification::new(self))
    }

    /// Takes a pending notification, if there is one.
    pub fn try_wait(&self) -> Option<Notification<'_>> {
        self.semaphore.try_acquire().ok()?.consume();
        Some(Notification::new(self))
    }

    /// Returns the number of pending notifications.
    pub fn pending(&self) -> usize {
        self.semaphore.available_permits()
    }

    /// Returns the number of waiters, including notified waiters not yet polled. Walks the queue.
    pub fn waiters(&self) -> usize {
        self.semaphore.waiters()
    }

    /// Number of waiters not yet notified.
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

/// A wake-up that a waiter has received and not yet consumed.
///
/// Dropping a notification passes it to the next waiter: a task cancelled after its wake-up takes nothing
/// away. [`consume`](Self::consume) and [`consume_spurious`](Self::consume_spurious) end it.
///
/// # Examples
///
/// ```
/// use latchwork::latch::Latch;
///
/// let latch = Latch::new();
/// latch.release(1);
/// let notification = latch.try_wait().expect("one is pending");
/// drop(notification); // passes to the next waiter, and stays pending until there is one
/// latch.try_wait().expect("it was passed on").consume();
/// assert!(latch.try_wait().is_none());
/// ```
#[must_use = "dropping a notification passes it to the next waiter"]
#[doc(alias = "Call")]
pub struct Notification<'a> {
    /// `None` once the notification is consumed.
    latch: Option<&'a Latch>,
    /// True for a permit of the latch, which the next waiter can take instead.
    passes_on: bool,
    broadcasts: Option<Broadcasts<'a>>,
}

/// A subscription's count of messages for all, and the count that a consumed notification stands for.
pub(crate) struct Broadcasts<'a> {
    pub(crate) heard: &'a AtomicU64,
    pub(crate) count: u64,
}

impl<'a> Notification<'a> {
    fn new(latch: &'a Latch) -> Self {
        Self { latch: Some(latch), passes_on: true, broadcasts: None }
    }

    /// Returns a notification of messages for all: dropped, it stays with its subscription.
    pub(crate) fn of_broadcasts(latch: &'a Latch, broadcasts: Broadcasts<'a>) -> Self {
        Self { latch: Some(latch), passes_on: false, broadcasts: Some(broadcasts) }
    }

    /// Returns the notification, which stands for the messages for all up to the count, too.
    pub(crate) fn with_broadcasts(mut self, broadcasts: Broadcasts<'a>) -> Self {
        self.broadcasts = Some(broadcasts);
        self
    }

    /// Ends the notification; the wake-up was useful.
    pub fn consume(self) {
        if let Some(figures) = self.end() {
            figures.useful.add_one();
        }
    }

    /// Ends the notification; the wake-up was spurious, as another task had done the work already. Differs
    /// from [`consume`](Self::consume) only in [`RegistryStats`](crate::subscription::RegistryStats).
    pub fn consume_spurious(self) {
        if let Some(figures) = self.end() {
            figures.spurious.add_one();
        }
    }

    fn end(mut self) -> Option<&'a NotificationFigures> {
        if let Some(Broadcasts { heard, count }) = self.broadcasts.take() {
            // Ordering: Relaxed. A waiter that reads an older count wakes once more.
            heard.fetch_max(count, Ordering::Relaxed);
        }
        self.latch.take().and_then(Latch::figures).map(|figures| &**figures)
    }
}

impl Drop for Notification<'_> {
    fn drop(&mut self) {
        if let Some(latch) = self.latch
            && self.passes_on
            && !fault!(NotificationDiesWithWaiter)
        {
            latch.release(1);
        }
    }
}

impl fmt::Debug for Notification<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Notification").field(&self.latch).finish()
    }
}

/// How the notifications of some latches were consumed. Notifications passed on or pending do not count.
#[derive(Debug, Default)]
pub(crate) struct NotificationFigures {
    pub(crate) useful: Counter,
    pub(crate) spurious: Counter,
}
