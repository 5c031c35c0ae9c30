//! What an event of the engine leaves to be done, once its mutex is free.

use std::task::Waker;
use std::time::Instant;

use super::request::LossReason;
use super::wakes;

/// What an event of a [`LockEntry`](super::LockEntry) leaves to be done by its client. Dropping it wakes the waiters that the event concerns, so
/// carry out the rest before.
#[derive(Debug, Default)]
#[must_use = "the store may have to be told"]
#[non_exhaustive]
pub struct Actions {
    /// To be woken. The first one is apart, as there is seldom more than one, and a release must not allocate.
    pub(super) waker: Option<Waker>,
    pub(super) wakers: Vec<Waker>,
    /// To be dropped.
    pub(super) dropped: Option<Waker>,
    /// A lease that is to be released in the background, until the store has answered or the lease is over.
    pub give_back: Option<GiveBack>,
    /// The same, after an attempt that may still be on its way to the store. The release must not take effect before it does.
    pub roll_back: Option<GiveBack>,
    /// A hold was lost that somebody has a grant of.
    pub lost: Option<LossReason>,
    /// A queue head was superseded: call all who sleep for this name, wherever else than on the entry's latch they do. A notification that
    /// came to the superseded one would stay with it.
    pub call: bool,
    /// When to call [`tick`](super::LockEntry::tick) at the latest.
    pub look_at: Option<Instant>,
    /// How many hand-offs in memory this was.
    pub handed_off: u32,
    /// How many waiters were superseded.
    pub superseded: u32,
}

/// A lease that the store is to have back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveBack {
    /// The lease's number.
    pub number: u64,
    /// When the lease is over in any case; `None`: never.
    pub until: Option<Instant>,
    /// Whether the next waiter is appointed once the release was answered: see
    /// [`LockEntry::returned`](super::LockEntry::returned).
    pub appoints: bool,
}

impl Actions {
    pub(super) fn wake(&mut self, waker: Option<Waker>) {
        match (waker, &self.waker) {
            (None, _) => {}
            (waker, None) => self.waker = waker,
            (Some(waker), Some(_)) => self.wakers.push(waker),
        }
    }

    /// Foreign code, as a waker's drop is, runs only when the mutex is free.
    pub(super) fn drop_later(&mut self, waker: Option<Waker>) {
        match (waker, &self.dropped) {
            (None, _) => {}
            (waker, None) => self.dropped = waker,
            // To be woken in vain costs a poll.
            (Some(waker), Some(_)) => self.wakers.push(waker),
        }
    }

    pub(super) fn look_by(&mut self, at: Option<Instant>) {
        self.look_at = match (self.look_at, at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        if let Some(waker) = self.waker.take() {
            wakes::wake(waker);
        }
        for waker in self.wakers.drain(..) {
            wakes::wake(waker);
        }
    }
}
