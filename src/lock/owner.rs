//! [`Owner`]: who holds a lock.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::holds::Holds;

/// Who holds a lock, as an explicit handle: `<client's uuid>:<number>`.
///
/// A lock that an owner holds can be taken again by the same owner. Redisson derives the owner from the thread; tasks move
/// between threads, so here it is a value that is passed around. Clones are the same owner.
///
/// An owner acts through the client that made it, which knows how often it has each lock.
#[derive(Clone)]
pub struct Owner(Arc<Identity>);

struct Identity {
    text: Box<str>,
    holds: Holds,
}

impl Owner {
    pub(super) fn new(client: &str, number: u64) -> Self {
        let text = [client, ":", &number.to_string()].concat().into_boxed_str();
        Self(Arc::new(Identity { text, holds: Holds::default() }))
    }

    /// The owner's text, as it is written to the store.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    pub(super) fn holds(&self) -> &Holds {
        &self.0.holds
    }

    /// Whether nobody but the caller can act by this owner.
    pub(super) fn has_one_handle(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    #[cfg(test)]
    pub(super) fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Owner {}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({})", self.as_str())
    }
}
