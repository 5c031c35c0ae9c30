//! [`Tables`]: the entries of a client, by mode and name.

use std::sync::{Arc, Weak};

use hashbrown::HashTable;

use crate::support::sync::Mutex;

use crate::lock::backend::Mode;
use crate::lock::entry::deadlines::Deadlines;
use crate::lock::name::LockName;

/// A table for each mode: under another mode, a name is another lock.
pub(in crate::lock) struct Tables<T> {
    by_mode: [Table<T>; 4],
    pub(in crate::lock) deadlines: Deadlines<T>,
}

impl<T> Default for Tables<T> {
    fn default() -> Self {
        Self { by_mode: Default::default(), deadlines: Deadlines::new() }
    }
}

impl<T> Tables<T> {
    pub(in crate::lock) fn of(&self, mode: Mode) -> &Table<T> {
        &self.by_mode[mode as usize]
    }

    pub(in crate::lock) fn all(&self) -> Vec<Arc<T>> {
        self.by_mode.each_ref().map(Table::all).concat()
    }
}

/// The entries that handles share, for as long as handles exist. A `HashTable` finds a name by its text.
pub(in crate::lock) struct Table<T>(Mutex<HashTable<Place<T>>>);

struct Place<T> {
    name: LockName,
    entry: Weak<T>,
    /// The entry, if kept without a handle: for a forgotten hold or an unanswered release.
    kept: Option<Arc<T>>,
}

/// A map with room for this many names is not worth shrinking.
const FEW: usize = 64;

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Mutex::new(HashTable::new()))
    }
}

impl<T> Table<T> {
    pub(in crate::lock) fn find(&self, name: &LockName) -> Option<Arc<T>> {
        self.0.lock().find(name.hash_value(), |place| place.name == *name)?.entry.upgrade()
    }

    /// As [`find`](Self::find), by an unchecked name: the name of an existing entry was checked.
    pub(in crate::lock) fn find_text(&self, name: &str) -> Option<Arc<T>> {
        let hash = LockName::hash_of(name);
        self.0.lock().find(hash, |place| place.name.as_str() == name)?.entry.upgrade()
    }

    pub(in crate::lock) fn get(&self, name: &LockName, make: impl FnOnce() -> T) -> Arc<T> {
        if let Some(entry) = self.find(name) {
            return entry;
        }
        // Declared before `places`, to be dropped after it: an entry's drop locks the mutex.
        let made = Arc::new(make());
        let mut places = self.0.lock();
        let is_it = |place: &Place<T>| place.name == *name;
        let place = places.entry(name.hash_value(), is_it, |place| place.name.hash_value());
        let place = place.or_insert_with(|| Place { name: name.clone(), entry: Weak::new(), kept: None });
        let place = place.into_mut();
        if let Some(quicker) = place.entry.upgrade() {
            return quicker;
        }
        place.entry = Arc::downgrade(&made);
        made
    }

    pub(in crate::lock) fn remove(&self, name: &LockName) {
        let mut places = self.0.lock();
        // Another thread may have made a new entry since then.
        let is_it = |place: &Place<T>| place.name == *name && place.entry.strong_count() == 0;
        if let Ok(place) = places.find_entry(name.hash_value(), is_it) {
            place.remove();
        }
        if places.len() < places.capacity() / 8 {
            places.shrink_to(FEW, |place| place.name.hash_value());
        }
    }

    /// Keeps an entry, even without a handle, until [`let_go_unless`](Self::let_go_unless).
    pub(in crate::lock) fn keep(&self, name: &LockName, entry: &Arc<T>) {
        if let Some(place) = self.0.lock().find_mut(name.hash_value(), |place| place.name == *name) {
            place.kept.get_or_insert_with(|| Arc::clone(entry));
        }
    }

    /// Stops keeping an entry, unless it `is_needed`: asked under the mutex, so that a new reason keeps it.
    pub(in crate::lock) fn let_go_unless(&self, name: &LockName, is_needed: impl FnOnce() -> bool) {
        // Dropped with the mutex free.
        let _kept = {
            let mut places = self.0.lock();
            if is_needed() {
                return;
            }
            places.find_mut(name.hash_value(), |place| place.name == *name).map(|place| place.kept.take())
        };
    }

    /// In the order of names, the same for each shutdown.
    fn all(&self) -> Vec<Arc<T>> {
        let mut all: Vec<(LockName, Arc<T>)> = {
            let places = self.0.lock();
            places.iter().filter_map(|place| Some((place.name.clone(), place.entry.upgrade()?))).collect()
        };
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all.into_iter().map(|(_, entry)| entry).collect()
    }

    #[cfg(test)]
    pub(in crate::lock) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// The sender gets the entry that a thread makes while this entry is dropped.
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
    fn entry_made_during_the_drop_of_the_previous_one_stays() {
        let table = Arc::new(Table::default());
        let name = LockName::new("orders").unwrap();
        let (meanwhile, came) = mpsc::channel();
        drop(table.get(&name, || Entry(Arc::clone(&table), name.clone(), Some(meanwhile))));
        let next = came.recv().unwrap();
        assert!(table.find(&name).is_some_and(|found| Arc::ptr_eq(&found, &next)));
        let again = table.get(&name, || unreachable!("it is there"));
        assert!(Arc::ptr_eq(&again, &next));
    }

    /// Another thread may forget a hold, and so keep an entry that is just being let go.
    #[test]
    fn need_for_an_entry_is_checked_while_no_thread_can_keep_one() {
        let table = Arc::new(Table::default());
        let name = LockName::new("orders").unwrap();
        table.keep(&name, &table.get(&name, || Entry(Arc::clone(&table), name.clone(), None)));
        let mut was_asked = false;
        table.let_go_unless(&name, || {
            was_asked = true;
            assert!(
                table.0.try_lock().is_none(),
                "expected the question under the table's mutex, while no thread can keep the entry"
            );
            false
        });
        assert!(was_asked && table.len() == 0);
    }
}
