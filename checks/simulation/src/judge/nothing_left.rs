//! "After 10 000 names, 200 tasks and random cancellation no entry, subscription or memory is left." When all
//! tasks have ended and released their holds, no client has waiters, channels or releases under way.

use latchwork::subscription::RegistryStats;

use super::Judge;
use crate::stage::{Phase, View};
use crate::store::Store;

#[derive(Default)]
pub(crate) struct NothingLeft;

impl<S: Store> Judge<S> for NothingLeft {
    fn name(&self) -> &'static str {
        "left"
    }

    fn phase_ends(&mut self, view: &View<'_, S>) -> Option<String> {
        if view.phase != Phase::Quiet && view.phase != Phase::Down {
            return None;
        }
        view.scene.members.iter().enumerate().find_map(|(at, member)| {
            let client = member.client.as_ref().filter(|_| member.process.is_alive())?;
            let stats = client.registry().stats();
            let left = left(&stats).or_else(|| waiters(client, view))?;
            Some(format!("p{at}: expected nothing left, saw {left}; {stats:?}"))
        })
    }
}

fn left(stats: &RegistryStats) -> Option<&'static str> {
    let ended = stats.subscriptions_ended + stats.subscriptions_failed;
    let figures = [
        ("interest in a channel", stats.interest),
        ("a channel", stats.entries),
        ("a subscription", stats.subscriptions_begun.abs_diff(ended)),
    ];
    figures.into_iter().find(|(_, count)| *count > 0).map(|(what, _)| what)
}

fn waiters<S: Store>(client: &latchwork::LockClient, view: &View<'_, S>) -> Option<&'static str> {
    let waits = |name: &str| {
        let plain = client.get_lock(name).is_ok_and(|lock| lock.waiters() > 0);
        let fair = client.get_fair_lock(name).is_ok_and(|lock| lock.waiters() > 0);
        let both =
            client.get_read_write_lock(name).is_ok_and(|it| it.read().waiters() + it.write().waiters() > 0);
        let permits = client.get_semaphore(name, 1).is_ok_and(|all| all.waiting() > 0);
        plain || fair || both || permits
    };
    view.program.names.iter().map(|name| view.program.called(name)).any(waits).then_some("a waiter")
}
