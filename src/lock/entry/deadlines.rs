//! [`Deadlines`]: the watchdog's schedule, written by the code that makes an entry due.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::lock_entry::Moment;
use crate::support::event::{Event, Listener};
use crate::support::sync::Mutex;
use crate::support::sync::atomic::{AtomicU64, Ordering};

use crate::lock::origin::Origin;

/// The deadlines of one client. The watchdog is started by the first deadline, and ends when nothing is due.
pub(in crate::lock) struct Deadlines<E> {
    set: Mutex<Set<E>>,
    changed: Event,
    next_number: AtomicU64,
    /// In a child the mutex may stay locked forever.
    origin: Origin,
}

pub(in crate::lock) trait HasDeadline {
    fn due(&self) -> &Due;

    fn start_watchdog(&self);
}

pub(in crate::lock) struct Due {
    /// The moment's number, `NEVER`'s while nothing is due. Written only under the mutex of `Deadlines`.
    at: AtomicU64,
    number: u64,
}

struct Set<E> {
    /// Entries by deadline and number.
    entries: BTreeMap<(Moment, u64), Weak<E>>,
    running: bool,
}

impl<E> Set<E> {
    fn first(&self) -> Moment {
        self.entries.keys().next().map_or(Moment::NEVER, |(at, _)| *at)
    }
}

impl Due {
    #[inline]
    fn at(&self) -> Moment {
        // Ordering: Relaxed, see `Deadlines::schedule`.
        Moment::of_number(self.at.load(Ordering::Relaxed))
    }

    fn set(&self, at: Moment) {
        // Ordering: Relaxed, see `Deadlines::schedule`; written under the mutex only.
        self.at.store(at.number(), Ordering::Relaxed);
    }
}

impl<E> Deadlines<E> {
    pub(in crate::lock) fn new() -> Self {
        let set = Mutex::new(Set { entries: BTreeMap::new(), running: false });
        Self { set, changed: Event::default(), next_number: AtomicU64::new(0), origin: Origin::here() }
    }

    pub(in crate::lock) fn due(&self) -> Due {
        // Ordering: Relaxed; only the number's uniqueness matters.
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        Due { at: AtomicU64::new(Moment::NEVER.number()), number }
    }
}

/// Wakes the watchdog, to find that the client is gone.
impl<E> Drop for Deadlines<E> {
    fn drop(&mut self) {
        if self.origin.is_same_process() {
            self.changed.notify();
        }
    }
}

impl<E: HasDeadline> Deadlines<E> {
    /// Schedules a look at the entry, at `at` or earlier. Cheap if an early enough look is already scheduled.
    #[inline]
    pub(in crate::lock) fn schedule(&self, entry: &Arc<E>, at: Moment) {
        // Ordering: Relaxed. The caller has changed the entry under the entry's mutex. A watchdog that looked
        // earlier had set the deadline to `NEVER` before locking that mutex, and the load sees `NEVER`.
        if at < entry.due().at() {
            self.set(entry, at);
        }
    }

    #[cold]
    fn set(&self, entry: &Arc<E>, at: Moment) {
        let due = entry.due();
        let (was_running, is_first) = {
            let mut set = self.set.lock();
            let before = due.at();
            // Another thread was quicker. A watchdog runs: without one nothing is due.
            if before <= at {
                return;
            }
            set.entries.remove(&(before, due.number));
            let is_first = at < set.first();
            set.entries.insert((at, due.number), Arc::downgrade(entry));
            due.set(at);
            (std::mem::replace(&mut set.running, true), is_first)
        };
        match was_running {
            true if is_first => self.changed.notify(),
            true => {}
            false => entry.start_watchdog(),
        }
    }

    /// Removes an entry that is being dropped. Not called in a child.
    pub(in crate::lock) fn remove(&self, due: &Due) {
        // No other task has the entry, so the deadline is final.
        if due.at() != Moment::NEVER {
            self.set.lock().entries.remove(&(due.at(), due.number));
        }
    }

    /// Takes up to `most` entries due by `by`. The caller looks at each, which schedules the entry anew.
    pub(in crate::lock) fn take(&self, by: Moment, most: usize) -> Vec<Arc<E>> {
        let (mut set, mut taken) = (self.set.lock(), Vec::new());
        while taken.len() < most
            && let Some(first) = set.entries.first_entry()
            && first.key().0 <= by
        {
            if let Some(entry) = first.remove().upgrade() {
                entry.due().set(Moment::NEVER);
                taken.push(entry);
            }
        }
        taken
    }

    /// Resolves when a deadline comes before all others. Listens from the call on.
    pub(in crate::lock) fn changed(&self) -> Listener {
        self.changed.listen()
    }

    pub(in crate::lock) fn next(&self) -> Moment {
        let mut set = self.set.lock();
        let at = set.first();
        set.running = at != Moment::NEVER;
        at
    }

    /// Notes the watchdog's end. Deadlines stay; the next one starts another watchdog.
    pub(in crate::lock) fn ended(&self) {
        // Dropped with the mutex free, which an entry's drop locks.
        let _due: Vec<Arc<E>> = {
            let mut set = self.set.lock();
            set.running = false;
            // Each deadline is scheduled from now on. An entry may have two places, and one look in vain.
            set.entries
                .values()
                .filter_map(Weak::upgrade)
                .inspect(|entry| entry.due().set(Moment::NEVER))
                .collect()
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    struct Entry(Due, Arc<AtomicU64>);

    impl HasDeadline for Entry {
        fn due(&self) -> &Due {
            &self.0
        }

        fn start_watchdog(&self) {
            // Ordering: Relaxed, as each test reads while no other thread schedules.
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn deadlines() -> (Deadlines<Entry>, Arc<AtomicU64>) {
        (Deadlines::new(), Arc::default())
    }

    fn entry(deadlines: &Deadlines<Entry>, started: &Arc<AtomicU64>) -> Arc<Entry> {
        Arc::new(Entry(deadlines.due(), Arc::clone(started)))
    }

    fn at(seconds: u64) -> Moment {
        static BEGAN: OnceLock<Moment> = OnceLock::new();
        *BEGAN.get_or_init(|| Instant::now().into()) + Duration::from_secs(seconds)
    }

    fn places(deadlines: &Deadlines<Entry>) -> usize {
        deadlines.set.lock().entries.len()
    }

    #[test]
    fn entry_has_one_place_until_dropped_however_often_scheduled() {
        let (deadlines, started) = deadlines();
        let (entry, other) = (entry(&deadlines, &started), entry(&deadlines, &started));
        for seconds in [3, 2, 5] {
            deadlines.schedule(&entry, at(seconds));
            assert_eq!(places(&deadlines), 1);
        }
        assert_eq!(deadlines.next(), at(2));
        deadlines.schedule(&other, at(1));
        assert_eq!(deadlines.take(at(2), 9).len(), 2);
        deadlines.schedule(&entry, at(2));
        deadlines.schedule(&other, at(1));
        assert_eq!((places(&deadlines), deadlines.next()), (2, at(1)));
        deadlines.schedule(&other, at(0));
        assert_eq!((places(&deadlines), deadlines.next()), (2, at(0)));
        [&entry, &other].into_iter().for_each(|entry| deadlines.remove(&entry.0));
        assert_eq!((places(&deadlines), deadlines.next()), (0, Moment::NEVER));
        // Ordering: Relaxed, as above.
        assert_eq!(started.load(Ordering::Relaxed), 1);
    }

    /// The later deadline comes after the earlier one, or while the entry is looked at.
    #[test]
    fn later_deadline_never_delays_an_entry_beyond_an_earlier_one() {
        let (deadlines, started) = deadlines();
        let entry = entry(&deadlines, &started);
        deadlines.schedule(&entry, at(2));
        deadlines.set(&entry, at(3));
        assert_eq!(
            (places(&deadlines), deadlines.next()),
            (1, at(2)),
            "expected one place of the entry, at its earlier deadline"
        );
        for (between, due) in [(1, 1), (5, 2)] {
            assert_eq!(deadlines.take(at(9), 9).len(), 1);
            deadlines.schedule(&entry, at(between));
            deadlines.schedule(&entry, at(2));
            assert_eq!((places(&deadlines), deadlines.next()), (1, at(due)));
        }
    }

    #[test]
    fn no_more_are_looked_at_than_asked_for_whichever_they_are() {
        let (deadlines, started) = deadlines();
        let entries = [(); 3].map(|()| entry(&deadlines, &started));
        entries.iter().for_each(|entry| deadlines.schedule(entry, at(1)));
        assert_eq!((deadlines.take(at(1), 2).len(), deadlines.take(at(1), 2).len()), (2, 1));
    }

    /// The previous watchdog has panicked, and its entries are still due.
    #[test]
    fn any_deadline_restarts_a_watchdog_that_visits_all_due_entries() {
        let (deadlines, started) = deadlines();
        let entries = [entry(&deadlines, &started), entry(&deadlines, &started)];
        entries.iter().for_each(|entry| deadlines.schedule(entry, at(1)));
        deadlines.ended();
        // Ordering: Relaxed, as above.
        assert_eq!(started.load(Ordering::Relaxed), 1);
        deadlines.schedule(&entries[0], at(9));
        // Ordering: Relaxed, as above.
        assert_eq!(
            started.load(Ordering::Relaxed),
            2,
            "expected another watchdog, also for an entry that was due before"
        );
        assert_eq!(deadlines.take(at(2), 9).len(), 2);
        assert!(deadlines.next() <= at(9));
    }

    /// Lets a thread reach the mutex and wait. If it is too slow, the test checks nothing and passes.
    fn let_wait() {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1) {
            thread::yield_now();
        }
    }

    /// Both threads wait for the mutex, in this order: the deadline comes as early as possible.
    #[test]
    fn deadline_beside_an_idle_check_is_seen_or_starts_a_watchdog() {
        const ROUNDS: usize = 100;
        for _ in 0..ROUNDS {
            let (deadlines, started) = deadlines();
            let entry = entry(&deadlines, &started);
            deadlines.schedule(&entry, at(1));
            assert_eq!(deadlines.take(at(1), 1).len(), 1);
            let set = deadlines.set.lock();
            let next = thread::scope(|scope| {
                let watchdog = scope.spawn(|| deadlines.next());
                let_wait();
                scope.spawn(|| deadlines.schedule(&entry, at(2)));
                let_wait();
                drop(set);
                watchdog.join().unwrap()
            });
            // Ordering: Relaxed, as the threads have ended.
            assert!(
                next == at(2) || started.load(Ordering::Relaxed) == 2,
                "expected a watchdog that visits the entry"
            );
        }
    }
}
