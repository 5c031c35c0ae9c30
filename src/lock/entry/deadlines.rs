//! [`Deadlines`]: when the watchdog has to look at which entry, told by what makes something due.

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
    /// In a child the mutex is not sure to be unlocked ever.
    origin: Origin,
}

/// What the watchdog looks at.
pub(in crate::lock) trait HasDeadline {
    fn due(&self) -> &Due;

    /// Starts a watchdog, as there is none.
    fn start_watchdog(&self);
}

/// When the watchdog looks at one entry.
pub(in crate::lock) struct Due {
    /// As a number; that of never while nothing is due. Written under the mutex of the deadlines only.
    at: AtomicU64,
    /// Tells entries that are due at the same time apart, and orders them.
    number: u64,
}

struct Set<E> {
    /// By when they are due. Those of the second map were looked at early, and had no renewal that could be
    /// sent early: they are looked at when they are due, and not before.
    entries: [BTreeMap<Key, Weak<E>>; 2],
    /// There is a watchdog, or one is being started.
    running: bool,
}

type Key = (Moment, u64);

impl<E> Set<E> {
    fn first(&self) -> Moment {
        let firsts = self.entries.iter().filter_map(|entries| entries.keys().next());
        firsts.map(|(at, _)| *at).min().unwrap_or(Moment::NEVER)
    }

    /// Takes out an entry that is due at `at`.
    fn remove(&mut self, at: Moment, number: u64) {
        self.entries.iter_mut().for_each(|entries| _ = entries.remove(&(at, number)));
    }
}

impl Due {
    #[inline]
    fn at(&self) -> Moment {
        // Ordering: Relaxed, see `Deadlines::schedule`.
        Moment::of_number(self.at.load(Ordering::Relaxed))
    }

    /// The caller has locked the mutex of the deadlines.
    fn set(&self, at: Moment) {
        // Ordering: Relaxed, see `Deadlines::schedule`; written under the mutex only.
        self.at.store(at.number(), Ordering::Relaxed);
    }
}

impl<E> Deadlines<E> {
    pub(in crate::lock) fn new() -> Self {
        let set = Mutex::new(Set { entries: [BTreeMap::new(), BTreeMap::new()], running: false });
        Self { set, changed: Event::new(), next_number: AtomicU64::new(0), origin: Origin::here() }
    }

    /// For an entry of its own.
    pub(in crate::lock) fn due(&self) -> Due {
        // Ordering: Relaxed, only the number's being used once matters.
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        Due { at: AtomicU64::new(Moment::NEVER.number()), number }
    }

    fn wake_watchdog(&self) {
        self.changed.notify();
    }

    /// The client is gone, and the watchdog is to see that.
    pub(in crate::lock) fn close(&self) {
        if self.origin.is_same_process() {
            self.wake_watchdog();
        }
    }
}

impl<E: HasDeadline> Deadlines<E> {
    /// The watchdog is to look at the entry at `at`, or earlier. Cheap if it does so anyway.
    #[inline]
    pub(in crate::lock) fn schedule(&self, entry: &Arc<E>, at: Moment) {
        // Ordering: Relaxed. The caller has changed the entry under its mutex before. A watchdog that has
        // looked at the entry before that has set this to never before it took that mutex, so it is not
        // missed here.
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
            // Another thread was quicker. There is a watchdog: without one nothing is due.
            if before <= at {
                return;
            }
            set.remove(before, due.number);
            let is_first = at < set.first();
            set.entries[0].insert((at, due.number), Arc::downgrade(entry));
            due.set(at);
            (std::mem::replace(&mut set.running, true), is_first)
        };
        match was_running {
            true if is_first => self.wake_watchdog(),
            true => {}
            false => entry.start_watchdog(),
        }
    }

    /// The entry was looked at early, when it was due at `at`, and there was nothing to be done yet.
    pub(in crate::lock) fn put_back(&self, entry: &Arc<E>, at: Moment) {
        let due = entry.due();
        let mut set = self.set.lock();
        if at < due.at() {
            set.remove(due.at(), due.number);
            set.entries[1].insert((at, due.number), Arc::downgrade(entry));
            due.set(at);
        }
    }

    /// The entry is being dropped. Not in a child.
    pub(in crate::lock) fn remove(&self, due: &Due) {
        // No other task has the entry, so this does not change any more.
        if due.at() != Moment::NEVER {
            self.set.lock().remove(due.at(), due.number);
        }
    }

    /// What is due by `by`, with when it is due, in that order; at most `most`. `early`: only what may be
    /// looked at before it is due. Whatever is taken is to be looked at, and is scheduled anew, or is [put
    /// back](Self::put_back). An entry that is being dropped is passed over.
    pub(in crate::lock) fn take(&self, by: Moment, most: usize, early: bool) -> Vec<(Moment, Arc<E>)> {
        let (mut set, mut taken) = (self.set.lock(), Vec::new());
        for entries in &mut set.entries[..if early { 1 } else { 2 }] {
            while taken.len() < most
                && let Some(first) = entries.first_entry()
                && first.key().0 <= by
            {
                let ((at, _), entry) = first.remove_entry();
                if let Some(entry) = entry.upgrade() {
                    entry.due().set(Moment::NEVER);
                    taken.push((at, entry));
                }
            }
        }
        taken
    }

    /// Is ready when a deadline comes before all others. Listens from the call on.
    pub(in crate::lock) fn changed(&self) -> Listener {
        self.changed.listen()
    }

    /// When the watchdog has to look. Never ends it.
    pub(in crate::lock) fn next(&self) -> Moment {
        let mut set = self.set.lock();
        let at = set.first();
        set.running = at != Moment::NEVER;
        at
    }

    /// The watchdog has ended, in whatever way. What is due stays so; the next deadline starts another one.
    pub(in crate::lock) fn ended(&self) {
        // Dropped with the mutex free: an entry that is dropped comes here.
        let _due: Vec<Arc<E>> = {
            let mut set = self.set.lock();
            set.running = false;
            let entries = set.entries.iter().flat_map(BTreeMap::values);
            // However early an entry was due before: each deadline is scheduled from now on. The entry may
            // have two places then, and is looked at once for nothing.
            entries.filter_map(Weak::upgrade).inspect(|entry| entry.due().set(Moment::NEVER)).collect()
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// With how often a watchdog was started.
    struct Entry(Due, Arc<AtomicU64>);

    impl HasDeadline for Entry {
        fn due(&self) -> &Due {
            &self.0
        }

        fn start_watchdog(&self) {
            // Ordering: Relaxed, as each test looks when no other thread schedules.
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// With how often its watchdog was started.
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
        let set = deadlines.set.lock();
        set.entries.iter().map(BTreeMap::len).sum()
    }

    #[test]
    fn entry_has_one_place_however_often_it_is_scheduled_and_none_once_it_is_dropped() {
        let (deadlines, started) = deadlines();
        let (entry, other) = (entry(&deadlines, &started), entry(&deadlines, &started));
        for seconds in [3, 2, 5] {
            deadlines.schedule(&entry, at(seconds));
            assert_eq!(places(&deadlines), 1);
        }
        assert_eq!(deadlines.next(), at(2));
        deadlines.schedule(&other, at(1));
        assert_eq!(deadlines.take(at(2), 9, true).len(), 2);
        deadlines.put_back(&entry, at(2));
        deadlines.put_back(&other, at(1));
        assert_eq!((places(&deadlines), deadlines.next()), (2, at(1)));
        deadlines.schedule(&other, at(0));
        assert_eq!((places(&deadlines), deadlines.next()), (2, at(0)));
        [&entry, &other].into_iter().for_each(|entry| deadlines.remove(&entry.0));
        assert_eq!((places(&deadlines), deadlines.next()), (0, Moment::NEVER));
        // Ordering: Relaxed, as above.
        assert_eq!(started.load(Ordering::Relaxed), 1);
    }

    /// By a deadline that comes between, or beside this one.
    #[test]
    fn what_comes_later_makes_no_entry_due_later_than_what_came_before() {
        let (deadlines, started) = deadlines();
        let entry = entry(&deadlines, &started);
        deadlines.schedule(&entry, at(2));
        deadlines.set(&entry, at(3));
        assert_eq!(
            (places(&deadlines), deadlines.next()),
            (1, at(2)),
            "the later deadline was looked at before the other"
        );
        for (between, due) in [(1, 1), (5, 2)] {
            assert_eq!(deadlines.take(at(9), 9, true).len(), 1);
            deadlines.schedule(&entry, at(between));
            deadlines.put_back(&entry, at(2));
            assert_eq!((places(&deadlines), deadlines.next()), (1, at(due)));
            // Not put back, it may be looked at early.
            assert_eq!(deadlines.take(at(9), 9, true).len(), usize::from(between < 2));
            deadlines.take(at(9), 9, false);
            deadlines.schedule(&entry, at(2));
        }
    }

    #[test]
    fn no_more_are_looked_at_than_asked_for_whichever_they_are() {
        let (deadlines, started) = deadlines();
        let entries = [(); 3].map(|()| entry(&deadlines, &started));
        entries.iter().for_each(|entry| deadlines.schedule(entry, at(1)));
        let early = deadlines.take(at(1), 2, true);
        early.iter().for_each(|(at, entry)| deadlines.put_back(entry, *at));
        assert_eq!((deadlines.take(at(1), 2, false).len(), deadlines.take(at(1), 2, false).len()), (2, 1));
    }

    /// The one before has ended by a panic, and what it was to look at is due for long.
    #[test]
    fn any_deadline_starts_another_watchdog_which_looks_at_all_that_is_due() {
        let (deadlines, started) = deadlines();
        let entries = [entry(&deadlines, &started), entry(&deadlines, &started)];
        entries.iter().for_each(|entry| deadlines.schedule(entry, at(1)));
        deadlines.ended();
        // Ordering: Relaxed, as above.
        assert_eq!(started.load(Ordering::Relaxed), 1);
        deadlines.schedule(&entries[0], at(9));
        // Ordering: Relaxed, as above.
        assert_eq!(started.load(Ordering::Relaxed), 2, "it is not started, as the entry was due before");
        assert_eq!(deadlines.take(at(2), 9, false).len(), 2);
        assert!(deadlines.next() <= at(9));
    }

    /// Lets a thread come to the mutex and wait there. Where it does not by then, a test shows nothing, and
    /// does not fail.
    fn let_wait() {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1) {
            thread::yield_now();
        }
    }

    /// Both wait for the mutex before, in this order, so that the deadline comes as early as it can.
    #[test]
    fn deadline_that_comes_while_the_watchdog_finds_nothing_due_is_seen_or_starts_another_one() {
        const ROUNDS: usize = 100;
        for _ in 0..ROUNDS {
            let (deadlines, started) = deadlines();
            let entry = entry(&deadlines, &started);
            deadlines.schedule(&entry, at(1));
            assert_eq!(deadlines.take(at(1), 1, false).len(), 1);
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
            assert!(next == at(2) || started.load(Ordering::Relaxed) == 2, "no watchdog looks at it");
        }
    }

    /// The deadline waits for the mutex before, and the other one comes meanwhile.
    #[test]
    fn entry_that_is_scheduled_while_it_is_put_back_is_looked_at_in_time() {
        const ROUNDS: usize = 20;
        let (deadlines, started) = deadlines();
        let entry = entry(&deadlines, &started);
        for _ in 0..ROUNDS {
            let set = deadlines.set.lock();
            thread::scope(|scope| {
                scope.spawn(|| deadlines.schedule(&entry, at(1)));
                let_wait();
                scope.spawn(|| deadlines.put_back(&entry, at(2)));
                let_wait();
                drop(set);
            });
            assert_eq!(deadlines.next(), at(1));
            deadlines.take(at(9), 9, false);
        }
    }
}
