//! Warnings of slow waits: one a minute for each name, however many acquisitions wait.

use std::sync::Arc;
use std::time::Duration;

use tracing::Level;
use tracing::level_filters::LevelFilter;

use crate::lock_entry::Moment;

use super::Entry;
use crate::lock::owner::LeaseId;

/// Shortest time between two warnings of a name.
const AGAIN: Duration = Duration::from_secs(60);

impl Entry {
    /// The lease by which this client has the lock, or its other side. `None` to a waiter for permits: each
    /// acquisition has an entry, and a search by each of many waiters would be slow.
    pub(in crate::lock) fn holder_here(self: &Arc<Self>) -> Option<LeaseId> {
        let in_hand = self.acquisition.is_none().then(|| self.leases_in_hand().pop());
        in_hand.flatten().map(|(_, number)| self.context.lease_id(number))
    }

    /// Has the watchdog look at the name's waits when a wait begun at `begun` is slow.
    pub(in crate::lock) fn watch_wait(self: &Arc<Self>, begun: Moment) {
        if self.context.slow_wait.is_zero() || LevelFilter::current() < Level::WARN {
            return;
        }
        let of_name = self.acquisition.as_ref().map_or(self, |acquisition| &acquisition.handles);
        let look = *of_name.rare().slow_look.lock().get_or_insert(begun + self.context.slow_wait);
        of_name.schedule(look);
    }

    /// Warns if a wait for the name is slow, and schedules the next look. Called by the watchdog.
    pub(in crate::lock) fn warn_of_slow_waits(self: &Arc<Self>) {
        let Some(rare) = self.rare.get() else { return };
        let now = self.now();
        if rare.slow_look.lock().take_if(|at| *at <= now).is_some() {
            // Looked up with the mutex free, as an entry's drop may wake a task. A wait that begins from here
            // on schedules a look of its own.
            let waits: Vec<_> = self.of_the_name().filter(|entry| entry.mode == self.mode).collect();
            if let Some(since) = waits.iter().filter_map(|entry| entry.engine.waits_since()).min() {
                let slow = since + self.context.slow_wait;
                *rare.slow_look.lock() = Some(if slow <= now { now + AGAIN } else { slow });
                if slow <= now {
                    let waiters = waits.iter().map(|entry| entry.engine.waiting().0).sum();
                    self.warn(waiters, now.saturating_duration_since(since));
                }
            }
        }
        let next = *rare.slow_look.lock();
        next.inspect(|at| self.schedule(*at));
    }

    /// Emits the warning in a task, as the store is asked for a holder in another client.
    fn warn(self: &Arc<Self>, waiters: usize, longest: Duration) {
        let entry = Arc::clone(self);
        self.context.spawn(Box::pin(async move {
            let context = &entry.context;
            let mut holder = entry.holder_here();
            // A crowd of slow names must not slow the store down further.
            if holder.is_none() && context.store.commands_waiting() == 0 {
                let holders = context.store.holders(entry.mode, &entry.name).await.unwrap_or_default();
                holder = holders.into_iter().max_by_key(|holder| holder.left).and_then(|holder| holder.id);
            }
            event!(
                WARN,
                lock = entry.name.as_str(),
                label = context.label.as_deref(),
                holder = holder.map(tracing::field::display),
                waiters,
                ?longest,
                "slow wait"
            );
        }));
    }
}
