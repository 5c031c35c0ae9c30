//! Whose turn it is: one of all who wait for a name in this process competes for it, and the others stand behind it in line.
//!
//! Without turns each release on the store would be a race of this process's own waiters, and each waiter would have to ask
//! the store for itself.

use std::fmt;

use crate::semaphore::{AsyncSemaphore, SemaphorePermit};

/// The turn to compete for what an entry is about; made by [`LockEntry::turn`](crate::LockEntry::turn).
///
/// Dropping it gives it to the next in line.
#[must_use = "dropping a turn gives it to the next in line"]
pub struct Turn<'a> {
    _permit: SemaphorePermit<'a>,
}

impl<'a> Turn<'a> {
    /// `line`: of one permit, the turn.
    pub(super) async fn take(line: &'a AsyncSemaphore) -> Self {
        Self { _permit: line.acquire().await.expect("this line is never closed") }
    }
}

impl fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}
