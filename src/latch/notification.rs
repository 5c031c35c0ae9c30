//! [`Notification`]: a wake-up received and not yet consumed; [`NotificationFigures`]: how many were useful.

use std::fmt;

use crate::support::counter::Counter;
use crate::support::fault::fault;
use crate::support::sync::atomic::{AtomicU64, Ordering};

use super::Latch;

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
    pub(super) fn new(latch: &'a Latch) -> Self {
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
