//! [`LockName`]: a name that every backend can keep a lock under.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The name of a lock: not empty, at most [`MAX_BYTES`](Self::MAX_BYTES) long, its braces balanced.
///
/// # Examples
///
/// ```
/// use latchwork::{LockName, NameError};
///
/// assert!(LockName::new("orders:{42}").is_ok());
/// assert_eq!(LockName::new("orders:{42"), Err(NameError::UnbalancedBraces));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockName(Arc<str>);

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
        Ok(Self(Arc::from(name)))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Why a name is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    Empty,
    /// The name is longer than [`LockName::MAX_BYTES`].
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// A `{` has no `}`, or the other way round. In a Redis Cluster the lock and its channel would then lie on different
    /// nodes, and its waiters would never be woken.
    UnbalancedBraces,
    /// The first braces have nothing between them. Only a Redis Cluster refuses that: the lock and its channel would lie on different
    /// nodes there.
    EmptyHashTag,
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
        }
    }
}

impl Error for NameError {}
