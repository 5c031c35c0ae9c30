//! `ReadWriteLock`: "Readers and writers take turns: a reader does not go before a writer that waits already,
//! and when a writer leaves, the readers that wait come before the next writer. So a writer waits for the
//! present readers and for one turn of readers, a reader for one writer." Except: "a writer whose lease ends
//! by itself may leave the lock to the next writer", at a store that forgets a lock with its last lease.

use std::collections::BTreeMap;

use latchwork::Owner;

use super::Judge;
use super::calm::{blocks, hand_off, is_attended, settled_from, waited_for};
use super::order::{has_expired, is_again, may_be_forced, positions_last};
use super::tenure::TENURE;
use crate::program::{LockSide, Op, Which};
use crate::stage::{Answer, Call, Event, View};
use crate::store::Store;
use crate::time;
use crate::world::Nanos;

/// For waiting readers, by member and task: number of writers since.
#[derive(Default)]
pub(crate) struct Turns {
    writers_seen: BTreeMap<(usize, usize), u32>,
    /// By member and name: time when a reader left without the lock.
    left: BTreeMap<(usize, usize), Nanos>,
    /// By member and name: time when a call to write ended, after which the next writer has to queue.
    ended: BTreeMap<(usize, usize), Nanos>,
    /// By member and name: time of the last grant to a reader, whose lease began no later.
    granted: BTreeMap<(usize, usize), Nanos>,
    written: BTreeMap<usize, Written>,
    /// By name: member, lease number and owner of the last grant to write.
    last: BTreeMap<usize, (usize, u64, Owner)>,
    /// By name: true if the lease of the writer before the last one has expired.
    lapsed: BTreeMap<usize, bool>,
}

struct Written {
    /// Time when last seen.
    at: Nanos,
    is_still: bool,
    ends: Nanos,
    /// Client and number of the lease.
    lease: (String, u64),
}

impl Written {
    fn has_lapsed(&self) -> bool {
        !self.is_still && self.ends <= self.at
    }
}

impl<S: Store> Judge<S> for Turns {
    fn name(&self) -> &'static str {
        "turns"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        // A lease expires between two looks.
        for written in self.written.values_mut().filter(|written| written.is_still) {
            (written.at, written.is_still) = (view.now, false);
        }
        for (lock, lease) in view.leases.all().filter(|(_, lease)| !lease.is_shared && lease.ends > view.now)
        {
            let is_it = |it: &Written| it.lease.1 == lease.number && it.lease.0 == lease.client;
            let before = self.written.get_mut(&lock.name);
            if let Some(same) = before.filter(|before| is_it(before)) {
                (same.is_still, same.ends) = (true, lease.ends);
                continue;
            }
            let key = (lease.client.clone(), lease.number);
            let written = Written { at: view.now, is_still: true, ends: lease.ends, lease: key };
            let before = self.written.insert(lock.name, written);
            self.lapsed.insert(lock.name, before.is_some_and(|before| before.has_lapsed()));
        }
        None
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        let Event::Answered(call, answer) = event else { return None };
        if call.takes_several() {
            let writes = call.op.locks().iter().filter(|lock| lock.kind == LockSide::Write);
            self.ended.extend(writes.map(|lock| ((call.member, lock.name), view.now)));
        }
        let lock = call.lock?;
        self.writers_seen.remove(&(call.member, call.task));
        if lock.kind == LockSide::Write {
            self.ended.insert((call.member, lock.name), view.now);
        }
        match (lock.kind, answer) {
            // An unpolled writer may have had its grant before any of the present waiters came.
            (LockSide::Write, Answer::Got(hold)) if !is_again(view, *hold) && !call.was_stalled => {
                let granted =
                    view.scene.holds.get(hold).map(|hold| (hold.member, hold.number, hold.owner))?;
                // An owner's waiters enter with a writer, under the same lease.
                let comes_along = self.last.insert(lock.name, granted) == Some(granted);
                if comes_along { None } else { self.writer_comes(view, lock.name) }
            }
            (LockSide::Read, Answer::Got(hold)) => {
                let comes_early = if call.was_stalled || is_again(view, *hold) {
                    None
                } else {
                    self.reader_comes(view, call, lock.name, *hold)
                };
                self.granted.insert((call.member, lock.name), view.now);
                comes_early
            }
            (LockSide::Read, _) => {
                self.left.insert((call.member, lock.name), view.now);
                None
            }
            _ => None,
        }
    }
}

impl Turns {
    fn writer_comes<S: Store>(&mut self, view: &View<'_, S>, name: usize) -> Option<String> {
        if !S::KNOWS_LAPSED_WRITERS && self.lapsed.get(&name) == Some(&true) {
            return None;
        }
        let settled = settled_from(view);
        for call in view.scene.calls.values() {
            let waits = waited_for(call).is_some_and(|lock| lock.kind == LockSide::Read && lock.name == name);
            let begun = call.began > settled && call.began + hand_off(view.program) < view.now;
            if !waits || !begun || !is_attended(view, call) || self.is_held_up(view, call, name) {
                continue;
            }
            let seen = self.writers_seen.entry((call.member, call.task)).or_default();
            *seen += 1;
            if *seen > 1 {
                let began = time::seconds(call.began);
                let name = &view.program.names[name];
                let (member, task) = (call.member, call.task);
                return Some(format!(
                    "{name:?}: expected one writer before p{member}t{task}, waiting since {began}, saw {seen}"
                ));
            }
        }
        None
    }

    /// "A reader does not go before a writer that waits already", unless the reader joins readers of its
    /// process within the tenure (possibly of the same task, by another owner), or has waited for a writer
    /// itself.
    fn reader_comes<S: Store>(
        &self,
        view: &View<'_, S>,
        reader: &Call,
        name: usize,
        granted: u64,
    ) -> Option<String> {
        let plan = &view.program.processes[view.scene.members[reader.member].plan];
        let tenure = 8 * plan.options.tenure.unwrap_or(TENURE);
        if let Some(Written { at, is_still, .. }) = self.written.get(&name)
            && (*is_still || at + hand_off(view.program) >= reader.began)
        {
            return None;
        }
        // Within the tenure of a lease, readers join present readers, even after the first reader left.
        let joins = view.scene.holds.iter().any(|(id, hold)| {
            let reads = hold.lock.name == name && hold.lock.kind == LockSide::Read;
            reads && hold.member == reader.member && *id != granted
        });
        let begun = self.granted.get(&(reader.member, name));
        let joins = joins
            && begun.is_some_and(|at| {
                at + tenure + view.drift(reader.member, tenure) + hand_off(view.program) >= view.now
            });
        if joins {
            return None;
        }
        let settled = settled_from(view);
        let waits = view.scene.calls.values().find(|call| {
            let writes =
                waited_for(call).is_some_and(|lock| lock.kind == LockSide::Write && lock.name == name);
            let drift = view.drift(reader.member, view.now - call.began);
            writes
                && call.began > settled
                && call.began + tenure + drift + 2 * hand_off(view.program) < reader.began
                && is_attended(view, call)
                && positions_last(view)
                && !self.is_writer_held_up(view, call, name, reader)
        })?;
        Some(format!(
            "{:?}: expected p{}t{} first, waiting to write since {}, saw reader p{}t{}, waiting since {}",
            view.program.names[name],
            waits.member,
            waits.task,
            time::seconds(waits.began),
            reader.member,
            reader.task,
            time::seconds(reader.began),
        ))
    }

    /// True if the store may not know of this waiter: others of its process are, or just were, ahead.
    fn is_writer_held_up<S: Store>(
        &self,
        view: &View<'_, S>,
        waiter: &Call,
        name: usize,
        reader: &Call,
    ) -> bool {
        let ended = self.ended.get(&(waiter.member, name)).map(|at| at + 4 * hand_off(view.program));
        let is_other = |other: &Call| {
            let is_of_it = other.lock.is_some_and(|lock| lock.name == name && lock.kind == LockSide::Write);
            is_of_it && other.member == waiter.member && other.task != waiter.task
        };
        view.scene.calls.values().any(is_other)
            || ended.is_some_and(|at| at >= reader.began)
            || owner_may_read(view, waiter, name)
            || blocks(view, Which { name, kind: LockSide::Write })
            || may_be_forced(view, waiter, Which { name, kind: LockSide::Write })
            || has_expired(view, waiter.member, Which { name, kind: LockSide::Write })
    }

    fn is_held_up<S: Store>(&self, view: &View<'_, S>, waiter: &Call, name: usize) -> bool {
        let stalls = |other: &Call| {
            let is_of_it = other.lock.is_some_and(|lock| lock.name == name && lock.kind == LockSide::Read);
            is_of_it && other.member == waiter.member && other.was_stalled
        };
        let left = self.left.get(&(waiter.member, name));
        view.scene.calls.values().any(stalls)
            || blocks(view, Which { name, kind: LockSide::Read })
            || may_be_forced(view, waiter, Which { name, kind: LockSide::Read })
            || left.is_some_and(|at| at + 4 * hand_off(view.program) > view.now)
    }
}

/// True if a waiting writer's owner may be reading: the writer fails, and has no position.
fn owner_may_read<S: Store>(view: &View<'_, S>, waiter: &Call, name: usize) -> bool {
    let owner = |call: &Call| match call.op {
        Op::Acquire { owner: Some(owner), .. } => Some(view.scene.members[call.member].owner(owner)),
        _ => None,
    };
    let Some(its) = owner(waiter) else { return false };
    let reads = Which { name, kind: LockSide::Read };
    let mut calls = view.scene.calls.values();
    calls.any(|call| call.lock == Some(reads) && owner(call) == Some(its))
        || view.scene.holds.values().any(|hold| hold.lock == reads && hold.owner == its)
}
