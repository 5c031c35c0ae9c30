//! `Metrics`: "Its count is the number of acquisitions." (`waits`) "Calls that ended without the lock: it was
//! held, or the time was over." (`given_up`) "Hand-offs in memory" (of all locks, and of one) "From the
//! guard's being made to its end, for each guard." (`holds`) "Releases that are under way in the background
//! now." "Waiters that […] were not polled in time". "Holds that were lost, for whatever reason." "Channels
//! that have waiters." And: "counters only rise".

use std::collections::{BTreeMap, BTreeSet};

use latchwork::{LockError, LossReason, Metrics};

use super::Judge;
use crate::program::{Incident, Op, Trouble, WakerKind};
use crate::stage::{Answer, Event, Phase, View};
use crate::store::{Store, nanos};
use crate::world::{Nanos, US};

#[derive(Clone, Debug, Default)]
struct Seen {
    acquisitions: u64,
    given_up: u64,
    forgotten: u64,
    /// Attempts with another end: each may briefly have had a guard.
    ended_otherwise: u64,
    losses_told: u64,
    /// Times from calls to guards, and from guards to their ends, in nanoseconds.
    waited: Nanos,
    held: Nanos,
    /// As `waited`, for forgotten holds, whose guards were made within this time.
    unmeasured: Nanos,
    /// True if wakers, or calls that take several locks, have tried to acquire locks, with unknown results.
    others_try: bool,
    last: Metrics,
}

#[derive(Default)]
pub(crate) struct Sums {
    seen: BTreeMap<usize, Seen>,
    hold: BTreeSet<usize>,
    since: BTreeMap<u64, Nanos>,
}

impl<S: Store> Judge<S> for Sums {
    fn name(&self) -> &'static str {
        "metrics"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        self.hold = view.scene.holds.values().map(|hold| hold.member).collect();
        None
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        let (call, answer) = match event {
            Event::Answered(call, answer) => (call, answer),
            Event::Called(call) => {
                let tries = call.op.waker() == WakerKind::Tries || call.takes_several();
                self.seen.entry(call.member).or_default().others_try |= tries;
                return None;
            }
            Event::Granted(id) => {
                let hold = view.scene.holds.get(id)?;
                self.since.insert(*id, hold.granted);
                self.seen.entry(hold.member).or_default().waited += hold.granted - hold.began;
                return None;
            }
            Event::GivenBack { hold, member, .. } => {
                let since = self.since.remove(hold);
                self.seen.entry(*member).or_default().held += since.map_or(0, |since| view.now - since);
                return None;
            }
            _ => return None,
        };
        let seen = self.seen.entry(call.member).or_default();
        match (&call.op, answer) {
            (Op::Acquire { .. }, Answer::Got(_)) => seen.acquisitions += 1,
            (Op::Acquire { .. }, Answer::NotGot) => seen.given_up += 1,
            (Op::Acquire { .. }, _) => seen.ended_otherwise += 1,
            (Op::Forget { .. }, Answer::Done) => {
                seen.forgotten += 1;
                let id = call.hold?;
                self.since.remove(&id);
                seen.unmeasured += view.scene.holds.get(&id).map_or(0, |hold| hold.granted - hold.began);
            }
            (_, Answer::Stats(stats)) => {
                let counted = view.scene.members[call.member].client.as_ref()?.metrics().hand_offs_local;
                return (stats.hand_offs > counted).then(|| {
                    let (member, hand_offs) = (call.member, stats.hand_offs);
                    format!("p{member}: expected {counted} hand-offs at most of one lock, saw {hand_offs}")
                });
            }
            (_, Answer::Shutdown(Ok(()))) => {
                let pending = view.scene.members[call.member].client.as_ref()?.metrics().releases_pending;
                // A forgotten hold may have ended at this very moment.
                let had_holds = self.hold.contains(&call.member);
                return (pending > 0 && !had_holds).then(|| {
                    format!("p{}: expected no pending release after the shutdown, saw {pending}", call.member)
                });
            }
            (_, Answer::Metrics(metrics)) => {
                let fell = fallen(&seen.last, metrics);
                seen.last = **metrics;
                return fell
                    .map(|what| format!("p{}: expected rising counters, saw {what} fall", call.member));
            }
            _ => {}
        }
        if let Answer::Lost(reason) | Answer::Failed(LockError::Lost { reason, .. }) = answer
            // The end of an owner's further lease is not a loss while another lease holds the lock.
            && matches!(reason, LossReason::Gone | LossReason::Unreachable | LossReason::HeldTooLong)
        {
            seen.losses_told += 1;
        }
        None
    }

    fn phase_ends(&mut self, view: &View<'_, S>) -> Option<String> {
        if view.phase != Phase::Quiet {
            return None;
        }
        view.scene.members.iter().enumerate().find_map(|(at, member)| {
            let metrics = member.client.as_ref().filter(|_| member.process.is_alive())?.metrics();
            let seen = self.seen.get(&at).cloned().unwrap_or_default();
            let wrong =
                wrong(&seen, &metrics, S::APART).or_else(|| wrong_times(view, at, &seen, &metrics)).or_else(
                    || (metrics.superseded > 0 && polls_all(view, member.plan)).then_some("superseded"),
                )?;
            Some(format!("p{at}: expected the {wrong} of {seen:?}, saw {metrics:?}"))
        })
    }
}

/// Names a wrong sum of times. A guard that asks for a token precedes the return of its call.
fn wrong_times<S: Store>(
    view: &View<'_, S>,
    at: usize,
    seen: &Seen,
    metrics: &Metrics,
) -> Option<&'static str> {
    let (waits, holds) = (nanos(metrics.waits.sum()), nanos(metrics.holds.sum()));
    let total = seen.waited + seen.held;
    let rounding = US * (metrics.waits.count() + metrics.holds.count()) + view.drift(at, total) + US;
    let had_more = seen.ended_otherwise + metrics.superseded > 0;
    let is_right = waits <= seen.waited + rounding
        && waits + holds + seen.unmeasured + rounding >= total
        && (had_more || waits + holds <= total + rounding);
    (!is_right && !seen.others_try).then_some("wait and hold times")
}

/// True if all futures of a process are polled at each wake.
fn polls_all<S: Store>(view: &View<'_, S>, plan: usize) -> bool {
    let stalls =
        |op: &Op| op.waker() != WakerKind::Plain || op.care().is_some_and(|care| care.stall.is_some());
    let beside = view.program.clients_beside(plan);
    let stops = |incident: &Incident| match &incident.what {
        Trouble::Suspend { process, .. } => beside.contains(process),
        _ => false,
    };
    !view.program.processes[plan].tasks.iter().flatten().any(stalls)
        && !view.program.incidents.iter().any(stops)
}

fn fallen(before: &Metrics, now: &Metrics) -> Option<&'static str> {
    let counters = |metrics: &Metrics| {
        [
            ("waits", metrics.waits.count()),
            ("given_up", metrics.given_up),
            ("holds", metrics.holds.count()),
            ("hand_offs_local", metrics.hand_offs_local),
            ("hand_offs_remote", metrics.hand_offs_remote),
            ("superseded", metrics.superseded),
            ("releases_failed", metrics.releases_failed),
            ("renewals_sent", metrics.renewals_sent),
            ("renewals_failed", metrics.renewals_failed),
            ("leases_lost", metrics.leases_lost),
            ("wakes_useful", metrics.wakes_useful),
            ("wakes_spurious", metrics.wakes_spurious),
        ]
    };
    let pairs = counters(before).into_iter().zip(counters(now));
    pairs.into_iter().find(|((_, before), (_, now))| now < before).map(|((what, _), _)| what)
}

/// Names a wrong counter, when all tasks have ended without holds. `apart`: the client shares its messages
/// with no other client.
fn wrong(seen: &Seen, metrics: &Metrics, apart: bool) -> Option<&'static str> {
    // A waiter superseded while asking for a token had a guard until then.
    let had_for_a_moment = seen.ended_otherwise + metrics.superseded;
    let guards = seen.acquisitions - seen.forgotten..=seen.acquisitions - seen.forgotten + had_for_a_moment;
    let sums = [
        ("acquisitions", seen.others_try || metrics.waits.count() == seen.acquisitions),
        ("abandoned attempts", seen.others_try || metrics.given_up == seen.given_up),
        ("guards", seen.others_try || guards.contains(&metrics.holds.count())),
        ("losses", seen.losses_told == 0 || metrics.leases_lost > 0),
        ("pending releases", metrics.releases_pending == 0),
        ("subscriptions", !apart || metrics.subscriptions == 0),
        ("renewals", metrics.renewals_failed <= metrics.renewals_sent),
        (
            "wake-ups by a grant",
            metrics.hand_offs_remote <= metrics.waits_remote.count() + had_for_a_moment || seen.others_try,
        ),
        ("waits", metrics.waits_local.count() + metrics.waits_remote.count() <= metrics.waits.count()),
    ];
    sums.into_iter().find(|(_, is_right)| !is_right).map(|(what, _)| what)
}
