//! [`Queues`]: the waiters for the locks of a [`Local`](super::Local).

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::backend::{LockName, NameHasher, QueuePosition};
use crate::fault::fault;
use crate::lock::LeaseId;
use crate::lock_entry::Moment;

use super::sweep::Sweep;

/// The queues of all names that have waiters.
#[derive(Debug, Default)]
pub(super) struct Queues {
    by_name: HashMap<LockName, Vec<Waiter>, BuildHasherDefault<NameHasher>>,
    /// Of queues in which all positions have lapsed, at names that are not asked for any more.
    sweep: Sweep,
}

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
    pub(super) fn new(id: &LeaseId, position: QueuePosition, now: Moment) -> Self {
        Self { id: id.clone(), since: now - position.waited, until: now + position.kept }
    }
}

impl Queues {
    /// Puts a waiter behind all that began to wait before it. If it is there already, it keeps its position,
    /// for longer.
    pub(super) fn push(&mut self, name: &LockName, waiter: Waiter, now: Moment) {
        if self.sweep.is_due(self.by_name.len()) {
            self.by_name.retain(|_, queue| queue.iter().any(|waiter| now < waiter.until));
            self.sweep.swept(self.by_name.len());
        }
        let queue = self.by_name.entry(name.clone()).or_default();
        if let Some(there) = queue.iter_mut().find(|there| there.id == waiter.id) {
            there.until = waiter.until;
            return;
        }
        let behind =
            queue.partition_point(|there| there.since <= waiter.since || fault!(LocalQueuedByArrival));
        queue.insert(behind, waiter);
    }

    pub(super) fn remove(&mut self, name: &LockName, id: &LeaseId) -> Option<Waiter> {
        let queue = self.by_name.get_mut(name)?;
        let at = queue.iter().position(|waiter| waiter.id == *id);
        let removed = at.map(|at| queue.remove(at));
        self.forget_if_empty(name);
        removed
    }

    /// Takes out all whose position is kept still.
    pub(super) fn remove_all(
        &mut self,
        name: &LockName,
        now: Moment,
    ) -> impl Iterator<Item = Waiter> + use<> {
        let queue = self.by_name.remove(name).unwrap_or_default();
        queue.into_iter().filter(move |waiter| now < waiter.until)
    }

    /// Takes out the first waiter whose position is kept still and that can be `told`. Not behind the waiter
    /// with the id `not_behind`.
    pub(super) fn pop_first(
        &mut self,
        name: &LockName,
        now: Moment,
        not_behind: Option<&LeaseId>,
        told: impl Fn(&LeaseId) -> bool,
    ) -> Option<Waiter> {
        let queue = self.by_name.get_mut(name)?;
        queue.retain(|waiter| now < waiter.until);
        let before = queue.iter().take_while(|waiter| Some(&waiter.id) != not_behind);
        let first = before.clone().position(|waiter| told(&waiter.id)).map(|at| queue.remove(at));
        self.forget_if_empty(name);
        first
    }

    /// Those whose position is kept still, in order.
    pub(super) fn waiters(&self, name: &LockName, now: Moment) -> impl Iterator<Item = &Waiter> {
        self.by_name.get(name).into_iter().flatten().filter(move |waiter| now < waiter.until)
    }

    fn forget_if_empty(&mut self, name: &LockName) {
        if self.by_name.get(name).is_some_and(Vec::is_empty) {
            self.by_name.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// A queue whose waiters have all gone without a word, at a name that is not asked for any more.
    #[test]
    fn queue_of_lapsed_positions_is_swept() {
        let mut queues = Queues::default();
        let id: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse().unwrap();
        let position = QueuePosition { waited: Duration::ZERO, kept: Duration::from_secs(1) };
        let begin = Moment::from(Instant::now());
        let name = |number: u32| LockName::new(&format!("name:{number}")).unwrap();
        let kept = QueuePosition { kept: Duration::from_secs(3600), ..position };
        queues.push(&name(0), Waiter::new(&id, kept, begin), begin);
        for number in 1..10_000 {
            let now = begin + position.kept * number;
            queues.push(&name(number), Waiter::new(&id, position, now), now);
            assert!(queues.by_name.len() <= 64, "{} names", queues.by_name.len());
            if now < begin + kept.kept {
                assert_eq!(queues.waiters(&name(0), now).count(), 1, "a position is kept no more");
            }
        }
    }
}
