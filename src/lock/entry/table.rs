//! [`Tables`]: the entries of a client, by mode and name.

use std::sync::{Arc, Weak};

use hashbrown::HashTable;

use crate::support::sync::Mutex;

use crate::lock::backend::Mode;
use crate::lock::entry::deadlines::Deadlines;
use crate::lock::name::LockName;

/// A table for each mode: under another mode, a name is another lock.
pub(in crate::lock) struct Tables<T> {
    by_mode: [Table<T>; 5],
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

/// The entries that handles share, for as long as handles exist, by name and number: 0, or the number of one
/// acquisition of a semaphore's permits. A `HashTable` finds a name by its text.
pub(in crate::lock) struct Table<T>(Mutex<HashTable<Place<T>>>);

struct Place<T> {
    name: LockName,
    number: u64,
    entry: Weak<T>,
    /// The entry, if kept without a handle: for a forgotten hold or an unanswered release.
    kept: Option<Arc<T>>,
}

impl<T> Place<T> {
    fn hash(&self) -> u64 {
        hash(&self.name, self.number)
    }

    fn is(&self, name: &LockName, number: u64) -> bool {
        self.number == number && self.name == *name
    }
}

/// Spreads the acquisitions of one name over the map.
fn hash(name: &LockName, number: u64) -> u64 {
    name.hash_value() ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A map with room for this many names is not worth shrinking.
const FEW: usize = 64;

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Mutex::new(HashTable::new()))
    }
}

impl<T> Table<T> {
    fn find(&self, name: &LockName, number: u64) -> Option<Arc<T>> {
        self.0.lock().find(hash(name, number), |place| place.is(name, number))?.entry.upgrade()
    }

    pub(in crate::lock) fn find_name(&self, name: &LockName) -> Option<Arc<T>> {
        self.find(name, 0)
    }

    /// As [`find_name`](Self::find_name), by an unchecked name: the name of an existing entry was checked.
    pub(in crate::lock) fn find_text(&self, name: &str) -> Option<Arc<T>> {
        let is_it = |place: &Place<T>| place.number == 0 && place.name.as_str() == name;
        self.0.lock().find(LockName::hash_of(name), is_it)?.entry.upgrade()
    }

    pub(in crate::lock) fn get(&self, name: &LockName, number: u64, make: impl FnOnce() -> T) -> Arc<T> {
        if let Some(entry) = self.find(name, number) {
            return entry;
        }
        // Declared before `places`, to be dropped after it: an entry's drop locks the mutex.
        let made = Arc::new(make());
        let mut places = self.0.lock();
        let place = places.entry(hash(name, number), |place| place.is(name, number), Place::hash);
        let place =
            place.or_insert_with(|| Place { name: name.clone(), number, entry: Weak::new(), kept: None });
        let place = place.into_mut();
        if let Some(quicker) = place.entry.upgrade() {
            return quicker;
        }
        place.entry = Arc::downgrade(&made);
        made
    }

    pub(in crate::lock) fn remove(&self, name: &LockName, number: u64) {
        let mut places = self.0.lock();
        // Another thread may have made a new entry since then.
        let is_it = |place: &Place<T>| place.is(name, number) && place.entry.strong_count() == 0;
        if let Ok(place) = places.find_entry(hash(name, number), is_it) {
            place.remove();
        }
        if places.len() < places.capacity() / 8 {
            places.shrink_to(FEW, Place::hash);
        }
    }

    /// Keeps an entry, even without a handle, until [`let_go_unless`](Self::let_go_unless).
    pub(in crate::lock) fn keep(&self, name: &LockName, number: u64, entry: &Arc<T>) {
        if let Some(place) = self.0.lock().find_mut(hash(name, number), |place| place.is(name, number)) {
            place.kept.get_or_insert_with(|| Arc::clone(entry));
        }
    }

    /// Stops keeping an entry, unless it `is_needed`: asked under the mutex, so that a new reason keeps it.
    pub(in crate::lock) fn let_go_unless(
        &self,
        name: &LockName,
        number: u64,
        is_needed: impl FnOnce() -> bool,
    ) {
        // Dropped with the mutex free.
        let _kept = {
            let mut places = self.0.lock();
            if is_needed() {
                return;
            }
            let place = places.find_mut(hash(name, number), |place| place.is(name, number));
            place.map(|place| place.kept.take())
        };
    }

    /// The entries of one name, in the order of their numbers.
    pub(in crate::lock) fn all_of(&self, name: &LockName) -> Vec<Arc<T>> {
        self.all_if(|place| place.name == *name)
    }

    /// In the order of names, the same for each shutdown.
    fn all(&self) -> Vec<Arc<T>> {
        self.all_if(|_| true)
    }

    fn all_if(&self, wanted: impl Fn(&Place<T>) -> bool) -> Vec<Arc<T>> {
        let mut all: Vec<(LockName, u64, Arc<T>)> = {
            let places = self.0.lock();
            let wanted = places.iter().filter(|place| wanted(place));
            wanted
                .filter_map(|place| Some((place.name.clone(), place.number, place.entry.upgrade()?)))
                .collect()
        };
        all.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
        all.into_iter().map(|(_, _, entry)| entry).collect()
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
                let next = table.get(name, 0, || Self(Arc::clone(table), name.clone(), None));
                meanwhile.send(next).unwrap();
            }
            table.remove(name, 0);
        }
    }

    #[test]
    fn entry_goes_with_its_last_handle_unless_it_is_kept() {
        let table = Arc::new(Table::default());
        let name = LockName::new("orders").unwrap();
        let get = || table.get(&name, 0, || Entry(Arc::clone(&table), name.clone(), None));
        let (one, other) = (get(), get());
        assert!(Arc::ptr_eq(&one, &other));
        drop((one, other));
        assert_eq!(table.len(), 0);
        table.keep(&name, 0, &get());
        assert_eq!(table.len(), 1);
        table.let_go_unless(&name, 0, || true);
        assert_eq!(table.len(), 1);
        table.let_go_unless(&name, 0, || false);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn threads_that_come_at_once_have_the_entry_of_the_quickest() {
        let table = Arc::new(Table::default());
        let name = LockName::new("orders").unwrap();
        let make = || Entry(Arc::clone(&table), name.clone(), None);
        let mut quicker = None;
        let got = table.get(&name, 0, || {
            quicker = Some(table.get(&name, 0, make));
            make()
        });
        assert!(quicker.is_some_and(|quicker| Arc::ptr_eq(&quicker, &got)));
    }

    #[test]
    fn entry_made_during_the_drop_of_the_previous_one_stays() {
        let table = Arc::new(Table::default());
        let name = LockName::new("orders").unwrap();
        let (meanwhile, came) = mpsc::channel();
        drop(table.get(&name, 0, || Entry(Arc::clone(&table), name.clone(), Some(meanwhile))));
        let next = came.recv().unwrap();
        assert!(table.find_name(&name).is_some_and(|found| Arc::ptr_eq(&found, &next)));
        let again = table.get(&name, 0, || unreachable!("it is there"));
        assert!(Arc::ptr_eq(&again, &next));
    }

    /// Another thread may forget a hold, and so keep an entry that is just being let go.
    #[test]
    fn need_for_an_entry_is_checked_while_no_thread_can_keep_one() {
        let table = Arc::new(Table::default());
        let name = LockName::new("orders").unwrap();
        table.keep(&name, 0, &table.get(&name, 0, || Entry(Arc::clone(&table), name.clone(), None)));
        let mut was_asked = false;
        table.let_go_unless(&name, 0, || {
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
