//! [`Harm`] done to the store, and to the links in front of it.

use std::sync::Arc;

use latchwork::LockKind;
use latchwork::subscription::Message;

use super::Shared;
use super::state::Name;
use crate::store::Harm;
use crate::world::{Nanos, Process};

impl Shared {
    pub(super) fn harm(self: &Arc<Self>, harm: &Harm) {
        self.world.note(|| format!("harm: {harm:?}"));
        match harm {
            Harm::Forget => {
                self.data().names.clear();
                self.cut_some();
            }
            Harm::FallBack(time) => {
                self.fall_back(*time);
                self.cut_some();
            }
            Harm::Evict { kind, name } => self.evict(*kind, name),
            Harm::SetClock(by) => self.data().clock += *by,
            Harm::Cut { process } => {
                let process = self.process(*process);
                process.into_iter().for_each(|process| self.cut(&process));
            }
            Harm::Silence { process, lasts } => self.silence(*process, *lasts),
            Harm::Storm { name, messages } => self.storm(name, *messages),
        }
    }

    fn fall_back(&self, time: Nanos) {
        let then = self.world.now().saturating_sub(time);
        let mut data = self.data();
        while data.changes.back().is_some_and(|(at, ..)| *at > then) {
            let Some((_, name, before)) = data.changes.pop_back() else { return };
            match before {
                Some(before) => data.names.insert(name, before),
                None => data.names.remove(&name),
            };
        }
    }

    /// Forgets all of a name, or one of the parts that a store may keep in a key of its own.
    fn evict(&self, kind: LockKind, name: &str) {
        let part = self.world.chance(|chance| chance.u8(..4));
        let mut data = self.data();
        let Some(state) = data.names.get_mut(name).filter(|state| state.kind == kind) else { return };
        let state = Arc::make_mut(state);
        match part {
            0 => *state = Name::default(),
            1 => {
                state.fair.clear();
                state.writers.clear();
                state.permits.clear();
            }
            2 => state.waiting_readers.clear(),
            _ => {
                state.lease = None;
                state.readers.clear();
            }
        }
    }

    /// Publishes superfluous messages. Nobody but the store can tell of a grant.
    fn storm(&self, name: &str, messages: u32) {
        let data = &mut *self.data();
        let is_its = |channel: &&String| channel.ends_with(name);
        let channels: Vec<String> = data.subscribers.keys().filter(is_its).cloned().collect();
        for at in 0..messages {
            let message = if at % 2 == 0 { Message::Unlock } else { Message::ReadUnlock };
            channels.iter().for_each(|channel| _ = self.publish(data, usize::MAX, channel, message));
        }
    }

    fn process(&self, index: usize) -> Option<Process> {
        self.data().links.get(&index).map(|link| link.process().clone())
    }

    fn cut_some(self: &Arc<Self>) {
        let processes: Vec<_> = self.data().links.values().map(|link| link.process().clone()).collect();
        for process in processes {
            if self.world.chance(|chance| chance.bool()) {
                self.cut(&process);
            }
        }
    }

    /// Cuts the links of a process. Some of its calls notice at once, the others at their limit.
    fn cut(self: &Arc<Self>, process: &Process) {
        let (commands, messages, notices) =
            self.world.chance(|chance| (chance.u8(..4) > 0, chance.u8(..4) > 0, chance.bool()));
        if commands || !messages {
            let awaited = self.data().link(process).cut();
            let noticed = awaited.into_iter().filter(|_| notices || self.world.chance(|it| it.bool()));
            noticed.for_each(|answer| answer.cut());
        }
        if messages {
            self.cut_messages(&mut self.data(), process);
        }
    }

    fn silence(&self, process: Option<usize>, lasts: Nanos) {
        let until = self.world.now() + lasts;
        let mut data = self.data();
        let silent_until = match process {
            None => &mut data.silent_until,
            Some(process) => match data.links.get_mut(&process) {
                Some(link) => &mut link.silent_until,
                None => return,
            },
        };
        *silent_until = until.max(*silent_until);
    }
}
