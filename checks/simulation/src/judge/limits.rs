//! `Lock::try_lock_for`: "Takes the lock, waiting for it no longer than `wait`. […] With a `wait` of zero the
//! one attempt takes the round trip that it takes; otherwise an attempt under way when the time is over is
//! given up". Of `Guard::lost_timeout`: "for `timeout` at most by the backend's clock". Of
//! `LockClient::shutdown`: "for `limit` at most". And of a `Backend`: "No future hangs for ever", and so
//! neither does any call that asks the store.

use super::Judge;
use super::calm::{hand_off, is_calm};
use crate::program::{How, Op};
use crate::stage::{Call, View};
use crate::store::Store;
use crate::task::{MOMENT, command_limit, operation_words};
use crate::time;
use crate::world::Nanos;

/// Latencies of dialling a connection: four commands and their answers.
const DIAL: u64 = 8;

#[derive(Default)]
pub(crate) struct Limits;

impl<S: Store> Judge<S> for Limits {
    fn name(&self) -> &'static str {
        "limits"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        let call = view.scene.calls.values().find(|call| is_late(view, call))?;
        let what = operation_words(view.program, &call.op);
        let (began, due) = (time::seconds(call.began), time::seconds(call.due.unwrap_or(0)));
        Some(format!(
            "p{}t{} {what}, called at {began}: expected an answer by {due}, saw none",
            call.member, call.task
        ))
    }
}

/// Limit on a call that does not wait, without faults or stalls: the call may dial a connection first, and
/// share the answer to another call, which has to be polled.
fn at_once<S: Store>(view: &View<'_, S>, call: &Call) -> Option<Nanos> {
    let tries = matches!(call.op, Op::Acquire { how: How::Try | How::TryFor { wait: 0, .. }, .. });
    let plan = &view.program.processes[view.scene.members[call.member].plan];
    let stalls = |op: &Op| op.care().is_some_and(|care| care.stall.is_some());
    (tries && is_calm(view) && !plan.tasks.iter().flatten().any(stalls))
        .then(|| call.began + hand_off(view.program) + DIAL * view.program.network.latency)
}

fn is_late<S: Store>(view: &View<'_, S>, call: &Call) -> bool {
    let Some(due) = call.due else { return false };
    let due = at_once(view, call).map_or(due, |at_once| at_once.min(due));
    let member = &view.scene.members[call.member];
    // A call cannot end while unpolled; once polled, the call ends.
    let polled_from = call.stalled_until.max(member.stood_still_until);
    // The call may have missed its turn meanwhile, and has to ask once more.
    let again = polled_from + command_limit(view.program);
    let due = if call.was_stalled || polled_from > call.began { due.max(again) } else { due };
    view.now > due + MOMENT && member.process.runs() && view.now > polled_from + MOMENT
}
