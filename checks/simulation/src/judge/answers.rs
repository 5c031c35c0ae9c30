//! `Lock::holder`: "The holder of the lock, among all clients: `None` if it is free. Of several readers the
//! one whose lease lasts longest." `Lock::is_locked`: "Whether the lock is held." `Lock::remaining`: "How
//! long the lock's lease lasts without a renewal". `Lock::hold_count`: "How often `owner` has the lock; 0 if
//! it has not, or is another client's." `NamedSemaphore::usage`: "Returns the permits in use in all clients,
//! and their holders." Each answer has to be true at some moment between call and return.

use std::collections::BTreeMap;

use latchwork::Holder;
use latchwork::lock::Usage;

use super::Judge;
use super::words::words;
use crate::program::{LockSide, Op, Question, WakerKind, Which};
use crate::stage::{Answer, Call, Event, Hold, View};
use crate::store::{Store, StoredLease};
use crate::time;
use crate::world::{MS, Nanos};

/// Stores count in milliseconds.
const ROUNDING: Nanos = MS;

struct Stored {
    from: Nanos,
    leases: Vec<StoredLease>,
}

struct Asked {
    stored: Vec<Stored>,
    most_holds: u64,
}

#[derive(Default)]
pub(crate) struct Answers {
    open: BTreeMap<(usize, usize), Asked>,
    changes: Option<u64>,
}

impl<S: Store> Judge<S> for Answers {
    fn name(&self) -> &'static str {
        "answers"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        let changes = view.store.changes();
        let is_same = self.changes.replace(changes) == Some(changes);
        for (by, asked) in &mut self.open {
            let Some(call) = view.scene.calls.get(by) else { continue };
            let Some(lock) = call.lock else { continue };
            if !is_same {
                see(asked, view, lock);
            }
            if let Some(owner) = about_owner(call) {
                asked.most_holds = asked.most_holds.max(holds_at_most(view, call, lock, owner));
            }
        }
        None
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        match event {
            Event::Called(call) if matches!(call.op, Op::Ask { .. }) => {
                let mut asked = Asked { stored: Vec::new(), most_holds: 0 };
                call.lock.into_iter().for_each(|lock| see(&mut asked, view, lock));
                self.open.insert((call.member, call.task), asked);
                None
            }
            Event::Answered(call, answer) if matches!(call.op, Op::Ask { .. }) => {
                let mut asked = self.open.remove(&(call.member, call.task))?;
                let lock = call.lock?;
                see(&mut asked, view, lock);
                self.judge(view, call, lock, answer, &asked)
            }
            Event::Harmed(_) => {
                // Harm may have set the store's clock, which counts as no change.
                self.changes = None;
                None
            }
            _ => None,
        }
    }
}

fn is_hostile(op: &Op) -> bool {
    op.waker() != WakerKind::Plain
}

fn about_owner(call: &Call) -> Option<usize> {
    match call.op {
        Op::Ask { what: Question::HoldCount(owner) | Question::IsHeldBy(owner), .. } => Some(owner),
        _ => None,
    }
}

/// Records the store's leases on this side of the lock. Queries of a plain or a fair lock report both kinds.
fn see<S: Store>(asked: &mut Asked, view: &View<'_, S>, lock: Which) {
    let kinds: &[LockSide] = match lock.kind {
        LockSide::Plain | LockSide::Fair => &[LockSide::Plain, LockSide::Fair],
        LockSide::Read => &[LockSide::Read],
        LockSide::Write => &[LockSide::Write],
        LockSide::Permits => &[LockSide::Permits],
    };
    let shared = matches!(lock.kind, LockSide::Read | LockSide::Permits);
    let leases = kinds.iter().flat_map(|kind| view.leases(Which { kind: *kind, ..lock }));
    let leases = leases.filter(|lease| lease.is_shared == shared).cloned().collect();
    asked.stored.push(Stored { from: view.now, leases });
}

/// Maximum hold count of an owner: its holds, and its attempts under way.
fn holds_at_most<S: Store>(view: &View<'_, S>, asks: &Call, lock: Which, owner: usize) -> u64 {
    let member = &view.scene.members[asks.member];
    let id = member.owner(owner);
    let is_it = |hold: &&Hold| hold.member == asks.member && hold.lock == lock && hold.owner == id;
    let comes = |call: &&Call| {
        let by = matches!(call.op, Op::Acquire { owner: Some(by), .. } if member.owner(by) == id);
        by && call.member == asks.member && call.lock == Some(lock)
    };
    (view.scene.holds.values().filter(is_it).count() + view.scene.calls.values().filter(comes).count()) as u64
}

impl Answers {
    fn judge<S: Store>(
        &self,
        view: &View<'_, S>,
        call: &Call,
        lock: Which,
        answer: &Answer,
        asked: &Asked,
    ) -> Option<String> {
        let is_right = match answer {
            // A waker's actions in the same poll are invisible here.
            _ if call.began == view.now
                && (about_owner(call).is_some() || view.has_operation(is_hostile)) =>
            {
                true
            }
            Answer::Holder(Some((None, _))) | Answer::Failed(_) => true,
            Answer::Holder(Some((Some((client, number)), left))) => {
                let is_it = |lease: &StoredLease| lease.client == *client && lease.number == *number;
                any_moment(asked, view.now, |leases, from, to| lasts(leases, from, to, *left, is_it))
            }
            Answer::Remaining(Some(left)) => any_moment(asked, view.now, |leases, from, to| {
                lasts(leases, from, to, *left, |_| true) || leases.is_empty()
            }),
            Answer::Usage(usage) => any_moment(asked, view.now, |leases, _, to| is_usage(usage, leases, to)),
            Answer::Holder(None) | Answer::Remaining(None) => {
                any_moment(asked, view.now, |leases, _, to| leases.iter().all(|lease| lease.ends <= to))
            }
            Answer::Yes(said) if about_owner(call).is_none() => {
                any_moment(asked, view.now, |leases, _, to| {
                    // The answer may be about another kind of lock, whose leases are not recorded.
                    *said || leases.iter().all(|lease| lease.ends <= to)
                })
            }
            Answer::Yes(said) => self.counts(view, call, lock, u64::from(*said), asked),
            Answer::Count(count) if about_owner(call).is_some() => {
                self.counts(view, call, lock, *count, asked)
            }
            _ => true,
        };
        (!is_right).then(|| {
            let (what, began) = (words(view, call), time::seconds(call.began));
            format!("{what}: expected an answer that was true at some moment since {began}, saw {answer:?}")
        })
    }

    /// True if an owner's hold count may be `count`.
    fn counts<S: Store>(
        &self,
        view: &View<'_, S>,
        call: &Call,
        lock: Which,
        count: u64,
        asked: &Asked,
    ) -> bool {
        let Some(owner) = about_owner(call) else { return true };
        let id = view.scene.members[call.member].owner(owner);
        let had_it = |hold: &Hold| {
            let is_it = hold.member == call.member && hold.lock == lock && hold.owner == id;
            let is_old = hold.granted <= call.began;
            is_it && is_old && hold.is_held()
        };
        let least = view.scene.holds.values().filter(|hold| had_it(hold)).count() as u64;
        let most = asked.most_holds.max(holds_at_most(view, call, lock, owner));
        // A hold released by its owner's name no longer counts, and its guard does not show the owner.
        let plan = &view.program.processes[view.scene.members[call.member].plan];
        let by_name = |op: &Op| matches!(op, Op::UnlockByOwner { .. });
        let is_yes_or_no = matches!(call.op, Op::Ask { what: Question::IsHeldBy(_), .. });
        let some_at_least = is_yes_or_no || plan.tasks.iter().flatten().any(by_name);
        let least = if some_at_least { least.min(1) } else { least };
        // A positive answer requires a lease at the store.
        let client = &view.scene.members[call.member].client_id;
        let had_it = |leases: &[StoredLease], from| {
            leases.iter().any(|lease| lease.client == *client && lease.ends > from)
        };
        let was_there = count == 0 || any_moment(asked, view.now, |leases, from, _| had_it(leases, from));
        (least..=most).contains(&count) && was_there
    }
}

/// True if the holders are these leases, except for leases that end by `to`.
fn is_usage(usage: &Usage, leases: &[StoredLease], to: Nanos) -> bool {
    let is_it = |holder: &Holder, lease: &StoredLease| {
        let id = holder.id.as_ref().map(|id| (id.client_id(), id.number()));
        id == Some((lease.client.clone(), lease.number)) && holder.permits == lease.permits
    };
    let is_listed = |lease: &StoredLease| usage.holders.iter().any(|holder| is_it(holder, lease));
    usage.used == usage.holders.iter().map(|holder| u64::from(holder.permits)).sum::<u64>()
        && usage.holders.iter().all(|holder| leases.iter().any(|lease| is_it(holder, lease)))
        && leases.iter().all(|lease| is_listed(lease) || lease.ends <= to.saturating_add(ROUNDING))
}

/// True if the predicate holds for recorded leases, between two changes.
fn any_moment(asked: &Asked, now: Nanos, is_true: impl Fn(&[StoredLease], Nanos, Nanos) -> bool) -> bool {
    let ends = asked.stored.iter().skip(1).map(|stored| stored.from).chain([now]);
    asked.stored.iter().zip(ends).any(|(stored, to)| is_true(&stored.leases, stored.from, to))
}

/// True if the longest lease had this time left at some moment.
fn lasts(
    leases: &[StoredLease],
    from: Nanos,
    to: Nanos,
    left: Nanos,
    is_it: impl Fn(&StoredLease) -> bool,
) -> bool {
    let fits = |lease: &StoredLease| {
        let ends = left.saturating_add(from).saturating_sub(ROUNDING)
            ..=left.saturating_add(to).saturating_add(ROUNDING);
        ends.contains(&lease.ends) || left == Nanos::MAX
    };
    let longest = leases.iter().map(|lease| lease.ends).max().unwrap_or(0);
    leases.iter().any(|lease| is_it(lease) && fits(lease) && lease.ends.saturating_add(ROUNDING) >= longest)
}
