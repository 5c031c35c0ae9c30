//! One cell of the row: a state word with the number of permits still missing, and a slot for one waker.
//!
//! The *owner* is the future that waits in the cell. *Servers* are all threads that bring permits; they take no turns, each
//! step is one CAS on the state word.
//!
//! ```text
//!            owner comes           owner's waker is in the slot
//!  ┌───────┐            ┌─────────────┐ ────────────► ┌────────────┐
//!  │ Empty │──────────► │ Updating(m) │               │ Waiting(m) │
//!  └───┬───┘            └──┬───────┬──┘ ◄──────────── └─┬───┬────┬─┘
//!      │                   │       │    owner polls      │   │    │
//!      │ capacity is       │       │    with another     │   │    │
//!      │ lowered           │       │    waker            │   │    │
//!      ▼                   │       │                     │   │    │
//!  ┌─────────┐             │       └────────► Closed(m) ◄┘   │    │    the semaphore is closed
//!  │ Debt(m) │             └────────────────► Granted  ◄─────┘    │    a server brings the last missing permit
//!  └────┬────┘                                   │                │
//!       │ a server brings the last permit        │ owner sees it  │    owner is dropped
//!       └────────────────────────► Gone ◄────────┴────────────────┘
//! ```
//!
//! In `Updating`, `Waiting` and `Debt` a server that has too few permits lays them in: m goes down. All arrows lead
//! forward, so a cell is used once; a server that meets `Granted`, `Closed` or `Gone` goes on to the next.
//!
//! * C1. The slot belongs to the owner in `Updating` and in `Gone`, and to the server that moved the cell *from `Waiting`* to
//!   `Granted` or `Closed`. A server that moves it from `Updating` leaves the slot alone; the owner is inside.
//! * C2. The permits that were laid in are m less than the owner asked for. Who moves the cell to `Granted` brings the m that
//!   were missing; who moves it to `Gone` or `Closed` sees that the owner gives back what was laid in.

use std::task::Waker;

use crate::fault::fault;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// The state word: the tag in the low bits, the missing permits above. `MAX_PERMITS` fits above by definition.
const TAG_BITS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Empty,
    /// The owner is at the waker's slot.
    Updating(usize),
    /// The owner sleeps, or is about to.
    Waiting(usize),
    /// Nobody waits here: these permits are taken out of circulation in their turn.
    Debt(usize),
    Granted,
    Closed(usize),
    /// The owner is through with the cell, or a debt is paid.
    Gone,
}

impl State {
    fn pack(self) -> usize {
        let (tag, missing) = match self {
            Self::Empty => (0, 0),
            Self::Updating(missing) => (1, missing),
            Self::Waiting(missing) => (2, missing),
            Self::Debt(missing) => (3, missing),
            Self::Granted => (4, 0),
            Self::Closed(missing) => (5, missing),
            Self::Gone => (6, 0),
        };
        missing << TAG_BITS | tag
    }

    fn unpack(word: usize) -> Self {
        let missing = word >> TAG_BITS;
        match word & ((1 << TAG_BITS) - 1) {
            0 => Self::Empty,
            1 => Self::Updating(missing),
            2 => Self::Waiting(missing),
            3 => Self::Debt(missing),
            4 => Self::Granted,
            5 => Self::Closed(missing),
            _ => Self::Gone,
        }
    }
}

/// What the owner finds at the end of its wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// All permits that it asked for are its own.
    Granted,
    /// The semaphore was closed; so many permits were still missing.
    Closed { missing: usize },
}

/// What became of the permits that a server brought.
#[derive(Debug)]
pub(super) enum Fed {
    /// Nobody has come to this cell, and so to none behind it.
    NobodyYet,
    /// The cell is over and done with: on to the next.
    Over,
    /// All were laid in; more are missing.
    Absorbed,
    /// They sufficed. Whoever waited is to be woken, outside of any critical step; `None` if awake already.
    Served { used: usize, waker: Option<Waker> },
    /// They sufficed to pay a debt. The cell has no owner, so the server lets go of it.
    Paid { used: usize },
}

#[derive(Debug)]
pub(super) struct Cell {
    state: AtomicUsize,
    waker: UnsafeCell<Option<Waker>>,
}

// SAFETY: `waker` is the only part that is not `Sync` by itself, and C1 names one party at a time that may touch it; each
// hand-over of the slot goes through a Release/Acquire pair on `state`. `Waker` is `Send`.
unsafe impl Sync for Cell {}

impl Cell {
    pub(super) fn new() -> Self {
        Self { state: AtomicUsize::new(State::Empty.pack()), waker: UnsafeCell::new(None) }
    }

    /// For who only looks.
    pub(super) fn peek(&self) -> State {
        // Ordering: SeqCst, as this is also the second look of a server that found nobody: see [S2] in `queue.rs`.
        State::unpack(self.state.load(Ordering::SeqCst))
    }

    fn step(&self, from: State, to: State, success: Ordering, failure: Ordering) -> Result<(), State> {
        match self.state.compare_exchange(from.pack(), to.pack(), success, failure) {
            Ok(_) => Ok(()),
            Err(now) => Err(State::unpack(now)),
        }
    }

    // === Coming: the cell gets an owner ===

    /// Makes the caller the cell's owner, at its slot. False if somebody else was faster.
    pub(super) fn claim(&self, need: usize) -> bool {
        // Ordering: SeqCst, "I have come" [S1]: the owner's look at the counter must not be ordered before it.
        self.step(State::Empty, State::Updating(need), Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Leaves a debt in the cell. False if somebody else was faster.
    pub(super) fn claim_debt(&self, debt: usize) -> bool {
        // Ordering: SeqCst, as in `claim` [S1].
        self.step(State::Empty, State::Debt(debt), Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    // === The owner ===

    /// How the wait ended; `None` while it lasts, in which case `waker` will be woken.
    pub(super) fn poll(&self, waker: &Waker) -> Option<Ended> {
        // Ordering: Acquire on a final state receives what the servers did [C2]. Relaxed would do otherwise.
        let mut state = State::unpack(self.state.load(Ordering::Acquire));
        while let State::Waiting(missing) = state {
            // Ordering: Acquire on failure, for the final state that it may have met [C2]. On success nothing is read:
            // the slot is as the owner left it.
            match self.step(state, State::Updating(missing), Ordering::Relaxed, Ordering::Acquire) {
                Ok(()) => state = State::Updating(missing),
                Err(now) => state = now,
            }
        }
        if let State::Updating(_) = state { self.publish(waker) } else { Some(Self::ended(state)) }
    }

    /// Puts `waker` into the slot and goes to sleep, unless the wait has ended meanwhile. The cell is `Updating`.
    pub(super) fn publish(&self, waker: &Waker) -> Option<Ended> {
        let replaced = self.waker.with_mut(|slot| {
            // SAFETY: the cell is `Updating` and we are its owner, so the slot is ours (C1).
            let slot = unsafe { &mut *slot };
            match slot {
                Some(current) if current.will_wake(waker) => None,
                // Cloning may panic. The cell is left `Updating` then, which `cancel` can deal with.
                _ => slot.replace(waker.clone()),
            }
        });
        // Foreign code, which may come back into this semaphore; a server that comes meanwhile does not wait for us.
        drop(replaced);
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut state = State::unpack(self.state.load(Ordering::Relaxed));
        while let State::Updating(missing) = state {
            if fault!(PublishWithoutLook) {
                // Ordering: as below; the fault is that this is not a CAS.
                self.state.store(State::Waiting(missing).pack(), Ordering::Release);
                return None;
            }
            let published = if fault!(WakerNotPublished) { Ordering::Relaxed } else { Ordering::Release };
            // Ordering: Release publishes the waker to the server that will take it [C1]. Relaxed on failure: what ended the
            // wait is read below.
            match self.step(state, State::Waiting(missing), published, Ordering::Relaxed) {
                Ok(()) => return None,
                Err(now) => state = now,
            }
        }
        // Ordering: Acquire receives what the servers did [C2].
        let state = State::unpack(self.state.load(Ordering::Acquire));
        // The wait ended while we were `Updating`, so nobody else comes for the waker.
        self.drop_waker();
        Some(Self::ended(state))
    }

    /// Gives up the wait. `Ok` says how many permits were still missing; `Err` that a server was faster.
    pub(super) fn cancel(&self) -> Result<usize, Ended> {
        // Ordering: Acquire on a final state receives what the servers did, for it is passed on [C2].
        let mut state = State::unpack(self.state.load(Ordering::Acquire));
        // `Updating` is met here when cloning the waker panicked, or when the owner saw a closed semaphore as it came.
        while let State::Waiting(missing) | State::Updating(missing) = state {
            // Ordering: Acquire also on success: the permits that were laid in are passed on, and with them what came
            // before [C2]. No Release: a server that finds `Gone` reads nothing.
            match self.step(state, State::Gone, Ordering::Acquire, Ordering::Acquire) {
                Ok(()) => {
                    self.drop_waker();
                    return Ok(missing);
                }
                Err(now) => state = now,
            }
        }
        Err(Self::ended(state))
    }

    /// The owner has seen how the wait ended, and will not look again.
    pub(super) fn leave(&self) {
        // Ordering: Relaxed. Nobody else moves a cell that has ended, and to servers `Gone` is what it was before: over. The
        // difference is for those who look for waiters that were granted a permit and do not come for it.
        self.state.store(State::Gone.pack(), Ordering::Relaxed);
    }

    /// The waker must not live as long as the cell: behind it is a whole task.
    fn drop_waker(&self) {
        // SAFETY: the wait has ended otherwise than from `Waiting`, and we are the owner, so the slot is ours (C1).
        drop(self.waker.with_mut(|slot| unsafe { (*slot).take() }));
    }

    fn ended(state: State) -> Ended {
        match state {
            State::Granted => Ended::Granted,
            State::Closed(missing) => Ended::Closed { missing },
            other => unreachable!("the owner of a cell found it {other:?}"),
        }
    }

    // === Servers ===

    /// Brings `permits`, at least one.
    pub(super) fn feed(&self, permits: usize) -> Fed {
        let mut state = self.peek();
        loop {
            let (missing, less): (usize, fn(usize) -> State) = match state {
                State::Empty => return Fed::NobodyYet,
                State::Granted | State::Closed(_) | State::Gone => return Fed::Over,
                State::Updating(missing) => (missing, State::Updating),
                State::Waiting(missing) => (missing, State::Waiting),
                State::Debt(missing) => (missing, State::Debt),
            };
            let to = match state {
                _ if missing > permits => less(missing - permits),
                State::Debt(_) => State::Gone,
                _ => State::Granted,
            };
            // Ordering: Release hands on what the releasing side did before, which is what makes a permit a synchronisation
            // point [C2]; a chain of feeds is one release sequence. Acquire takes over the waker that the owner wrote before
            // `Waiting` [C1]. SeqCst on failure because that is a look at the cell like the first one.
            let handed = if fault!(PermitCarriesNothing) { Ordering::Acquire } else { Ordering::AcqRel };
            match self.step(state, to, handed, Ordering::SeqCst) {
                Ok(()) if missing > permits => return Fed::Absorbed,
                Ok(()) => return self.served(state, missing),
                Err(now) => state = now,
            }
        }
    }

    /// Sends the owner home. Its waker, if it is to be woken.
    pub(super) fn close(&self) -> Option<Waker> {
        let mut state = self.peek();
        while let State::Waiting(missing) | State::Updating(missing) = state {
            // Ordering: as in `feed`.
            match self.step(state, State::Closed(missing), Ordering::AcqRel, Ordering::SeqCst) {
                Ok(()) => return self.take_waker(state),
                Err(now) => state = now,
            }
        }
        None
    }

    fn served(&self, from: State, used: usize) -> Fed {
        match from {
            State::Debt(_) => Fed::Paid { used },
            _ => Fed::Served { used, waker: self.take_waker(from) },
        }
    }

    /// After the cell's last step, which was ours.
    fn take_waker(&self, from: State) -> Option<Waker> {
        match from {
            // SAFETY: we moved the cell from `Waiting`, so the slot is ours (C1).
            State::Waiting(_) => self.waker.with_mut(|slot| unsafe { (*slot).take() }),
            // The owner is at the slot, awake, and finds the new state when it is done.
            _ => None,
        }
    }
}
