//! `LockClient::shutdown`: "no lock is granted by it from now on, and its waiters are told so. Then waits
//! until every guard is gone or its lease over, and every release was answered, for `limit` at most." And of
//! `drain`: "Refuses new acquisitions from now on, serves the waiting ones, and then shuts down." And of
//! `ShutdownError`: it "names the locks that guards still hold".

use std::collections::BTreeMap;

use latchwork::LockError;
use latchwork::backend::Mode;
use latchwork::lock::HeldLock;

use super::Judge;
use super::calm::{hand_off, is_calm, waited_for};
use super::words::words;
use crate::program::{Op, Which};
use crate::stage::{Answer, Call, Event, View};
use crate::store::Store;
use crate::task::{MOMENT, command_limit, error_words};
use crate::time;
use crate::world::{MS, Nanos};

/// Limit on the rest of a store's lease that the client does not bother to release after the end on its side.
const ENDS_BY_ITSELF: Nanos = 100 * MS;

#[derive(Default)]
pub(crate) struct Shutdown {
    begun: BTreeMap<usize, Nanos>,
    /// Start of each member's drain, and the end of its limit.
    drained: BTreeMap<usize, (Nanos, Nanos)>,
    /// First looks that found these holds over.
    over: BTreeMap<u64, Nanos>,
}

impl<S: Store> Judge<S> for Shutdown {
    fn name(&self) -> &'static str {
        "shutdown"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        let ends = |member: &usize| self.begun.contains_key(member) || self.drained.contains_key(member);
        for hold in view.scene.holds.values().filter(|hold| ends(&hold.member)) {
            if hold.guard.is_some() && !hold.is_held() {
                self.over.entry(hold.id).or_insert(view.now);
            }
        }
        self.begun.iter().find_map(|(member, begun)| {
            let process = &view.scene.members[*member].process;
            let polled_from = view.scene.members[*member].stood_still_until;
            let waits = |call: &Call| {
                let since = (*begun).max(call.stalled_until).max(polled_from).max(call.began);
                waited_for(call).is_some() && view.now > since + answered_within(view)
            };
            let call = view.calls_of(*member).find(|call| process.runs() && waits(call))?;
            let begun = time::seconds(*begun);
            Some(format!(
                "{}: expected the end by the shutdown at {begun}, saw the call waiting",
                words(view, call)
            ))
        })
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        match event {
            Event::Called(call) if matches!(call.op, Op::Shutdown(_)) => {
                self.begun.entry(call.member).or_insert(view.now);
                None
            }
            Event::Called(call) if matches!(call.op, Op::Drain(_)) => {
                let until = call.began + least_wait(view, call)?;
                self.drained.entry(call.member).or_insert((view.now, until));
                None
            }
            Event::Answered(call, Answer::Shutdown(answer)) => {
                self.begun.entry(call.member).or_insert(view.now);
                let Err(error) = answer else { return is_left(view, call.member) };
                if view.now < call.began + least_wait(view, call)? {
                    return Some(format!(
                        "{}: expected a shutdown that waits for its limit, saw an earlier end",
                        words(view, call)
                    ));
                }
                let name = error.held().iter().find(|name| self.is_over(view, call, name.as_str()))?;
                Some(format!(
                    "{}: expected the names of locks that guards hold, saw {name}",
                    words(view, call)
                ))
            }
            Event::Answered(call, Answer::Failed(LockError::ShutDown))
                if matches!(call.op, Op::Acquire { .. }) && !self.begun.contains_key(&call.member) =>
            {
                let (drained, until) = *self.drained.get(&call.member)?;
                let is_served = call.began < drained && view.now < until && !call.was_stalled;
                is_served.then(|| {
                    let drained = time::seconds(drained);
                    format!("{}: expected service by the drain at {drained}, saw none", words(view, call))
                })
            }
            Event::Answered(call, answer) if matches!(call.op, Op::Acquire { .. }) => {
                let begun = *self.begun.get(&call.member)?;
                let wrong = match answer {
                    // The next poll returns an earlier grant.
                    Answer::Got(_) => is_late(view, call, begun).then(|| "the lock".to_owned()),
                    Answer::NotGot if call.began > begun => Some("a refusal".to_owned()),
                    Answer::Failed(error) if call.began > begun && !is_told(error) => {
                        Some(format!("the error: {}", error_words(error)))
                    }
                    _ => None,
                };
                let begun = time::seconds(begun);
                wrong.map(|what| {
                    format!("{}: expected `ShutDown` since {begun}, saw {what}", words(view, call))
                })
            }
            _ => None,
        }
    }
}

impl Shutdown {
    /// True if all of the member's holds of the name have been over for a while.
    fn is_over<S: Store>(&self, view: &View<'_, S>, call: &Call, name: &str) -> bool {
        let member = &view.scene.members[call.member];
        let of_it = |lock: Which| view.name(lock) == name;
        let mut holds =
            view.scene.holds.values().filter(|hold| hold.member == call.member && of_it(hold.lock));
        let lasts = |id: &u64| self.over.get(id).is_none_or(|over| view.now < over + hand_off(view.program));
        member.stood_still_until < call.began
            && !holds.any(|hold| lasts(&hold.id))
            && !view.calls_of(call.member).any(|call| call.is_about(of_it) || call.hold.is_some())
    }
}

/// Time for which a shutdown waits at least if anything is left to wait for.
fn least_wait<S: Store>(view: &View<'_, S>, call: &Call) -> Option<Nanos> {
    let (Op::Shutdown(limit) | Op::Drain(limit)) = call.op else { return None };
    Some(limit.saturating_sub(view.drift(call.member, limit) + MOMENT))
}

/// A wrong number of permits is refused first.
fn is_told(error: &LockError) -> bool {
    matches!(error, LockError::ShutDown | LockError::Permits { .. })
}

fn is_late<S: Store>(view: &View<'_, S>, call: &Call, begun: Nanos) -> bool {
    let stood_still = view.scene.members[call.member].stood_still_until > begun;
    let had_it = call.was_stalled || stood_still;
    call.began > begun || !had_it && view.now > begun + answered_within(view)
}

/// Waiters learn of a shutdown at once; a call with an attempt under way, with the reply.
fn answered_within<S: Store>(view: &View<'_, S>) -> Nanos {
    MOMENT + if is_calm(view) { 2 * hand_off(view.program) } else { 2 * command_limit(view.program) }
}

/// Describes leftovers of a client that reports its shutdown as complete.
fn is_left<S: Store>(view: &View<'_, S>, member: usize) -> Option<String> {
    let its = &view.scene.members[member];
    // The lease of a forgotten hold is not certain.
    if view.scene.holds.values().any(|hold| hold.member == member && hold.is_forgotten) {
        return None;
    }
    // A client does not hear that the store has lost the lease of forgotten permits.
    let may_be_forgotten = view.program.longest_forgotten_permits() > 0;
    let is_certain = |held: &HeldLock| held.mode != Mode::Permits || !may_be_forgotten;
    let holds =
        its.client.as_ref().map_or(0, |client| client.held().iter().filter(|it| is_certain(it)).count());
    if holds > 0 {
        return Some(format!("p{member}: expected no hold after the shutdown, saw {holds}"));
    }
    // A late attempt is rolled back after its arrival.
    if !is_calm(view) || view.store.under_way(&its.process) > 0 {
        return None;
    }
    let is_its = |number: u64, client: &str| {
        client == its.client_id
            && !view.excuses.was_taken(client, number)
            && !view.excuses.is_ghost(client, number)
    };
    let drift = view.drift(member, view.program.longest_lease());
    let (lock, lease) = view.leases.all().find(|(_, lease)| {
        is_its(lease.number, &lease.client) && lease.ends > view.now + ENDS_BY_ITSELF + drift
    })?;
    let (lock, left) = (view.lock_words(lock), time::seconds(lease.ends - view.now));
    Some(format!(
        "p{member}: expected no lease after the shutdown, saw lease {} of {lock} for {left}",
        lease.number
    ))
}
