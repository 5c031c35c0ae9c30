//! [`Notification`]: a wake-up received and not yet consumed; [`NotificationFigures`]: how many were useful.

use crate::support::counter::Counter;
use crate::support::fault::fault;

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
#[derive(Debug)]
#[must_use = "dropping a notification passes it to the next waiter"]
#[doc(alias = "Call")]
pub struct Notification<'a>(Option<&'a Latch>);

impl<'a> Notification<'a> {
    pub(super) fn new(latch: &'a Latch) -> Self {
        Self(Some(latch))
    }

    /// Ends the notification; the wake-up was useful.
    pub fn consume(mut self) {
        if let Some(figures) = self.0.take().and_then(Latch::figures) {
            figures.useful.add_one();
        }
    }

    /// Ends the notification; the wake-up was spurious, as another task had done the work already. Differs
    /// from [`consume`](Self::consume) only in [`RegistryStats`](crate::subscription::RegistryStats).
    pub fn consume_spurious(mut self) {
        if let Some(figures) = self.0.take().and_then(Latch::figures) {
            figures.spurious.add_one();
        }
    }
}

impl Drop for Notification<'_> {
    fn drop(&mut self) {
        if let Some(latch) = self.0
            && !fault!(NotificationDiesWithWaiter)
        {
            latch.release(1);
        }
    }
}

/// How the notifications of some latches were consumed. Notifications passed on or pending do not count.
#[derive(Debug, Default)]
pub(crate) struct NotificationFigures {
    pub(crate) useful: Counter,
    pub(crate) spurious: Counter,
}
