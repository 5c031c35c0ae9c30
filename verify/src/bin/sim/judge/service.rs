//! "A waiter is woken by the release, not by a timer"; "An unpolled waiter blocks others for at most 2 s"; and of a network that has come
//! back: locks released meanwhile "are free afterwards, and their waiters have them within 4 s". So once nothing is felt of any fault, no
//! call waits beside a free lock for longer than that.

use std::collections::BTreeMap;

use super::Judge;
use super::calm::{blocks, hand_off, is_attended, settled_from, waited_for};
use crate::program::{Kind, Which, time};
use crate::stage::{Call, View};
use crate::store::Store;
use crate::world::{Nanos, SECOND};

/// As long as that after an outage.
const WITHIN: Nanos = 4 * SECOND;

#[derive(Default)]
pub(crate) struct Service {
    looked: Nanos,
    /// Since when the lock that a call waits for was free, by member and task.
    free_since: BTreeMap<(usize, usize), Nanos>,
}

impl<S: Store> Judge<S> for Service {
    fn name(&self) -> &'static str {
        "service"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        if view.now == self.looked {
            return None;
        }
        self.looked = view.now;
        let settled = settled_from(view);
        let mut free_since = BTreeMap::new();
        for (by, call) in &view.scene.calls {
            let Some(lock) = waited_for(call).filter(|lock| is_free_for(view, *lock)) else { continue };
            let since = self.free_since.get(by).copied().unwrap_or(view.now).max(call.began).max(settled);
            if view.now > since + within(view, lock) && is_attended(view, call) && !blocks(view, lock) {
                return Some(format!(
                    "p{}t{} waits for {}, which is free since {}",
                    by.0,
                    by.1,
                    view.lock_words(lock),
                    time::seconds(since)
                ));
            }
            free_since.insert(*by, since);
        }
        self.free_since = free_since;
        None
    }
}

/// How long a call may wait beside a free lock: calls that are not polled hold it up one after the other.
fn within<S: Store>(view: &View<'_, S>, lock: Which) -> Nanos {
    let unpolled = view.program.processes.iter().map(|plan| plan.options.unpolled_limit()).max();
    let of_it = |call: &&Call| call.lock.is_some_and(|other| other.name == lock.name);
    let stalled = view.scene.calls.values().filter(of_it).filter(|call| call.was_stalled).count() as u64;
    WITHIN + 2 * (1 + stalled) * unpolled.unwrap_or(0) + 2 * (1 + stalled) * hand_off(view.program)
}

/// Whether the store has nothing against it: a reader may come beside others, unless a writer waits.
fn is_free_for<S: Store>(view: &View<'_, S>, lock: Which) -> bool {
    let writes = |call: &Call| {
        waited_for(call).is_some_and(|other| other.name == lock.name && other.kind == Kind::Write)
    };
    match lock.kind {
        Kind::Read => {
            view.leases(lock).all(|lease| lease.is_shared) && !view.scene.calls.values().any(writes)
        }
        _ => view.leases(lock).next().is_none(),
    }
}
