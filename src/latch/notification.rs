//! [`Notification`]: a wake-up that a waiter has received and not yet consumed; and [`NotificationFigures`]:
//! what notifications were good for.

use crate::support::counter::Counter;
use crate::support::fault::fault;

use super::Latch;

/// A wake-up that a waiter has received and not yet consumed.
///
/// Dropping it passes it to the next waiter: a task that is cancelled between waking up and doing what it was
/// woken for must not take the notification with it. [`consume`](Self::consume) and
/// [`consume_spurious`](Self::consume_spurious) end it, so that no other waiter wakes up for it.
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

    /// Ends the notification; it was worth waking up for.
    pub fn consume(mut self) {
        if let Some(figures) = self.0.take().and_then(Latch::figures) {
            figures.useful.add_one();
        }
    }

    /// Ends the notification; it was spurious: what it announced was gone already.
    ///
    /// The same as [`consume`](Self::consume), but for the figures (see
    /// [`RegistryStats`](crate::subscription::RegistryStats)).
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

/// How the notifications of some latches were consumed. One that is passed on, or stays pending, counts as
/// neither.
#[derive(Debug, Default)]
pub(crate) struct NotificationFigures {
    pub(crate) useful: Counter,
    pub(crate) spurious: Counter,
}
