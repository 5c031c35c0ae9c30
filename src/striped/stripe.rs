//! [`Stripe`]: one of the striped semaphores, for taking it and nothing else.

use std::fmt;
use std::time::Duration;

use crate::semaphore::AsyncSemaphore;

use super::guard::StripeGuard;

/// One of the [`StripedSemaphores`](crate::striped::StripedSemaphores); its holder has a [`StripeGuard`].
///
/// It does not show its semaphore, whose permits could be forgotten, and which could be closed, with all
/// names that fall on it.
///
/// # Examples
///
/// ```
/// use latchwork::striped::StripedSemaphores;
///
/// let stripes = StripedSemaphores::new();
/// let stripe = stripes.for_name("orders:42");
/// let guard = stripe.try_acquire().expect("it is free");
/// assert!(stripe.try_acquire().is_none());
/// drop(guard);
/// assert_eq!(stripe.holders(), 0);
/// ```
#[derive(Clone, Copy)]
pub struct Stripe<'a>(&'a AsyncSemaphore);

impl<'a> Stripe<'a> {
    pub(super) fn new(semaphore: &'a AsyncSemaphore) -> Self {
        Self(semaphore)
    }

    /// Takes the stripe, waiting in its queue.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the position in the queue; a stripe that was assigned already passes to
    /// the next waiter.
    pub async fn acquire(self) -> StripeGuard<'a> {
        StripeGuard::new(self.0.acquire().await.expect("a stripe is never closed"))
    }

    /// Takes the stripe if it is free now.
    pub fn try_acquire(self) -> Option<StripeGuard<'a>> {
        self.0.try_acquire().ok().map(StripeGuard::new)
    }

    /// Takes the stripe, blocking this thread until it is free.
    pub fn blocking_acquire(self) -> StripeGuard<'a> {
        // Without the set-up of a wait where none is needed. This overtakes no waiter: no permit is free
        // while one waits.
        self.try_acquire()
            .unwrap_or_else(|| StripeGuard::new(self.0.blocking_acquire().expect("a stripe is never closed")))
    }

    /// Takes the stripe, blocking this thread until it is free or `timeout` is over.
    pub fn blocking_acquire_timeout(self, timeout: Duration) -> Option<StripeGuard<'a>> {
        self.0.blocking_acquire_timeout(1, timeout).ok().map(StripeGuard::new)
    }

    /// The number of holders: one or none.
    pub fn holders(self) -> usize {
        self.0.held()
    }

    /// The number of waiters. One that was assigned the stripe and has not been polled since counts here and
    /// as its holder.
    pub fn waiters(self) -> usize {
        self.0.waiters()
    }
}

impl fmt::Debug for Stripe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stripe").field("holders", &self.holders()).field("waiters", &self.waiters()).finish()
    }
}
