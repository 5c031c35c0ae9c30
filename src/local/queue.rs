use crate::backend::{Permits, QueuePosition};
use crate::lock::LeaseId;
use crate::lock_entry::Moment;

/// The waiters for one lock, in the order in which they began to wait.
#[derive(Debug, Default)]
pub(super) struct Queue(Vec<Waiter>);

#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) id: LeaseId,
    pub(super) since: Moment,
    pub(super) until: Moment,
    /// The permits that the waiter wants; without a meaning for locks.
    pub(super) permits: Permits,
}

impl Waiter {
    pub(super) fn new(id: &LeaseId, position: QueuePosition, now: Moment) -> Self {
        let permits = Permits::default();
        Self { id: id.clone(), since: now - position.waited, until: now + position.kept, permits }
    }

    pub(super) fn permits(self, permits: Permits) -> Self {
        Self { permits, ..self }
    }
}

impl Queue {
    /// Enqueues a waiter behind all earlier ones, or prolongs the position of a queued waiter.
    pub(super) fn push(&mut self, waiter: Waiter) {
        if let Some(there) = self.0.iter_mut().find(|there| there.id == waiter.id) {
            there.until = waiter.until;
            return;
        }
        let behind = self.0.partition_point(|there| there.since <= waiter.since);
        self.0.insert(behind, waiter);
    }

    pub(super) fn remove(&mut self, id: &LeaseId) -> bool {
        let at = self.0.iter().position(|waiter| waiter.id == *id);
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Removes and returns all waiters whose position lasts.
    pub(super) fn take(&mut self, now: Moment) -> impl Iterator<Item = Waiter> + use<> {
        std::mem::take(&mut self.0).into_iter().filter(move |waiter| now < waiter.until)
    }

    /// Removes the first waiter ahead of `not_behind` whose position lasts and whose client can be `told`.
    pub(super) fn pop_first(
        &mut self,
        now: Moment,
        not_behind: Option<&LeaseId>,
        told: impl Fn(&LeaseId) -> bool,
    ) -> Option<Waiter> {
        self.0.retain(|waiter| now < waiter.until);
        let mut before = self.0.iter().take_while(|waiter| Some(&waiter.id) != not_behind);
        before.position(|waiter| told(&waiter.id)).map(|at| self.0.remove(at))
    }

    /// Returns the waiters whose position lasts, in order.
    pub(super) fn waiters(&self, now: Moment) -> impl Iterator<Item = &Waiter> {
        self.0.iter().filter(move |waiter| now < waiter.until)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn id(number: u32) -> LeaseId {
        format!("8743c9c0-0795-4907-87fd-6c719a6b4586:{number}").parse().unwrap()
    }

    fn waiter(number: u32, kept: Duration, now: Moment) -> Waiter {
        Waiter::new(&id(number), QueuePosition { waited: Duration::ZERO, kept }, now)
    }

    #[test]
    fn position_is_kept_up_to_a_moment_and_no_longer() {
        let begin = Moment::from(Instant::now());
        let finds: [fn(&mut Queue, Moment) -> Vec<Waiter>; 3] = [
            |queue, now| queue.waiters(now).cloned().collect(),
            |queue, now| queue.take(now).collect(),
            |queue, now| queue.pop_first(now, None, |_| true).into_iter().collect(),
        ];
        for find in finds {
            for (at, first) in [(SECOND - Duration::from_nanos(1), 1), (SECOND, 2)] {
                let mut queue = Queue::default();
                queue.push(waiter(1, SECOND, begin));
                queue.push(waiter(2, 2 * SECOND, begin));
                let found = find(&mut queue, begin + at);
                assert_eq!(found.first().map(|waiter| &waiter.id), Some(&id(first)), "after {at:?}");
            }
        }
    }

    #[test]
    fn waiters_that_came_at_one_moment_are_in_order_of_arrival() {
        let (mut queue, now) = (Queue::default(), Instant::now().into());
        for number in 1..5 {
            queue.push(waiter(number, SECOND, now));
        }
        let order: Vec<_> = queue.take(now).map(|waiter| waiter.id).collect();
        assert_eq!(order, [1, 2, 3, 4].map(id));
    }
}
