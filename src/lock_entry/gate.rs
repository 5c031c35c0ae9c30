//! [`Gate`]: the state by which a call may reserve an idle entry without an event.
//!
//! ```text
//! OPEN ─ claim ─► CLAIMED ─ take ─► IN_USE ─ the last hold is left ─► CLAIMED ─ appoint_next ─► OPEN
//! ```
//!
//! Every event and release passes the gate; only clients of a store that answers by the call claim it. Any
//! other event makes the entry `IN_USE`, and `Ownership::settle` takes over the state from before.

use crate::support::fault::fault;
use crate::support::sync::atomic::{AtomicU32, Ordering};

pub(super) const OPEN: u32 = 0;
/// One call asks the store, or releases a lease; no event has come since.
pub(super) const CLAIMED: u32 = 1;
/// The entry's state is the engine's.
pub(super) const IN_USE: u32 = 2;

/// `IN_USE` is entered and left only under the mutex; `OPEN` and `CLAIMED` are exchanged without it.
#[derive(Default)]
pub(super) struct Gate(AtomicU32);

impl Gate {
    /// Begins an event, under the mutex: `IN_USE`. `None` if the entry was in use, else true if claimed.
    #[inline(always)]
    pub(super) fn come_in(&self) -> Option<bool> {
        // Ordering: Relaxed, since the mutex orders all writes of `IN_USE`.
        if self.0.load(Ordering::Relaxed) == IN_USE {
            return None;
        }
        // Ordering: Acquire, of the Release in `unclaim`: the last claimer's command is at the store.
        Some(self.0.swap(IN_USE, Ordering::Acquire) == CLAIMED)
    }

    /// Reads the state as [`come_in`](Self::come_in) does, without a change.
    pub(super) fn look(&self) -> Option<bool> {
        // Ordering: Relaxed. `IN_USE` as in `come_in`; a query may miss a simultaneous claim.
        let state = self.0.load(Ordering::Relaxed);
        (state != IN_USE).then_some(state == CLAIMED)
    }

    #[inline(always)]
    pub(super) fn leave(&self, state: u32) {
        // Ordering: Release, for the Acquire of the next `claim`: its question follows the lease's release.
        self.0.store(state, Ordering::Release);
    }

    #[inline]
    pub(super) fn claim(&self) -> bool {
        // The load saves most callers of an entry in use the exchange, a write.
        // Ordering: Relaxed for the load, a hint. Acquire for the exchange, of the Release by which the entry
        // became open: the store has the earlier release. Relaxed for a failure: nothing is read then.
        self.0.load(Ordering::Relaxed) == OPEN
            && self.0.compare_exchange(OPEN, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Opens a claimed entry. False if an event has come meanwhile, or the entry is in use.
    #[inline]
    pub(super) fn unclaim(&self) -> bool {
        if fault!(ReturnedUnseen) {
            // Ordering: Relaxed, in this seeded fault.
            self.0.store(OPEN, Ordering::Relaxed);
            return true;
        }
        // Ordering: Release, for the Acquire of the next `claim`: the claimer's command is at the store
        // before the next question. Relaxed for a failure, since an event follows, under the mutex.
        self.0.compare_exchange(CLAIMED, OPEN, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}
