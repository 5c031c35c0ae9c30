//! One hold, as this process believes in it: until when, and whether it is known to be lost.

use std::fmt;
use std::time::Instant;

use crate::runtime::Runtime;
use crate::sync::{Event, Mutex};

use super::backend::HoldKey;
use super::until::until;

/// Why a hold is over although its guard lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// The lease ended.
    Expired,
    /// The store says that the owner does not hold the lock any more: it was forced free, evicted, or lost in a failover.
    Gone,
    /// The store could not be reached before the lease ended, so it counts as ended.
    Unreachable,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the lease ended",
            Self::Gone => "the lock is no longer held by this owner",
            Self::Unreachable => "the store could not be reached before the lease ended",
        })
    }
}

pub(super) struct Hold {
    pub(super) key: HoldKey,
    /// The fencing token, if one was asked for.
    pub(super) token: Option<u64>,
    state: Mutex<State>,
    /// Tells everyone that `lost` was set.
    told: Event,
}

struct State {
    /// Counted from before the command was sent that set it, so never later than the store's own; `None`: never.
    deadline: Option<Instant>,
    lost: Option<Lost>,
    /// Its guard let go of it, and left it to `Lock::unlock`.
    forgotten: bool,
}

impl Hold {
    pub(super) fn new(key: HoldKey, token: Option<u64>, deadline: Option<Instant>) -> Self {
        Self {
            key,
            token,
            state: Mutex::new(State { deadline, lost: None, forgotten: false }),
            told: Event::new(),
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.state.lock().deadline
    }

    pub(super) fn extend(&self, deadline: Option<Instant>) {
        self.state.lock().deadline = deadline;
    }

    pub(super) fn lose(&self, why: Lost) {
        self.state.lock().lost.get_or_insert(why);
        self.told.notify(usize::MAX);
    }

    pub(super) fn forget(&self) {
        self.state.lock().forgotten = true;
    }

    pub(super) fn is_forgotten(&self) -> bool {
        self.state.lock().forgotten
    }

    /// Why the hold is over at `now`, as far as is known here.
    pub(super) fn lost_at(&self, now: Instant) -> Option<Lost> {
        let state = self.state.lock();
        state.lost.or_else(|| state.deadline.filter(|deadline| *deadline <= now).map(|_| Lost::Expired))
    }

    /// Waits until the hold is over.
    pub(super) async fn lost<R: Runtime>(&self, runtime: &R) -> Lost {
        loop {
            let told = self.told.listen();
            // After we listen, so that a loss that comes now is either seen here or told.
            if let Some(lost) = self.lost_at(runtime.now()) {
                return lost;
            }
            // A renewal moves the deadline while we sleep: then this wakes too early, and looks again.
            until(runtime, self.deadline(), told).await;
        }
    }
}
