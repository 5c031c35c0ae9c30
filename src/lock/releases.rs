//! [`Releases`]: the releases of a client that are under way in the background.

use std::collections::BTreeMap;

use crate::support::event::Event;
use crate::support::sync::Mutex;
use crate::support::sync::atomic::{AtomicBool, Ordering};

use crate::lock::name::LockName;

#[derive(Default)]
pub(super) struct Releases {
    /// By number, to name the locks in errors in the order of their releases.
    under_way: Mutex<BTreeMap<u64, LockName>>,
    /// Notified when a release ends, or a lock was released otherwise.
    done: Event,
    /// The last error was reported: the next one is reported only after a success.
    told: AtomicBool,
}

impl Releases {
    pub(super) fn begin(&self, name: &LockName) -> u64 {
        let mut under_way = self.under_way.lock();
        let number = under_way.last_key_value().map_or(0, |(last, _)| last + 1);
        under_way.insert(number, name.clone());
        number
    }

    pub(super) fn end(&self, number: u64) {
        let _name = self.under_way.lock().remove(&number);
        self.tell();
    }

    pub(super) fn tell(&self) {
        self.done.notify();
    }

    pub(super) fn done(&self) -> impl Future<Output = ()> + Send + use<> {
        self.done.listen()
    }

    pub(super) fn names(&self) -> Vec<LockName> {
        self.under_way.lock().values().cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.under_way.lock().len()
    }

    /// Notes a failed release. True for the first failure since a success, which has to be reported.
    pub(super) fn failed(&self) -> bool {
        // Ordering: Relaxed; no data is read through the flag, and a report too many does no harm.
        !self.told.swap(true, Ordering::Relaxed)
    }

    pub(super) fn succeeded(&self) {
        // Ordering: Relaxed, as above. Read before written, as errors are rare.
        if self.told.load(Ordering::Relaxed) {
            // Ordering: Relaxed, as above.
            self.told.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::lock::name::LockName;

    use super::Releases;

    /// A lock may have two: its own release, and the rollback of an extension that was answered late.
    #[test]
    fn lock_is_named_for_each_of_its_releases_until_that_has_ended() {
        let (releases, name) = (Releases::default(), LockName::new("orders").unwrap());
        let [first, second] = [(); 2].map(|()| releases.begin(&name));
        releases.end(first);
        assert_eq!(releases.names(), [name]);
        releases.end(second);
        assert_eq!(releases.len(), 0);
    }
}
