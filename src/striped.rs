//! [`StripedSemaphores`]: a fixed array of semaphores, selected by name.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::semaphore::{AsyncSemaphore, SemaphorePermit};
use crate::support::sync::Lazy;

/// The number of stripes of Redisson's subscription service.
pub const DEFAULT_STRIPES: usize = if cfg!(latchwork_loom) { MODEL_STRIPES } else { 50 };

/// loom replays a model step by step, so no random hasher may select; nor can it track fifty semaphores.
const MODEL_STRIPES: usize = 1;

/// A fixed array of one-permit semaphores: lets one job at a time work on a name, in constant memory.
///
/// The same name always selects the same stripe. Jobs on different names run at once unless their names share
/// a stripe. By default the hash is SipHash with a random key: an attacker cannot choose names of one stripe.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use latchwork::striped::StripedSemaphores;
///
/// let stripes = StripedSemaphores::new();
/// let guard = stripes.for_name("orders").acquire().await;
/// assert!(stripes.for_name("orders").try_acquire().is_none());
/// drop(guard);
///
/// let transfer = stripes.acquire_all(["alice", "bob"]).await;
/// assert!(stripes.for_name("bob").try_acquire().is_none());
/// # drop(transfer);
/// # });
/// ```
///
/// # Several names at once
///
/// A task that takes stripes one by one can deadlock: with a task that takes the same stripes in another
/// order, and with itself, since two names may share a stripe. [`acquire_all`](Self::acquire_all) takes each
/// stripe once, in ascending order. Each stripe is as fair as an [`AsyncSemaphore`].
pub struct StripedSemaphores<S = RandomState> {
    inner: Lazy<Inner<S>>,
}

struct Inner<S> {
    stripes: Box<[Padded]>,
    hasher: S,
}

/// Alone on its cache lines, or threads on neighbouring stripes would slow each other down. x86 prefetches
/// lines of 64 bytes in pairs; some ARM cores have lines of 128.
#[repr(align(128))]
struct Padded(AsyncSemaphore);

impl<S> Inner<S> {
    fn new(stripes: usize, hasher: S) -> Self {
        Self { stripes: (0..stripes).map(|_| Padded(AsyncSemaphore::new(1))).collect(), hasher }
    }
}

crate::support::sync::maybe_const! {
    impl StripedSemaphores {
        /// Makes [`DEFAULT_STRIPES`] stripes on first use.
        pub fn new() -> Self {
            Self { inner: Lazy::new(|| Inner::new(DEFAULT_STRIPES, RandomState::new())) }
        }
    }
}

impl StripedSemaphores {
    /// Makes `stripes` stripes, at least one.
    ///
    /// # Panics
    ///
    /// If `stripes` is zero.
    pub fn with_stripes(stripes: usize) -> Self {
        Self::with_hasher(stripes, RandomState::new())
    }
}

impl<S: BuildHasher> StripedSemaphores<S> {
    /// Makes `stripes` stripes, selected by `hasher`.
    ///
    /// If an attacker can predict the hash, chosen names can all share one stripe and wait for each other.
    ///
    /// # Panics
    ///
    /// If `stripes` is zero.
    pub fn with_hasher(stripes: usize, hasher: S) -> Self {
        assert!(stripes > 0, "there must be at least one stripe");
        Self { inner: Lazy::of(Inner::new(stripes, hasher)) }
    }

    /// Returns the number of the stripe of `name`, from 0 to [`len`](Self::len) − 1.
    pub fn stripe_of(&self, name: &str) -> usize {
        self.stripe_of_hash(self.hash(name))
    }

    /// Returns the stripe of `name`, to be taken.
    pub fn for_name(&self, name: &str) -> Stripe<'_> {
        self.for_hash(self.hash(name))
    }

    /// Takes the stripes of all `names`, each once, in ascending order, waiting in the queue of each.
    ///
    /// `…_all` calls never deadlock with each other, but with a stripe taken by other means beside a guard.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases its stripes and leaves the queue. Until then it keeps granted stripes.
    pub fn acquire_all<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> impl Future<Output = StripesGuard<'_>> {
        let stripes = self.in_order(names);
        async move {
            let mut taken = Vec::with_capacity(stripes.len());
            for stripe in stripes {
                taken.push(self.stripe(stripe).acquire().await);
            }
            StripesGuard(taken)
        }
    }

    /// Takes the stripes of all `names` if all are free now; otherwise takes no stripe.
    pub fn try_acquire_all<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Option<StripesGuard<'_>> {
        let taken = self.in_order(names).into_iter().map(|stripe| self.stripe(stripe).try_acquire());
        taken.collect::<Option<_>>().map(StripesGuard)
    }

    /// As [`acquire_all`](Self::acquire_all), blocking this thread.
    pub fn blocking_acquire_all<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> StripesGuard<'_> {
        let taken = self.in_order(names).into_iter().map(|stripe| self.stripe(stripe).blocking_acquire());
        StripesGuard(taken.collect())
    }

    fn in_order<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Vec<usize> {
        let mut stripes: Vec<usize> = names.into_iter().map(|name| self.stripe_of(name.as_ref())).collect();
        // Sorted and deduplicated, or two tasks could wait for each other's stripe, and a task for its own.
        stripes.sort_unstable();
        stripes.dedup();
        stripes
    }

    /// Returns the hash of `name`, for stripes and for the registry's map.
    pub(crate) fn hash(&self, name: &str) -> u64 {
        self.inner.hasher.hash_one(name)
    }

    pub(crate) fn for_hash(&self, hash: u64) -> Stripe<'_> {
        self.stripe(self.stripe_of_hash(hash))
    }
}

impl<S> StripedSemaphores<S> {
    /// Returns the number of stripes.
    #[expect(clippy::len_without_is_empty, reason = "there always is at least one stripe")]
    pub fn len(&self) -> usize {
        self.inner.stripes.len()
    }

    fn stripe_of_hash(&self, hash: u64) -> usize {
        // The remainder is less than `len`, so it fits.
        (hash % self.len() as u64) as usize
    }

    fn stripe(&self, number: usize) -> Stripe<'_> {
        Stripe(&self.inner.stripes[number].0)
    }
}

impl Default for StripedSemaphores {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> fmt::Debug for StripedSemaphores<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.len()).map(|number| self.stripe(number))).finish()
    }
}

/// One of the [`StripedSemaphores`]; taking it returns a [`StripeGuard`].
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
pub struct Stripe<'a>(&'a AsyncSemaphore);

impl<'a> Stripe<'a> {
    /// Takes the stripe, waiting in its queue.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; a stripe already granted passes to the next waiter.
    pub async fn acquire(self) -> StripeGuard<'a> {
        StripeGuard(self.0.acquire().await.expect("a stripe is never closed"))
    }

    /// Takes the stripe if free now.
    pub fn try_acquire(self) -> Option<StripeGuard<'a>> {
        self.0.try_acquire().ok().map(StripeGuard)
    }

    /// Takes the stripe, blocking this thread until free.
    pub fn blocking_acquire(self) -> StripeGuard<'a> {
        // Skips the set-up of a wait if the stripe is free. Overtakes no waiter: then no permit is free.
        self.try_acquire()
            .unwrap_or_else(|| StripeGuard(self.0.blocking_acquire().expect("a stripe is never closed")))
    }

    /// Takes the stripe, blocking this thread until free, for `timeout` at most.
    pub fn blocking_acquire_timeout(self, timeout: Duration) -> Option<StripeGuard<'a>> {
        self.0.blocking_acquire_timeout(1, timeout).ok().map(StripeGuard)
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
#[derive(Debug)]
#[must_use = "dropping the guard gives the stripe back at once"]
pub struct StripeGuard<'a>(#[expect(dead_code, reason = "held, and dropped")] SemaphorePermit<'a>);

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
#[derive(Debug)]
#[must_use = "dropping the guard gives the stripes back at once"]
pub struct StripesGuard<'a>(Vec<StripeGuard<'a>>);

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
