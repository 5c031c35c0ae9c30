//! `Lock::owned_by`: "an owner that has it can take it again". And of the sides of a read-write lock: a
//! writing owner may also read, and a reading owner that wants to write fails ("`LockError::Upgrade`"). So no
//! call waits for a hold of its own owner.

use std::collections::BTreeMap;

use super::Judge;
use super::calm::{hand_off, is_calm, waited_for};
use super::words::words;
use crate::program::Op;
use crate::stage::{Call, View};
use crate::store::Store;
use crate::task::command_limit;
use crate::time;
use crate::world::Nanos;

#[derive(Default)]
pub(crate) struct Reentry {
    looked: Nanos,
    /// For waiting calls, by member and task: time from which the owner has had the lock.
    since: BTreeMap<(usize, usize), Nanos>,
}

impl<S: Store> Judge<S> for Reentry {
    fn name(&self) -> &'static str {
        "reentry"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        if view.now == self.looked {
            return None;
        }
        self.looked = view.now;
        let mut since = BTreeMap::new();
        for (by, call) in &view.scene.calls {
            if !waits_for_itself(view, call) {
                continue;
            }
            // A token or a longer lease takes a command.
            let limit = if is_calm(view) { hand_off(view.program) } else { 2 * command_limit(view.program) };
            let member = &view.scene.members[call.member];
            let began = self.since.get(by).copied().unwrap_or(view.now).max(member.stood_still_until);
            if view.now > began + limit {
                let (what, began) = (words(view, call), time::seconds(began));
                return Some(format!(
                    "{what}: expected no wait, as the owner has the lock since {began}, saw it waiting"
                ));
            }
            since.insert(*by, began);
        }
        self.since = since;
        None
    }
}

fn waits_for_itself<S: Store>(view: &View<'_, S>, call: &Call) -> bool {
    let (Some(lock), Op::Acquire { owner: Some(owner), .. }) = (waited_for(call), &call.op) else {
        return false;
    };
    let member = &view.scene.members[call.member];
    if call.was_stalled || !member.process.runs() {
        return false;
    }
    let owner = member.owner(*owner);
    view.scene.holds.values().any(|hold| {
        hold.member == call.member && hold.owner == owner && hold.lock.is_one_with(lock) && hold.is_held()
    })
}
