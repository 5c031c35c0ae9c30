//! Helpers of several judges: the end of all effects of faults, and the calls that wait for a lock.

use crate::program::{How, Incident, Op, Program, Trouble, Which};
use crate::stage::{Call, View};
use crate::store::{Harm, Store};
use crate::world::{MS, Nanos, SECOND};

/// Time for which past harm has effects: positions of dead processes last for 10 s, and releases are repeated
/// each half second.
const FELT: Nanos = 15 * SECOND;
/// As `FELT`, for harm that killed no process and destroyed no data: links are open again by then.
const FELT_BY_LINKS: Nanos = 5 * SECOND;

/// The moment, possibly in the future, at which the effects of all faults so far have ended.
pub(super) fn settled_from<S: Store>(view: &View<'_, S>) -> Nanos {
    settled_but_for(view, |_| false)
}

/// As [`settled_from`], ignoring incidents that `harmless` accepts.
pub(super) fn settled_but_for<S: Store>(view: &View<'_, S>, harmless: impl Fn(&Trouble) -> bool) -> Nanos {
    let network = &view.program.network;
    let late = if network.is_faulty() { network.late_by } else { 0 } + 2 * network.answer_limit;
    let by_network = if network.is_faulty() { network.faults_end + late + FELT } else { 0 };
    let befallen = view.program.incidents.iter().filter(|incident| incident.at <= view.now);
    let befallen = befallen.filter(|incident| !harmless(&incident.what));
    let by_harm = befallen.map(|incident| incident.ends() + late + felt(incident)).max();
    by_harm.unwrap_or(0).max(by_network)
}

fn felt(incident: &Incident) -> Nanos {
    match &incident.what {
        Trouble::Suspend { .. }
        | Trouble::Harm(Harm::Cut { .. } | Harm::Silence { .. } | Harm::Storm { .. }) => FELT_BY_LINKS,
        Trouble::Kill { .. } | Trouble::Harm(_) => FELT,
    }
}

/// True if the network is sound, and no incident but strangers' messages has occurred so far.
pub(super) fn is_calm<S: Store>(view: &View<'_, S>) -> bool {
    let is_harmless = |incident: &Incident| matches!(incident.what, Trouble::Harm(Harm::Storm { .. }));
    let mut incidents = view.program.incidents.iter().filter(|incident| !is_harmless(incident));
    !view.program.network.is_faulty() && incidents.all(|incident| incident.at > view.now)
}

/// Generous time for the messages and commands of one hand-off on a network without faults.
pub(super) fn hand_off(program: &Program) -> Nanos {
    200 * MS + 8 * program.network.latency
}

pub(super) fn waited_for(call: &Call) -> Option<Which> {
    match &call.op {
        Op::Acquire { how: How::Try | How::TryFor { wait: 0, .. }, .. } => None,
        Op::Acquire { lock, .. } => Some(*lock),
        _ => None,
    }
}

/// True if the requested lease outlasts the messages that grant it to the client.
fn can_be_had<S: Store>(view: &View<'_, S>, call: &Call) -> bool {
    let own = match call.op {
        Op::Acquire { how: How::Leased(lease) | How::TryFor { lease: Some(lease), .. }, .. } => Some(lease),
        _ => None,
    };
    let watched = view.program.processes[view.scene.members[call.member].plan].options.watchdog_timeout();
    own.unwrap_or(watched) > 4 * hand_off(view.program)
}

/// True if a call waits in vain, since its lease ends before the client can know of the grant. Such a call
/// blocks others of its process.
pub(super) fn blocks<S: Store>(view: &View<'_, S>, lock: Which) -> bool {
    let mut calls = view.scene.calls.values();
    calls.any(|call| waited_for(call).is_some_and(|other| other.name == lock.name) && !can_be_had(view, call))
}

/// True if the call is polled at each wake, since its start, and is not about to end.
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
