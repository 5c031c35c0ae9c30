//! `LockOptions::watchdog_timeout`: "The lease of a lock that is taken without one: it is renewed each time a
//! third of it is over, and runs out this long after the process died." So a new hold's lease is no longer
//! than that, even if the process already had the lease.

use super::Judge;
use super::belief::{allowance, stored};
use super::calm::{hand_off, is_calm};
use super::order::is_again;
use crate::program::{LockSide, Op};
use crate::stage::{Answer, Call, Event, View};
use crate::store::Store;
use crate::time;

#[derive(Default)]
pub(crate) struct Length;

impl<S: Store> Judge<S> for Length {
    fn name(&self) -> &'static str {
        "length"
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        // An explicit owner may have other holds, of calls that ended with a waker's panic.
        let Event::Answered(Call { op: Op::Acquire { owner: None, .. }, .. }, Answer::Got(id)) = event else {
            return None;
        };
        let hold = view.scene.holds.get(id)?;
        // An owner's earlier lease may last longer, and concurrent readers share one lease.
        if hold.lease.is_some() || hold.lock.kind != LockSide::Plain || is_again(view, *id) || !is_calm(view)
        {
            return None;
        }
        let lease = view.program.processes[view.member(hold).plan].options.watchdog_timeout();
        let stored = stored(view, hold);
        (stored > lease + allowance(view, hold) + hand_off(view.program)).then(|| {
            let (stored, lease) = (time::seconds(stored), time::seconds(lease));
            format!("{}: expected a lease of {lease} at most, saw {stored}", view.words(hold))
        })
    }
}
