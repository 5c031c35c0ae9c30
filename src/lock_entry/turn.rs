//! Whose turn it is: one of all who wait for a name in this process competes for it, and the others stand behind it in line.
//!
//! Without turns each release on the store would be a race of this process's own waiters, and each waiter would have to ask
//! the store for itself.

use std::fmt;
use std::time::Instant;

use crate::semaphore::{AsyncSemaphore, SemaphorePermit};
use crate::sync::Mutex;

pub(super) struct Turns {
    /// One permit: the turn.
    line: AsyncSemaphore,
    taken_until: Mutex<Option<Instant>>,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { line: AsyncSemaphore::new(1), taken_until: Mutex::new(None) }
    }

    pub(super) async fn take(&self) -> Turn<'_> {
        let permit = self.line.acquire().await.expect("this line is never closed");
        Turn { turns: self, taken_until: self.taken_until.lock().take(), _permit: permit }
    }

    pub(super) fn waiters(&self) -> usize {
        self.line.waiters()
    }
}

/// The turn to compete for what an entry is about; made by [`LockEntry::turn`](crate::LockEntry::turn).
///
/// Dropping it gives it to the next in line.
#[must_use = "dropping a turn gives it to the next in line"]
pub struct Turn<'a> {
    turns: &'a Turns,
    taken_until: Option<Instant>,
    _permit: SemaphorePermit<'a>,
}

impl Turn<'_> {
    /// Until when what this is about is known to be taken, if who had the turn before has said so by
    /// [`pass_on`](Self::pass_on). Should it be let go of earlier, a message comes, or has come and is kept by the latch.
    pub fn taken_until(&self) -> Option<Instant> {
        self.taken_until
    }

    /// Gives the turn to the next in line, who need not ask whether it can have what this is about: it is taken until then, and all
    /// messages since that is known have been kept by the latch.
    pub fn pass_on(self, taken_until: Option<Instant>) {
        *self.turns.taken_until.lock() = taken_until;
    }
}

impl fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("taken_until", &self.taken_until).finish_non_exhaustive()
    }
}
