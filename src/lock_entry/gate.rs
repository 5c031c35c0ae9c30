//! [`Gate`]: an idle entry, which one call may have without an event.
//!
//! ```text
//! OPEN ─ claim ─► CLAIMED ─ take ─► IN_USE ─ the last hold is left ─► CLAIMED ─ returned ─► OPEN
//! ```
//!
//! An event that comes while the entry is open or claimed makes the entry `IN_USE`, and tells the engine by
//! `Ownership::settle` which of the two the entry was.

use crate::support::fault::fault;
use crate::support::sync::atomic::{AtomicU32, Ordering};

/// An idle entry: a newcomer may claim the entry.
pub(super) const OPEN: u32 = 0;
/// An entry that one call has reserved, and no event has come since: a newcomer's call that asks the store,
/// or a call that releases a lease.
pub(super) const CLAIMED: u32 = 1;
/// An entry whose state is the engine's.
pub(super) const IN_USE: u32 = 2;

/// The state of the entry. `IN_USE` is written, and replaced, under the entry's mutex only; `OPEN` and
/// `CLAIMED` are also exchanged without the mutex, by the one call that claims or has claimed.
#[derive(Default)]
pub(super) struct Gate(AtomicU32);

impl Gate {
    /// An event comes, under the mutex: the entry is in use from now on. `None` if the entry was in use
    /// before, else true if a call has claimed the entry.
    #[inline(always)]
    pub(super) fn come_in(&self) -> Option<bool> {
        // Ordering: Relaxed, since the mutex orders all writes of `IN_USE`.
        if self.0.load(Ordering::Relaxed) == IN_USE {
            return None;
        }
        // Ordering: Acquire, of the Release in `unclaim`: the store has done what the last claimer asked for.
        Some(self.0.swap(IN_USE, Ordering::Acquire) == CLAIMED)
    }

    /// As [`come_in`](Self::come_in), for a look, which leaves the state as it is.
    pub(super) fn look(&self) -> Option<bool> {
        // Ordering: Relaxed. `IN_USE` as in `come_in`; a claim at the same time may be missed by a look.
        let state = self.0.load(Ordering::Relaxed);
        (state != IN_USE).then_some(state == CLAIMED)
    }

    /// An event is over, and leaves the entry in this state.
    #[inline(always)]
    pub(super) fn leave(&self, state: u32) {
        // Ordering: Release, for the Acquire of the next `claim`, whose question must follow this release.
        self.0.store(state, Ordering::Release);
    }

    /// Claims an open entry. False if the entry is not open.
    #[inline]
    pub(super) fn claim(&self) -> bool {
        // The load spares most callers of an entry in use the exchange, which is a write.
        // Ordering: Relaxed for the load, a hint. Acquire for the exchange, of the Release by which the entry
        // became open: the store has the release before. Relaxed for a failure: nothing is read then.
        self.0.load(Ordering::Relaxed) == OPEN
            && self.0.compare_exchange(OPEN, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// The claimer leaves the entry open. False if an event has come meanwhile, or the entry is in use.
    #[inline]
    pub(super) fn unclaim(&self) -> bool {
        if fault!(ReturnedUnseen) {
            // Ordering: Relaxed, a mutant's.
            self.0.store(OPEN, Ordering::Relaxed);
            return true;
        }
        // Ordering: Release, for the Acquire of the next `claim`: the claimer's command is at the store
        // before the next question. Relaxed for a failure, since an event follows, under the mutex.
        self.0.compare_exchange(CLAIMED, OPEN, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}
