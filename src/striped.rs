//! [`StripedSemaphores`]: a fixed array of semaphores, one of which a name selects.

mod guard;
mod stripe;

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use crate::semaphore::AsyncSemaphore;
use crate::support::sync::Lazy;

pub use self::guard::{StripeGuard, StripesGuard};
pub use self::stripe::Stripe;

/// As many stripes as Redisson's subscription service has.
pub const DEFAULT_STRIPES: usize = if cfg!(latchwork_loom) { MODEL_STRIPES } else { 50 };

/// One stripe in a model: which of several a name falls on would depend on the hasher's seed, and loom
/// replays a model step by step. It would also have to keep book of fifty semaphores.
const MODEL_STRIPES: usize = 1;

/// An array of one-permit semaphores; the same name always selects the same one.
///
/// It orders work on one name without keeping anything per name: two jobs for one name never run at once, two
/// for different names do unless their names share a stripe. By default the hash is SipHash with a random
/// key, so an attacker cannot choose names that all fall on one stripe.
///
/// # Several names at once
///
/// Taking one stripe after another by hand can deadlock with a task that takes them in another order, and
/// with itself, since two names may share a stripe. [`acquire_all`](Self::acquire_all) takes each stripe
/// once, in the order of their numbers.
///
/// # Fairness
///
/// That of [`AsyncSemaphore`], for each stripe.
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
pub struct StripedSemaphores<S = RandomState> {
    inner: Lazy<Inner<S>>,
}

struct Inner<S> {
    stripes: Box<[Padded]>,
    hasher: S,
}

/// Alone on its cache lines: threads that work on neighbouring stripes would slow each other down otherwise.
/// 128 bytes, because x86 prefetches lines in pairs and some ARM cores have lines of that size.
#[repr(align(128))]
struct Padded(AsyncSemaphore);

impl<S> Inner<S> {
    fn new(stripes: usize, hasher: S) -> Self {
        Self { stripes: (0..stripes).map(|_| Padded(AsyncSemaphore::new(1))).collect(), hasher }
    }
}

crate::support::sync::maybe_const! {
    impl StripedSemaphores {
        /// Makes [`DEFAULT_STRIPES`] stripes, with the first use.
        pub fn new() -> Self {
            Self { inner: Lazy::new(|| Inner::new(DEFAULT_STRIPES, RandomState::new())) }
        }
    }
}

impl StripedSemaphores {
    /// Makes `stripes` stripes.
    ///
    /// # Panics
    ///
    /// If `stripes` is zero.
    pub fn with_stripes(stripes: usize) -> Self {
        Self::with_hasher(stripes, RandomState::new())
    }
}

impl<S: BuildHasher> StripedSemaphores<S> {
    /// Makes `stripes` stripes among which `hasher` chooses.
    ///
    /// With a hash that can be foreseen, an attacker that chooses the names can make all of them fall on one
    /// stripe, where they wait for each other.
    ///
    /// # Panics
    ///
    /// If `stripes` is zero.
    pub fn with_hasher(stripes: usize, hasher: S) -> Self {
        assert!(stripes > 0, "there must be at least one stripe");
        Self { inner: Lazy::of(Inner::new(stripes, hasher)) }
    }

    /// The stripe of `name`, from 0 to [`len`](Self::len) − 1.
    pub fn stripe_of(&self, name: &str) -> usize {
        self.stripe_of_hash(self.hash(name))
    }

    /// The stripe of `name`, to be taken.
    pub fn for_name(&self, name: &str) -> Stripe<'_> {
        self.for_hash(self.hash(name))
    }

    /// Takes the stripes of all `names`, each once, in the order of their numbers, waiting in the queue of
    /// each.
    ///
    /// Calls of this, and of its kin below, never deadlock with each other. Taking one more stripe by other
    /// means while a guard of this lives can.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives back the stripes that it has, and its position in a queue. A future that is
    /// neither polled nor dropped keeps the stripes that it was assigned.
    pub fn acquire_all<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> impl Future<Output = StripesGuard<'_>> {
        let stripes = self.in_order(names);
        async move {
            let mut taken = StripesGuard::with_room(stripes.len());
            for stripe in stripes {
                taken.push(self.stripe(stripe).acquire().await);
            }
            taken
        }
    }

    /// Takes the stripes of all `names` if they are free now; none of them if one is not.
    pub fn try_acquire_all<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Option<StripesGuard<'_>> {
        let stripes = self.in_order(names);
        let mut taken = StripesGuard::with_room(stripes.len());
        for stripe in stripes {
            taken.push(self.stripe(stripe).try_acquire()?);
        }
        Some(taken)
    }

    /// As [`acquire_all`](Self::acquire_all), blocking this thread until it has them.
    pub fn blocking_acquire_all<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> StripesGuard<'_> {
        let stripes = self.in_order(names);
        let mut taken = StripesGuard::with_room(stripes.len());
        for stripe in stripes {
            taken.push(self.stripe(stripe).blocking_acquire());
        }
        taken
    }

    /// The stripes of `names`, in the order in which every caller takes them, each once.
    fn in_order<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Vec<usize> {
        let mut stripes: Vec<usize> = names.into_iter().map(|name| self.stripe_of(name.as_ref())).collect();
        // Without an order, two tasks that want the same two stripes can each have one and wait for the
        // other's; and a task that takes a stripe twice waits for itself.
        stripes.sort_unstable();
        stripes.dedup();
        stripes
    }

    /// The hash by which a name selects its stripe; the registry's map uses it as well.
    pub(crate) fn hash(&self, name: &str) -> u64 {
        self.inner.hasher.hash_one(name)
    }

    /// The stripe of the name that has this hash.
    pub(crate) fn for_hash(&self, hash: u64) -> Stripe<'_> {
        self.stripe(self.stripe_of_hash(hash))
    }
}

impl<S> StripedSemaphores<S> {
    /// How many stripes there are.
    #[expect(clippy::len_without_is_empty, reason = "there always is at least one stripe")]
    pub fn len(&self) -> usize {
        self.inner.stripes.len()
    }

    fn stripe_of_hash(&self, hash: u64) -> usize {
        // The remainder is less than `len`, so it fits.
        (hash % self.len() as u64) as usize
    }

    fn stripe(&self, number: usize) -> Stripe<'_> {
        Stripe::new(&self.inner.stripes[number].0)
    }
}

impl Default for StripedSemaphores {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> fmt::Debug for StripedSemaphores<S> {
    /// Shows of each stripe how many hold it and how many wait for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.len()).map(|number| self.stripe(number))).finish()
    }
}
