//! `LockOptions::tenure`: "How long a lease may stay with this client while others wait for the lock, here
//! and in other processes. […] the first release after this time gives the lease back to the store, and this
//! client competes again behind the others. […] If no other process listened then, the next lease may stay
//! for twice as long, and so on up to eight times".

use std::collections::BTreeMap;

use super::Judge;
use super::calm::{hand_off, is_attended, settled_from, waited_for};
use super::order::is_again;
use crate::program::{LockSide, Which};
use crate::stage::{Answer, Event, View};
use crate::store::Store;
use crate::time;
use crate::world::{MS, Nanos};

/// By default.
pub(super) const TENURE: Nanos = 30 * MS;

/// When each lease was had first, by lock, member and number.
#[derive(Default)]
pub(crate) struct Tenure {
    begun: BTreeMap<(Which, usize, u64), Nanos>,
}

impl<S: Store> Judge<S> for Tenure {
    fn name(&self) -> &'static str {
        "tenure"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        // A number may be asked for once more whose lease was lost meanwhile.
        self.begun.retain(|(lock, member, number), _| {
            let client = &view.scene.members[*member].client_id;
            view.leases(*lock).any(|lease| lease.number == *number && lease.client == *client)
        });
        None
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        let Event::Answered(call, Answer::Got(id)) = event else { return None };
        let hold = view.scene.holds.get(id)?;
        if hold.lock.kind != LockSide::Plain || hold.number == 0 || call.was_stalled {
            return None;
        }
        let begun = *self.begun.entry((hold.lock, hold.member, hold.number)).or_insert(view.now);
        let plan = &view.program.processes[view.member(hold).plan];
        let longest = 8 * plan.options.tenure.unwrap_or(TENURE);
        let ends = begun + longest + view.drift(hold.member, longest) + 2 * hand_off(view.program);
        if view.now <= ends || is_again(view, *id) || view.member(hold).stood_still_until > begun {
            return None;
        }
        let waits = view.scene.calls.values().find(|waiter| {
            let is_other = waited_for(waiter) == Some(hold.lock) && waiter.member != hold.member;
            is_other && waiter.began < begun && begun > settled_from(view) && is_attended(view, waiter)
        })?;
        Some(format!(
            "{}: p{}t{} waits since {}, and p{} passes on lease {} among its own since {}",
            view.lock_words(hold.lock),
            waits.member,
            waits.task,
            time::seconds(waits.began),
            hold.member,
            hold.number,
            time::seconds(begun),
        ))
    }
}
