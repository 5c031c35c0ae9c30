//! [`Call`] and [`Answer`]: what a thread of a round asks its semaphore, and what it is told.

/// One call. Requests are those of the caller's hand, by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Makes a future and polls it, or polls one again, with another waker.
    Poll {
        /// Whose future it is.
        request: usize,
        /// Permits that it waits for.
        need: usize,
    },
    /// Drops a future that waits.
    Cancel {
        /// Whose future it is.
        request: usize,
    },
    /// Tries.
    Try {
        /// The waiters that are to have them.
        request: usize,
        /// So many or none.
        permits: usize,
    },
    /// `acquire_up_to` at least one, and gives all back at once, or gives up.
    PassBy(usize),
    /// Gives permits back.
    PendingRelease {
        /// The waiters that have them.
        request: usize,
        /// How many.
        permits: usize,
    },
    /// Makes permits.
    Add(usize),
    /// Makes the permits so many in all.
    SetCapacity(usize),
    /// Takes free permits out of existence, up to so many.
    ForgetPermits(usize),
    /// Notifies a latch.
    Notify(usize),
    /// Asks how many are free.
    Free,
    /// Walks along the line.
    Look,
    /// Closes the semaphore.
    Close,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing is said.
    Done,
    /// So many permits are the caller's.
    Holds(usize),
    /// The future waits.
    Pending,
    /// Too few are free.
    NoPermits,
    /// The semaphore is closed.
    Closed,
    /// A figure.
    Number(usize),
}
