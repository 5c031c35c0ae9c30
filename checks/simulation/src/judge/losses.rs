//! `Guard::lost`: "Waits until the hold is lost, and says why." So a hold reported as lost is not held. And
//! of `LossReason`: `Expired`, "The lease ended"; `HeldTooLong`, "It was held for as long as `max_hold`
//! allows"; `Gone`, "The store says that this client does not hold the lock any more"; `Unreachable`, "A
//! renewal went out, and nothing confirmed it before the lease ended"; `GivenBack`, "The owner's holds were
//! given back by name, beside a guard that was alive".

use std::collections::{BTreeMap, BTreeSet};

use latchwork::{LockError, LossReason};

use super::Judge;
use super::calm::is_calm;
use super::words::words;
use crate::program::{Op, Which};
use crate::stage::{Answer, Call, Event, Hold, View};
use crate::store::Store;
use crate::task::MOMENT;
use crate::time;
use crate::world::Nanos;

/// Facts to judge a loss after the hold has left the scene.
struct Known {
    id: u64,
    member: usize,
    owner: latchwork::Owner,
    lock: Which,
    number: u64,
    began: Nanos,
    granted: Nanos,
    lease: Option<Nanos>,
}

#[derive(Default)]
pub(crate) struct Losses {
    /// All holds so far, since some calls consume theirs.
    known: Vec<Known>,
    /// Lost holds whose loss a task still waits for: member and task, and the time of the loss.
    untold: Vec<((usize, usize), Nanos)>,
    given_back: Vec<latchwork::Owner>,
    numbers: BTreeMap<u64, u64>,
    /// Leases at the store when their holds were released, with their ends.
    ended: BTreeMap<u64, (u64, Nanos)>,
    told: BTreeSet<u64>,
}

impl<S: Store> Judge<S> for Losses {
    fn name(&self) -> &'static str {
        "losses"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        let now = view.now;
        let mut untold = Vec::new();
        for (by, call) in &view.scene.calls {
            if !is_untold(view, call) {
                continue;
            }
            let since = self.untold.iter().find(|(other, _)| other == by).map_or(now, |(_, since)| *since);
            if now > since + MOMENT {
                let since = time::seconds(since);
                return Some(format!(
                    "p{}t{}: expected a report of the loss at {since}, saw none",
                    by.0, by.1
                ));
            }
            untold.push((*by, since));
        }
        self.untold = untold;
        let told = self.told.iter().filter_map(|id| view.scene.holds.get(id));
        if let Some(hold) = told.into_iter().find(|hold| hold.is_held()) {
            return Some(format!(
                "{}: expected a lost hold after the report of a loss, saw it held",
                view.words(hold)
            ));
        }
        self.numbers.extend(view.scene.holds.values().map(|hold| (hold.id, hold.number)));
        None
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        match event {
            Event::Called(call) => {
                if matches!(call.op, Op::UnlockByOwner { .. })
                    && let Some(known) = self.known.iter().find(|known| Some(known.id) == call.hold)
                {
                    self.given_back.push(known.owner);
                }
                if let (Op::Unlock { .. }, Some(id), Some(lock)) = (&call.op, call.hold, call.lock)
                    && let Some(number) = self.numbers.get(&id)
                {
                    let client = &view.scene.members[call.member].client_id;
                    let mut leases = view.leases(lock);
                    let lease = leases.find(|lease| lease.client == *client && lease.number == *number);
                    self.ended.extend(lease.map(|lease| (id, (*number, lease.ends))));
                }
                None
            }
            Event::Granted(id) => {
                let hold = view.scene.holds.get(id)?;
                self.known.push(known(hold));
                None
            }
            Event::Answered(call, Answer::Lost(reason) | Answer::Failed(LockError::Lost { reason, .. })) => {
                self.told.extend(call.hold);
                self.check(view, call, *reason)
            }
            _ => None,
        }
    }
}

fn known(hold: &Hold) -> Known {
    Known {
        id: hold.id,
        member: hold.member,
        owner: hold.owner,
        lock: hold.lock,
        number: hold.number,
        began: hold.began,
        granted: hold.granted,
        lease: hold.lease,
    }
}

/// True if a task waits for the loss of a hold that is already lost.
fn is_untold<S: Store>(view: &View<'_, S>, call: &Call) -> bool {
    let member = &view.scene.members[call.member];
    let is_polled = member.process.runs()
        && view.now > call.stalled_until.max(member.stood_still_until).saturating_add(MOMENT);
    let hold = || call.hold.and_then(|id| view.scene.holds.get(&id));
    matches!(call.op, Op::Lost { .. })
        && is_polled
        && hold().and_then(|hold| hold.guard.as_ref()).is_some_and(|guard| !guard.is_held())
}

impl Losses {
    /// Maximum time for which the hold's owner has had the lock, by its own clock.
    fn owned<S: Store>(&self, known: &Known, view: &View<'_, S>) -> Nanos {
        let owners = self.known.iter().filter(|other| other.owner == known.owner && other.lock == known.lock);
        // Counted from before the command was sent.
        let owned = view.now - owners.map(|other| other.began).min().unwrap_or(known.began);
        owned + view.drift(known.member, owned) + MOMENT
    }

    fn check<S: Store>(&self, view: &View<'_, S>, call: &Call, reason: LossReason) -> Option<String> {
        let known = self.known.iter().find(|known| Some(known.id) == call.hold)?;
        let member = &view.scene.members[known.member];
        let options = &view.program.processes[member.plan].options;
        let stored = call.lock.and_then(|lock| {
            view.leases(lock).find(|lease| lease.client == member.client_id && lease.number == known.number)
        });
        // Counted from before the command was sent.
        let lasted = view.now - known.began;
        // By a fast clock, the lease ends earlier.
        let lasted = lasted + view.drift(known.member, lasted) + MOMENT;
        let is_right = match reason {
            // The lease of an owner's latest hold counts; only this hold's is known here.
            LossReason::Expired => known.lease.is_none_or(|lease| lasted >= lease),
            LossReason::HeldTooLong => options.max_hold.is_some_and(|limit| self.owned(known, view) >= limit),
            LossReason::Gone => {
                let taken = |number| view.excuses.was_taken(&member.client_id, number);
                // The second run of a command decides the answer; a fallback may restore the lease.
                let ran_twice = view.program.network.twice > 0 && self.ended.contains_key(&known.id);
                let had_it = self.ended.get(&known.id).is_some_and(|(number, ends)| {
                    let is_forced = view.excuses.may_be_forced(known.lock, view.now);
                    view.now < *ends && !taken(*number) && !is_forced
                });
                ran_twice || !had_it && stored.is_none() || taken(known.number)
            }
            // A command sent shortly before the end of the lease is answered after the end.
            LossReason::Unreachable => !is_calm(view) || known.lease.is_some_and(|lease| lasted >= lease),
            LossReason::GivenBack => self.given_back.contains(&known.owner),
            _ => false,
        };
        (!is_right).then(|| {
            let (what, after) = (words(view, call), time::seconds(view.now - known.granted));
            let id = known.id;
            format!("{what}, hold {id}: expected no loss without a reason, saw {reason:?} after {after}")
        })
    }
}
