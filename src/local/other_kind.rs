//! [`OtherKind`]: the one error of a store in memory.

use std::error::Error;
use std::fmt;

use crate::lock::LockKind;

/// The name is held as another kind of lock, and nothing was changed. Give each kind of lock names of its
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherKind(LockKind);

impl OtherKind {
    pub(super) fn new(found: LockKind) -> Self {
        Self(found)
    }

    /// The kind that it is held as.
    pub fn found(&self) -> LockKind {
        self.0
    }
}

impl fmt::Display for OtherKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name is held as a {}", self.0)
    }
}

impl Error for OtherKind {}
