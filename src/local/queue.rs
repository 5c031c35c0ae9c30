//! [`Queues`]: the waiters for the locks of a [`Local`](super::Local).

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::backend::{LockName, NameHasher, QueuePosition};
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
        let behind = queue.partition_point(|there| there.since <= waiter.since);
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

    const SECOND: Duration = Duration::from_secs(1);

    fn name(number: u32) -> LockName {
        LockName::new(&format!("name:{number}")).unwrap()
    }

    fn id(number: u32) -> LeaseId {
        format!("8743c9c0-0795-4907-87fd-6c719a6b4586:{number}").parse().unwrap()
    }

    fn waiter(number: u32, kept: Duration, now: Moment) -> Waiter {
        Waiter::new(&id(number), QueuePosition { waited: Duration::ZERO, kept }, now)
    }

    /// A queue whose waiters have all gone without a word, at a name that is not asked for any more.
    #[test]
    fn queue_of_lapsed_positions_is_swept() {
        let (mut queues, begin, kept) = (Queues::default(), Instant::now().into(), 3600 * SECOND);
        queues.push(&name(0), waiter(1, kept, begin), begin);
        for number in 1..10_000 {
            let now = begin + SECOND * number;
            queues.push(&name(number), waiter(1, SECOND, now), now);
            assert!(queues.by_name.len() <= 64, "{} names", queues.by_name.len());
            if now < begin + kept {
                assert_eq!(queues.waiters(&name(0), now).count(), 1, "a position is kept no more");
            }
        }
    }

    /// What adds names pays for the sweeps.
    #[test]
    fn names_by_the_thousand_are_swept_a_few_times() {
        const LAPSED: u32 = 3000;
        let (mut queues, now, mut sweeps) = (Queues::default(), Instant::now().into(), 0);
        for number in 0..LAPSED {
            if !queues.by_name.contains_key(&name(LAPSED)) {
                sweeps += 1;
                queues.push(&name(LAPSED), waiter(1, Duration::ZERO, now), now);
            }
            queues.push(&name(number), waiter(1, SECOND, now), now);
        }
        assert!(sweeps < 20, "{sweeps} sweeps");
    }

    /// Whether the waiters are taken out by name, as the first or together.
    #[test]
    fn name_without_waiters_is_forgotten() {
        let (mut queues, now) = (Queues::default(), Instant::now().into());
        let takes: [fn(&mut Queues, Moment); 4] = [
            |queues, _| _ = queues.remove(&name(1), &id(1)).expect("it waits"),
            |queues, now| _ = queues.pop_first(&name(1), now, None, |_| true).expect("it waits"),
            |queues, now| assert!(queues.pop_first(&name(1), now + SECOND, None, |_| true).is_none()),
            |queues, now| assert_eq!(queues.remove_all(&name(1), now).count(), 1),
        ];
        for take in takes {
            queues.push(&name(1), waiter(1, SECOND, now), now);
            take(&mut queues, now);
            assert_eq!(queues.by_name.len(), 0);
        }
    }

    /// What is done at that moment passes over the first, and finds the second.
    #[test]
    fn position_is_kept_up_to_a_moment_and_no_longer() {
        let begin = Moment::from(Instant::now());
        let finds: [fn(&mut Queues, Moment) -> Vec<Waiter>; 3] = [
            |queues, now| queues.waiters(&name(1), now).cloned().collect(),
            |queues, now| queues.remove_all(&name(1), now).collect(),
            |queues, now| queues.pop_first(&name(1), now, None, |_| true).into_iter().collect(),
        ];
        for find in finds {
            for (at, first) in [(SECOND - Duration::from_nanos(1), 1), (SECOND, 2)] {
                let mut queues = Queues::default();
                queues.push(&name(1), waiter(1, SECOND, begin), begin);
                queues.push(&name(1), waiter(2, 2 * SECOND, begin), begin);
                let found = find(&mut queues, begin + at);
                assert_eq!(found.first().map(|waiter| &waiter.id), Some(&id(first)), "after {at:?}");
            }
        }
    }

    #[test]
    fn waiters_that_came_at_one_moment_are_in_order_of_arrival() {
        let (mut queues, now) = (Queues::default(), Instant::now().into());
        for number in 1..5 {
            queues.push(&name(1), waiter(number, SECOND, now), now);
        }
        let order: Vec<_> = queues.remove_all(&name(1), now).map(|waiter| waiter.id).collect();
        assert_eq!(order, [1, 2, 3, 4].map(id));
    }
}
