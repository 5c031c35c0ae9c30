//! docs/guarantees.md: "A guard believes in its lease no longer than the store keeps it […]; and the store
//! keeps no lease that no guard believes in."
//!
//! Except for a short while, and for work under way: calls, commands, repeated releases.

use std::collections::{BTreeMap, BTreeSet};

use super::Judge;
use super::calm::{hand_off, is_calm, waited_for};
use crate::program::{LockSide, Op, Which};
use crate::stage::{Phase, View};
use crate::store::{Store, StoredLease};
use crate::task::command_limit;
use crate::time;
use crate::world::{MS, Nanos, SECOND};

/// Time for which a lease may stand without a holder: an unpolled waiter with a grant leaves the lease to the
/// next waiter.
const TOLERATED: Nanos = 5 * SECOND;
/// As `TOLERATED`, without faults or unpolled waiters: less than any timer of a waiter.
const AT_ONCE: Nanos = SECOND;
/// Interval of the questions whether a client has releases under way.
const ASKED_EACH: Nanos = 10 * MS;

/// A lease without a holder: the beginning of this state, and the end of the lease.
#[derive(Debug)]
struct Idle {
    since: Nanos,
    ends: Nanos,
    /// Longest time without a holder.
    tolerated: Nanos,
}

#[derive(Default)]
pub(crate) struct Leak {
    idle: BTreeMap<(Which, usize, u64), Idle>,
    /// Leases that a hold or a call has relied on.
    seen: BTreeSet<(String, u64)>,
    /// By member: time until which releases count as under way.
    releases_until: BTreeMap<usize, Nanos>,
}

impl<S: Store> Judge<S> for Leak {
    fn name(&self) -> &'static str {
        "leak"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        if view.phase > Phase::Quiet {
            return None;
        }
        // Only time has passed since the last look.
        if let Some(((lock, member, number), idle)) =
            self.idle.iter().find(|(_, idle)| view.now.min(idle.ends) > idle.since + idle.tolerated)
        {
            let (since, ends) = (time::seconds(idle.since), time::seconds(idle.ends));
            let lock = view.lock_words(*lock);
            return Some(format!(
                "expected no lease {number} of p{member} on {lock} unused since {since}, saw it until {ends}"
            ));
        }
        let mut idle = BTreeMap::new();
        for (lock, lease) in view.leases.all().filter(|(_, lease)| lease.ends > view.now) {
            let Some(member) = self.abandoned(view, lock, lease) else { continue };
            let key = (lock, member, lease.number);
            if !self.idle.contains_key(&key) && self.came_late(view, lease) {
                continue;
            }
            let since = self.idle.get(&key).map_or(view.now, |idle| idle.since);
            idle.insert(key, Idle { since, ends: lease.ends, tolerated: tolerated(view, lock, member) });
        }
        self.idle = idle;
        let counted = view.leases.all().filter(|(lock, lease)| {
            member_of(view, lease).is_some_and(|member| is_relied_on(view, *lock, lease, member))
        });
        self.seen.extend(counted.map(|(_, lease)| (lease.client.clone(), lease.number)));
        None
    }

    fn phase_ends(&mut self, view: &View<'_, S>) -> Option<String> {
        if view.phase != Phase::Ending {
            return None;
        }
        let mut leases = view.leases.all().filter(|(_, lease)| lease.ends > view.now);
        let (lock, lease) = leases.find(|(_, lease)| !self.came_late(view, lease))?;
        let (number, lock, left) =
            (lease.number, view.lock_words(lock), time::seconds(lease.ends - view.now));
        Some(format!("expected no lease of {lock} after the last guard, saw lease {number} for {left}"))
    }
}

impl Leak {
    /// True if an attempt ran after the end of its lease, and its only rollback was lost.
    fn came_late<S: Store>(&self, view: &View<'_, S>, lease: &StoredLease) -> bool {
        view.program.network.late > 0 && !self.seen.contains(&(lease.client.clone(), lease.number))
    }

    /// The living member that has the lease, if none of its guards relies on the lease.
    fn abandoned<S: Store>(&mut self, view: &View<'_, S>, lock: Which, lease: &StoredLease) -> Option<usize> {
        let member = member_of(view, lease)?;
        let is_excused =
            view.excuses.has_old_places(view.now) || view.excuses.is_ghost(&lease.client, lease.number);
        let is_used = is_relied_on(view, lock, lease, member) || self.is_busy(view, member);
        (!is_excused && !is_used).then_some(member)
    }

    /// True if the member is dead or suspended, or has commands or releases under way.
    fn is_busy<S: Store>(&mut self, view: &View<'_, S>, at: usize) -> bool {
        let member = &view.scene.members[at];
        if !member.process.runs() || view.store.under_way(&member.process) > 0 {
            return true;
        }
        let until = self.releases_until.entry(at).or_default();
        // The question visits all locks of the client.
        if *until <= view.now {
            // After the client was dropped, its pending releases are unknown.
            let is_busy = member.client.as_ref().is_none_or(|client| client.metrics().releases_pending > 0);
            *until = if is_busy { view.now + ASKED_EACH } else { 0 };
        }
        *until > view.now
    }
}

fn member_of<S: Store>(view: &View<'_, S>, lease: &StoredLease) -> Option<usize> {
    view.scene.members.iter().position(|member| member.client_id == lease.client)
}

/// True if a hold or a call of the member needs the lease.
fn is_relied_on<S: Store>(view: &View<'_, S>, lock: Which, lease: &StoredLease, member: usize) -> bool {
    let same_name = |other: Which| other.name == lock.name;
    let is_held = view.scene.holds.values().any(|hold| {
        // The lease of a hold that is forgotten, or being extended, is not certain.
        let of_it = lock.kind != LockSide::Permits || [0, lease.number].contains(&hold.number);
        hold.member == member && same_name(hold.lock) && of_it && counts(view, hold)
    });
    let is_called = view.scene.calls.values().any(|call| {
        let is_of_it = call.member == member && call.is_about(same_name);
        // A waiting or unpolled call loses its lease as soon as noticed, except for an owner's further
        // acquisition, which already has the lock while asking for a token or a longer lease.
        let is_further = matches!(call.op, Op::Acquire { owner: Some(_), .. });
        let is_sure =
            call.takes_several() || if call.was_stalled { is_further } else { waited_for(call).is_none() };
        is_of_it && is_sure
    });
    is_held || is_called
}

fn counts<S: Store>(view: &View<'_, S>, hold: &crate::stage::Hold) -> bool {
    match &hold.guard {
        Some(guard) => guard.is_held(),
        None => hold.is_forgotten || view.scene.calls.values().any(|call| call.hold == Some(hold.id)),
    }
}

/// Time for which a lease may stand without a holder, given calls that wait for the lock, or are not polled.
fn tolerated<S: Store>(view: &View<'_, S>, lock: Which, member: usize) -> Nanos {
    let plan = &view.program.processes[view.scene.members[member].plan];
    // By a fast clock, a lease ends earlier.
    let early = view.drift(member, view.program.longest_lease());
    let stalls = |op: &Op| op.care().is_some_and(|care| care.stall.is_some());
    if is_calm(view) && !plan.tasks.iter().flatten().any(stalls) {
        return AT_ONCE + early + 2 * hand_off(view.program);
    }
    let calls = view.scene.calls.values();
    let of_it =
        calls.filter(|call| call.member == member && call.lock.is_some_and(|it| it.name == lock.name));
    let (mut waiting, mut stalled) = (0, 0);
    for call in of_it {
        waiting += u64::from(waited_for(call).is_some());
        stalled += u64::from(call.was_stalled);
    }
    let answered = match waiting > 0 {
        true if !is_calm(view) => 2 * command_limit(view.program),
        _ => hand_off(view.program),
    };
    // No release is repeated for renewals that may come late.
    let late = if view.program.network.late > 0 { view.program.network.late_by } else { 0 };
    TOLERATED + early + answered + late + 2 * (1 + stalled) * plan.options.unpolled_limit()
}
