//! `Lock::force_unlock`: "The holder is not asked. If it is of this client, its guard is told at once."

use super::Judge;
use super::belief::stored;
use crate::program::{LockSide, Op};
use crate::stage::{Answer, Event, Hold, View};
use crate::store::Store;
use crate::world::Nanos;

#[derive(Default)]
pub(crate) struct Forced;

impl<S: Store> Judge<S> for Forced {
    fn name(&self) -> &'static str {
        "forced"
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        let Event::Answered(call, Answer::Freed(true)) = event else { return None };
        let (Op::ForceUnlock { lock, .. }, client) = (&call.op, &view.scene.members[call.member].client_id)
        else {
            return None;
        };
        let believes = view.scene.holds.values().find(|hold| {
            hold.lock.is_one_with(*lock)
                && hold.member == call.member
                && hold.granted < call.began
                // Those that read go on by a later lease, which may have been asked for, and not been known,
                // by then.
                && hold.lock.kind != LockSide::Read
                && view.excuses.taken_at(client, hold.number).is_some_and(|at| at >= call.began)
                && stored(view, hold) == 0
                && hold.is_held()
                // The clock does not tell which came first: the store is asked once it does.
                && !is_begun_anew(view, hold, call.began)
        })?;
        Some(format!(
            "{} believes in its lease still, which its client has forced free",
            view.words(believes)
        ))
    }
}

/// Whether a further hold by the same lease, which may have begun it anew, was granted at `moment`.
fn is_begun_anew<S: Store>(view: &View<'_, S>, hold: &Hold, moment: Nanos) -> bool {
    let by_the_same = |other: &Hold| (other.member, other.number) == (hold.member, hold.number);
    view.scene.holds.values().any(|other| by_the_same(other) && other.granted == moment)
}
