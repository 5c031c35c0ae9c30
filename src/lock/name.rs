//! [`LockName`]: a name that every backend can keep a lock under.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

/// The name of a lock: of 1 to [`MAX_BYTES`](Self::MAX_BYTES) bytes, with balanced braces, and not reserved.
///
/// Stores keep queues, counters and leases beside a lock. So a name is refused that
///
/// * begins with `latchwork_`, or contains `:latchwork:`;
/// * is `redisson_lock_token`, `redisson_lock_queue`, `redisson_lock_timeout`, `redisson_lock__channel`,
///   `redisson_rwlock` or `redisson_unlock_latch`, or begins with one of these and a colon;
/// * contains `:rwlock_timeout`, as the leases of Redisson's readers do.
///
/// # Examples
///
/// ```
/// use latchwork::NameError;
/// use latchwork::lock::LockName;
///
/// assert!(LockName::new("orders:{42}").is_ok());
/// assert_eq!(LockName::new("orders:{42"), Err(NameError::UnbalancedBraces));
/// assert!(LockName::new("redisson_lock_token:{orders}").is_err());
/// ```
#[derive(Clone, Eq, PartialOrd, Ord)]
pub struct LockName {
    text: Arc<str>,
    /// Computed once: every step of a lock looks the name up in some map.
    hash: u64,
}

/// Beginnings, up to a colon, of the keys that Redisson keeps for a lock.
const REDISSONS: [&str; 6] = [
    "redisson_lock_token",
    "redisson_lock_queue",
    "redisson_lock_timeout",
    "redisson_lock__channel",
    "redisson_rwlock",
    "redisson_unlock_latch",
];

/// Mark of the keys that a backend of this crate keeps for a lock, behind the lock's name.
const OURS: &str = ":latchwork:";
const OURS_IN_FRONT: &str = "latchwork_";
/// Mark of the leases of a read-write lock's readers, behind the lock's name and the reader's id.
const READERS_LEASE: &str = ":rwlock_timeout";

/// Returns the part of the name that makes the name a key of another lock.
fn reserved(name: &str) -> Option<&'static str> {
    let is_redissons =
        |key: &&str| name.strip_prefix(*key).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
    let inside = [OURS, READERS_LEASE].into_iter().find(|mark| name.contains(mark));
    let in_front = name.starts_with(OURS_IN_FRONT).then_some(OURS_IN_FRONT);
    inside.or(in_front).or_else(|| REDISSONS.into_iter().find(is_redissons))
}

/// One key per process, so that names cannot be chosen to collide.
static HASH_KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl LockName {
    /// The longest name, in bytes of UTF-8.
    pub const MAX_BYTES: usize = 512;

    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`NameError`] says which rule it breaks.
    pub fn new(name: &str) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.len() > Self::MAX_BYTES {
            return Err(NameError::TooLong { bytes: name.len() });
        }
        let mut open = 0_usize;
        for byte in name.bytes() {
            match byte {
                b'{' => open += 1,
                b'}' => open = open.checked_sub(1).ok_or(NameError::UnbalancedBraces)?,
                _ => {}
            }
        }
        if open > 0 {
            return Err(NameError::UnbalancedBraces);
        }
        if let Some(part) = reserved(name) {
            return Err(NameError::Reserved { part });
        }
        Ok(Self { text: Arc::from(name), hash: Self::hash_of(name) })
    }

    pub(crate) fn hash_of(name: &str) -> u64 {
        HASH_KEY.hash_one(name)
    }

    pub(crate) fn hash_value(&self) -> u64 {
        self.hash
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for LockName {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // An `Arc<str>` compares the text even with itself.
        Arc::ptr_eq(&self.text, &other.text) || self.text == other.text
    }
}

impl Hash for LockName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// Why a name is refused.
///
/// # Examples
///
/// ```
/// use latchwork::NameError;
/// use latchwork::lock::LockName;
///
/// assert_eq!(LockName::new(""), Err(NameError::Empty));
/// assert_eq!(LockName::new(&"x".repeat(600)), Err(NameError::TooLong { bytes: 600 }));
/// assert!(matches!(LockName::new("redisson_rwlock:a"), Err(NameError::Reserved { .. })));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    Empty,
    /// The name is longer than [`LockName::MAX_BYTES`].
    TooLong {
        /// Length of the name.
        bytes: usize,
    },
    /// Braces are not balanced: in a Redis Cluster lock and channel would lie on different nodes.
    UnbalancedBraces,
    /// Empty first braces, refused by a Redis Cluster: lock and channel would lie on different nodes.
    EmptyHashTag,
    /// Data of another lock has this name, or may have: see [`LockName`].
    Reserved {
        /// The reserved part of the name.
        part: &'static str,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the lock's name is empty; give it at least one character"),
            Self::TooLong { bytes } => write!(
                f,
                "the lock's name has {bytes} bytes; use at most {}, for instance a hash of the long name",
                LockName::MAX_BYTES
            ),
            Self::UnbalancedBraces => f.write_str(
                "the braces in the lock's name are not balanced; close every '{' with a '}', or use neither",
            ),
            Self::EmptyHashTag => f.write_str(
                "the first braces in the lock's name have nothing between them, which cannot be in a Redis Cluster; put something \
                 into them, or leave them out",
            ),
            Self::Reserved { part } => write!(
                f,
                "{part:?} in the lock's name is kept for what belongs to other locks, such as their queues and counters; choose a \
                 name without it"
            ),
        }
    }
}

impl Error for NameError {}

/// Maps a user's name of a lock to the store's name; by default to the same.
#[derive(Clone, Default)]
pub(super) struct NameMapper(Option<Arc<Map>>);

type Map = dyn Fn(&str) -> String + Send + Sync;

impl NameMapper {
    pub(super) fn new(map: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(map)))
    }

    pub(super) fn map<'a>(&self, name: &'a str) -> Cow<'a, str> {
        self.0.as_ref().map_or(Cow::Borrowed(name), |map| Cow::Owned(map(name)))
    }
}

impl fmt::Debug for NameMapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "NameMapper(..)" } else { "NameMapper(same)" })
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;

    #[test]
    fn names_are_ordered_as_their_texts_and_equal_if_these_are() {
        let [a, b, other] = ["a", "b", "a"].map(|name| LockName::new(name).unwrap());
        assert_eq!([a.cmp(&b), b.cmp(&a)], [Ordering::Less, Ordering::Greater]);
        assert_ne!(a, b);
        assert!(a == other && a <= other && !Arc::ptr_eq(&a.text, &other.text));
    }
}
