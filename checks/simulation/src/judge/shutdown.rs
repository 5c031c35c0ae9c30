//! `LockClient::shutdown`: "no lock is granted by it from now on, and its waiters are told so. Then waits
//! until every guard is gone or its lease over, and every release was answered, for `limit` at most."

use std::collections::BTreeMap;

use latchwork::LockError;

use super::Judge;
use super::calm::{hand_off, is_calm, waited_for};
use super::words::words;
use crate::program::Op;
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
}

impl<S: Store> Judge<S> for Shutdown {
    fn name(&self) -> &'static str {
        "shutdown"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
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
            Event::Answered(call, Answer::Shutdown(Ok(()))) => is_left(view, call.member),
            Event::Answered(call, Answer::Shutdown(Err(_))) => {
                let Op::Shutdown(limit) = call.op else { return None };
                let until = call.began + limit.saturating_sub(view.drift(call.member, limit) + MOMENT);
                (view.now < until).then(|| {
                    format!(
                        "{}: expected a shutdown that waits for its limit, saw an earlier end",
                        words(view, call)
                    )
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
    let holds = its.client.as_ref().map_or(0, |client| client.held().len());
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
