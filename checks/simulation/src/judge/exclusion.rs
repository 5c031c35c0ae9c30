//! `Lock`: "A named lock: at most one `Owner` has it at a time, until it lets go or its lease is over." And
//! of a read-write lock's sides: "any number of `Owner`s" read, "one, while no other reads" writes.
//!
//! Beliefs never grow by the mere passage of time, so a look at each step covers each moment.
//! moment.

use super::Judge;
use super::belief::{allowance, stored};
use crate::program::LockSide;
use crate::stage::{Hold, View};
use crate::store::{Store, nanos};
use crate::time;

#[derive(Default)]
pub(crate) struct Exclusion;

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
        None
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
    !matches!((one.lock.kind, other.lock.kind), (LockSide::Read, LockSide::Read))
}
