//! [`Leases`]: the store's leases of a program's locks, read again whenever they may have changed.

use std::collections::BTreeMap;

use crate::program::{Program, Which};
use crate::store::{Store, StoredLease};

/// The store's leases, by lock. May include leases that have expired since the last look.
pub(crate) struct Leases {
    /// Both sides of a read-write lock are under the reader's.
    by_lock: BTreeMap<Which, Vec<StoredLease>>,
    changes: Option<u64>,
}

/// A lease that vanished from the store, or now ends earlier.
#[derive(Debug)]
pub(crate) struct Shortened {
    pub(crate) lock: Which,
    pub(crate) lease: StoredLease,
}

impl Leases {
    pub(crate) fn new(program: &Program) -> Self {
        let by_lock = program.locks().into_iter().map(|lock| (lock.by_reader(), Vec::new())).collect();
        Self { by_lock, changes: None }
    }

    /// Reads the store's leases if anything has changed, and passes lost or shortened leases to `sees`.
    pub(crate) fn look<S: Store>(&mut self, store: &S, program: &Program, mut sees: impl FnMut(Shortened)) {
        let changes = store.changes();
        if self.changes == Some(changes) {
            return;
        }
        self.changes = Some(changes);
        for (lock, leases) in &mut self.by_lock {
            let new = store.leases(lock.kind.of_store(), &program.names[lock.name]);
            for lease in std::mem::replace(leases, new) {
                let same = |new: &&StoredLease| new.client == lease.client && new.number == lease.number;
                if leases.iter().find(same).is_none_or(|new| new.ends < lease.ends) {
                    sees(Shortened { lock: *lock, lease });
                }
            }
        }
    }

    /// As [`look`](Self::look), even if the store reports no change.
    pub(crate) fn look_anyway<S: Store>(
        &mut self,
        store: &S,
        program: &Program,
        sees: impl FnMut(Shortened),
    ) {
        self.changes = None;
        self.look(store, program, sees);
    }

    /// Leases of the lock: of both sides, if a read-write lock.
    pub(crate) fn of(&self, lock: Which) -> &[StoredLease] {
        self.by_lock.get(&lock.by_reader()).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (Which, &StoredLease)> {
        self.by_lock.iter().flat_map(|(lock, leases)| leases.iter().map(|lease| (*lock, lease)))
    }
}
