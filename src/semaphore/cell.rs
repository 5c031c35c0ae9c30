//! One waiter's cell: a state word and a slot for its waker.
//!
//! The cell is shared by exactly two: the *owner*, which is the waiting future, and the *server*, which is whoever popped
//! the cell from the queue. A cell is popped once, so there is at most one server in its life.
//!
//! ```text
//!              owner polls again            owner has written
//!   ┌─────────┐ with another waker ┌──────────┐
//!   │ Waiting │───────────────────►│ Updating │──┐ back to Waiting
//!   └─┬──┬──┬─┘◄───────────────────└──┬────┬──┘◄─┘
//!     │  │  │ owner is dropped        │    │
//!     │  │  └──────────► Cancelled    │    │
//!     │  │ server brings a permit     │    │
//!     │  └─────────────► Granted ◄────┘    │
//!     │ server closes the queue            │
//!     └────────────────► Closed ◄──────────┘
//! ```
//!
//! The waker slot belongs to whoever made the last move: the owner in `Updating` and after `Cancelled`, the server once it
//! has moved the cell *from `Waiting`* to `Granted` or `Closed`. A server that moves it from `Updating` leaves the slot
//! alone: the owner is inside, and finds the new state when it tries to go back to `Waiting`.

use std::task::Waker;

use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU8, Ordering};

/// The owner sleeps (or is about to) and its waker is in the slot.
const WAITING: u8 = 0;
/// The owner is replacing its waker.
const UPDATING: u8 = 1;
/// The owner has a permit.
const GRANTED: u8 = 2;
/// The owner is gone. The next one in line gets the permit that was meant for it.
const CANCELLED: u8 = 3;
/// The semaphore was closed before the owner's turn came.
const CLOSED: u8 = 4;

/// How a wait ended, told to the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    Granted,
    Closed,
}

/// What a server found.
#[derive(Debug)]
pub(super) enum Handed {
    /// The cell took it. Wake the owner, outside of any critical step; `None` if the owner is awake already.
    Taken(Option<Waker>),
    /// The owner is gone: what was brought still is in the server's hand.
    Dead,
}

#[derive(Debug)]
pub(super) struct Cell {
    state: AtomicU8,
    waker: UnsafeCell<Option<Waker>>,
}

// SAFETY: `waker` is the only part that is not `Sync` by itself, and the state machine above names one party at a time that
// may touch it; each hand-over of the slot goes through a Release/Acquire pair on `state`. `Waker` is `Send`.
unsafe impl Sync for Cell {}

impl Cell {
    pub(super) fn new(waker: Waker) -> Self {
        Self { state: AtomicU8::new(WAITING), waker: UnsafeCell::new(Some(waker)) }
    }

    /// Server: brings a permit, or the news that the semaphore is closed.
    pub(super) fn hand(&self, what: Served) -> Handed {
        let new = match what {
            Served::Granted => GRANTED,
            Served::Closed => CLOSED,
        };
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state == CANCELLED {
                return Handed::Dead;
            }
            // Ordering: Acquire takes over the waker that the owner wrote before WAITING [C1]. Release gives the owner
            // whatever the releasing side did before, which is what makes a permit a synchronisation point; pairs with
            // [C2] in `served` and [C3] in `cancel`. Relaxed on failure: only the state is read, and it is tried again.
            match self.state.compare_exchange_weak(state, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(WAITING) => {
                    // SAFETY: we moved the cell from WAITING, so the slot is ours (see the module's text).
                    let waker = self.waker.with_mut(|slot| unsafe { (*slot).take() });
                    return Handed::Taken(waker);
                }
                Ok(_) => return Handed::Taken(None),
                Err(now) => state = now,
            }
        }
    }

    /// Owner: how the wait ended, or `None` while it lasts, in which case `waker` will be woken.
    pub(super) fn served(&self, waker: &Waker) -> Option<Served> {
        // Ordering: Acquire receives what the server did before it handed the cell over [C2]. The CAS needs no Release: the
        // slot's content is unchanged so far. On failure the state is final (only we can leave UPDATING or CANCELLED).
        if let Err(state) =
            self.state.compare_exchange(WAITING, UPDATING, Ordering::Acquire, Ordering::Acquire)
        {
            return Some(Self::read(state));
        }
        // SAFETY: the cell is UPDATING and we are its owner, so the slot is ours.
        let old = self.waker.with_mut(|slot| match unsafe { &mut *slot } {
            Some(current) if current.will_wake(waker) => None,
            current => current.replace(waker.clone()),
        });
        // Ordering: Release publishes the waker written above; pairs with the Acquire in `hand` [C1]. On failure a server
        // came while we were inside: Acquire receives what it brings [C2].
        let back = self.state.compare_exchange(UPDATING, WAITING, Ordering::Release, Ordering::Acquire);
        // Dropping a waker runs foreign code, which may come back into this semaphore: only now that the cell is settled.
        drop(old);
        back.err().map(Self::read)
    }

    /// Owner: gives up the wait. `Some` if the server was faster, and then what it brought is the owner's to pass on.
    pub(super) fn cancel(&self) -> Option<Served> {
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut state = self.state.load(Ordering::Relaxed);
        // UPDATING is met here only if cloning the new waker panicked; it is ours to leave as WAITING is.
        while state == WAITING || state == UPDATING {
            // Ordering: Relaxed on success, nothing is published: a server that finds CANCELLED touches nothing else.
            // Acquire on failure receives what the server brought [C3]; it is passed on, and what came before with it.
            match self.state.compare_exchange(state, CANCELLED, Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => {
                    // The queue may keep the cell for long; the waker, and the task behind it, must not live that long.
                    // SAFETY: we are the owner and the cell is CANCELLED, so the slot is ours.
                    drop(self.waker.with_mut(|slot| unsafe { (*slot).take() }));
                    return None;
                }
                Err(now) => state = now,
            }
        }
        Some(Self::read(state))
    }

    fn read(state: u8) -> Served {
        match state {
            GRANTED => Served::Granted,
            CLOSED => Served::Closed,
            _ => {
                unreachable!("a cell's owner found it in state {state}, which only the owner itself can set")
            }
        }
    }
}
