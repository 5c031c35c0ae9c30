//! `Guard::remaining`: "How long the lease lasts without a renewal, as far as this process knows", and of
//! `is_held`: "The lease is counted from before the command was sent that began it, so this turns false
//! before the store gives the lock to another, as long as clocks run at the same speed."
//!
//! So no guard believes in a longer lease than the store's. This judge finds most faults, since a belief
//! becomes too long well before two owners meet.

use super::Judge;
use crate::stage::{Hold, View};
use crate::store::{Store, nanos};
use crate::time;
use crate::world::{MS, Nanos};

/// Stores count in whole milliseconds.
const GRAIN: Nanos = MS;

#[derive(Default)]
pub(crate) struct Belief;

impl<S: Store> Judge<S> for Belief {
    fn name(&self) -> &'static str {
        "belief"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        view.scene.holds.values().find_map(|hold| too_long(view, hold))
    }
}

fn believed(hold: &Hold) -> Option<Nanos> {
    let guard = hold.guard.as_ref()?;
    let left = nanos(guard.remaining());
    (left > 0).then_some(left)
}

/// The error that clocks may add to a belief in a lease of the longest requested duration.
pub(super) fn allowance<S: Store>(view: &View<'_, S>, hold: &Hold) -> Nanos {
    let watched = view.program.processes[view.member(hold).plan].options.watchdog_timeout();
    // An owner's other holds may have asked for a longer lease.
    let longest = match view.program.processes[view.member(hold).plan].clock_ppm {
        0 => 0,
        _ => view.program.longest_lease().max(watched),
    };
    view.drift(hold.member, longest) + GRAIN
}

pub(super) fn stored<S: Store>(view: &View<'_, S>, hold: &Hold) -> Nanos {
    let client = &view.member(hold).client_id;
    let lease = view.leases(hold.lock).find(|lease| lease.number == hold.number && lease.client == *client);
    lease.map_or(0, |lease| lease.ends - view.now)
}

fn too_long<S: Store>(view: &View<'_, S>, hold: &Hold) -> Option<String> {
    let left = believed(hold)?;
    let stored = stored(view, hold);
    if left <= stored.saturating_add(allowance(view, hold))
        || view.excuses.is_victim(&view.member(hold).client_id, hold.number)
    {
        return None;
    }
    Some(format!(
        "{}: expected no belief beyond the store's lease, saw lease {} believed for {} and stored for {}",
        view.words(hold),
        hold.number,
        time::seconds(left),
        time::seconds(stored)
    ))
}
