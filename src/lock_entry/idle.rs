//! [`Gate`]: an idle entry, which one call may have without an event.
//!
//! ```text
//! OPEN ─ claim ─► CLAIMED ─ take ─► IN_USE ─ the last hold is left ─► CLAIMED ─ returned ─► OPEN
//! ```
//!
//! An event that comes while the entry is open or claimed makes it `IN_USE`, and the engine learns by
//! `Ownership::settle` what it has missed.

use crate::fault::fault;
use crate::sync::atomic::{AtomicU32, Ordering};

/// The entry is idle, and a newcomer may have the lock before all others.
pub(super) const OPEN: u32 = 0;
/// One call has the entry, and no event has come since: a newcomer's call that asks the store, or a call that
/// releases a lease.
pub(super) const CLAIMED: u32 = 1;
/// All goes by the engine.
pub(super) const IN_USE: u32 = 2;

/// `IN_USE` is written, and replaced, under the entry's mutex only. The other two are also changed without
/// it, by the one call that has the entry.
#[derive(Default)]
pub(super) struct Gate(AtomicU32);

impl Gate {
    /// An event comes, under the mutex. From now on the entry is the engine's: `Some` if it was not, and
    /// whether one call has it.
    #[inline(always)]
    pub(super) fn come_in(&self) -> Option<bool> {
        // Ordering: Relaxed. `IN_USE` is written and replaced under the mutex only, so it is seen if it is
        // there.
        if self.0.load(Ordering::Relaxed) == IN_USE {
            return None;
        }
        // Ordering: Acquire, as `claim`: what was done by the call that had it last has been done.
        Some(self.0.swap(IN_USE, Ordering::Acquire) == CLAIMED)
    }

    /// As [`come_in`](Self::come_in), for a look, or for what changes nothing of an entry that is idle.
    pub(super) fn look(&self) -> Option<bool> {
        // Ordering: Relaxed. `IN_USE` is seen as in `come_in`; what a call does at the same time may be seen
        // or not.
        let state = self.0.load(Ordering::Relaxed);
        (state != IN_USE).then_some(state == CLAIMED)
    }

    /// An event is over, and leaves the entry so.
    #[inline(always)]
    pub(super) fn leave(&self, state: u32) {
        // Ordering: Release. A claim that comes next asks the store for what was released before.
        self.0.store(state, Ordering::Release);
    }

    /// An open entry is the caller's. False if it is not open.
    #[inline]
    pub(super) fn claim(&self) -> bool {
        // Looked at before: an entry in use is nearly always seen to be, and a write costs more.
        // Ordering: Relaxed, a hint: the exchange is right either way. That has Acquire, of the release by
        // which it became idle: the store has that; and Relaxed, as nothing is done about an entry in use.
        self.0.load(Ordering::Relaxed) == OPEN
            && self.0.compare_exchange(OPEN, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// The call that has the entry leaves it idle. False if others have come meanwhile, or it is in use.
    #[inline]
    pub(super) fn unclaim(&self) -> bool {
        if fault!(ReturnedUnseen) {
            // Ordering: Relaxed, a mutant's.
            self.0.store(OPEN, Ordering::Relaxed);
            return true;
        }
        // Ordering: Release, for the next `claim`: what the call has done at the store comes before that asks
        // it. Relaxed, as the event that follows looks again, under the mutex.
        self.0.compare_exchange(CLAIMED, OPEN, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}
