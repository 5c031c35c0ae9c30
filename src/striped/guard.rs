//! [`StripeGuard`] and [`StripesGuard`]: held stripes, released on drop.

use std::fmt;

use crate::semaphore::SemaphorePermit;

/// One held stripe, released only by dropping the guard.
///
/// Not a [`SemaphorePermit`], which can be forgotten: a stripe without its permit is dead.
///
/// # Examples
///
/// ```
/// use latchwork::striped::StripedSemaphores;
///
/// let stripes = StripedSemaphores::new();
/// let guard = stripes.for_name("orders:42").blocking_acquire();
/// assert!(stripes.for_name("orders:42").try_acquire().is_none());
/// drop(guard);
/// assert!(stripes.for_name("orders:42").try_acquire().is_some());
/// ```
#[must_use = "dropping the guard gives the stripe back at once"]
pub struct StripeGuard<'a>(#[expect(dead_code, reason = "held, and dropped")] SemaphorePermit<'a>);

impl<'a> StripeGuard<'a> {
    pub(super) fn new(permit: SemaphorePermit<'a>) -> Self {
        Self(permit)
    }
}

impl fmt::Debug for StripeGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StripeGuard").finish_non_exhaustive()
    }
}

/// Several held stripes; dropping the guard releases all.
///
/// # Examples
///
/// ```
/// use latchwork::striped::StripedSemaphores;
///
/// let stripes = StripedSemaphores::with_stripes(1); // so that any two names share it
/// let transfer = stripes.blocking_acquire_all(["alice", "bob"]);
/// assert_eq!(transfer.len(), 1);
/// drop(transfer);
/// assert_eq!(stripes.for_name("alice").holders(), 0);
/// ```
#[must_use = "dropping the guard gives the stripes back at once"]
pub struct StripesGuard<'a>(pub(super) Vec<StripeGuard<'a>>);

impl StripesGuard<'_> {
    /// Returns the number of stripes: as many as names, or fewer if names share a stripe.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if no names were given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for StripesGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StripesGuard").field("stripes", &self.len()).finish()
    }
}
