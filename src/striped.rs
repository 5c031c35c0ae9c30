//! [`StripedSemaphores`]: a fixed row of semaphores, one of which a name picks.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use crate::semaphore::AsyncSemaphore;

/// As many stripes as Redisson's subscription service has.
pub const DEFAULT_STRIPES: usize = 50;

/// A row of one-permit semaphores; the same name always picks the same one.
///
/// It orders work on one name without keeping anything per name: two jobs for one name never run at once, two for different
/// names do unless their names share a stripe. The hash is seeded anew for every row, so nobody outside can choose names
/// that all fall on one stripe.
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
/// use latchwork::StripedSemaphores;
///
/// let stripes = StripedSemaphores::new();
/// let turn = stripes.for_name("orders").acquire().await.expect("never closed");
/// assert!(stripes.for_name("orders").try_acquire().is_err());
/// drop(turn);
/// # });
/// ```
pub struct StripedSemaphores {
    stripes: Box<[Padded]>,
    hasher: RandomState,
}

/// Alone on its cache lines: threads that work on neighbouring stripes would slow each other down otherwise.
/// 128 bytes, because x86 prefetches lines in pairs and some ARM cores have lines of that size.
#[repr(align(128))]
struct Padded(AsyncSemaphore);

impl StripedSemaphores {
    /// Makes [`DEFAULT_STRIPES`] stripes.
    pub fn new() -> Self {
        Self::with_stripes(DEFAULT_STRIPES)
    }

    /// Makes `stripes` stripes.
    ///
    /// # Panics
    ///
    /// If `stripes` is zero.
    pub fn with_stripes(stripes: usize) -> Self {
        assert!(stripes > 0, "a row of stripes needs at least one");
        Self {
            stripes: (0..stripes).map(|_| Padded(AsyncSemaphore::new(1))).collect(),
            hasher: RandomState::new(),
        }
    }

    /// The stripe of `name`, from 0 to [`len`](Self::len) − 1.
    pub fn stripe_of(&self, name: &str) -> usize {
        // The remainder is less than `len`, so it fits.
        (self.hasher.hash_one(name) % self.stripes.len() as u64) as usize
    }

    /// The semaphore of `name`.
    pub fn for_name(&self, name: &str) -> &AsyncSemaphore {
        &self.stripes[self.stripe_of(name)].0
    }

    /// How many stripes there are.
    #[expect(clippy::len_without_is_empty, reason = "there always is at least one stripe")]
    pub fn len(&self) -> usize {
        self.stripes.len()
    }
}

impl Default for StripedSemaphores {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for StripedSemaphores {
    /// Shows the stripes that are held now, by their number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut held = f.debug_map();
        for (number, stripe) in self.stripes.iter().enumerate() {
            if stripe.0.available_permits() == 0 {
                held.entry(&number, &stripe.0);
            }
        }
        held.finish()
    }
}
