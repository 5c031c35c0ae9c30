//! [`Tables`]: the entries of a client, by kind and name.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, Weak};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::sync::Mutex;

use crate::lock::backend::Mode;
use crate::lock::entry::alarm::Alarm;
use crate::lock::name::{LockName, NameHasher};

/// A table for each kind of lock: a name is another lock as another kind.
pub(in crate::lock) struct Tables<T> {
    pub(in crate::lock) plain: Table<T>,
    pub(in crate::lock) fair: Table<T>,
    pub(in crate::lock) read: Table<T>,
    pub(in crate::lock) write: Table<T>,
    /// When the watchdog looks at which of them.
    pub(in crate::lock) alarm: Alarm<T>,
}

impl<T> Default for Tables<T> {
    fn default() -> Self {
        let [plain, fair, read, write] = std::array::from_fn(|_| Table::default());
        Self { plain, fair, read, write, alarm: Alarm::new() }
    }
}

/// The client is gone, and its watchdog is to see that.
impl<T> Drop for Tables<T> {
    fn drop(&mut self) {
        self.alarm.close();
    }
}

impl<T> Tables<T> {
    /// Where the entries of this mode are.
    pub(in crate::lock) fn of(&self, mode: Mode) -> &Table<T> {
        match mode {
            Mode::Plain => &self.plain,
            Mode::Fair => &self.fair,
            Mode::Read => &self.read,
            Mode::Write => &self.write,
        }
    }

    pub(in crate::lock) fn all(&self) -> Vec<Arc<T>> {
        [&self.plain, &self.fair, &self.read, &self.write].map(Table::all).concat()
    }
}

/// Keeps what is shared by all handles of a name, for as long as there are some.
pub(in crate::lock) struct Table<T>(Mutex<Entries<T>>);

struct Entries<T> {
    /// A `HashTable`, as a name that is there is found by its text alone.
    by_name: HashTable<(LockName, Weak<T>)>,
    /// Those that stay without a handle: their holds were forgotten.
    kept: HashMap<LockName, Arc<T>, BuildHasherDefault<NameHasher>>,
}

/// A map with room for so many is not worth shrinking.
const FEW: usize = 64;

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Mutex::new(Entries { by_name: HashTable::new(), kept: HashMap::default() }))
    }
}

impl<T> Table<T> {
    /// The entry called `name`, if there is one.
    pub(in crate::lock) fn find(&self, name: &LockName) -> Option<Arc<T>> {
        let entries = self.0.lock();
        let found = entries.by_name.find(name.hash_value(), |(other, _)| other == name);
        found.and_then(|(_, entry)| entry.upgrade())
    }

    /// As [`find`](Self::find), of a name that was not checked: if there is an entry, it was.
    pub(in crate::lock) fn find_text(&self, name: &str) -> Option<Arc<T>> {
        let hash = LockName::hash_of(name);
        let entries = self.0.lock();
        let found = entries.by_name.find(hash, |(other, _)| other.as_str() == name);
        found.and_then(|(_, entry)| entry.upgrade())
    }

    /// The entry called `name`; made if there is none.
    pub(in crate::lock) fn get(&self, name: &LockName, make: impl FnOnce() -> T) -> Arc<T> {
        if let Some(entry) = self.find(name) {
            return entry;
        }
        // Made, and dropped if another thread was quicker, with the mutex free: an entry that is dropped
        // comes here. What is declared first is dropped last.
        let made = Arc::new(make());
        let mut entries = self.0.lock();
        let is_it = |(other, _): &(LockName, Weak<T>)| other == name;
        match entries.by_name.entry(name.hash_value(), is_it, |(other, _)| other.hash_value()) {
            Entry::Occupied(mut place) => match place.get().1.upgrade() {
                Some(quicker) => return quicker,
                None => place.get_mut().1 = Arc::downgrade(&made),
            },
            Entry::Vacant(place) => _ = place.insert((name.clone(), Arc::downgrade(&made))),
        }
        made
    }

    /// An entry is being dropped.
    pub(in crate::lock) fn remove(&self, name: &LockName) {
        let mut entries = self.0.lock();
        // One that was made since then is not for us to remove.
        let is_it = |(other, entry): &(LockName, Weak<T>)| other == name && entry.strong_count() == 0;
        if let Ok(place) = entries.by_name.find_entry(name.hash_value(), is_it) {
            place.remove();
        }
        if entries.by_name.len() < entries.by_name.capacity() / 8 {
            entries.by_name.shrink_to(FEW, |(other, _)| other.hash_value());
        }
    }

    /// Keeps an entry, though there may be no handle of it, until it is [let go](Self::let_go_unless).
    pub(in crate::lock) fn keep(&self, name: &LockName, entry: &Arc<T>) {
        let _before = self.0.lock().kept.insert(name.clone(), Arc::clone(entry));
    }

    /// Keeps an entry no longer, unless it `is_needed` to. Asked under the mutex, so that a reason that comes
    /// meanwhile keeps it.
    pub(in crate::lock) fn let_go_unless(&self, name: &LockName, is_needed: impl FnOnce() -> bool) {
        // Dropped with the mutex free.
        let _kept = {
            let mut entries = self.0.lock();
            if is_needed() {
                return;
            }
            entries.kept.remove(name)
        };
    }

    /// By name, so that a shutdown takes them in the same order each time.
    fn all(&self) -> Vec<Arc<T>> {
        let mut all: Vec<(LockName, Arc<T>)> = {
            let entries = self.0.lock();
            let by_name = entries.by_name.iter();
            by_name.filter_map(|(name, entry)| Some((name.clone(), entry.upgrade()?))).collect()
        };
        all.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
        all.into_iter().map(|(_, entry)| entry).collect()
    }

    #[cfg(test)]
    pub(in crate::lock) fn len(&self) -> usize {
        self.0.lock().by_name.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// With what another one is sent to that comes while this one is dropped.
    struct Entry(Arc<Table<Entry>>, LockName, Option<mpsc::Sender<Arc<Entry>>>);

    impl Drop for Entry {
        fn drop(&mut self) {
            let Self(table, name, meanwhile) = self;
            if let Some(meanwhile) = meanwhile {
                let next = table.get(name, || Self(Arc::clone(table), name.clone(), None));
                meanwhile.send(next).unwrap();
            }
            table.remove(name);
        }
    }

    #[test]
    fn entry_goes_with_its_last_handle_unless_it_is_kept() {
        let table = Arc::new(Table::default());
        let name = LockName::new("orders").unwrap();
        let get = || table.get(&name, || Entry(Arc::clone(&table), name.clone(), None));
        let (one, other) = (get(), get());
        assert!(Arc::ptr_eq(&one, &other));
        drop((one, other));
        assert_eq!(table.len(), 0);
        table.keep(&name, &get());
        assert_eq!(table.len(), 1);
        table.let_go_unless(&name, || true);
        assert_eq!(table.len(), 1);
        table.let_go_unless(&name, || false);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn threads_that_come_at_once_have_the_entry_of_the_quickest() {
        let table = Arc::new(Table::default());
        let name = LockName::new("orders").unwrap();
        let make = || Entry(Arc::clone(&table), name.clone(), None);
        let mut quicker = None;
        let got = table.get(&name, || {
            quicker = Some(table.get(&name, make));
            make()
        });
        assert!(quicker.is_some_and(|quicker| Arc::ptr_eq(&quicker, &got)));
    }

    #[test]
    fn entry_that_is_made_while_the_one_before_is_dropped_stays_when_that_is_gone() {
        let table = Arc::new(Table::default());
        let name = LockName::new("orders").unwrap();
        let (meanwhile, came) = mpsc::channel();
        drop(table.get(&name, || Entry(Arc::clone(&table), name.clone(), Some(meanwhile))));
        let next = came.recv().unwrap();
        assert!(table.find(&name).is_some_and(|found| Arc::ptr_eq(&found, &next)));
        let again = table.get(&name, || unreachable!("it is there"));
        assert!(Arc::ptr_eq(&again, &next));
    }

    /// Such as a hold that another thread forgets: it keeps the entry, which would be let go after that.
    #[test]
    fn whether_an_entry_is_needed_is_asked_while_no_thread_can_keep_it() {
        let table = Arc::new(Table::default());
        let name = LockName::new("orders").unwrap();
        table.keep(&name, &table.get(&name, || Entry(Arc::clone(&table), name.clone(), None)));
        let mut was_asked = false;
        table.let_go_unless(&name, || {
            was_asked = true;
            assert!(table.0.try_lock().is_none(), "it may be kept now");
            false
        });
        assert!(was_asked && table.len() == 0);
    }
}
