//! `Lock::force_unlock`: "Frees the lock, whichever owner has it […]. True if it was held. […] The holder is
//! not asked. If it is of this client, its guard is told at once." So one call takes only the leases of one
//! moment.

use std::collections::BTreeMap;

use super::Judge;
use super::belief::stored;
use super::calm::is_calm;
use super::words::words;
use crate::program::{LockSide, Op, Program, Which};
use crate::stage::{Answer, Call, Event, Hold, View};
use crate::store::{Store, StoredLease};
use crate::time;
use crate::world::Nanos;

#[derive(Default)]
pub(crate) struct Forced {
    changes: Option<u64>,
    /// Leases of the locks that may be forced free, a read-write lock's under its reader's side; `None`
    /// before the first look.
    before: Option<BTreeMap<Which, Vec<StoredLease>>>,
    calls: BTreeMap<usize, u64>,
    /// Number of times that each lock was taken from a holder that had not released.
    taken: BTreeMap<Which, u64>,
    /// For calls under way: true if the lock was free at some moment; true if it was freed.
    open: BTreeMap<(usize, usize), (bool, bool)>,
    granted: BTreeMap<(usize, Which), Nanos>,
}

impl<S: Store> Judge<S> for Forced {
    fn name(&self) -> &'static str {
        "forced"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        let before = self.before.get_or_insert_with(|| forced(view.program));
        let changes = view.store.changes();
        if before.is_empty() || self.changes.replace(changes) == Some(changes) {
            return None;
        }
        self.see(view)
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        // Harm is not a change that the store counts.
        if let Event::Harmed(_) = event {
            return self.see(view);
        }
        if let Event::Called(Call { op: Op::ForceUnlock { lock, .. }, member, task, .. }) = event {
            let lock = lock.by_reader();
            *self.calls.entry(lock.name).or_default() += 1;
            let is_free =
                self.before.iter().flatten().all(|(of, leases)| *of != lock || are_over(leases, view.now));
            self.open.insert((*member, *task), (is_free, false));
        }
        if let Event::Answered(call @ Call { op: Op::ForceUnlock { .. }, .. }, answer) = event {
            let wrong = self.see(view);
            let (was_free, was_freed) = self.open.remove(&(call.member, call.task)).unwrap_or((true, true));
            let is_right = match answer {
                Answer::Freed(true) => was_freed,
                Answer::Freed(false) => was_free,
                _ => true,
            };
            let since = time::seconds(call.began);
            let text = || {
                format!(
                    "{}: expected an answer that was true at some moment since {since}, saw {answer:?}",
                    words(view, call)
                )
            };
            if let Some(wrong) = wrong.or_else(|| (!is_right).then(text)) {
                return Some(wrong);
            }
        }
        if let Event::Answered(Call { member, lock: Some(lock), .. }, Answer::Got(_)) = event {
            self.granted.insert((*member, *lock), view.now);
        }
        let Event::Answered(call, Answer::Freed(true)) = event else { return None };
        let (Op::ForceUnlock { lock, .. }, client) = (&call.op, &view.scene.members[call.member].client_id)
        else {
            return None;
        };
        let believes = view.scene.holds.values().find(|hold| {
            hold.lock.is_one_with(*lock)
                && hold.member == call.member
                && hold.granted < call.began
                // Readers continue under a later lease, possibly requested but unknown at the time.
                && hold.lock.kind != LockSide::Read
                && view.excuses.taken_at(client, hold.number).is_some_and(|at| at >= call.began)
                && stored(view, hold) == 0
                && hold.is_held()
                // A later hold may have renewed the lease since, and asks the store once more.
                && self.granted.get(&(hold.member, hold.lock)).is_none_or(|at| *at < call.began)
        })?;
        Some(format!("{}: expected a loss by its client's forced unlock, saw a hold", view.words(believes)))
    }
}

impl Forced {
    /// Compares the leases with those of the last look.
    fn see<S: Store>(&mut self, view: &View<'_, S>) -> Option<String> {
        let mut wrong = None;
        for (lock, before) in self.before.iter_mut().flatten() {
            let after: Vec<StoredLease> = view.leases(*lock).cloned().collect();
            let is_there = |lease: &StoredLease| {
                after.iter().any(|other| (other.number, &other.client) == (lease.number, &lease.client))
            };
            let was_freed = !before.is_empty() && !before.iter().any(is_there);
            let is_free = are_over(before, view.now) || after.is_empty();
            let of_it =
                |op: &Op| matches!(op, Op::ForceUnlock { lock: other, .. } if other.by_reader() == *lock);
            for (by, (free, freed)) in &mut self.open {
                if view.scene.calls.get(by).is_none_or(|call| of_it(&call.op)) {
                    (*free, *freed) = (*free || is_free, *freed || was_freed);
                }
            }
            let is_taken =
                |lease: &StoredLease| lease.ends > view.now && !is_there(lease) && is_believed(view, lease);
            let calls = self.calls.get(&lock.name).copied().unwrap_or(0);
            let taken = self.taken.entry(*lock).or_default();
            *taken += u64::from(before.iter().any(is_taken));
            if *taken > calls && is_calm(view) {
                let lock = view.lock_words(*lock);
                wrong = Some(format!("{lock}: expected {calls} forced unlocks at most, saw {taken}"));
            }
            *before = after;
        }
        wrong
    }
}

/// The end of a lease is not a change at the store.
fn are_over(leases: &[StoredLease], now: Nanos) -> bool {
    leases.iter().all(|lease| lease.ends <= now)
}

fn forced(program: &Program) -> BTreeMap<Which, Vec<StoredLease>> {
    let operations = program.processes.iter().flat_map(|plan| &plan.tasks).flatten();
    let locks = operations.filter_map(|op| match op {
        Op::ForceUnlock { lock, .. } if lock.name < program.names.len() => Some(lock.by_reader()),
        _ => None,
    });
    locks.map(|lock| (lock, Vec::new())).collect()
}

fn is_believed<S: Store>(view: &View<'_, S>, lease: &StoredLease) -> bool {
    let by_it = |hold: &Hold| hold.number == lease.number && view.member(hold).client_id == lease.client;
    view.scene.holds.values().any(|hold| by_it(hold) && hold.is_held())
}
