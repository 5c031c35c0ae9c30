//! [`Holds`]: how often an owner has each lock, and whose turn it is to change that.
//!
//! A command to the store states how many holds the owner is to have after it, so that one which is sent again counts once.
//! That number is known here and nowhere else: the store is told, never asked. For it to be right, one owner's changes of
//! one name go to the store one after another.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::semaphore::{AsyncSemaphore, OwnedSemaphorePermit};
use crate::sync::Mutex;

use super::hold::{Hold, Lost};
use super::name::LockName;
use super::owner::Owner;
use super::tenure::Tenure;

/// What one owner has. A name is in it while the owner holds it or somebody changes that.
#[derive(Default)]
pub(super) struct Holds {
    by_name: Mutex<BTreeMap<LockName, Arc<Record>>>,
}

struct Record {
    /// One permit, kept for as long as a command is under way.
    turn: Arc<AsyncSemaphore>,
    /// One for each hold; of a hold that was forgotten only its place. Weak, because a hold names its owner, who has this.
    held: Mutex<Vec<Weak<Hold>>>,
}

/// The only one who changes how often its owner has the lock, until it is dropped.
pub(super) struct Turn {
    // Dropped before the interest: the record is only given up when nobody is at it.
    _permit: OwnedSemaphorePermit,
    at: Interest,
}

/// Keeps the record for as long as somebody is at it or waits for his turn.
struct Interest {
    owner: Owner,
    name: LockName,
    /// `None` only while it is dropped.
    record: Option<Arc<Record>>,
}

impl Holds {
    fn record(&self, name: &LockName) -> Arc<Record> {
        let mut by_name = self.by_name.lock();
        if let Some(record) = by_name.get(name) {
            return Arc::clone(record);
        }
        let record = Arc::new(Record { turn: Arc::new(AsyncSemaphore::new(1)), held: Mutex::default() });
        by_name.insert(name.clone(), Arc::clone(&record));
        record
    }
}

impl Owner {
    /// Waits until nobody else changes how often this owner has `name`. First come, first served.
    pub(super) async fn turn(&self, name: &LockName) -> Turn {
        let at =
            Interest { owner: self.clone(), name: name.clone(), record: Some(self.holds().record(name)) };
        let permit = Arc::clone(&at.record().turn).acquire_owned().await;
        Turn { _permit: permit.expect("a turn's semaphore is never closed"), at }
    }

    /// The turn, unless somebody has it or waits for it.
    pub(super) fn try_turn(&self, name: &LockName) -> Option<Turn> {
        let at =
            Interest { owner: self.clone(), name: name.clone(), record: Some(self.holds().record(name)) };
        let permit = Arc::clone(&at.record().turn).try_acquire_owned().ok()?;
        Some(Turn { _permit: permit, at })
    }
}

impl Turn {
    /// How many holds there are.
    pub(super) fn holds(&self) -> u64 {
        self.at.record().held.lock().len() as u64
    }

    /// The token that the owner has the lock by, if it asked for one and its guard lives.
    pub(super) fn token(&self) -> Option<u64> {
        self.at.record().held.lock().iter().find_map(|held| held.upgrade()?.token)
    }

    /// For how long the owner has had the lock.
    pub(super) fn tenure(&self) -> Option<Tenure> {
        self.at.record().held.lock().iter().find_map(|held| Some(held.upgrade()?.tenure))
    }

    pub(super) fn add(&self, hold: &Arc<Hold>) {
        self.at.record().held.lock().push(Arc::downgrade(hold));
    }

    /// Takes `hold` out. False if it is not there: it was lost with all others.
    pub(super) fn take(&self, hold: &Arc<Hold>) -> bool {
        self.take_where(|held| Weak::as_ptr(held) == Arc::as_ptr(hold))
    }

    /// Takes a hold out whose guard was forgotten, or another one if there is none such. False if there is none at all.
    pub(super) fn take_forgotten(&self) -> bool {
        self.take_where(|held| held.upgrade().is_none_or(|hold| hold.is_forgotten()))
            || self.at.record().held.lock().pop().is_some()
    }

    fn take_where(&self, wanted: impl FnMut(&Weak<Hold>) -> bool) -> bool {
        let mut held = self.at.record().held.lock();
        let place = held.iter().position(wanted);
        place.map(|place| held.remove(place)).is_some()
    }

    /// The store has none of the holds any more: whoever has one is told, and there are none from now on.
    ///
    /// Who is not told would take the owner's next hold for his own: renew it, and give it back.
    pub(super) fn lose_all(&self) {
        let lost = std::mem::take(&mut *self.at.record().held.lock());
        for hold in lost.iter().filter_map(Weak::upgrade) {
            hold.lose(Lost::Gone);
        }
    }
}

impl Interest {
    fn record(&self) -> &Arc<Record> {
        self.record.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut by_name = self.owner.holds().by_name.lock();
        // Under the mutex: of two who leave at once the last one must see that it is.
        self.record = None;
        // Only the map's is left. Others come by the map only, and its mutex is ours.
        let nobody_is_at_it =
            |record: &Arc<Record>| Arc::strong_count(record) == 1 && record.held.lock().is_empty();
        if by_name.get(&self.name).is_some_and(nobody_is_at_it) {
            by_name.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use std::time::Instant;

    use super::super::backend::HoldKey;
    use super::*;

    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("had to wait"),
        }
    }

    fn names(owner: &Owner) -> usize {
        owner.holds().by_name.lock().len()
    }

    fn a_hold(owner: &Owner, name: &LockName) -> Arc<Hold> {
        let key = HoldKey { name: name.clone(), owner: owner.clone() };
        Arc::new(Hold::new(key, None, None, Tenure::new(Instant::now(), None), Arc::default()))
    }

    #[test]
    fn nothing_is_kept_for_a_name_that_is_not_held() {
        let (owner, name) = (Owner::new("client", 1), LockName::new("orders").unwrap());
        let turn = now(owner.turn(&name));
        {
            let mut waits = pin!(owner.turn(&name));
            assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        drop(turn);
        assert_eq!(names(&owner), 0, "after one who gave up");

        let hold = a_hold(&owner, &name);
        now(owner.turn(&name)).add(&hold);
        assert_eq!((names(&owner), now(owner.turn(&name)).holds()), (1, 1));
        assert!(now(owner.turn(&name)).take(&hold));
        assert_eq!(names(&owner), 0, "after the last hold");
    }

    #[test]
    fn record_outlives_the_turn_of_one_who_found_it_empty() {
        let (owner, name) = (Owner::new("client", 1), LockName::new("orders").unwrap());
        let first = now(owner.turn(&name));
        let mut second = pin!(owner.turn(&name));
        assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(first);
        let second = now(second);
        // Were the record given up, this one would have its turn at the same time.
        let mut third = pin!(owner.turn(&name));
        assert!(third.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(second);
        drop(now(third));
        assert_eq!(names(&owner), 0);
    }

    #[test]
    fn forgotten_hold_is_given_back_before_one_that_has_a_guard() {
        let (owner, name) = (Owner::new("client", 1), LockName::new("orders").unwrap());
        let turn = now(owner.turn(&name));
        let holds = [(); 3].map(|()| a_hold(&owner, &name));
        holds.iter().for_each(|hold| turn.add(hold));
        holds[1].forget();
        assert!(turn.take_forgotten());
        assert!(turn.take(&holds[0]) && turn.take(&holds[2]) && !turn.take(&holds[1]));
        assert!(!turn.take_forgotten());
    }

    #[test]
    fn holds_that_are_lost_are_told_so() {
        let (owner, name) = (Owner::new("client", 1), LockName::new("orders").unwrap());
        let turn = now(owner.turn(&name));
        let hold = a_hold(&owner, &name);
        turn.add(&hold);
        turn.lose_all();
        assert_eq!(hold.lost_at(std::time::Instant::now()), Some(Lost::Gone));
        assert!(!turn.take(&hold));
    }

    #[test]
    fn owner_that_forgot_a_hold_is_not_kept_by_it() {
        let (owner, name) = (Owner::new("client", 1), LockName::new("orders").unwrap());
        let hold = a_hold(&owner, &name);
        now(owner.turn(&name)).add(&hold);
        drop(hold);
        assert_eq!(owner.handles(), 1);
    }
}
