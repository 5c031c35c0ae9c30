//! `Lock`: "A named lock: at most one `Owner` has it at a time, until it lets go or its lease is over." And
//! of a read-write lock's sides: "any number of `Owner`s" read, "one, while no other reads" writes. And
//! `NamedSemaphore`: "A handle's acquisition is granted if the permits in use, with its own, are at most the
//! handle's capacity." So the permits that guards believe in are at most the capacity of the latest of their
//! acquisitions: all of these were in use then.
//!
//! Beliefs never grow by the mere passage of time, so a look at each step covers each moment.

use std::collections::BTreeMap;

use super::Judge;
use super::belief::{allowance, stored};
use crate::program::LockSide;
use crate::stage::{Hold, View};
use crate::store::{Store, nanos};
use crate::time;

#[derive(Default)]
pub(crate) struct Exclusion {
    /// Looks so far, and for each lease of permits the look that first saw it.
    looks: u64,
    admitted: BTreeMap<(String, u64), u64>,
}

impl<S: Store> Judge<S> for Exclusion {
    fn name(&self) -> &'static str {
        "exclusion"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        let mut holders: Vec<&Hold> = Vec::new();
        for hold in view.scene.holds.values().filter(|hold| counts(view, hold)) {
            if let Some(other) = holders.iter().find(|other| exclude(other, hold)) {
                return Some(
                    format!(
                        "expected one holder, saw {} (lease {}) and {} (lease {}) at once",
                        view.words(other),
                        other.number,
                        view.words(hold),
                        hold.number
                    ) + &format!("; stored for {} and {}", left(view, other), left(view, hold)),
                );
            }
            holders.push(hold);
        }
        self.see(view);
        let of_semaphore = holders.iter().filter(|hold| hold.lock.kind == LockSide::Permits);
        of_semaphore.into_iter().find_map(|hold| self.too_many(view, hold, &holders))
    }
}

impl Exclusion {
    fn see<S: Store>(&mut self, view: &View<'_, S>) {
        self.looks += 1;
        let permits = view.leases.all().filter(|(lock, _)| lock.kind == LockSide::Permits);
        let present = permits.map(|(_, lease)| (lease.client.clone(), lease.number));
        let before = std::mem::take(&mut self.admitted);
        self.admitted = present
            .map(|lease| {
                let since = before.get(&lease).copied().unwrap_or(self.looks);
                (lease, since)
            })
            .collect();
    }

    /// Judges the permits of the holders of a name, if none was admitted after `hold`.
    fn too_many<S: Store>(&self, view: &View<'_, S>, hold: &Hold, holders: &[&Hold]) -> Option<String> {
        let all = || holders.iter().filter(|other| other.lock == hold.lock);
        let since = |hold: &Hold| self.admitted.get(&(view.member(hold).client_id.clone(), hold.number));
        let latest = all().map(|other| since(other)).max()?;
        // Of several acquisitions between two looks, any may be the latest.
        let capacity = all().filter(|other| since(other) == latest).map(|it| it.permits.capacity).max()?;
        let used: u32 = all().map(|other| other.permits.count).sum();
        let words = || all().map(|other| view.words(other)).collect::<Vec<_>>().join(", ");
        (used > capacity).then(|| {
            let lock = view.lock_words(hold.lock);
            format!("{lock}: expected {capacity} permits in use at most, saw {used}, by {}", words())
        })
    }
}

fn left<S: Store>(view: &View<'_, S>, hold: &Hold) -> String {
    time::seconds(stored(view, hold))
}

/// True if the lock is held, for longer than different clocks explain, and the client can know of any loss.
fn counts<S: Store>(view: &View<'_, S>, hold: &Hold) -> bool {
    let Some(guard) = &hold.guard else { return false };
    // Most programs have equal clocks, where even the shortest belief counts.
    let allowed = match view.program.processes[view.member(hold).plan].clock_ppm {
        0 => 0,
        _ => allowance(view, hold),
    };
    let left = nanos(guard.remaining());
    guard.is_held() && left > allowed && !view.excuses.is_victim(&view.member(hold).client_id, hold.number)
}

fn exclude(one: &Hold, other: &Hold) -> bool {
    if one.lock.name != other.lock.name || one.owner == other.owner {
        return false;
    }
    let together = [LockSide::Read, LockSide::Permits];
    one.lock.kind != other.lock.kind || !together.contains(&one.lock.kind)
}
