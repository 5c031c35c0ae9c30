//! The waiters of one name, oldest first: a doubly linked list in a slab.

use std::collections::BTreeMap;
use std::mem;
use std::num::NonZeroU32;
use std::task::Waker;

use crate::support::moment::Moment;

use super::events::{Extension, Grant, Request, Slot, Turn};

/// Largest count of nodes that an empty slab keeps.
const KEPT: usize = 64;

/// Kept small, as each name has a queue, and few have waiters.
#[derive(Debug, Default)]
pub(super) struct Queue {
    nodes: Vec<Node>,
    first: Option<Slot>,
    last: Option<Slot>,
    len: u32,
    /// Count of linked waiters that wait for one answer only.
    tries: u32,
    vacant: Option<Slot>,
    vacancies: u32,
    /// Linked nodes of [shared owners](Request::shared_owner), by owner and then oldest first.
    #[expect(clippy::box_collection, reason = "a third of the size where there are none, as nearly always")]
    by_owner: Option<Box<BTreeMap<(u64, u64), Slot>>>,
}

impl Slot {
    fn at(self) -> usize {
        self.0.get() as usize - 1
    }
}

#[derive(Debug)]
struct Node {
    request: Request,
    since: Moment,
    /// Serial of the waiter; zero if the node is vacant.
    serial: u64,
    /// The waiter waits only for the answer to the queue head's question.
    tries: bool,
    before: Option<Slot>,
    after: Option<Slot>,
    place: Place,
    waker: Option<Waker>,
}

/// A walk over the waiters, oldest first. Only the walk may unlink waiters meanwhile.
pub(super) struct Walk(Option<Slot>);

/// State of a waiter. Only a `Queued` waiter is linked.
#[derive(Debug)]
pub(super) enum Place {
    Queued,
    /// The release under way names the waiter as queue head; the waiter has not been woken.
    NamedWithRelease,
    /// The waiter has had the lock since this moment, and has not been polled.
    Granted(Grant, Option<Extension>, Moment),
    /// The waiter is the queue head with this serial, and has not been polled.
    Appointed(u64),
    /// The waiter's turn has come without the lock.
    Over(Turn),
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn first(&self) -> Option<&Request> {
        self.first.map(|slot| &self.nodes[slot.at()].request)
    }

    pub(super) fn first_since(&self) -> Option<Moment> {
        self.first.map(|slot| self.nodes[slot.at()].since)
    }

    pub(super) fn request(&self, slot: Slot) -> Request {
        self.nodes[slot.at()].request
    }

    pub(super) fn since(&self, slot: Slot) -> Moment {
        self.nodes[slot.at()].since
    }

    pub(super) fn place(&self, slot: Slot) -> &Place {
        &self.nodes[slot.at()].place
    }

    /// True if the waiter still has the slot: the slot may be another waiter's, or freed with the slab.
    pub(super) fn is_current(&self, slot: Slot, serial: u64) -> bool {
        self.nodes.get(slot.at()).is_some_and(|node| node.serial == serial)
    }

    pub(super) fn push(&mut self, serial: u64, request: Request, since: Moment, tries: bool) -> Slot {
        let slot = match self.vacant {
            Some(slot) => {
                let node = &mut self.nodes[slot.at()];
                (self.vacant, self.vacancies) = (node.after, self.vacancies - 1);
                node.serial = serial;
                (node.request, node.since, node.tries, node.place) = (request, since, tries, Place::Queued);
                (node.before, node.after) = (self.last, None);
                slot
            }
            None => {
                let (before, after, place) = (self.last, None, Place::Queued);
                self.nodes.push(Node { request, since, serial, tries, before, after, place, waker: None });
                let count = u32::try_from(self.nodes.len()).ok().and_then(NonZeroU32::new);
                Slot(count.expect("fewer waiters than 2³²"))
            }
        };
        match self.last.replace(slot) {
            Some(last) => self.nodes[last.at()].after = Some(slot),
            None => self.first = Some(slot),
        }
        self.len += 1;
        if request.shared_owner {
            self.by_owner.get_or_insert_default().insert((request.owner, serial), slot);
        }
        self.tries += u32::from(tries);
        slot
    }

    fn unlink(&mut self, slot: Slot) {
        let (before, after) = (self.nodes[slot.at()].before, self.nodes[slot.at()].after);
        match before {
            None => self.first = after,
            Some(before) => self.nodes[before.at()].after = after,
        }
        match after {
            None => self.last = before,
            Some(after) => self.nodes[after.at()].before = before,
        }
        self.len -= 1;
        let node = &self.nodes[slot.at()];
        if node.request.shared_owner
            && let Some(by_owner) = &mut self.by_owner
        {
            by_owner.remove(&(node.request.owner, node.serial));
        }
        self.tries -= u32::from(node.tries);
    }

    /// Unlinks the oldest waiter. The caller [moves](Self::place_at) the waiter to its next place.
    pub(super) fn pop(&mut self) -> Option<Slot> {
        let slot = self.first?;
        self.unlink(slot);
        Some(slot)
    }

    /// Moves an unlinked waiter to another place. Returns its waker, to be called.
    pub(super) fn place_at(&mut self, slot: Slot, place: Place) -> Option<Waker> {
        let node = &mut self.nodes[slot.at()];
        node.place = place;
        node.waker.take()
    }

    /// Moves an unlinked waiter, and keeps its waker.
    pub(super) fn place_silently_at(&mut self, slot: Slot, place: Place) {
        self.nodes[slot.at()].place = place;
    }

    /// Unlinks the oldest waiter of a shared owner, in time logarithmic in the number of such waiters.
    pub(super) fn pop_of(&mut self, owner: u64) -> Option<Slot> {
        let (_, slot) = self.by_owner.as_ref()?.range((owner, 0)..=(owner, u64::MAX)).next()?;
        let slot = *slot;
        self.unlink(slot);
        Some(slot)
    }

    pub(super) fn walk(&self) -> Walk {
        Walk(self.first)
    }

    pub(super) fn pop_try(&mut self, walk: &mut Walk) -> Option<Slot> {
        if self.tries == 0 {
            return None;
        }
        self.pop_where(walk, |node| node.tries)
    }

    pub(super) fn pop_that(
        &mut self,
        walk: &mut Walk,
        is: impl Fn(&Request, Moment) -> bool,
    ) -> Option<Slot> {
        self.pop_where(walk, |node| is(&node.request, node.since))
    }

    /// Unlinks the next waiter without a poll since its wake, or without any poll.
    pub(super) fn pop_silent(&mut self, walk: &mut Walk) -> Option<Slot> {
        self.pop_where(walk, |node| node.waker.is_none())
    }

    pub(super) fn take_wakers(&mut self) -> impl Iterator<Item = Waker> {
        let queued = self.nodes.iter_mut().filter(|node| matches!(node.place, Place::Queued));
        queued.filter_map(|node| node.waker.take())
    }

    fn pop_where(&mut self, walk: &mut Walk, is: impl Fn(&Node) -> bool) -> Option<Slot> {
        while let Some(slot) = walk.0 {
            let node = &self.nodes[slot.at()];
            walk.0 = node.after;
            if is(node) {
                self.unlink(slot);
                return Some(slot);
            }
        }
        None
    }

    /// Returns the waiters with an unclaimed grant and the times of the grants, earliest first.
    pub(super) fn granted(&self) -> Vec<(Slot, Moment)> {
        let slots = (1..).map_while(NonZeroU32::new).map(Slot);
        let granted = slots.zip(&self.nodes).filter_map(|(slot, node)| match node.place {
            Place::Granted(.., since) => Some((slot, since)),
            _ => None,
        });
        let mut granted: Vec<_> = granted.collect();
        granted.sort_by_key(|(_, since)| *since);
        granted
    }

    pub(super) fn will_wake(&self, slot: Slot, waker: &Waker) -> bool {
        self.nodes[slot.at()].waker.as_ref().is_some_and(|old| old.will_wake(waker))
    }

    /// Stores the waker. Returns the previous one, to be dropped where foreign code may run.
    pub(super) fn register(&mut self, slot: Slot, waker: Waker) -> Option<Waker> {
        self.nodes[slot.at()].waker.replace(waker)
    }

    /// Frees a waiter's node. Returns its waker as well, to be dropped where foreign code may run.
    pub(super) fn remove(&mut self, slot: Slot) -> (Place, Option<Waker>) {
        if let Place::Queued = self.nodes[slot.at()].place {
            self.unlink(slot);
        }
        let node = &mut self.nodes[slot.at()];
        node.serial = 0;
        let left = (mem::replace(&mut node.place, Place::Over(Turn::Closed)), node.waker.take());
        node.after = self.vacant.replace(slot);
        self.vacancies += 1;
        let nodes = self.nodes.len();
        if self.vacancies as usize == nodes && nodes > KEPT {
            (self.nodes, self.vacant, self.vacancies) = (Vec::new(), None, 0);
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    fn request(owner: u64) -> Request {
        Request::new(owner)
    }

    fn now() -> Moment {
        Moment::from(std::time::Instant::now())
    }

    fn push(queue: &mut Queue, request: Request, since: Moment, tries: bool) -> Slot {
        thread_local!(static LAST: Cell<u64> = const { Cell::new(0) });
        LAST.set(LAST.get() + 1);
        queue.push(LAST.get(), request, since, tries)
    }

    #[test]
    fn waiters_leave_in_the_order_of_their_coming_and_from_anywhere() {
        let mut queue = Queue::default();
        let slots: Vec<_> = (0..5).map(|owner| push(&mut queue, request(owner), now(), false)).collect();
        for leaves in [0, 2, 4] {
            assert!(queue.remove(slots[leaves]).1.is_none());
        }
        assert_eq!(queue.len(), 2);
        let left: Vec<_> = std::iter::from_fn(|| queue.pop().map(|slot| queue.request(slot).owner)).collect();
        assert_eq!(left, [1, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn waiters_of_one_owner_are_found_in_the_middle() {
        let mut queue = Queue::default();
        for owner in [1, 2, 1, 3] {
            push(&mut queue, request(owner).shared_owner(), now(), false);
        }
        assert!(queue.pop_of(1).is_some() && queue.pop_of(1).is_some());
        assert!(queue.pop_of(1).is_none());
        assert_eq!(queue.first().map(|request| request.owner), Some(2));
    }

    /// A visit of each waiter in each hand-off would take an hour here.
    #[test]
    fn owner_without_a_waiter_is_not_looked_for_among_all() {
        const WAITERS: u64 = 100_000;
        let mut queue = Queue::default();
        for owner in 0..WAITERS {
            push(&mut queue, request(owner).shared_owner(), now(), false);
        }
        assert!((0..WAITERS).all(|absent| queue.pop_of(WAITERS + absent).is_none()));
        let slots: Vec<_> = (0..WAITERS).rev().map(|owner| queue.pop_of(owner).unwrap()).collect();
        assert!(queue.is_empty() && queue.by_owner.as_ref().unwrap().is_empty());
        assert_eq!(queue.request(slots[0]).owner, WAITERS - 1);
    }

    #[test]
    fn granted_waiters_are_checked_in_the_order_of_their_grants() {
        let (mut queue, now) = (Queue::default(), now());
        let slots = [1, 2].map(|owner| push(&mut queue, request(owner), now, false));
        for (slot, since) in slots.into_iter().zip([now + Duration::from_secs(1), now]) {
            queue.unlink(slot);
            queue.place_at(slot, Place::Granted(Grant::new(1, None, None), None, since));
        }
        assert_eq!(
            queue.granted().into_iter().map(|(slot, _)| slot).collect::<Vec<_>>(),
            [slots[1], slots[0]]
        );
    }

    #[test]
    fn waiter_with_an_owner_of_its_own_has_no_place_by_owner() {
        let mut queue = Queue::default();
        push(&mut queue, request(1), now(), false);
        assert!(queue.by_owner.is_none());
    }

    #[test]
    fn departed_tries_are_not_searched_for_among_all_waiters() {
        let mut queue = Queue::default();
        push(&mut queue, request(1), now(), false);
        let tries = push(&mut queue, request(2), now(), true);
        assert_eq!(queue.pop_try(&mut queue.walk()), Some(tries));
        let mut walk = queue.walk();
        assert_eq!(queue.pop_try(&mut walk), None);
        assert_eq!(walk.0, queue.first, "expected the walk at the first waiter, past all others");
    }

    #[test]
    fn memory_of_a_burst_is_freed_when_it_is_over() {
        let mut queue = Queue::default();
        let slots: Vec<_> = (0..10_000).map(|owner| push(&mut queue, request(owner), now(), false)).collect();
        slots.into_iter().for_each(|slot| _ = queue.remove(slot));
        assert_eq!((queue.nodes.capacity(), queue.vacant), (0, None));
    }

    /// The burst reuses its nodes again and again.
    #[test]
    fn waiter_that_stays_is_in_the_queue_whoever_comes_and_goes() {
        let mut queue = Queue::default();
        let burst = |queue: &mut Queue, waiters: u64| {
            let come: Vec<_> = (0..waiters).map(|_| push(queue, request(2), now(), false)).collect();
            come.into_iter().for_each(|slot| _ = queue.remove(slot));
        };
        for _ in 0..2 {
            let stays = push(&mut queue, request(1), now(), false);
            burst(&mut queue, 2 * KEPT as u64);
            for _ in 0..4 * KEPT {
                burst(&mut queue, 1);
                assert_eq!(queue.first().map(|request| request.owner), Some(1));
            }
            queue.remove(stays);
            assert_eq!(
                (queue.nodes.capacity(), queue.vacant),
                (0, None),
                "expected no room kept after the burst"
            );
        }
    }
}
