//! [`Releases`]: the releases of a client that are under way in the background.

use std::collections::HashMap;

use crate::sync::{Event, Mutex};

use super::name::LockName;

/// The releases of a client that are under way in the background.
pub(super) struct Releases {
    under_way: Mutex<UnderWay>,
    /// Tells that one is done, or that a lock was released otherwise.
    done: Event,
}

#[derive(Default)]
struct UnderWay {
    by_number: HashMap<u64, LockName>,
    /// The last error was told; so is the next one after a success.
    told: bool,
}

impl Default for Releases {
    fn default() -> Self {
        Self { under_way: Mutex::default(), done: Event::new() }
    }
}

impl Releases {
    /// The release of the lease with this number begins.
    pub(super) fn begin(&self, number: u64, name: &LockName) {
        self.under_way.lock().by_number.insert(number, name.clone());
    }

    /// It was answered, or the lease is over.
    pub(super) fn end(&self, number: u64) {
        let _name = self.under_way.lock().by_number.remove(&number);
        self.tell();
    }

    /// A lock was released.
    pub(super) fn tell(&self) {
        self.done.notify(usize::MAX);
    }

    /// Is ready when another one is done. Listens from the call on.
    pub(super) fn done(&self) -> impl Future<Output = ()> + Send + use<> {
        self.done.listen()
    }

    pub(super) fn names(&self) -> Vec<LockName> {
        self.under_way.lock().by_number.values().cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.under_way.lock().by_number.len()
    }

    /// A release failed. Whether that is to be told: once, until one succeeds.
    pub(super) fn failed(&self) -> bool {
        !std::mem::replace(&mut self.under_way.lock().told, true)
    }

    pub(super) fn succeeded(&self) {
        self.under_way.lock().told = false;
    }
}
