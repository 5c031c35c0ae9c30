//! `LockClient::get_fair_lock`: "First come, first served, up to the time that messages take. Except: an
//! owner that has the lock already takes it once more without waiting; a waiter that cannot be told when its
//! turn has come […] is passed over […]; a waiter whose future is kept and not polled, or whose process
//! stands still, holds up the others […]; after a failover or flush of the store the waiters queue anew, by
//! when they began to wait. `Lock::try_lock` does not overtake a waiter." And of read-write locks: "Writers
//! have the lock in the order in which they began to wait". And of plain ones: "Within a process waiters are
//! served first in, first out, and newcomers queue behind them". And of semaphores: "First come, first
//! served, over all processes, also behind an acquisition that asks for more permits than are free. […]
//! Except: a client queues 32 acquisitions of a name at the store".

use std::collections::BTreeMap;

use super::Judge;
use super::calm::{blocks, hand_off, is_attended, settled_from, waited_for};
use crate::program::{LockSide, Op, Which};
use crate::stage::{Answer, Call, Event, Hold, View};
use crate::store::Store;
use crate::time;
use crate::world::{Nanos, SECOND};

/// Limit on the time until a client with other waiters learns that its lock was forced free; before that,
/// these waiters are not in the store's queue.
const TOLD_OF_FORCE: Nanos = 2 * SECOND;

/// Number of a client's waiters for permits that the store knows.
const PLACES: usize = 32;

#[derive(Default)]
pub(crate) struct Order {
    /// Time when each member's owner last had each lock: the owner's other calls enter along with it.
    last: BTreeMap<(Which, usize, usize), Nanos>,
    /// The owner of each hold, as a number of the member's.
    owners: BTreeMap<u64, usize>,
    /// Time when a waiter of a member left, or was unpolled: the next one has no position until it asks.
    left: BTreeMap<(usize, Which), Nanos>,
    /// Waiters for permits behind which others have been served, and the finding if each still waits later:
    /// one release may serve several, whose messages come in any order.
    late: Vec<(Call, Nanos, String)>,
}

impl<S: Store> Judge<S> for Order {
    fn name(&self) -> &'static str {
        "order"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        let mut late = std::mem::take(&mut self.late);
        late.retain(|(waiter, ..)| {
            let call = view.scene.calls.get(&(waiter.member, waiter.task));
            let same = call.filter(|call| call.at == waiter.at && call.began == waiter.began);
            same.is_some_and(|call| call.lock.is_some_and(|lock| !self.is_excused(view, call, lock)))
        });
        self.late = late;
        self.late.iter().find(|(_, by, _)| view.now > *by).map(|(.., text)| text.clone())
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        if let Event::GivenBack { hold, member, lock } = event
            && let Some(owner) = self.owners.remove(hold)
        {
            self.last.insert((*lock, *member, owner), view.now);
        }
        let Event::Answered(call, answer) = event else { return None };
        let lock = call.lock?;
        let Answer::Got(hold) = answer else {
            self.left.insert((call.member, lock), view.now);
            // The call may have had the lock, and let in its owner's other calls, before it ended.
            if let Op::Acquire { owner: Some(owner), .. } = call.op {
                self.last.insert((lock, call.member, owner), view.now);
            }
            return None;
        };
        if let Op::Acquire { owner: Some(owner), .. } = call.op {
            self.owners.insert(*hold, owner);
            let before = self.last.insert((lock, call.member, owner), view.now);
            let until = view.now.saturating_sub(hand_off(view.program));
            if before.is_some_and(|at| at >= until) {
                return None;
            }
        }
        if call.was_stalled {
            self.left.insert((call.member, lock), view.now);
            return None;
        }
        if lock.kind == LockSide::Read || is_again(view, *hold) || comes_along(view, call) {
            return None;
        }
        let overtaken =
            view.scene.calls.values().find(|waiter| self.is_overtaken(view, waiter, call, lock))?;
        let text = format!(
            "{}: expected p{}t{} first, waiting since {}, saw p{}t{}, waiting since {}",
            view.lock_words(lock),
            overtaken.member,
            overtaken.task,
            time::seconds(overtaken.began),
            call.member,
            call.task,
            time::seconds(call.began),
        );
        if lock.kind != LockSide::Permits {
            return Some(text);
        }
        self.late.push((overtaken.clone(), view.now + hand_off(view.program), text));
        None
    }
}

/// True if another call of the owner waited earlier: all calls of an owner enter together.
fn comes_along<S: Store>(view: &View<'_, S>, call: &Call) -> bool {
    let owner = |call: &Call| match call.op {
        Op::Acquire { owner, .. } => owner,
        _ => None,
    };
    let same =
        |other: &Call| (other.member, other.lock, owner(other)) == (call.member, call.lock, owner(call));
    owner(call).is_some() && view.scene.calls.values().any(|other| same(other) && other.began < call.began)
}

/// True if the store has no position for the waiter, whose process may not know of a forced unlock.
pub(super) fn may_be_forced<S: Store>(view: &View<'_, S>, waiter: &Call, lock: Which) -> bool {
    let forces =
        |call: &Call| matches!(call.op, Op::ForceUnlock { lock: other, .. } if other.name == lock.name);
    // A waiter that had the lock without being polled waits anew.
    let waits_anew = |at| waiter.began <= at && is_first_of_its_member(view, waiter, lock);
    let untold = |at| at + TOLD_OF_FORCE + hand_off(view.program) > view.now || waits_anew(at);
    view.scene.calls.values().any(forces) || view.excuses.forced_last(lock.name).is_some_and(untold)
}

fn is_first_of_its_member<S: Store>(view: &View<'_, S>, waiter: &Call, lock: Which) -> bool {
    let came_before = |other: &Call| {
        other.member == waiter.member && other.began < waiter.began && waited_for(other) == Some(lock)
    };
    !view.scene.calls.values().any(came_before)
}

/// True if the hold's owner also has the lock by another hold.
pub(super) fn is_again<S: Store>(view: &View<'_, S>, id: u64) -> bool {
    let Some(hold) = view.scene.holds.get(&id) else { return true };
    let mut others = view.scene.holds.values().filter(|other| other.id != id);
    others.any(|other| other.lock.name == hold.lock.name && other.owner == hold.owner)
}

impl Order {
    fn is_overtaken<S: Store>(&self, view: &View<'_, S>, waiter: &Call, call: &Call, lock: Which) -> bool {
        let is_one =
            waited_for(waiter) == Some(lock) && (waiter.member, waiter.task) != (call.member, call.task);
        // Plain locks promise no order between processes.
        if !is_one || lock.kind == LockSide::Plain && waiter.member != call.member {
            return false;
        }
        // In memory a name has one queue, of the kind as which the name was last taken.
        let is_other =
            |other: &Which| other.name == lock.name && other.kind.of_store() != lock.kind.of_store();
        if !S::APART && view.program.locks().iter().any(is_other) {
            return false;
        }
        let waited = view.now - waiter.began;
        let drift = view.drift(waiter.member, waited) + view.drift(call.member, waited);
        waiter.began + hand_off(view.program) + drift < call.began
            && view.scene.members[call.member].stood_still_until < call.began
            && !self.is_excused(view, waiter, lock)
    }

    /// True if the waiter may not have its place at the store.
    fn is_excused<S: Store>(&self, view: &View<'_, S>, waiter: &Call, lock: Which) -> bool {
        // A member's waiters enter in their order, and the first one's position may date from an incident.
        let ahead = |call: &&Call| waited_for(call) == Some(lock) && call.began <= waiter.began;
        let first = view.calls_of(waiter.member).filter(ahead).map(|call| call.began).min();
        first.unwrap_or(waiter.began) <= settled_from(view)
            || !is_attended(view, waiter)
            || self.was_held_up(view, waiter, lock)
            || self.was_recalled(view, waiter, lock)
            || is_beyond_the_gate(view, waiter, lock)
            || may_be_forced(view, waiter, lock)
            || !positions_last(view)
    }

    /// True if the owner had the other side meanwhile, and so the waiter queued anew.
    fn was_recalled<S: Store>(&self, view: &View<'_, S>, waiter: &Call, lock: Which) -> bool {
        let Op::Acquire { owner: Some(owner), .. } = waiter.op else { return false };
        let other = Which { kind: LockSide::Read, ..lock };
        let had = self.last.get(&(other, waiter.member, owner));
        lock.kind == LockSide::Write && had.is_some_and(|at| *at + hand_off(view.program) >= waiter.began)
    }

    /// True if another waiter of the same member may have kept this waiter from the store.
    fn was_held_up<S: Store>(&self, view: &View<'_, S>, waiter: &Call, lock: Which) -> bool {
        let stalls =
            |other: &Call| other.member == waiter.member && other.lock == Some(lock) && other.was_stalled;
        let left = self.left.get(&(waiter.member, lock));
        view.scene.calls.values().any(stalls)
            || blocks(view, lock)
            || lock.kind != LockSide::Permits && has_expired(view, waiter.member, lock)
            || left.is_some_and(|at| at + 4 * hand_off(view.program) > view.now)
    }
}

/// True if so many earlier waiters of the member want permits that the store may not know of this waiter.
fn is_beyond_the_gate<S: Store>(view: &View<'_, S>, waiter: &Call, lock: Which) -> bool {
    let earlier = |call: &&Call| waited_for(call) == Some(lock) && call.began <= waiter.began;
    lock.kind == LockSide::Permits && view.calls_of(waiter.member).filter(earlier).count() > PLACES
}

/// True if a member's lease has expired: no release named a waiter, and none is in the store's queue.
pub(super) fn has_expired<S: Store>(view: &View<'_, S>, member: usize, lock: Which) -> bool {
    let of_it = |hold: &&Hold| hold.member == member && hold.lock.name == lock.name;
    // By a slow clock, the member believes in an expired lease.
    let early = view.drift(member, view.program.longest_lease());
    let lost = |hold: &Hold| {
        let is_over = |guard: &latchwork::Guard| {
            !guard.is_held() || early > 0 && guard.remaining() <= crate::store::duration(early)
        };
        hold.is_forgotten || hold.guard.as_ref().is_none_or(|guard| is_over(guard))
    };
    view.scene.holds.values().filter(of_it).any(lost)
}

/// True if positions last for longer than a hand-off, in all processes.
pub(super) fn positions_last<S: Store>(view: &View<'_, S>) -> bool {
    let mut plans = view.program.processes.iter();
    plans.all(|plan| plan.options.watchdog_timeout() / 3 > 4 * hand_off(view.program))
}
