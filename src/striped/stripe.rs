//! [`Stripe`]: one of the striped semaphores.

use std::fmt;
use std::time::Duration;

use crate::semaphore::AsyncSemaphore;

use super::guard::StripeGuard;

/// One of the [`StripedSemaphores`](crate::striped::StripedSemaphores); taking it returns a [`StripeGuard`].
///
/// Hides its semaphore: with permits forgotten, or once closed, the stripe would be dead, with all its names.
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
pub struct Stripe<'a>(pub(super) &'a AsyncSemaphore);

impl<'a> Stripe<'a> {
    /// Takes the stripe, waiting in its queue.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; a stripe already granted passes to the next waiter.
    pub async fn acquire(self) -> StripeGuard<'a> {
        StripeGuard::new(self.0.acquire().await.expect("a stripe is never closed"))
    }

    /// Takes the stripe if free now.
    pub fn try_acquire(self) -> Option<StripeGuard<'a>> {
        self.0.try_acquire().ok().map(StripeGuard::new)
    }

    /// Takes the stripe, blocking this thread until free.
    pub fn blocking_acquire(self) -> StripeGuard<'a> {
        // Skips the set-up of a wait if the stripe is free. Overtakes no waiter: then no permit is free.
        self.try_acquire()
            .unwrap_or_else(|| StripeGuard::new(self.0.blocking_acquire().expect("a stripe is never closed")))
    }

    /// Takes the stripe, blocking this thread until free, for `timeout` at most.
    pub fn blocking_acquire_timeout(self, timeout: Duration) -> Option<StripeGuard<'a>> {
        self.0.blocking_acquire_timeout(1, timeout).ok().map(StripeGuard::new)
    }

    /// Returns the number of holders: one or none.
    pub fn holders(self) -> usize {
        self.0.held()
    }

    /// Returns the number of waiters. A granted waiter, until polled, also counts as the holder.
    pub fn waiters(self) -> usize {
        self.0.waiters()
    }
}

impl fmt::Debug for Stripe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stripe").field("holders", &self.holders()).field("waiters", &self.waiters()).finish()
    }
}
