//! `Lock::lock`: "The watchdog renews its lease while the guard lives." `Lock::lock_with_lease`: "with a
//! lease of the caller's own". And `Guard::extend`: "Makes the lease last for `lease` from now at least." So
//! a hold lasts that long: a new guard is held, and no hold is lost early without a reason. And of
//! `Guard::unlock`, `extend` and `ensure_held`: "`LockError::Lost` if the hold was lost", where `ensure_held`
//! "asks the store".

use std::collections::{BTreeMap, BTreeSet};

use latchwork::{LossReason, Owner};

use super::Judge;
use super::calm::{hand_off, settled_from};
use super::words::words;
use crate::program::Op;
use crate::stage::{Answer, Call, Event, Hold, View};
use crate::store::Store;
use crate::task::MOMENT;
use crate::time;
use crate::world::Nanos;

#[derive(Default)]
pub(crate) struct Kept {
    /// Earliest end of each hold, unless renewed.
    until: BTreeMap<u64, Nanos>,
    granted: BTreeMap<u64, Nanos>,
    owners: BTreeMap<u64, Owner>,
    /// Owners whose holds were released by name.
    given_back: Vec<Owner>,
    judged: BTreeSet<u64>,
    lost_at: BTreeMap<u64, Nanos>,
    /// Time of the last look at each hold that was not lost, and whose guard no call had.
    seen: BTreeMap<u64, Nanos>,
    /// Holds whose guards a call uses, or used at the last look.
    called: BTreeSet<u64>,
    numbers: BTreeMap<u64, u64>,
}

impl<S: Store> Judge<S> for Kept {
    fn name(&self) -> &'static str {
        "kept"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        for hold in view.scene.holds.values() {
            self.numbers.insert(hold.id, hold.number);
        }
        let called: BTreeSet<u64> = view.scene.calls.values().filter_map(|call| call.hold).collect();
        self.called.extend(&called);
        let seen = view.scene.holds.keys().filter(|id| !self.called.contains(id));
        let seen = seen.filter(|id| view.scene.holds[id].loss.is_none());
        self.seen.extend(seen.map(|id| (*id, view.now)));
        let lost = view.scene.holds.values().filter(|hold| hold.loss.is_some());
        for hold in lost {
            if self.judged.insert(hold.id) {
                self.lost_at.insert(hold.id, view.now);
            } else {
                continue;
            }
            if !self.has_reason(view, hold) {
                return Some(format!(
                    "{}, granted {} ago: expected no loss without a reason, saw {:?}",
                    view.words(hold),
                    time::seconds(view.now - hold.granted),
                    hold.loss.flatten()
                ));
            }
        }
        self.called = called;
        None
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        match event {
            Event::Granted(id) => {
                let hold = view.scene.holds.get(id)?;
                self.granted.insert(*id, hold.granted);
                self.owners.insert(*id, hold.owner);
                let until = hold.began.saturating_add(hold.lease.unwrap_or(0));
                self.until.insert(*id, until);
                // The holder counts its own lease from no earlier than the call.
                let early = view.drift(hold.member, hold.lease.unwrap_or(0)) + MOMENT;
                let is_short = view.now.saturating_add(hold.left).saturating_add(early) < until;
                ((hold.left == 0 || is_short) && !view.excuses.may_be_forced(hold.lock, view.now)).then(
                    || {
                        let left = time::seconds(hold.left);
                        format!("{}: expected a whole lease at the grant, saw {left}", view.words(hold))
                    },
                )
            }
            Event::Answered(call, Answer::Done) => {
                let id = call.hold?;
                if let Op::Extend { lease, .. } = call.op {
                    let until = self.until.entry(id).or_default();
                    *until = (*until).max(call.began.saturating_add(lease));
                }
                self.is_done_in_vain(view, call, id).then(|| {
                    format!(
                        "{}, hold {id}: expected an error of the lost hold, saw a success",
                        words(view, call)
                    )
                })
            }
            Event::Called(call) if matches!(call.op, Op::UnlockByOwner { .. }) => {
                let owner = call.hold.and_then(|id| self.owners.get(&id));
                self.given_back.extend(owner);
                None
            }
            _ => None,
        }
    }
}

impl Kept {
    /// True if a call succeeded on a hold that was lost before the call.
    fn is_done_in_vain<S: Store>(&self, view: &View<'_, S>, call: &Call, id: u64) -> bool {
        if !matches!(call.op, Op::Unlock { .. } | Op::Extend { .. } | Op::EnsureHeld { .. }) {
            return false;
        }
        if self.judged.contains(&id) && self.lost_before(call, id) {
            return true;
        }
        // An unlock that hands off to a waiter in memory does not ask the store.
        if matches!(call.op, Op::Unlock { .. }) {
            return false;
        }
        let (Some(lock), Some(number)) = (call.lock, self.numbers.get(&id)) else { return false };
        // A change of the clock may have shortened the lease, and a forced unlock may have removed the rest,
        // after the store's answer.
        if view.excuses.may_be_forced(lock, view.now) {
            return false;
        }
        let client = &view.scene.members[call.member].client_id;
        let is_there = view.leases(lock).any(|lease| lease.client == *client && lease.number == *number);
        let taken = view.excuses.taken_at(client, *number);
        // An earlier forced unlock took an earlier grant of this number, and the waiter asked again.
        let granted = self.granted.get(&id).copied().unwrap_or(0);
        let forced = |at| at > granted && at + 2 * hand_off(view.program) < call.began;
        !is_there && taken.is_some_and(forced) && !view.program.network.is_faulty()
    }

    fn lost_before(&self, call: &Call, id: u64) -> bool {
        self.lost_at.get(&id).is_some_and(|at| *at < call.began)
    }

    fn has_reason<S: Store>(&self, view: &View<'_, S>, hold: &Hold) -> bool {
        let member = view.member(hold);
        let options = &view.program.processes[member.plan].options;
        let taken = view.excuses.was_taken(&member.client_id, hold.number)
            || view.excuses.may_be_forced(hold.lock, view.now);
        // The lease may have changed since the last look, which skips holds whose guard a call has.
        let other_taken = self.called.contains(&hold.id) && view.excuses.lost_until(hold.lock) > hold.granted;
        if taken || other_taken || hold.number == 0 || self.given_back.contains(&hold.owner) {
            return true;
        }
        let until = self.until.get(&hold.id).copied().unwrap_or(0);
        let early = view.drift(hold.member, until.saturating_sub(hold.began)) + MOMENT;
        let lasts = view.now + early < until;
        match hold.loss.flatten() {
            Some(LossReason::HeldTooLong) => options.max_hold.is_some(),
            _ if options.max_hold.is_some() => true,
            Some(LossReason::GivenBack) => false,
            _ if lasts => false,
            // Renewals may have failed; each is retried after a thirtieth of the lease.
            _ => {
                let repeated = settled_from(view) + options.watchdog_timeout() / 10;
                let seen = self.seen.get(&hold.id).copied().unwrap_or(view.now);
                hold.lease.is_some() || view.program.network.is_faulty() || seen <= repeated
            }
        }
    }
}
