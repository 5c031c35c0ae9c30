//! `ReadWriteLock`: "Readers and writers take turns: a reader does not go before a writer that waits already, and when a writer leaves,
//! the readers that wait come before the next writer. So a writer waits for those who read and for one turn of readers, a reader for one
//! writer."

use std::collections::BTreeMap;

use super::Judge;
use super::calm::{blocks, hand_off, is_attended, settled_from, waited_for};
use super::order::is_again;
use crate::program::{Kind, Which, time};
use crate::stage::{Answer, Call, Event, View};
use crate::store::Store;
use crate::world::Nanos;

/// Readers that wait, by member and task: how many writers came since.
#[derive(Default)]
pub(crate) struct Turns {
    writers_seen: BTreeMap<(usize, usize), u32>,
    /// By member and name: when a reader of it left without the lock.
    left: BTreeMap<(usize, usize), Nanos>,
}

impl<S: Store> Judge<S> for Turns {
    fn name(&self) -> &'static str {
        "turns"
    }

    fn look(&mut self, _view: &View<'_, S>) -> Option<String> {
        None
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        let Event::Answered(call, answer) = event else { return None };
        let lock = call.lock?;
        self.writers_seen.remove(&(call.member, call.task));
        match (lock.kind, answer) {
            // One that was not polled may have been granted the lock before any of those who wait now came.
            (Kind::Write, Answer::Got(hold)) if !is_again(view, *hold) && !call.was_stalled => {
                self.writer_comes(view, lock.name)
            }
            (Kind::Read, Answer::Got(_)) if !call.was_stalled => None,
            (Kind::Read, _) => {
                self.left.insert((call.member, lock.name), view.now);
                None
            }
            _ => None,
        }
    }
}

impl Turns {
    fn writer_comes<S: Store>(&mut self, view: &View<'_, S>, name: usize) -> Option<String> {
        let settled = settled_from(view);
        for call in view.scene.calls.values() {
            let waits = waited_for(call).is_some_and(|lock| lock.kind == Kind::Read && lock.name == name);
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
                    "{name:?}: p{member}t{task} waits to read since {began}, and {seen} wrote since"
                ));
            }
        }
        None
    }

    fn is_held_up<S: Store>(&self, view: &View<'_, S>, waiter: &Call, name: usize) -> bool {
        let stalls = |other: &Call| {
            let is_of_it = other.lock.is_some_and(|lock| lock.name == name && lock.kind == Kind::Read);
            is_of_it && other.member == waiter.member && other.was_stalled
        };
        let left = self.left.get(&(waiter.member, name));
        view.scene.calls.values().any(stalls)
            || blocks(view, Which { name, kind: Kind::Read })
            || left.is_some_and(|at| at + 4 * hand_off(view.program) > view.now)
    }
}
