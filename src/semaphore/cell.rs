//! One cell of the row: a state word with the number of permits still missing, and a slot for one waker.
//!
//! The *owner* is the future that waits in the cell. *Servers* are all threads that bring permits; they take no turns, each
//! step is one CAS on the state word.
//!
//! ```text
//!   ┌───────┐  owner has come,        ┌────────────┐ ─── owner polls with ──► ┌─────────────┐
//!   │ Empty │ ──────────────────────► │ Waiting(m) │     another waker        │ Updating(m) │
//!   └─┬───┬─┘  waker in the slot      └─┬────┬───┬─┘ ◄────────────────────────└──┬───────┬──┘
//!     │   │                             │    │   │                               │       │
//!     │   │ capacity is lowered         │    │   └──────► Closed(m) ◄────────────┘       │   the semaphore is closed
//!     │   │                             │    └──────────► Granted  ◄─────────────────────┘   a server brings the last
//!     │   ▼                             │                    │                               missing permit
//!     │ ┌─────────┐                     │ owner is           │
//!     │ │ Debt(m) │                     ▼ dropped            │
//!     │ └────┬────┘               ┌───────────┐              │
//!     │      │ a server brings    │ Cancelled │ ◄────────┐   │
//!     │      │ the last permit    └─────┬─────┘          │   │
//!     │      ▼                          │ owner leaves   │   │
//!     │    Gone ◄───────────────────────┴────────────────│───┘
//!     └──────────────────────────────────────────────────┘ the owner is slow to come: it is to come again
//! ```
//!
//! In `Waiting`, `Updating` and `Debt` a server that has too few permits lays them in: m goes down. All arrows but the one back
//! to `Waiting` lead forward, so a cell is used once; a server that meets one of the others goes on to the next.
//!
//! * C1. The slot belongs to the owner in `Empty`, `Updating` and `Cancelled`, and to the server that moved the cell *from
//!   `Waiting`* to `Granted` or `Closed`. A server that moves it from `Updating` leaves the slot alone; the owner is inside.
//! * C2. The permits that were laid in are m less than the owner asked for. Who moves the cell to `Granted` brings the m that
//!   were missing; who moves it to `Cancelled` or `Closed` sees that the owner gives back what was laid in.
//! * C3. `Gone` is the last that its owner does with a cell. The memory may be freed from then on.

use std::fmt;
use std::task::Waker;

use crate::fault::fault;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::spin_loop;

/// The state word: the state in the low bits, the missing permits above. `MAX_PERMITS` fits above by definition.
///
/// A plain number with named states, and not an enum with the permits inside, because it is compared and swapped as a whole
/// on the path that every waiter goes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(usize);

const STATE_BITS: u32 = 3;

/// Looks at a cell whose owner has claimed it and is about to come: more than its few instructions take, unless it was suspended.
const PATIENCE: usize = if cfg!(any(latchwork_loom, latchwork_shuttle)) { 0 } else { 64 };

/// See the module's picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum State {
    /// Nobody has come; the cell may be claimed.
    Empty = 0,
    /// The owner is at the waker's slot.
    Updating = 1,
    /// The owner sleeps, or is about to.
    Waiting = 2,
    /// Nobody waits here: these permits are taken out of circulation in their turn.
    Debt = 3,
    Granted = 4,
    Closed = 5,
    /// The owner has given up the wait, or was too slow to come.
    Cancelled = 6,
    /// Nobody will touch the cell again.
    Gone = 7,
}

impl Word {
    const fn new(state: State, missing: usize) -> Self {
        Self(missing << STATE_BITS | state as usize)
    }

    const fn is(self, state: State) -> bool {
        self.0 & ((1 << STATE_BITS) - 1) == state as usize
    }

    const fn missing(self) -> usize {
        self.0 >> STATE_BITS
    }

    const fn with_state(self, state: State) -> Self {
        Self::new(state, self.missing())
    }

    /// Whether servers have nothing to do here, now or ever.
    const fn is_over(self) -> bool {
        self.0 & ((1 << STATE_BITS) - 1) >= State::Granted as usize
    }

    fn state(self) -> State {
        match self.0 & ((1 << STATE_BITS) - 1) {
            0 => State::Empty,
            1 => State::Updating,
            2 => State::Waiting,
            3 => State::Debt,
            4 => State::Granted,
            5 => State::Closed,
            6 => State::Cancelled,
            _ => State::Gone,
        }
    }
}

/// A cell as who only looks sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) state: State,
    /// Permits that it still needs, in the states that need some.
    pub(super) missing: usize,
}

impl Seen {
    /// Whether permits that are brought would be laid in here.
    pub(super) fn is_in_need(self) -> bool {
        matches!(self.state, State::Updating | State::Waiting | State::Debt)
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            State::Updating | State::Waiting | State::Debt => {
                f.debug_tuple(&format!("{:?}", self.state)).field(&self.missing).finish()
            }
            state => state.fmt(f),
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
    /// Nobody has come to this cell.
    NobodyYet,
    /// The cell is over and done with: on to the next.
    Over,
    /// All were laid in; more are missing.
    Absorbed,
    /// They sufficed. Whoever waited is to be woken, outside of any critical step; `None` if awake already.
    Served { used: usize, waker: Option<Waker> },
    /// All went into a debt; more is owed.
    Lessened,
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
        Self { state: AtomicUsize::new(Word::new(State::Empty, 0).0), waker: UnsafeCell::new(None) }
    }

    fn load(&self, ordering: Ordering) -> Word {
        Word(self.state.load(ordering))
    }

    fn step(&self, from: Word, to: Word, success: Ordering, failure: Ordering) -> Result<(), Word> {
        self.state.compare_exchange(from.0, to.0, success, failure).map(drop).map_err(Word)
    }

    /// For who only looks.
    pub(super) fn look(&self) -> Seen {
        // Ordering: SeqCst, as this is also the second look of a server that found nobody: see [S2] in `queue.rs`.
        let word = self.load(Ordering::SeqCst);
        Seen { state: word.state(), missing: word.missing() }
    }

    // === The owner ===

    /// Waits here for `need` permits from now on, until `waker` is called. If it took so long since the cell was claimed that
    /// a server has gone on to those behind it, gives the waker back: another cell is to be claimed.
    #[inline]
    pub(super) fn come(&self, need: usize, waker: Waker) -> Result<(), Waker> {
        // SAFETY: the cell is claimed and we have not come, so the slot is ours (C1).
        self.waker.with_mut(|slot| unsafe { *slot = Some(waker) });
        // Ordering: SeqCst, "I have come" [S1]: the owner's look at the counter must not be ordered before it. Includes the Release
        // that publishes the waker to the server which will take it [C1]. Relaxed on failure: nothing is read.
        let (empty, waiting) = (Word::new(State::Empty, 0), Word::new(State::Waiting, need));
        match self.step(empty, waiting, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(()) => Ok(()),
            Err(_cancelled) => Err(self.take_own_waker().expect("it was put there just now")),
        }
    }

    /// Leaves a debt in the cell. False if another cell is to be claimed, as in [`come`](Self::come).
    pub(super) fn come_as_debt(&self, debt: usize) -> bool {
        // Ordering: SeqCst, as in `come` [S1].
        let (empty, debt) = (Word::new(State::Empty, 0), Word::new(State::Debt, debt));
        self.step(empty, debt, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// How the wait ended; `None` while it lasts, in which case `waker` will be woken.
    #[inline]
    pub(super) fn poll(&self, waker: &Waker) -> Option<Ended> {
        // Ordering: Acquire receives what the servers did before they ended the wait [C2].
        let mut word = self.load(Ordering::Acquire);
        while word.is(State::Waiting) {
            // Ordering: Acquire on failure, for the end of the wait that it may have met [C2]. On success nothing is read: the
            // slot is as the owner left it.
            match self.step(word, word.with_state(State::Updating), Ordering::Relaxed, Ordering::Acquire) {
                Ok(()) => return self.update(waker),
                Err(now) => word = now,
            }
        }
        Some(Self::ended(word))
    }

    /// Puts `waker` into the slot and goes back to sleep, unless the wait has ended meanwhile. The cell is `Updating`.
    fn update(&self, waker: &Waker) -> Option<Ended> {
        /// Cloning a waker is foreign code. If it panics, the old one stays, and is as good as it was.
        struct BackToSleep<'a>(&'a Cell);

        impl Drop for BackToSleep<'_> {
            fn drop(&mut self) {
                self.0.sleep();
            }
        }

        let in_case_of_a_panic = BackToSleep(self);
        let replaced = self.waker.with_mut(|slot| {
            // SAFETY: the cell is `Updating` and we are its owner, so the slot is ours (C1).
            let slot = unsafe { &mut *slot };
            match slot {
                Some(current) if current.will_wake(waker) => None,
                _ => slot.replace(waker.clone()),
            }
        });
        std::mem::forget(in_case_of_a_panic);
        let ended = self.sleep();
        // Foreign code, which may come back into this semaphore, or panic: when all is as it should be.
        drop(replaced);
        ended
    }

    /// From `Updating` back to `Waiting`, unless the wait has ended meanwhile.
    fn sleep(&self) -> Option<Ended> {
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut word = self.load(Ordering::Relaxed);
        while word.is(State::Updating) {
            let asleep = word.with_state(State::Waiting);
            if fault!(PublishWithoutLook) {
                // Ordering: as below; the fault is that this is not a CAS.
                self.state.store(asleep.0, Ordering::Release);
                return None;
            }
            let published = if fault!(WakerNotPublished) { Ordering::Relaxed } else { Ordering::Release };
            // Ordering: Release publishes the waker to the server that will take it [C1]. Relaxed on failure: what ended the
            // wait is read below.
            match self.step(word, asleep, published, Ordering::Relaxed) {
                Ok(()) => return None,
                Err(now) => word = now,
            }
        }
        // Ordering: Acquire receives what the servers did [C2].
        let word = self.load(Ordering::Acquire);
        // The wait ended while we were `Updating`, so nobody else comes for the waker.
        if !fault!(WakerOutlivesWait) {
            drop(self.take_own_waker());
        }
        Some(Self::ended(word))
    }

    /// Gives up the wait. `Ok` says how many permits were still missing, and gives the waker, which must not live as long as the
    /// cell (behind it is a whole task), to be dropped when all else is done. `Err` says that a server was faster.
    pub(super) fn cancel(&self) -> Result<(usize, Option<Waker>), Ended> {
        // Ordering: Acquire receives what the servers did before they ended the wait, for it is passed on [C2].
        let mut word = self.load(Ordering::Acquire);
        while word.is(State::Waiting) {
            // Ordering: Acquire also on success: the permits that were laid in are passed on, and with them what came
            // before [C2]. No Release: a server that finds `Cancelled` reads nothing.
            match self.step(word, Word::new(State::Cancelled, 0), Ordering::Acquire, Ordering::Acquire) {
                Ok(()) => return Ok((word.missing(), self.take_own_waker())),
                Err(now) => word = now,
            }
        }
        Err(Self::ended(word))
    }

    /// The owner has seen how the wait ended, or cancelled it, and touches the cell for the last time.
    pub(super) fn leave(&self) {
        // Ordering: Release puts all that was done with the cell before its memory is freed; pairs with the Acquire in
        // `is_gone` [R1]. A plain store, for nobody else moves a cell whose wait has ended.
        self.state.store(Word::new(State::Gone, 0).0, Ordering::Release);
    }

    pub(super) fn is_gone(&self) -> bool {
        // Ordering: Acquire, see `leave` [R1].
        self.load(Ordering::Acquire).is(State::Gone)
    }

    /// For the owner, while the slot is its own (C1): it cancelled, or the wait did not end from `Waiting`.
    fn take_own_waker(&self) -> Option<Waker> {
        // SAFETY: the slot is the caller's.
        self.waker.with_mut(|slot| unsafe { (*slot).take() })
    }

    fn ended(word: Word) -> Ended {
        match word.state() {
            State::Granted => Ended::Granted,
            State::Closed => Ended::Closed { missing: word.missing() },
            other => unreachable!("the owner of a cell found it {other:?}"),
        }
    }

    // === Servers ===

    /// Gives an owner that has claimed the cell a moment to come, and tells it to come again if it does not.
    #[cold]
    pub(super) fn break_if_slow(&self) {
        for _ in 0..PATIENCE {
            // Ordering: Relaxed, who has come is looked at again by the caller.
            if !self.load(Ordering::Relaxed).is(State::Empty) {
                return;
            }
            spin_loop();
        }
        let (empty, cancelled) = (Word::new(State::Empty, 0), Word::new(State::Cancelled, 0));
        // Ordering: Relaxed: neither side reads what the other did. If the owner was faster, it has come.
        let _ = self.step(empty, cancelled, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Brings `permits`, at least one.
    #[inline]
    pub(super) fn feed(&self, permits: usize) -> Fed {
        // Ordering: SeqCst, a look as in `look` [S2].
        let mut word = self.load(Ordering::SeqCst);
        loop {
            if word.is_over() {
                return Fed::Over;
            }
            if word.is(State::Empty) {
                return Fed::NobodyYet;
            }
            let missing = word.missing();
            let sated = missing <= permits;
            let to = match sated {
                false => Word::new(word.state(), missing - permits),
                true if word.is(State::Debt) => Word::new(State::Gone, 0),
                true => Word::new(State::Granted, 0),
            };
            // Ordering: Release hands on what the releasing side did before, which is what makes a permit a synchronisation
            // point [C2]; a chain of feeds is one release sequence. Acquire takes over the waker that the owner wrote before
            // `Waiting` [C1]. SeqCst on failure because that is a look at the cell like the first one.
            let handed = if fault!(PermitCarriesNothing) { Ordering::Acquire } else { Ordering::AcqRel };
            match self.step(word, to, handed, Ordering::SeqCst) {
                Ok(()) if !sated && word.is(State::Debt) => return Fed::Lessened,
                Ok(()) if !sated => return Fed::Absorbed,
                Ok(()) if word.is(State::Debt) => return Fed::Paid { used: missing },
                Ok(()) => return Fed::Served { used: missing, waker: self.take_waker(word) },
                Err(now) => word = now,
            }
        }
    }

    /// Sends the owner home. Its waker, if it is to be woken.
    pub(super) fn close(&self) -> Option<Waker> {
        // Ordering: SeqCst, a look as in `look` [S2].
        let mut word = self.load(Ordering::SeqCst);
        while word.is(State::Waiting) || word.is(State::Updating) {
            // Ordering: as in `feed`.
            match self.step(word, word.with_state(State::Closed), Ordering::AcqRel, Ordering::SeqCst) {
                Ok(()) => return self.take_waker(word),
                Err(now) => word = now,
            }
        }
        None
    }

    /// After the cell's last step, which was ours, and from `from`.
    fn take_waker(&self, from: Word) -> Option<Waker> {
        if from.is(State::Waiting) && !fault!(ServedNotWoken) {
            // SAFETY: we moved the cell from `Waiting`, so the slot is ours (C1).
            self.waker.with_mut(|slot| unsafe { (*slot).take() })
        } else {
            // The owner is at the slot, awake, and finds the new state when it is done.
            None
        }
    }
}
