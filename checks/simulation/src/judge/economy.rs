//! docs/guarantees.md: "waiters of one process cost the server two commands for all", "a hand-off between two
//! processes costs three commands", and of `Lock::get_lock` and others: "Nothing is sent." So a call alone in
//! its client sends one command, with the exceptions below. And `LockOptions::watchdog_timeout`: a lease "is
//! renewed each time a third of it is over", and with waiters the client asks the store each second, but not
//! more often.

use std::collections::BTreeMap;

use super::Judge;
use super::calm::{is_calm, waited_for};
use super::words::words;
use crate::program::{How, LockSide, Op, Question, WakerKind, Which};
use crate::stage::{Call, Event, Hold, Phase, View};
use crate::store::Store;
use crate::world::{MS, Nanos, SECOND};

/// Time after which a waiting call may ask once more.
const ASKED_AGAIN: Nanos = 500 * MS;

#[derive(Default)]
pub(crate) struct Economy {
    /// Calls alone in their client, with the number of commands that the client had sent before.
    alone: BTreeMap<(usize, usize), u64>,
    looked: Nanos,
    /// For each member without work under way at the last look, the number of commands sent until then.
    idle: Vec<Option<u64>>,
    /// For each member, its count of renewals, and the time when the count last rose: a renewal is counted
    /// before its command is under way.
    renewed: BTreeMap<usize, (u64, Option<Nanos>)>,
    /// For each member, the time when a call last waited, or a hold last ended. For a second afterwards, the
    /// client may ask the store once more.
    unsettled: BTreeMap<usize, Nanos>,
    renewals: BTreeMap<usize, f64>,
}

impl<S: Store> Judge<S> for Economy {
    fn name(&self) -> &'static str {
        "economy"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        let time = view.now - std::mem::replace(&mut self.looked, view.now);
        if !is_calm(view) {
            return None;
        }
        let members = 0..view.scene.members.len();
        for at in members.clone() {
            let counted = self.renewed.entry(at).or_default();
            if counted.0 != renewals(view, at) {
                *counted = (renewals(view, at), Some(view.now));
            }
        }
        let is_idle = |at: &usize| {
            view.store.is_idle(&view.scene.members[*at].process) && self.renewed[at].1 != Some(view.now)
        };
        self.idle = members.map(|at| Some(at).filter(is_idle).map(|at| sent(view, at))).collect();
        if time > 0 {
            for hold in view.scene.holds.values() {
                *self.renewals.entry(hold.member).or_default() += time as f64 * pace(view, hold);
            }
        }
        None
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        match event {
            // An expired lease is released in the background.
            Event::GivenBack { member, .. } => {
                self.unsettled.insert(*member, view.now);
                None
            }
            Event::Called(call) => {
                *self.renewals.entry(call.member).or_default() += 2.0;
                self.alone.retain(|by, _| by.0 != call.member);
                let before = self.idle.get(call.member).copied().flatten();
                if let Some(before) = before.filter(|_| is_alone(view, call)) {
                    self.alone.insert((call.member, call.task), before);
                }
                None
            }
            Event::Answered(call, _) => {
                *self.renewals.entry(call.member).or_default() += 2.0;
                if waited_for(call).is_some() {
                    self.unsettled.insert(call.member, view.now);
                }
                let before = self.alone.remove(&(call.member, call.task))?;
                let most = most(view, call).filter(|_| is_calm(view) && !call.was_stalled)?;
                let asked =
                    self.unsettled.get(&call.member).is_some_and(|ended| call.began <= ended + SECOND);
                let most = most + leases_over(view, call) + u64::from(asked);
                let sent = sent(view, call.member).saturating_sub(before);
                (sent > most)
                    .then(|| format!("{}: expected {most} commands at most, saw {sent}", words(view, call)))
            }
            _ => None,
        }
    }

    fn phase_ends(&mut self, view: &View<'_, S>) -> Option<String> {
        // The holds of a call that takes several locks are its own until the call ends.
        let takes_several = |op: &Op| matches!(op, Op::AcquireAll { .. });
        if view.phase != Phase::Quiet || !is_calm(view) || view.has_operation(takes_several) {
            return None;
        }
        view.scene.members.iter().enumerate().find_map(|(at, member)| {
            let sent = member.client.as_ref()?.metrics().renewals_sent;
            let most = 2.0 + self.renewals.get(&at).copied().unwrap_or(0.0);
            (sent as f64 > most).then(|| format!("p{at}: expected {most:.0} renewals at most, saw {sent}"))
        })
    }
}

/// Number of commands that a member has sent, except for renewals.
fn sent<S: Store>(view: &View<'_, S>, member: usize) -> u64 {
    view.store.asked(&view.scene.members[member].process).saturating_sub(renewals(view, member))
}

fn renewals<S: Store>(view: &View<'_, S>, member: usize) -> u64 {
    let client = view.scene.members[member].client.as_ref();
    client.map_or(0, |client| client.metrics().renewals_sent)
}

/// Maximum rate of a hold's renewals, per nanosecond.
fn pace<S: Store>(view: &View<'_, S>, hold: &Hold) -> f64 {
    let plan = &view.program.processes[view.member(hold).plan];
    // Leases that are due soon are renewed along with others.
    let renewed = 1.0 / (plan.options.watchdog_timeout() as f64 * 0.29);
    let mut calls = view.calls_of(hold.member);
    let is_waited_for = calls.any(|call| waited_for(call).is_some_and(|lock| lock.name == hold.lock.name));
    renewed + if is_waited_for { 1.05 / SECOND as f64 } else { 0.0 }
}

/// True if the client has no other work that sends commands.
fn is_alone<S: Store>(view: &View<'_, S>, call: &Call) -> bool {
    let member = &view.scene.members[call.member];
    let tries = call.op.waker() == WakerKind::Tries;
    let sends = |other: &Call| other.task != call.task && !matches!(other.op, Op::Lost { .. });
    is_calm(view)
        && !tries
        // The store counts the commands of a process.
        && view.scene.members.iter().filter(|it| it.is_in(&member.process)).count() == 1
        && !view.calls_of(call.member).any(sends)
        && member.client.as_ref().is_some_and(|client| client.metrics().releases_pending == 0)
}

/// Number of the member's leases that may have ended during a call: each is released in the background.
fn leases_over<S: Store>(view: &View<'_, S>, call: &Call) -> u64 {
    let holds = view.scene.holds.values().filter(|hold| hold.member == call.member);
    holds.filter(|hold| hold.is_forgotten || !hold.is_held()).count() as u64
}

/// True if the called hold may be merged into a newer lease meanwhile: the lease asked about is released, and
/// the newer lease asked about.
fn may_be_merged<S: Store>(view: &View<'_, S>, call: &Call) -> bool {
    let is_shared = |lock: Which| {
        let beside = |hold: &&Hold| hold.member == call.member && hold.lock == lock;
        lock.kind == LockSide::Read && view.scene.holds.values().filter(beside).count() > 1
    };
    call.is_about(is_shared)
}

fn most<S: Store>(view: &View<'_, S>, call: &Call) -> Option<u64> {
    // A queue position is renewed while the call waits: it lasts for a third of a watched lease.
    let options = &view.program.processes[view.scene.members[call.member].plan].options;
    let waited = (view.now - call.began) / ASKED_AGAIN.min(options.watchdog_timeout() / 9);
    match &call.op {
        Op::Acquire { how: How::Try | How::TryFor { wait: 0, .. }, lock, owner: None, .. }
            if lock.kind == LockSide::Plain =>
        {
            Some(1)
        }
        Op::Extend { .. } | Op::EnsureHeld { .. } if may_be_merged(view, call) => Some(3 + waited),
        Op::Extend { .. } | Op::EnsureHeld { .. } | Op::Unlock { .. } => Some(1 + waited),
        // Each of the client's acquisitions that are granted meanwhile is looked after.
        Op::ForceUnlock { lock, .. } => (lock.kind != LockSide::Permits).then_some(2),
        Op::Ask { lock, .. } if lock.kind == LockSide::Permits => Some(1),
        Op::Ask { what: Question::Holder | Question::IsLocked | Question::Remaining, .. } => Some(1),
        Op::Ask { what: Question::HoldCount(_) | Question::IsHeldBy(_), .. } => Some(2),
        Op::Ask { .. } => Some(0),
        _ => None,
    }
}
