//! docs/guarantees.md: "A guard believes in its lease no longer than the store keeps it […]; and the store keeps no lease that
//! no guard believes in."
//!
//! Beyond a while, and beyond what is under way: calls, commands, releases that are repeated.

use std::collections::BTreeMap;

use super::Judge;
use crate::program::{Which, time};
use crate::stage::{Member, Phase, View};
use crate::store::{Store, StoredLease};
use crate::world::{Nanos, SECOND};

/// For so long a lease may stand without a holder: a waiter that was granted it, and is not polled, leaves it to the next one.
const TOLERATED: Nanos = 5 * SECOND;

/// Since when a lease has had no holder, and when it ends, as was seen last.
struct Idle {
    since: Nanos,
    ends: Nanos,
}

#[derive(Default)]
pub(crate) struct Leak {
    idle: BTreeMap<(Which, usize, u64), Idle>,
}

impl<S: Store> Judge<S> for Leak {
    fn name(&self) -> &'static str {
        "leak"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        if view.phase > Phase::Quiet {
            return None;
        }
        // Since the last look nothing but time has passed.
        if let Some(((lock, member, number), idle)) = self.idle.iter().find(|((_, member, _), idle)| {
            // By a fast clock a lease is over so much earlier.
            let early = view.drift(*member, view.program.longest_lease());
            view.now.min(idle.ends) > idle.since + TOLERATED + early
        }) {
            let (since, ends) = (time::seconds(idle.since), time::seconds(idle.ends));
            let lock = view.lock_words(*lock);
            return Some(format!(
                "the store keeps lease {number} of p{member} on {lock} until {ends}; nobody counts on it since {since}"
            ));
        }
        let mut idle = BTreeMap::new();
        for (lock, lease) in view.leases.all().filter(|(_, lease)| lease.ends > view.now) {
            let Some(member) = abandoned(view, lock, lease) else { continue };
            let key = (lock, member, lease.number);
            let since = self.idle.get(&key).map_or(view.now, |idle| idle.since);
            idle.insert(key, Idle { since, ends: lease.ends });
        }
        self.idle = idle;
        None
    }
}

/// For how long a place in a queue is kept at most that came back with a store that fell back, or the lease that it was granted.
const PLACES_LAST: Nanos = 30 * SECOND;

/// The member that has the lease, if it lives and nobody there counts on it.
fn abandoned<S: Store>(view: &View<'_, S>, lock: Which, lease: &StoredLease) -> Option<usize> {
    let at = view.scene.members.iter().position(|member| member.client_id == lease.client)?;
    let member = &view.scene.members[at];
    if view.excuses.fell_back.is_some_and(|at| view.now < at + PLACES_LAST) {
        return None;
    }
    let same_name = |other: Which| other.name == lock.name;
    let is_held = view.scene.holds.values().any(|hold| {
        // Which lease a forgotten one stands on, or one that is being extended, is not known for certain.
        hold.member == at && same_name(hold.lock) && counts(view, hold)
    });
    let is_called =
        view.scene.calls.values().any(|call| call.member == at && call.lock.is_some_and(same_name));
    (!is_held && !is_called && !is_busy(view, member) && !view.excuses.is_ghost(&lease.client, lease.number))
        .then_some(at)
}

fn counts<S: Store>(view: &View<'_, S>, hold: &crate::stage::Hold) -> bool {
    match &hold.guard {
        Some(guard) => guard.is_held(),
        None => hold.is_forgotten || view.scene.calls.values().any(|call| call.hold == Some(hold.id)),
    }
}

/// It is dead, or stands still, or has something under way that concerns who knows what.
fn is_busy<S: Store>(view: &View<'_, S>, member: &Member) -> bool {
    let releases = || member.client.as_ref().is_some_and(|client| client.metrics().releases_pending > 0);
    !member.process.runs() || view.store.under_way(&member.process) > 0 || releases()
}
