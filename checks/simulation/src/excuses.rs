//! [`Excuses`]: exceptions of the documentation that the history justifies.

use std::collections::{BTreeMap, BTreeSet};

use crate::program::Which;
use crate::store::StoredLease;
use crate::world::{Nanos, SECOND};

/// Longest life of a queue position restored by a fallback of the store, or of a lease granted to such.
const PLACES_LAST: Nanos = 30 * SECOND;

/// Each excuse concerns single leases, never a whole period or name.
#[derive(Debug, Default)]
pub(crate) struct Excuses {
    /// Leases lost or shortened by harm (forgetting, fallback, eviction, a change of the clock) or by force,
    /// without the clients' knowledge: the time of the first loss, by client and number.
    victims: BTreeMap<String, BTreeMap<u64, Nanos>>,
    /// Leases that their own client has reported as gone.
    known: BTreeMap<String, BTreeSet<u64>>,
    /// Leases restored by a fallback of the store, or lengthened by a change of its clock.
    ghosts: BTreeMap<String, BTreeSet<u64>>,
    /// By lock: the latest end that a lease lost by harm would have had.
    lost_until: BTreeMap<Which, Nanos>,
    /// Calls that may force a lock free, and the latest time at which they may.
    forced: BTreeMap<Which, Forced>,
    /// Time at which the token counter of a lock restarted, because the store had lost the counter.
    tokens_lost: BTreeMap<Which, Nanos>,
    /// Time of the last fallback, or change of the store's clock: the store may grant the lock to queue
    /// positions that had been given up.
    pub(crate) fell_back: Option<Nanos>,
    pub(crate) last_harm: Option<Nanos>,
}

#[derive(Debug, Default)]
struct Forced {
    under_way: usize,
    until: Nanos,
    /// End of the last call.
    ended: Option<Nanos>,
}

fn has(leases: &BTreeMap<String, BTreeSet<u64>>, client: &str, number: u64) -> bool {
    leases.get(client).is_some_and(|numbers| numbers.contains(&number))
}

impl Excuses {
    /// True if the store has lost this lease by harm or force, and the client cannot know.
    pub(crate) fn is_victim(&self, client: &str, number: u64) -> bool {
        self.was_taken(client, number) && !has(&self.known, client, number)
    }

    /// True if the store has lost this lease by harm or force, even if the client knows.
    pub(crate) fn was_taken(&self, client: &str, number: u64) -> bool {
        self.taken_at(client, number).is_some()
    }

    pub(crate) fn taken_at(&self, client: &str, number: u64) -> Option<Nanos> {
        self.victims.get(client).and_then(|numbers| numbers.get(&number)).copied()
    }

    /// Records that the client has reported this lease as gone: no hold may rely on the lease from then on.
    pub(crate) fn is_known_lost(&mut self, client: &str, number: u64) {
        self.known.entry(client.to_owned()).or_default().insert(number);
    }

    pub(crate) fn is_ghost(&self, client: &str, number: u64) -> bool {
        has(&self.ghosts, client, number)
    }

    /// True if a call may force the lock free at this moment.
    pub(crate) fn may_be_forced(&self, lock: Which, now: Nanos) -> bool {
        self.forced.get(&lock.by_reader()).is_some_and(|forced| forced.under_way > 0 || now <= forced.until)
    }

    /// Time from which the lock's tokens may have restarted.
    pub(crate) fn tokens_lost(&self, lock: Which) -> Option<Nanos> {
        self.tokens_lost.get(&lock.by_reader()).copied()
    }

    /// True if the store may have restored queue positions, or leases granted to them.
    pub(crate) fn has_old_places(&self, now: Nanos) -> bool {
        self.fell_back.is_some_and(|at| now < at + PLACES_LAST)
    }

    pub(crate) fn add_victim(&mut self, lease: &StoredLease, now: Nanos) {
        self.victims.entry(lease.client.clone()).or_default().entry(lease.number).or_insert(now);
    }

    /// Records that the store has lost this lease by harm, without a message to any waiter.
    pub(crate) fn lose(&mut self, lock: Which, lease: &StoredLease, now: Nanos) {
        self.add_victim(lease, now);
        let until = self.lost_until.entry(lock.by_reader()).or_default();
        *until = lease.ends.max(*until);
    }

    /// Latest end that a lease of this lock, lost by harm, would have had.
    pub(crate) fn lost_until(&self, lock: Which) -> Nanos {
        self.lost_until.get(&lock.by_reader()).copied().unwrap_or(0)
    }

    pub(crate) fn add_ghost(&mut self, lease: &StoredLease) {
        self.ghosts.entry(lease.client.clone()).or_default().insert(lease.number);
    }

    pub(crate) fn force_begins(&mut self, lock: Which) {
        self.forced.entry(lock.by_reader()).or_default().under_way += 1;
    }

    /// Records the end of a call whose command may still run until `until`.
    pub(crate) fn force_ended(&mut self, lock: Which, now: Nanos, until: Nanos) {
        let forced = self.forced.entry(lock.by_reader()).or_default();
        forced.under_way = forced.under_way.saturating_sub(1);
        (forced.until, forced.ended) = (forced.until.max(until), Some(now));
    }

    /// End of the last call that forced a lock of this name free.
    pub(crate) fn forced_last(&self, name: usize) -> Option<Nanos> {
        self.forced.iter().filter(|(lock, _)| lock.name == name).filter_map(|(_, calls)| calls.ended).max()
    }

    pub(crate) fn lose_tokens(&mut self, lock: Which, now: Nanos) {
        self.tokens_lost.insert(lock.by_reader(), now);
    }
}
