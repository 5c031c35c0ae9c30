//! `watchdog`: "It sleeps until the first of the client's deadlines". A task that wakes again and again
//! without work starves other tasks of its thread. So in periods without calls, most polls must serve
//! commands and messages.

use super::Judge;
use super::calm::hand_off;
use crate::program::{Incident, Trouble};
use crate::stage::{Event, View};
use crate::store::{Harm, Store};
use crate::world::{Nanos, SECOND};

/// Limit on polls per second and fifty names or tasks, beyond those of commands, answers and messages.
const POLLS: u64 = 800;

/// Limit on polls by a stranger's message, to each of the listening processes and twice.
const BY_STRANGERS: u64 = 16;

#[derive(Default)]
pub(crate) struct Restless {
    since: Nanos,
    polls: u64,
    commands: u64,
}

impl Restless {
    fn begins<S: Store>(&mut self, view: &View<'_, S>) {
        (self.since, self.polls, self.commands) =
            (view.now, view.world.polls_of_processes(), view.store.commands());
    }
}

impl<S: Store> Judge<S> for Restless {
    fn name(&self) -> &'static str {
        "restless"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        // Redis's connections are tasks of the process, too.
        if !S::HAS_NO_TASKS || view.now < self.since + SECOND / 2 {
            return None;
        }
        let (polls, commands) =
            (view.world.polls_of_processes() - self.polls, view.store.commands() - self.commands);
        let (since, seconds) = (self.since, 1 + (view.now - self.since) / SECOND);
        self.begins(view);
        let tasks: usize = view.program.processes.iter().map(|plan| plan.tasks.len()).sum();
        let size = 1 + (view.program.names.len() + tasks) as u64 / 50;
        (polls > POLLS * size * seconds + 40 * commands + BY_STRANGERS * messages_of_strangers(view, since))
            .then(|| format!("expected fewer polls in {seconds} s with {commands} commands, saw {polls}"))
    }

    fn hear(&mut self, _event: &Event, view: &View<'_, S>) -> Option<String> {
        self.begins(view);
        None
    }
}

/// Number of messages by strangers that may have arrived since.
fn messages_of_strangers<S: Store>(view: &View<'_, S>, since: Nanos) -> u64 {
    let is_silence = |incident: &&Incident| matches!(incident.what, Trouble::Harm(Harm::Silence { .. }));
    let silences = view.program.incidents.iter().filter(is_silence);
    let silences = silences.map(|incident| incident.ends() - incident.at);
    let network = &view.program.network;
    let under_way = hand_off(view.program) + network.late_by + silences.max().unwrap_or(0);
    let storms = view.program.incidents.iter().filter_map(|incident| match incident.what {
        Trouble::Harm(Harm::Storm { messages, .. }) if incident.at + under_way >= since => Some(messages),
        _ => None,
    });
    storms.map(u64::from).sum()
}
