//! `LockClient::held`: "What this client holds now, by guards and by holds that were forgotten: an item for
//! each owner of each lock […]. As far as this process knows". And `LockClient::waiting`: "What acquisitions
//! of this client wait for now".

use latchwork::Owner;
use latchwork::backend::Mode;
use latchwork::lock::{HeldLock, WaitingLock};

use super::Judge;
use crate::program::{LockSide, Op, Which};
use crate::stage::{Answer, Call, Event, Hold, View};
use crate::store::{Store, nanos};
use crate::task::MOMENT;

#[derive(Default)]
pub(crate) struct Listing {
    /// Members and owners of forgotten permits. The scene forgets these holds when the store has lost their
    /// leases, and the client, which hears of no loss, when the leases would be over.
    forgotten: Vec<(usize, Owner)>,
}

impl<S: Store> Judge<S> for Listing {
    fn name(&self) -> &'static str {
        "listing"
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        if let Event::Called(call) = event
            && matches!(call.op, Op::Forget { .. })
            && call.lock.is_some_and(|lock| lock.kind == LockSide::Permits)
        {
            let hold = call.hold.and_then(|id| view.scene.holds.get(&id));
            self.forgotten.extend(hold.map(|hold| (call.member, hold.owner)));
        }
        let Event::Answered(call, Answer::Listing(held, waiting)) = event else { return None };
        let member = call.member;
        let missing = view.scene.holds.values().filter(|hold| hold.member == member && hold.is_held());
        let missing = missing.into_iter().find(|hold| !is_listed(view, hold, held));
        let text = missing.map(|hold| {
            format!("expected {} among the holds of p{member}, saw no such entry", view.words(hold))
        });
        let is_forgotten = |held: &HeldLock| self.forgotten.contains(&(member, held.owner));
        let made_up = held.iter().find(|held| !is_had(view, member, held) && !is_forgotten(held));
        let text = text.or_else(|| {
            made_up.map(|it| {
                format!("expected a guard for each hold that p{member} lists, saw none for {}", it.name)
            })
        });
        let many =
            waiting.iter().find(|waits| waits.waiters == 0 || waits.waiters > called(view, member, waits));
        text.or_else(|| {
            many.map(|it| {
                format!(
                    "p{member}: expected no more than its waiting calls, saw {} listed for {}",
                    it.waiters, it.name
                )
            })
        })
    }
}

fn is_of<S: Store>(view: &View<'_, S>, lock: Which, name: &str, mode: Mode) -> bool {
    view.name(lock) == name && lock.kind.mode() == mode
}

/// True if the listed holds of the hold's owner agree in number and duration with the owner's guards.
fn is_listed<S: Store>(view: &View<'_, S>, hold: &Hold, held: &[HeldLock]) -> bool {
    let same = |other: &&Hold| other.owner == hold.owner && other.lock == hold.lock && other.is_held();
    let count = view.scene.holds.values().filter(same).count();
    // A forgotten hold, or one released by its owner's name, no longer counts, without a trace in guards.
    let plan = &view.program.processes[view.member(hold).plan];
    let by_name = |op: &Op| matches!(op, Op::UnlockByOwner { .. } | Op::Forget { .. });
    let count = if plan.tasks.iter().flatten().any(by_name) { count.min(1) } else { count };
    let left = hold.guard.as_ref().map_or(0, |guard| nanos(guard.remaining()));
    let items =
        held.iter().filter(|it| it.owner == hold.owner && is_of(view, hold.lock, it.name.as_str(), it.mode));
    let items = items.filter(|it| it.permits == hold.permits.count);
    let (mut holds, mut longest) = (0, 0);
    for item in items {
        (holds, longest) = (holds + item.holds as usize, longest.max(nanos(item.left)));
    }
    holds >= count && longest.saturating_add(MOMENT) >= left
}

/// True if a hold or a call of the owner explains the listed item.
fn is_had<S: Store>(view: &View<'_, S>, member: usize, held: &HeldLock) -> bool {
    let by = |owner: &Owner| *owner == held.owner;
    let of_it = |lock: Option<Which>| lock.is_some_and(|it| is_of(view, it, held.name.as_str(), held.mode));
    view.scene.holds.values().any(|hold| by(&hold.owner) && of_it(Some(hold.lock)))
        || view.calls_of(member).any(|call| call.is_about(|lock| of_it(Some(lock))))
}

fn called<S: Store>(view: &View<'_, S>, member: usize, waiting: &WaitingLock) -> usize {
    let of_it = |lock: Which| is_of(view, lock, waiting.name.as_str(), waiting.mode);
    let acquires =
        |call: &&Call| matches!(call.op, Op::Acquire { .. } | Op::AcquireAll { .. }) && call.is_about(of_it);
    view.calls_of(member).filter(acquires).count()
}
