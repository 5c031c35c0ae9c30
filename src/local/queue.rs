//! [`Queues`]: who waits for the fair locks of a [`Local`](super::Local).

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::lock::{LeaseId, LockName, NameHasher, Position};
use crate::lock_entry::Moment;

/// The queues of all names that somebody waits for.
#[derive(Debug, Default)]
pub(super) struct Queues(HashMap<LockName, Vec<Waiter>, BuildHasherDefault<NameHasher>>);

/// A position in a queue.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) id: LeaseId,
    /// When it began to wait.
    pub(super) since: Moment,
    /// Until when its position is kept.
    pub(super) until: Moment,
}

impl Waiter {
    pub(super) fn new(id: &LeaseId, position: Position, now: Moment) -> Self {
        Self { id: id.clone(), since: now - position.waited, until: now + position.kept }
    }
}

impl Queues {
    /// Puts a waiter behind all who began to wait before it. If it is there already, it keeps its position, for longer.
    pub(super) fn push(&mut self, name: &LockName, waiter: Waiter) {
        let queue = self.0.entry(name.clone()).or_default();
        if let Some(there) = queue.iter_mut().find(|there| there.id == waiter.id) {
            there.until = waiter.until;
            return;
        }
        let behind = queue.partition_point(|there| there.since <= waiter.since);
        queue.insert(behind, waiter);
    }

    pub(super) fn remove(&mut self, name: &LockName, id: &LeaseId) {
        if let Some(queue) = self.0.get_mut(name) {
            queue.retain(|waiter| waiter.id != *id);
            self.forget_if_empty(name);
        }
    }

    /// Takes out the first whose position is kept still and who can be `told`. Not behind the waiter with the id `not_behind`.
    pub(super) fn pop_first(
        &mut self,
        name: &LockName,
        now: Moment,
        not_behind: Option<&LeaseId>,
        told: impl Fn(&LeaseId) -> bool,
    ) -> Option<Waiter> {
        let queue = self.0.get_mut(name)?;
        queue.retain(|waiter| now < waiter.until);
        let before = queue.iter().take_while(|waiter| Some(&waiter.id) != not_behind);
        let first = before.clone().position(|waiter| told(&waiter.id)).map(|at| queue.remove(at));
        self.forget_if_empty(name);
        first
    }

    fn forget_if_empty(&mut self, name: &LockName) {
        if self.0.get(name).is_some_and(Vec::is_empty) {
            self.0.remove(name);
        }
    }
}
