//! What several judges ask: whether anything that went wrong can still be felt, and which calls wait for a
//! lock.

use crate::program::{How, Incident, Op, Program, Trouble, Which};
use crate::stage::{Call, View};
use crate::store::{Harm, Store};
use crate::world::{MS, Nanos, SECOND};

/// For how long harm is felt that is over: positions of the dead are kept for 10 s, and releases are repeated
/// each second.
const FELT: Nanos = 15 * SECOND;
/// The same if it has killed no process and taken nothing away: links are made anew by then.
const FELT_BY_LINKS: Nanos = 5 * SECOND;

/// The moment from which on nothing can be felt of what has gone wrong so far. It may be to come.
pub(super) fn settled_from<S: Store>(view: &View<'_, S>) -> Nanos {
    settled_but_for(view, |_| false)
}

/// The same, as if some of it had not been.
pub(super) fn settled_but_for<S: Store>(view: &View<'_, S>, harmless: impl Fn(&Trouble) -> bool) -> Nanos {
    let network = &view.program.network;
    let late = if network.is_faulty() { network.late_by } else { 0 } + 2 * network.answer_limit;
    let by_network = if network.is_faulty() { network.faults_end + late + FELT } else { 0 };
    let befallen = view.program.incidents.iter().filter(|incident| incident.at <= view.now);
    let befallen = befallen.filter(|incident| !harmless(&incident.what));
    let by_harm = befallen.map(|incident| over(incident) + late + felt(incident)).max();
    by_harm.unwrap_or(0).max(by_network)
}

fn felt(incident: &Incident) -> Nanos {
    match &incident.what {
        Trouble::Suspend { .. } | Trouble::Harm(Harm::Cut { .. } | Harm::Silence { .. }) => FELT_BY_LINKS,
        Trouble::Kill { .. } | Trouble::Harm(_) => FELT,
    }
}

/// Nothing has gone wrong so far that a command, a message or a timer could feel.
pub(super) fn is_calm<S: Store>(view: &View<'_, S>) -> bool {
    !view.program.network.is_faulty() && view.program.incidents.iter().all(|incident| incident.at > view.now)
}

fn over(incident: &Incident) -> Nanos {
    incident.at
        + match &incident.what {
            Trouble::Suspend { lasts, .. } | Trouble::Harm(Harm::Silence { lasts, .. }) => *lasts,
            Trouble::Kill { restarts_after, .. } => restarts_after.unwrap_or(0),
            Trouble::Harm(_) => 0,
        }
}

/// Up to how long messages and commands of one hand-off are under way on a network without faults, and then
/// some.
pub(super) fn hand_off(program: &Program) -> Nanos {
    200 * MS + 8 * program.network.latency
}

/// The lock that a call waits for, if it does.
pub(super) fn waited_for(call: &Call) -> Option<Which> {
    match &call.op {
        Op::Acquire { how: How::Try | How::TryFor { wait: 0, .. }, .. } => None,
        Op::Acquire { lock, .. } => Some(*lock),
        _ => None,
    }
}

/// Whether a lease that the call asks for lasts for longer than it takes to tell the client of it.
fn can_be_had<S: Store>(view: &View<'_, S>, call: &Call) -> bool {
    let own = match call.op {
        Op::Acquire { how: How::Leased(lease) | How::TryFor { lease: Some(lease), .. }, .. } => Some(lease),
        _ => None,
    };
    let watched = view.program.processes[view.scene.members[call.member].plan].options.watchdog_timeout();
    own.unwrap_or(watched) > 4 * hand_off(view.program)
}

/// Whether a call waits for a lock in vain, as its lease is over before it can know of it. It holds up the
/// others of its process.
pub(super) fn blocks<S: Store>(view: &View<'_, S>, lock: Which) -> bool {
    let mut calls = view.scene.calls.values();
    calls.any(|call| waited_for(call).is_some_and(|other| other.name == lock.name) && !can_be_had(view, call))
}

/// Whether the call is polled whenever it is woken, and was since it began; and is not about to end.
pub(super) fn is_attended<S: Store>(view: &View<'_, S>, call: &Call) -> bool {
    let member = &view.scene.members[call.member];
    let ends = call.due.is_some_and(|due| due <= view.now + hand_off(view.program));
    let is_polled = !call.was_stalled && !ends;
    is_polled
        && can_be_had(view, call)
        && member.process.runs()
        && member.stood_still_until < call.began
        && !member.is_shut_down
}
