//! `LockOptions::tenure`: "How long a lease may stay with this client while others wait for the lock, here
//! and in other processes. […] the first release after this time gives the lease back to the store, and
//! this client competes again behind the others. […] If no other process listened then, the next lease may
//! stay for twice as long, and so on up to eight times […]. From then on it is this time again."

use std::collections::BTreeMap;

use super::Judge;
use super::calm::{hand_off, is_attended, settled_from, waited_for};
use super::order::is_again;
use crate::program::{LockSide, Which};
use crate::stage::{Answer, Call, Event, View};
use crate::store::{Store, StoredLease};
use crate::time;
use crate::world::{MS, Nanos};

pub(super) const TENURE: Nanos = 30 * MS;

/// First time of each lease, by lock, member and number.
#[derive(Default)]
pub(crate) struct Tenure {
    begun: BTreeMap<(Which, usize, u64), Had>,
    /// Time of a member's latest release of a lease, if another process heard of it.
    heard: BTreeMap<(Which, usize), Nanos>,
}

/// A lease: its first time, and its end unless renewed.
#[derive(Clone, Copy)]
struct Had {
    since: Nanos,
    ends: Nanos,
}

impl<S: Store> Judge<S> for Tenure {
    fn name(&self) -> &'static str {
        "tenure"
    }

    fn look(&mut self, view: &View<'_, S>) -> Option<String> {
        // A waiter may ask again with the number of a lost lease.
        let heard = &mut self.heard;
        self.begun.retain(|(lock, member, number), had| {
            let client = &view.scene.members[*member].client_id;
            let is_it = |lease: &&StoredLease| lease.number == *number && lease.client == *client;
            if let Some(lease) = view.leases(*lock).find(is_it) {
                had.ends = lease.ends;
                return true;
            }
            let is_released = had.ends > view.now && !view.excuses.was_taken(client, *number);
            let is_long_ago = |then: Nanos| then + 2 * hand_off(view.program) < view.now;
            let listens = |call: &Call| {
                waited_for(call) == Some(*lock)
                    && is_elsewhere(view, call.member, *member)
                    && is_long_ago(call.began)
            };
            let is_heard = view.store.counts_listeners()
                && is_released
                && had.since > settled_from(view)
                && is_long_ago(had.since)
                && view.scene.calls.values().any(|call| listens(call) && is_attended(view, call));
            if is_heard {
                heard.insert((*lock, *member), view.now)
            } else {
                heard.remove(&(*lock, *member))
            };
            false
        });
        None
    }

    fn hear(&mut self, event: &Event, view: &View<'_, S>) -> Option<String> {
        let Event::Answered(call, Answer::Got(id)) = event else { return None };
        let hold = view.scene.holds.get(id)?;
        if hold.lock.kind != LockSide::Plain || hold.number == 0 || call.was_stalled {
            return None;
        }
        let had = Had { since: view.now, ends: view.now };
        let begun = self.begun.entry((hold.lock, hold.member, hold.number)).or_insert(had).since;
        let plan = &view.program.processes[view.member(hold).plan];
        let tenure = plan.options.tenure.unwrap_or(TENURE);
        let ends = |times: u64| {
            begun + times * tenure + view.drift(hold.member, times * tenure) + 2 * hand_off(view.program)
        };
        if view.now <= ends(1) || is_again(view, *id) || view.member(hold).stood_still_until > begun {
            return None;
        }
        let heard = self.heard.get(&(hold.lock, hold.member)).copied().unwrap_or(0);
        let waits = view.scene.calls.values().find(|waiter| {
            let is_other =
                waited_for(waiter) == Some(hold.lock) && is_elsewhere(view, waiter.member, hold.member);
            // True if this waiter was already listening at the member's last heard release.
            let has_heard = waiter.began + 2 * hand_off(view.program) < heard;
            is_other
                && waiter.began < begun
                && begun > settled_from(view)
                && is_attended(view, waiter)
                && (has_heard || view.now > ends(8))
        })?;
        Some(format!(
            "{}: expected a turn of p{}t{}, waiting since {}, saw p{} keep lease {} among its own since {}",
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

/// True if the members are in different processes. A release is not counted as heard in its own process.
fn is_elsewhere<S: Store>(view: &View<'_, S>, one: usize, other: usize) -> bool {
    !view.scene.members[one].is_in(&view.scene.members[other].process)
}
