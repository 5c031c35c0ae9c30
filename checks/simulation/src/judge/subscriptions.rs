//! `Metrics::subscriptions`: "Channels that have waiters. One that only lingers is not among them." And of
//! the registry: "A process has one subscription per channel: the first subscriber subscribes, the last one
//! unsubscribes". So after a while without events, the store has as many subscriptions of a process.

use super::Judge;
use super::calm::{hand_off, is_calm};
use crate::stage::{Event, Phase, View};
use crate::store::Store;
use crate::world::{Nanos, SECOND};

/// Limit on the lingering of a channel, with a margin.
const LINGERS: Nanos = 7 * SECOND;

#[derive(Default)]
pub(crate) struct Subscriptions {
    /// Time of the last event, and true once judged since.
    last: Nanos,
    is_judged: bool,
    /// Time of the first look that saw a difference, and the finding if the same difference lasts: a call of
    /// several locks changes its channels without an event.
    differs: Option<(Nanos, String)>,
}

impl<S: Store> Judge<S> for Subscriptions {
    fn name(&self) -> &'static str {
        "subscriptions"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        let is_quiet = view.now > self.last + LINGERS + 2 * hand_off(view.program);
        if !is_quiet || !is_calm(view) || self.is_judged {
            return None;
        }
        let seen = differs(view);
        self.is_judged = seen.is_none();
        if self.differs.as_ref().map(|(_, text)| text) != seen.as_ref() {
            self.differs = seen.map(|text| (view.now, text));
        }
        let lasting = self.differs.as_ref().filter(|(since, _)| view.now > since + LINGERS);
        lasting.map(|(_, text)| text.clone())
    }

    fn hear(&mut self, _event: &Event, view: &View<'_, S>) -> Option<String> {
        *self = Subscriptions { last: view.now, ..Subscriptions::default() };
        None
    }

    fn phase_ends(&mut self, view: &View<'_, S>) -> Option<String> {
        (view.phase == Phase::Quiet).then(|| differs(view)).flatten()
    }
}

fn differs<S: Store>(view: &View<'_, S>) -> Option<String> {
    view.scene.members.iter().enumerate().find_map(|(at, member)| {
        let client = member.client.as_ref().filter(|_| member.process.is_alive())?;
        let (stored, known) = (view.store.subscriptions(&member.process)?, client.registry().len());
        // Over Redis, names that differ only by braces share a channel.
        let shares = view.program.names.iter().any(|name| name.contains('{'));
        (stored > known || stored < known && !shares)
            .then(|| format!("p{at}: expected {known} subscriptions at the store, saw {stored}"))
    })
}
