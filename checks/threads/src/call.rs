//! [`Call`] and [`Answer`]: a thread's call to its semaphore, and the reply.

/// A call. `request` is an index into the requests of the caller's hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Polls a new future, or an existing future again with another waker.
    Poll {
        /// The future's request.
        request: usize,
        /// Permits needed by the future.
        need: usize,
    },
    /// Drops a pending future.
    Cancel {
        /// The future's request.
        request: usize,
    },
    /// Tries to acquire.
    Try {
        /// The request for the permits.
        request: usize,
        /// Number of permits, all or nothing.
        permits: usize,
    },
    /// `acquire_up_to` at least one, and releases all at once, or gives up.
    PassBy(usize),
    /// Releases permits.
    PendingRelease {
        /// The request with the permits.
        request: usize,
        /// Number of permits.
        permits: usize,
    },
    /// Adds permits.
    Add(usize),
    /// Sets the total number of permits.
    SetCapacity(usize),
    /// Removes free permits, up to this number.
    ForgetPermits(usize),
    /// Notifies a latch.
    Notify(usize),
    /// Asks for the number of free permits.
    Free,
    /// Walks over the queue.
    Look,
    /// Closes the semaphore.
    Close,
}

/// The reply to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No value.
    Done,
    /// The caller holds this number of permits.
    Holds(usize),
    /// The future is pending.
    Pending,
    /// Too few permits are free.
    NoPermits,
    /// The semaphore is closed.
    Closed,
    /// A number.
    Number(usize),
}
