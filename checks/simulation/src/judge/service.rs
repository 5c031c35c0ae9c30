//! "A waiter is woken by the release, not by a timer"; "An unpolled waiter blocks others for at most 2 s";
//! and of a network that has come back: locks released meanwhile "are free afterwards, and their waiters have
//! them within 4 s". So once all effects of faults have ended, no call waits beside a free lock for longer
//! than that. And docs/failures.md of a lock that is evicted: a waiter "tries when the lease that it has seen
//! would end, if no message comes before". A waiter for permits waits in vain if the waiter's permits, and
//! those of each earlier waiter, are free.

use std::collections::{BTreeMap, BTreeSet};

use super::Judge;
use super::calm::{blocks, hand_off, is_attended, is_calm, settled_but_for, waited_for};
use crate::program::{LockSide, Op, Trouble, Which};
use crate::stage::{Call, View};
use crate::store::{Store, StoredLease};
use crate::task::MOMENT;
use crate::time;
use crate::world::{MS, Nanos, SECOND};

const WITHIN: Nanos = 4 * SECOND;
/// Time for which the suspension of a process has effects.
const FELT: Nanos = 15 * SECOND;
/// The limit without any fault: less than any timer of a waiter.
const AT_ONCE: Nanos = 600 * MS;

#[derive(Default)]
pub(crate) struct Service {
    looked: Nanos,
    /// By member and task: time from which a waiting call's lock has been free; true if it was freed.
    free_since: BTreeMap<(usize, usize), (Nanos, bool)>,
    /// Last expected end of each lock's leases, a read-write lock's under its reader's side.
    ends: BTreeMap<Which, Nanos>,
    /// Leases of permits at the last look.
    permits: Vec<(Which, StoredLease)>,
    /// Time when permits of each semaphore last came free before the end of their lease.
    given_back: BTreeMap<Which, Nanos>,
}

impl<S: Store> Judge<S> for Service {
    fn name(&self) -> &'static str {
        "service"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        self.see_given_back(view);
        let waits = if view.now == self.looked { None } else { self.waits_in_vain(view) };
        self.looked = view.now;
        // At each look, since one lease may replace another within one moment.
        let leases = view.leases.all().filter(|(_, lease)| lease.ends > view.now);
        self.ends.extend(leases.map(|(lock, lease)| (lock, lease.ends)));
        waits
    }
}

impl Service {
    fn waits_in_vain<S: Store>(&mut self, view: &View<'_, S>) -> Option<String> {
        // A suspended waiter blocks others only for the life of its position.
        let settled = settled_but_for(view, |what| matches!(what, Trouble::Suspend { .. }));
        // A position that a fallback restored lasts longer by as much as the clock is set back.
        let restored = view.excuses.fell_back.map_or(0, |_| view.program.set_back());
        let settled = settled + restored;
        let suspended = view
            .scene
            .members
            .iter()
            .any(|member| member.stood_still_until > 0 && member.stood_still_until + FELT > view.now);
        let positions = view.program.processes.iter().map(|plan| plan.options.watchdog_timeout() / 3).max();
        let held_up = if suspended { FELT + positions.unwrap_or(0) } else { 0 };
        let mut free_since = BTreeMap::new();
        for (by, call) in &view.scene.calls {
            let Some(lock) = waited_for(call).filter(|lock| is_free_for(view, call, *lock)) else { continue };
            // Only clients that ask learn of an expired lease.
            let ends = self.ends.iter().find(|(other, _)| other.is_one_with(lock));
            let was_freed = || match lock.kind {
                LockSide::Permits => self.given_back.get(&lock).is_some_and(|at| *at >= self.looked),
                _ => ends.is_some_and(|(_, ends)| *ends > view.now + MOMENT),
            };
            let (since, freed) = self.free_since.get(by).copied().unwrap_or_else(|| (view.now, was_freed()));
            // The store sends no message for a lease lost by harm.
            let since = since.max(call.began).max(settled).max(view.excuses.lost_until(lock));
            if view.now > since + within(view, lock, freed) + held_up
                && is_attended(view, call)
                && !blocks(view, lock)
            {
                return Some(format!(
                    "p{}t{}: expected the lock {}, free since {}, saw the call waiting",
                    by.0,
                    by.1,
                    view.lock_words(lock),
                    time::seconds(since)
                ));
            }
            free_since.insert(*by, (since, freed));
        }
        self.free_since = free_since;
        None
    }
}

impl Service {
    fn see_given_back<S: Store>(&mut self, view: &View<'_, S>) {
        let permits = view.leases.all().filter(|(lock, _)| lock.kind == LockSide::Permits);
        let present: Vec<_> = permits.map(|(lock, lease)| (lock, lease.clone())).collect();
        let keys: BTreeSet<_> = present.iter().map(|(_, lease)| (&lease.client, lease.number)).collect();
        let is_early = |lease: &StoredLease| {
            lease.ends > view.now + MOMENT && !keys.contains(&(&lease.client, lease.number))
        };
        let early = self.permits.iter().filter(|(_, lease)| is_early(lease));
        self.given_back.extend(early.map(|(lock, _)| (*lock, view.now)));
        self.permits = present;
    }
}

/// Limit on waiting beside a free lock: unpolled calls block the lock one after the other.
fn within<S: Store>(view: &View<'_, S>, lock: Which, freed: bool) -> Nanos {
    let unpolled = view.program.processes.iter().map(|plan| plan.options.unpolled_limit()).max();
    let of_it = |call: &&Call| call.is_about(|other| other.name == lock.name);
    let stalled = view.scene.calls.values().filter(of_it).filter(|call| call.was_stalled).count() as u64;
    let stalls = |op: &Op| op.care().is_some_and(|care| care.stall.is_some());
    let may_stall = || view.program.processes.iter().flat_map(|plan| &plan.tasks).flatten().any(stalls);
    if freed && is_calm(view) && !may_be_forced(view, lock) && !may_stall() {
        return AT_ONCE + 2 * hand_off(view.program);
    }
    WITHIN + 2 * (1 + stalled) * unpolled.unwrap_or(0) + 2 * (1 + stalled) * hand_off(view.program)
}

/// True if a forced unlock may occur, which other clients notice only by a timer.
fn may_be_forced<S: Store>(view: &View<'_, S>, lock: Which) -> bool {
    let forces = |op: &Op| matches!(op, Op::ForceUnlock { lock: other, .. } if other.name == lock.name);
    view.program.processes.iter().flat_map(|plan| &plan.tasks).flatten().any(forces)
}

/// True if the store would grant the lock: a reader may join others, unless a writer waits. A waiter for
/// permits is behind all earlier ones, and behind those so soon afterwards that their questions may have come
/// first.
fn is_free_for<S: Store>(view: &View<'_, S>, call: &Call, lock: Which) -> bool {
    let is_writer = |other: Which| other.name == lock.name && other.kind == LockSide::Write;
    let writes = |call: &Call| {
        waited_for(call).is_some_and(is_writer) || call.takes_several() && call.is_about(is_writer)
    };
    match lock.kind {
        LockSide::Read => {
            view.leases(lock).all(|lease| lease.is_shared) && !view.scene.calls.values().any(writes)
        }
        LockSide::Permits => {
            // A store orders waiters by its own clock, and by how long they have waited by their clocks.
            let soon = call.began + hand_off(view.program) + view.program.set_back();
            let drift = |call: &Call| view.drift(call.member, view.now - call.began);
            let soon = |other: &Call| soon + drift(call) + drift(other);
            let waits = |other: &&Call| waited_for(other) == Some(lock) && other.began <= soon(other);
            view.scene.calls.values().filter(waits).all(|other| view.has_permits_for(other))
        }
        _ => view.leases(lock).next().is_none(),
    }
}
