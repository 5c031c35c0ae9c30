//! [`Successors`]: who of a client has a lock, and who can be handed it, so that the store is told once and nobody has to be woken to
//! ask it.
//!
//! ```text
//!            open            choose              give
//!   Busy ──────────► Open ──────────► Chosen ──────────► Given: has the lock
//!     ◄──────────────────                └ refuse ─────► Refused: is to try for itself
//!            close
//! ```
//!
//! Who waits is open while it sleeps, and closes before it asks the store for itself: an owner does not do both at once. Who was
//! chosen by then waits for what comes of it. Who is open is also refused, though nobody has chosen it, when another task of its owner
//! got in. And who is dropped takes its end of the place along: what is given there, nobody has,
//! so the guard is dropped as well, and gives the lock back.
//!
//! Handing over along a line of local waiters, within bounds, is what cohort locks do between the cores of a socket (Dice, Marathe
//! and Shavit, "Lock Cohorting", PPoPP 2012); here a process is the socket.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sync::{Event, Mutex};

use super::attempt::Claim;
use super::backend::Backend;
use super::client::Shared;
use super::guard::Guard;
use super::hold::Hold;
use super::holds::Turn;
use super::name::LockName;
use super::owner::Owner;
use super::told::told;

/// All of a client's.
pub(super) struct Successors<B: Backend> {
    lines: Mutex<Lines<B>>,
}

struct Lines<B: Backend> {
    /// A name is in it while one of the client's owners has the lock, or waits for it.
    by_name: HashMap<LockName, Line<B>>,
    next_ticket: u64,
}

struct Line<B: Backend> {
    /// One of the holds, if it has a guard.
    holder: Option<Arc<Hold>>,
    /// In the order in which they came.
    waiting: BTreeMap<u64, Arc<Place<B>>>,
    /// How many of those have an owner that others may have, too.
    explicit: usize,
}

struct Place<B: Backend> {
    shared: Arc<Shared<B>>,
    claim: Claim,
    state: Mutex<State<B>>,
    /// Tells who waits here that it is chosen no more.
    told: Event,
}

enum State<B: Backend> {
    Busy,
    Open,
    Chosen,
    /// By a guard that is watched already, should nobody poll for it soon.
    Given(Guard<B>),
    Refused,
}

impl<B: Backend> Place<B> {
    /// What became of the choice, said by who made it.
    fn decide(&self, outcome: State<B>) {
        *self.state.lock() = outcome;
        self.told.notify(usize::MAX);
    }

    /// Goes on from being open. False if it is not.
    fn leave_open(&self, next: State<B>) -> bool {
        let mut state = self.state.lock();
        let open = matches!(*state, State::Open);
        if open {
            *state = next;
        }
        open
    }

    /// Whoever sleeps here need not wait for anybody.
    fn tell_to_try(&self) {
        if self.leave_open(State::Refused) {
            self.told.notify(usize::MAX);
        }
    }

    fn is_decided(&self) -> bool {
        !matches!(*self.state.lock(), State::Open | State::Chosen)
    }

    /// Ends being open. `None`: somebody has chosen this place and is still at it.
    fn try_close(&self) -> Option<Option<Guard<B>>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Busy) {
            State::Chosen => {
                *state = State::Chosen;
                None
            }
            State::Given(guard) => Some(Some(guard)),
            State::Busy | State::Open | State::Refused => Some(None),
        }
    }
}

impl<B: Backend> Default for Successors<B> {
    fn default() -> Self {
        Self { lines: Mutex::new(Lines { by_name: HashMap::new(), next_ticket: 0 }) }
    }
}

impl<B: Backend> Successors<B> {
    /// The first one in line for `name`, if it is open. Nobody goes before one that is busy: in a moment that one sleeps, or has
    /// what it wants.
    pub(super) fn choose(&self, name: &LockName) -> Option<Chosen<B>> {
        let place = self.first(name)?;
        // Another task of its owner may be at it, or inside already: then this one has to ask. That task may also be the caller.
        let turn = place.claim.owner().try_turn(name).filter(|turn| turn.holds() == 0)?;
        place.leave_open(State::Chosen).then(|| Chosen { place, turn: Some(turn), decided: false })
    }

    /// Whether anybody stands in line for `name`.
    pub(super) fn has_any(&self, name: &LockName) -> bool {
        self.lines.lock().by_name.get(name).is_some_and(|line| !line.waiting.is_empty())
    }

    fn first(&self, name: &LockName) -> Option<Arc<Place<B>>> {
        let lines = self.lines.lock();
        lines.by_name.get(name)?.waiting.first_key_value().map(|(_, place)| Arc::clone(place))
    }

    /// A place at the end of the line.
    fn join(&self, shared: &Arc<Shared<B>>, claim: &Claim) -> (u64, Arc<Place<B>>) {
        let (shared, claim) = (Arc::clone(shared), claim.clone());
        let place = Arc::new(Place { shared, claim, state: Mutex::new(State::Busy), told: Event::new() });
        let mut lines = self.lines.lock();
        let ticket = lines.next_ticket;
        lines.next_ticket += 1;
        let line = lines.line(&place.shared.name);
        line.explicit += usize::from(place.claim.may_be_inside());
        line.waiting.insert(ticket, Arc::clone(&place));
        (ticket, place)
    }

    fn leave(&self, name: &LockName, ticket: u64) {
        self.lines.lock().change(name, |line| {
            if let Some(place) = line.waiting.remove(&ticket) {
                line.explicit -= usize::from(place.claim.may_be_inside());
            }
        });
    }

    /// There is a guard of this hold. Whoever waits as the same owner can get in, too, and is told to try.
    pub(super) fn holds(&self, hold: &Arc<Hold>) {
        let (_before, siblings) = {
            let mut lines = self.lines.lock();
            let line = lines.line(&hold.key.name);
            let before = line.holder.replace(Arc::clone(hold));
            let siblings: Vec<_> = match line.explicit {
                0 => Vec::new(),
                _ => {
                    let same_owner = |place: &&Arc<Place<B>>| *place.claim.owner() == hold.key.owner;
                    line.waiting.values().filter(same_owner).cloned().collect()
                }
            };
            (before, siblings)
        };
        siblings.iter().for_each(|place| place.tell_to_try());
    }

    /// The guard is done with it.
    pub(super) fn lets_go(&self, hold: &Arc<Hold>) {
        self.lines.lock().change(&hold.key.name, |line| {
            // Its owner may have another one by now, or somebody else, if it was lost.
            if line.holder.as_ref().is_some_and(|holder| Arc::ptr_eq(holder, hold)) {
                line.holder = None;
            }
        });
    }

    /// Whoever had it has lost it.
    pub(super) fn nobody_holds(&self, name: &LockName) {
        let mut before = None;
        self.lines.lock().change(name, |line| before = line.holder.take());
    }

    /// For how long somebody of this client has the lock who is not `asking`, as far as is known at `now`. Should it be let go of earlier,
    /// that is told by a message, or by being handed the lock.
    pub(super) fn taken_for(&self, name: &LockName, asking: &Owner, now: Instant) -> Option<Duration> {
        let holder = self.lines.lock().by_name.get(name)?.holder.clone()?;
        if holder.key.owner == *asking { None } else { holder.left_at(now) }
    }
}

impl<B: Backend> Lines<B> {
    fn line(&mut self, name: &LockName) -> &mut Line<B> {
        let empty = || Line { holder: None, waiting: BTreeMap::new(), explicit: 0 };
        self.by_name.entry(name.clone()).or_insert_with(empty)
    }

    fn change(&mut self, name: &LockName, change: impl FnOnce(&mut Line<B>)) {
        let Some(line) = self.by_name.get_mut(name) else { return };
        change(line);
        if line.holder.is_none() && line.waiting.is_empty() {
            self.by_name.remove(name);
        }
    }
}

/// A place in line, for as long as its owner waits. Dropping it gives back what it was given and did not take.
pub(super) struct Successor<B: Backend> {
    ticket: u64,
    place: Arc<Place<B>>,
}

impl<B: Backend> Successor<B> {
    pub(super) fn join(shared: &Arc<Shared<B>>, claim: &Claim) -> Self {
        let (ticket, place) = shared.client.successors.join(shared, claim);
        Self { ticket, place }
    }

    /// From now on until [`close`](Self::close) the lock may be handed to this one.
    pub(super) fn open(&self) {
        let mut state = self.place.state.lock();
        if let State::Busy | State::Refused = *state {
            *state = State::Open;
        }
    }

    /// Waits until the lock has been handed over, or until that was tried and came to nothing.
    pub(super) async fn told(&self) {
        told(&self.place.told, || self.place.is_decided().then_some(())).await;
    }

    /// From now on the lock is not handed to this one any more. The guard, if it has been; who is chosen just now waits to see.
    ///
    /// Dropping the future changes nothing.
    pub(super) async fn close(&self) -> Option<Guard<B>> {
        let guard = told(&self.place.told, || self.place.try_close()).await;
        if guard.is_some() {
            self.place.shared.counters.acquisitions.add_one();
        }
        guard
    }
}

impl<B: Backend> Drop for Successor<B> {
    fn drop(&mut self) {
        let shared = &self.place.shared;
        shared.client.successors.leave(&shared.name, self.ticket);
    }
}

/// Who is to have the lock next. Dropped without a word, it is refused.
pub(super) struct Chosen<B: Backend> {
    place: Arc<Place<B>>,
    /// The owner's. Nobody else changes how often it has the lock meanwhile. `None` once it is passed on.
    turn: Option<Turn>,
    /// From then on the place may be somebody else's choice.
    decided: bool,
}

impl<B: Backend> Chosen<B> {
    pub(super) fn claim(&self) -> &Claim {
        &self.place.claim
    }

    /// The owner has the lock, by `hold`. If nobody is there any more to have it, it is given back.
    pub(super) fn give(mut self, hold: Hold) {
        let hold = Arc::new(hold);
        if let Some(turn) = self.turn.take() {
            turn.add(&hold);
        }
        let guard = Guard::new(Arc::clone(&self.place.shared), hold, self.place.claim.is_watched());
        self.decided = true;
        self.place.decide(State::Given(guard));
    }

    /// It was chosen in vain, and is none the worse.
    pub(super) fn reopen(mut self) {
        self.decided = true;
        self.place.decide(State::Open);
    }

    /// Lets the chosen one try for itself, and leaves its owner's turn to the caller.
    pub(super) fn refuse(mut self) -> Option<Turn> {
        self.turn.take()
    }
}

impl<B: Backend> Drop for Chosen<B> {
    fn drop(&mut self) {
        if !self.decided {
            self.place.decide(State::Refused);
        }
    }
}
