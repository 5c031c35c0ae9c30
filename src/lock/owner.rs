//! [`Owner`]: who holds a lock.

use std::fmt;
use std::sync::Arc;

/// Who holds a lock, as an explicit handle: `<client's uuid>:<number>`.
///
/// A lock that an owner holds can be taken again by the same owner. Redisson derives the owner from the thread; tasks move
/// between threads, so here it is a value that is passed around. Clones are the same owner.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    pub(super) fn new(client: &str, number: u64) -> Self {
        Self(Arc::from(format!("{client}:{number}")))
    }

    /// The owner's text, as it is written to the store.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({})", self.0)
    }
}
