//! [`Excuses`]: what the documentation excepts, as far as a history has given reason for it.

use std::collections::{BTreeMap, BTreeSet};

use crate::program::Which;
use crate::store::StoredLease;
use crate::world::{Nanos, SECOND};

/// For how long a place in a queue is kept at most that came back with a store that fell back, or the lease
/// that it was granted.
const PLACES_LAST: Nanos = 30 * SECOND;

/// Each excuse concerns single leases, and no time or name as a whole.
#[derive(Debug, Default)]
pub(crate) struct Excuses {
    /// Leases that the store has lost or shortened: it forgot, fell back, evicted, or its clock was set; or
    /// they were forced free. By client and number, with the first time. Their clients cannot know it.
    victims: BTreeMap<String, BTreeMap<u64, Nanos>>,
    /// Leases of which a client has said itself that they are gone.
    known: BTreeMap<String, BTreeSet<u64>>,
    /// Leases that came back when the store fell back, or that last longer as its clock was set.
    ghosts: BTreeMap<String, BTreeSet<u64>>,
    /// Until when leases would have lasted that the store has lost by harm, by lock.
    lost_until: BTreeMap<Which, Nanos>,
    /// Calls that may force a lock free, and when they may do so at the latest.
    forced: BTreeMap<Which, Forced>,
    /// When tokens of a lock began anew, as the store has lost the last ones.
    tokens_lost: BTreeMap<Which, Nanos>,
    /// When the store fell back last, or its clock was set: places in its queues are there again that were
    /// given up, and are granted.
    pub(crate) fell_back: Option<Nanos>,
    /// When harm was done last.
    pub(crate) last_harm: Option<Nanos>,
}

#[derive(Debug, Default)]
struct Forced {
    under_way: usize,
    until: Nanos,
    /// When the last call ended.
    ended: Option<Nanos>,
}

fn has(leases: &BTreeMap<String, BTreeSet<u64>>, client: &str, number: u64) -> bool {
    leases.get(client).is_some_and(|numbers| numbers.contains(&number))
}

impl Excuses {
    /// Whether the store has lost this lease by harm or force: its client cannot know it.
    pub(crate) fn is_victim(&self, client: &str, number: u64) -> bool {
        self.was_taken(client, number) && !has(&self.known, client, number)
    }

    /// Whether the store has lost this lease by harm or force, whether or not its client knows it.
    pub(crate) fn was_taken(&self, client: &str, number: u64) -> bool {
        self.taken_at(client, number).is_some()
    }

    /// When the store has lost it first.
    pub(crate) fn taken_at(&self, client: &str, number: u64) -> Option<Nanos> {
        self.victims.get(client).and_then(|numbers| numbers.get(&number)).copied()
    }

    /// The client has told a hold by this lease that it is gone: from then on none may count on it.
    pub(crate) fn is_known_lost(&mut self, client: &str, number: u64) {
        self.known.entry(client.to_owned()).or_default().insert(number);
    }

    /// Whether the store has this lease, or has it for longer, by harm.
    pub(crate) fn is_ghost(&self, client: &str, number: u64) -> bool {
        has(&self.ghosts, client, number)
    }

    /// Whether the lock may be forced free at this moment by a call that was made.
    pub(crate) fn may_be_forced(&self, lock: Which, now: Nanos) -> bool {
        self.forced.get(&lock.by_reader()).is_some_and(|forced| forced.under_way > 0 || now <= forced.until)
    }

    /// Since when the lock's tokens may have begun anew.
    pub(crate) fn tokens_lost(&self, lock: Which) -> Option<Nanos> {
        self.tokens_lost.get(&lock.by_reader()).copied()
    }

    /// Whether the store may have places in its queues, or leases granted for them, that came back.
    pub(crate) fn has_old_places(&self, now: Nanos) -> bool {
        self.fell_back.is_some_and(|at| now < at + PLACES_LAST)
    }

    pub(crate) fn add_victim(&mut self, lease: &StoredLease, now: Nanos) {
        self.victims.entry(lease.client.clone()).or_default().entry(lease.number).or_insert(now);
    }

    /// The store has lost this lease by harm, and tells no waiter.
    pub(crate) fn lose(&mut self, lock: Which, lease: &StoredLease, now: Nanos) {
        self.add_victim(lease, now);
        let until = self.lost_until.entry(lock.by_reader()).or_default();
        *until = lease.ends.max(*until);
    }

    /// Until when the leases of the lock would have lasted that the store has lost by harm.
    pub(crate) fn lost_until(&self, lock: Which) -> Nanos {
        self.lost_until.get(&lock.by_reader()).copied().unwrap_or(0)
    }

    pub(crate) fn add_ghost(&mut self, lease: &StoredLease) {
        self.ghosts.entry(lease.client.clone()).or_default().insert(lease.number);
    }

    pub(crate) fn force_begins(&mut self, lock: Which) {
        self.forced.entry(lock.by_reader()).or_default().under_way += 1;
    }

    /// The call has ended; the command may run until then.
    pub(crate) fn force_ended(&mut self, lock: Which, now: Nanos, until: Nanos) {
        let forced = self.forced.entry(lock.by_reader()).or_default();
        forced.under_way = forced.under_way.saturating_sub(1);
        (forced.until, forced.ended) = (forced.until.max(until), Some(now));
    }

    /// When the last call ended that has forced a lock of this name free.
    pub(crate) fn forced_last(&self, name: usize) -> Option<Nanos> {
        self.forced.iter().filter(|(lock, _)| lock.name == name).filter_map(|(_, calls)| calls.ended).max()
    }

    pub(crate) fn lose_tokens(&mut self, lock: Which, now: Nanos) {
        self.tokens_lost.insert(lock.by_reader(), now);
    }
}
