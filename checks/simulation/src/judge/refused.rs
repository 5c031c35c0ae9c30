//! `Lock::try_lock_for`: "`None` if it is held by another then." And `LockError::NoAnswer` "if the time is
//! over before the store has said, to this waiter or another one of this client, whether the lock is held".
//! Of a semaphore: "`None` if too few are free then." So a call ends without the lock only if the lock was
//! taken at some moment since the call began, or another acquisition of the client had the lock; and if the
//! store has said so since.

use std::collections::BTreeMap;

use super::Judge;
use super::calm::is_calm;
use super::words::words;
use crate::program::{How, LockSide, Op, WakerKind, Which};
use crate::stage::{Answer, Call, Event, View};
use crate::store::{Store, StoredLease};
use crate::time;
use crate::world::{Nanos, SECOND};

/// Time for which a call's queue position, or the turn that it gave to others, may have effects.
const PLACES_LAST: Nanos = 15 * SECOND;

#[derive(Clone, Copy, Default)]
struct Seen {
    was_taken: bool,
    /// True if another call or hold of the same client was present.
    had_company: bool,
}

#[derive(Default)]
pub(crate) struct Refused {
    open: BTreeMap<(usize, usize), Seen>,
    /// End of the last acquisition of each name.
    asked: BTreeMap<usize, Nanos>,
}

impl<S: Store> Judge<S> for Refused {
    fn name(&self) -> &'static str {
        "refused"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        for (by, seen) in &mut self.open {
            if let Some(call) = view.scene.calls.get(by).filter(|_| !seen.was_taken || !seen.had_company) {
                see(view, call, &self.asked, seen);
            }
        }
        None
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        match event {
            Event::Called(call) if is_limited(call) => {
                let mut seen = Seen::default();
                see(view, call, &self.asked, &mut seen);
                // A lock is free only once its release was answered; and as below.
                let client = view.scene.members[call.member].client.as_ref();
                seen.had_company |= client.is_some_and(|client| client.metrics().releases_pending > 0)
                    || call.lock.is_some_and(|lock| self.asked.get(&lock.name) == Some(&view.now));
                self.open.insert((call.member, call.task), seen);
                None
            }
            Event::Answered(call, answer) if matches!(call.op, Op::Acquire { .. }) => {
                let seen = self.open.remove(&(call.member, call.task));
                let wrong = seen
                    .filter(|_| matches!(answer, Answer::NotGot))
                    .and_then(|seen| wrong(view, call, seen, &self.asked));
                self.asked.extend(call.lock.map(|lock| (lock.name, view.now)));
                wrong
            }
            Event::Answered(call, _) if call.takes_several() => {
                self.asked.extend(call.op.locks().iter().map(|lock| (lock.name, view.now)));
                None
            }
            _ => None,
        }
    }
}

fn is_limited(call: &Call) -> bool {
    matches!(call.op, Op::Acquire { how: How::Try | How::TryFor { .. }, .. })
}

fn see<S: Store>(view: &View<'_, S>, call: &Call, asked: &BTreeMap<usize, Nanos>, seen: &mut Seen) {
    let Some(lock) = call.lock else { return };
    let is_of_it = |other: Which| other.name == lock.name;
    let others = || view.scene.calls.values().filter(|other| other.is_about(is_of_it));
    let is_other = |other: &Call| other.task != call.task || other.member != call.member;
    seen.had_company |= others().any(|other| other.member == call.member && is_other(other))
        // A hold of permits leaves its client's further acquisitions to the store.
        || view.scene.holds.values().any(|hold| {
            hold.member == call.member && is_of_it(hold.lock) && lock.kind != LockSide::Permits
        });
    let is_felt = || {
        let last = asked.get(&lock.name).map_or(0, |at| at + PLACES_LAST);
        last > view.now || !is_calm(view) || others().any(is_other)
    };
    let is_taken = |(other, lease): (Which, &StoredLease)| {
        is_of_it(other) && lease.ends > view.now && (other != lock || lock.kind != LockSide::Permits)
    };
    seen.was_taken |= view.leases.all().any(is_taken)
        || lock.kind == LockSide::Permits && !view.has_permits_for(call)
        || lock.kind != LockSide::Plain && is_felt();
}

fn wrong<S: Store>(
    view: &View<'_, S>,
    call: &Call,
    mut seen: Seen,
    asked: &BTreeMap<usize, Nanos>,
) -> Option<String> {
    see(view, call, asked, &mut seen);
    // A waker's attempt may hold the lock briefly, between two looks.
    let tries = |op: &Op| op.waker() == WakerKind::Tries;
    if seen.had_company || view.has_operation(tries) {
        return None;
    }
    let lock = call.lock?;
    // An acquisition that ended when this call began may have shared its older answer.
    if asked.get(&lock.name) == Some(&call.began) {
        return None;
    }
    let client = &view.scene.members[call.member].client_id;
    let told = view.store.told_held(client, lock.kind.mode(), view.name(lock));
    let since = time::seconds(call.began);
    // A call that is not polled within its limit may see no more than its client's own release.
    if told.is_some_and(|told| told < call.began) && !call.was_stalled {
        return Some(format!(
            "{} since {since}: expected a report of a holder by the store, saw none",
            words(view, call)
        ));
    }
    (!seen.was_taken)
        .then(|| format!("{}: expected a holder at some moment since {since}, saw none", words(view, call)))
}
