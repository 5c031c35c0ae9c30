//! docs/operations.md: "holders are told within a third of the lease", and with waiters the client asks the
//! store each second. So no guard relies for longer on a lease that the store has lost. And of
//! `LockOptions::max_hold`: "For how long an owner may have a lock by a watched lease: then the hold is
//! lost".

use std::collections::{BTreeMap, HashSet};

use latchwork::Owner;

use super::Judge;
use super::belief::stored;
use super::calm::{hand_off, settled_but_for, waited_for};
use crate::program::{How, LockSide, Op, Trouble};
use crate::stage::{Call, Event, Hold, View};
use crate::store::{Harm, Store};
use crate::task::MOMENT;
use crate::time;
use crate::world::{Nanos, SECOND};

/// Interval at which a client with waiters asks the store.
const VERIFIED: Nanos = SECOND;

/// Times from which the store has lost a hold's lease, and from which the client has waited besides.
struct Gone {
    since: Nanos,
    waited_since: Option<Nanos>,
}

#[derive(Default)]
pub(crate) struct Told {
    gone: BTreeMap<u64, Gone>,
    /// Owners with leases of their own, which last as requested.
    has_own: HashSet<Owner>,
    /// True if a lease can disappear before its client knows.
    may_be_gone: Option<bool>,
}

impl<S: Store> Judge<S> for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        if let Some(hold) = view.scene.holds.values().find(|hold| self.is_held_too_long(view, hold)) {
            let granted = time::seconds(hold.granted);
            return Some(format!(
                "{}: expected an end by its longest hold, saw it held since {granted}",
                view.words(hold)
            ));
        }
        if !*self.may_be_gone.get_or_insert_with(|| may_be_gone(view)) {
            return None;
        }
        self.gone.retain(|id, _| view.scene.holds.contains_key(id));
        for hold in view.scene.holds.values() {
            if hold.number == 0 || !hold.is_held() || stored(view, hold) > 0 {
                self.gone.remove(&hold.id);
                continue;
            }
            let gone = self.gone.entry(hold.id).or_insert(Gone { since: view.now, waited_since: None });
            gone.waited_since = gone.waited_since.or(Some(view.now)).filter(|_| is_waited_for(view, hold));
            if view.now > told_by(view, hold, gone) {
                return Some(format!(
                    "{}: expected the loss of lease {}, gone at the store since {}, saw it held",
                    view.words(hold),
                    hold.number,
                    time::seconds(gone.since)
                ));
            }
        }
        None
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        let hold = match event {
            Event::Granted(id) => view.scene.holds.get(id).filter(|hold| hold.lease.is_some()),
            Event::Called(call) if matches!(call.op, Op::Extend { .. } | Op::Forget { .. }) => {
                call.hold.and_then(|id| view.scene.holds.get(&id))
            }
            _ => None,
        };
        self.has_own.extend(hold.map(|hold| hold.owner));
        None
    }
}

impl Told {
    fn is_held_too_long<S: Store>(&self, view: &View<'_, S>, hold: &Hold) -> bool {
        let Some(limit) = view.program.processes[view.member(hold).plan].options.max_hold else {
            return false;
        };
        let drift = view.drift(hold.member, limit + view.drift(hold.member, limit));
        view.now > hold.granted + limit + drift + MOMENT
            && !self.has_own.contains(&hold.owner)
            && !asks_for_its_own(view, hold)
            // A suspended process notices nothing.
            && view.member(hold).process.runs()
            && hold.is_held()
    }
}

fn may_be_gone<S: Store>(view: &View<'_, S>) -> bool {
    view.program.incidents.iter().any(|incident| matches!(incident.what, Trouble::Harm(_)))
        || view.has_operation(|op| matches!(op, Op::ForceUnlock { .. }))
}

/// True if an owner may be asking, within this hold, for a lease of its own, which counts from the call on.
fn asks_for_its_own<S: Store>(view: &View<'_, S>, hold: &Hold) -> bool {
    let asks = |op: &Op| match op {
        Op::Acquire { owner: Some(_), how, .. } => {
            matches!(how, How::Leased(_) | How::TryFor { lease: Some(_), .. })
        }
        _ => false,
    };
    view.calls_of(hold.member).any(|call| call.lock == Some(hold.lock) && asks(&call.op))
}

/// True if another acquisition of the client waits behind this hold. Readers may compete beside readers, and
/// each acquisition of permits competes by itself.
fn is_waited_for<S: Store>(view: &View<'_, S>, hold: &Hold) -> bool {
    let waits = |call: &Call| waited_for(call) == Some(hold.lock) && !call.was_stalled;
    !matches!(hold.lock.kind, LockSide::Read | LockSide::Permits) && view.calls_of(hold.member).any(waits)
}

/// Latest time at which the holder learns of the loss.
fn told_by<S: Store>(view: &View<'_, S>, hold: &Hold, gone: &Gone) -> Nanos {
    let member = view.member(hold);
    let third = view.program.processes[member.plan].options.watchdog_timeout() / 3;
    // These incidents leave all links intact.
    let harmless = |what: &Trouble| {
        matches!(what, Trouble::Kill { .. } | Trouble::Harm(Harm::Evict { .. } | Harm::SetClock(_)))
    };
    let from = gone.since.max(settled_but_for(view, harmless)).max(member.stood_still_until);
    let by_renewal = hold.lease.is_none().then_some(from + third);
    let by_waiter = gone.waited_since.map(|since| since.max(from) + VERIFIED);
    let due = by_renewal.into_iter().chain(by_waiter).min().filter(|_| member.process.runs());
    let allowed =
        view.drift(hold.member, third.max(VERIFIED)) + third / 10 + 2 * hand_off(view.program) + MOMENT;
    due.map_or(Nanos::MAX, |due| due.saturating_add(allowed))
}
