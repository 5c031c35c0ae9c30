//! [`Releases`]: the releases of a client that are under way in the background.

use std::collections::BTreeMap;

use crate::support::event::Event;
use crate::support::sync::Mutex;
use crate::support::sync::atomic::{AtomicBool, Ordering};

use crate::lock::name::LockName;

/// The releases of a client that are under way in the background.
pub(super) struct Releases {
    /// By number, so that errors name them in the order in which they began.
    under_way: Mutex<BTreeMap<u64, LockName>>,
    /// Tells that one is done, or that a lock was released otherwise.
    done: Event,
    /// The last error was told; so is the next one after a success.
    told: AtomicBool,
}

impl Default for Releases {
    fn default() -> Self {
        Self { under_way: Mutex::default(), done: Event::new(), told: AtomicBool::new(false) }
    }
}

impl Releases {
    /// A release begins. Its number, until it ends.
    pub(super) fn begin(&self, name: &LockName) -> u64 {
        let mut under_way = self.under_way.lock();
        let number = under_way.last_key_value().map_or(0, |(last, _)| last + 1);
        under_way.insert(number, name.clone());
        number
    }

    /// It was answered, or the lease is over.
    pub(super) fn end(&self, number: u64) {
        let _name = self.under_way.lock().remove(&number);
        self.tell();
    }

    /// A lock was released.
    pub(super) fn tell(&self) {
        self.done.notify();
    }

    /// Is ready when another one is done. Listens from the call on.
    pub(super) fn done(&self) -> impl Future<Output = ()> + Send + use<> {
        self.done.listen()
    }

    pub(super) fn names(&self) -> Vec<LockName> {
        self.under_way.lock().values().cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.under_way.lock().len()
    }

    /// A release failed. Whether that is to be told: once, until one succeeds.
    pub(super) fn failed(&self) -> bool {
        // Ordering: Relaxed; nothing is read through it, and to be told once too often does no harm.
        !self.told.swap(true, Ordering::Relaxed)
    }

    pub(super) fn succeeded(&self) {
        // Ordering: Relaxed, as above. Looked at before it is written: nearly always there was no error.
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

    /// A release, and the rollback of an extension that was answered late.
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
