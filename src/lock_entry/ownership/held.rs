//! The beginning and the end of a hold, and the choice of the next waiter.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::support::moment::Moment;

use super::super::effects::Effects;
use super::super::events::{Attempt, BACK_OFF, Grant, LossReason, PendingRelease, Request, Slot, Turn};
use super::super::queue::Place;
use super::{Hold, Loss, MAX_GROWTH, MAX_STEPS, Ownership, Phase, Sharer, StoreLease, StoreRecord};

impl Ownership {
    // === Leaving ===

    pub(in crate::lock_entry) fn leave(
        &mut self,
        grant: &Grant,
        now: Moment,
        effects: &mut Effects,
    ) -> Result<Option<PendingRelease>, LossReason> {
        self.end_if_over(now, effects);
        let serial = grant.serial;
        let Some((hold, _)) = self.held_by_serial(serial) else {
            return Err(self.hear_of_loss(serial));
        };
        hold.drop_guard(grant);
        Ok(self.drop_hold(serial, now, effects))
    }

    pub(in crate::lock_entry) fn leave_by_name(
        &mut self,
        owner: u64,
        now: Moment,
        effects: &mut Effects,
    ) -> Result<Option<PendingRelease>, LossReason> {
        self.end_if_over(now, effects);
        let its = || {
            self.held()
                .flat_map(|(hold, _)| hold.owner_holds.iter())
                .filter(|(_, sharer)| sharer.owner == owner)
        };
        let found = its().find(|(_, sharer)| sharer.is_forgotten()).or_else(|| its().next());
        let Some(serial) = found.map(|(serial, _)| serial) else { return Err(LossReason::GivenBack) };
        if let Some((hold, _)) = self.held_by_serial(serial)
            && let Some(sharer) = hold.owner_holds.get_mut(serial)
        {
            sharer.remove_forgotten();
        }
        Ok(self.drop_hold(serial, now, effects))
    }

    /// Gives one of an owner's holds back, whose guard is gone.
    #[inline(always)]
    fn drop_hold(&mut self, serial: u64, now: Moment, effects: &mut Effects) -> Option<PendingRelease> {
        let (hold, _) = self.held_by_serial(serial)?;
        let left = hold.drop_count(serial, now);
        let is_empty = hold.owner_holds.is_empty();
        self.note_loss(serial, left, effects);
        if is_empty {
            return self.end_empty(now, effects);
        }
        // The holds that are left may end earlier.
        self.plan_next_look(now, effects);
        None
    }

    pub(in crate::lock_entry) fn forget(&mut self, grant: &Grant, now: Moment, effects: &mut Effects) {
        // A hold that is over, and not yet ended by an event, must not last longer by being forgotten.
        self.end_if_over(now, effects);
        match self.held_by_serial(grant.serial) {
            Some((hold, lease)) => {
                hold.forget_guard(grant, lease.sure_until);
                // No guard sees the hold's end from now on.
                self.plan_next_look(now, effects);
            }
            None => _ = self.hear_of_loss(grant.serial),
        }
    }

    /// Plans no look: the look at the earlier end comes first, and plans the next one.
    pub(in crate::lock_entry) fn prolong(&mut self, grant: &mut Grant, ends: Moment, now: Moment) {
        // A lease that is over does not begin again: its holder may know of the end.
        if grant.ends() > now
            && let Some((hold, _)) = self.held_by_serial(grant.serial)
        {
            let longer = grant.own_end.map(|own_end| own_end.max(ends));
            hold.prolong(grant, longer);
            grant.own_end = longer;
        }
    }

    /// Ends the hold, in hand or parallel, whose last owner has left.
    #[inline]
    fn end_empty(&mut self, now: Moment, effects: &mut Effects) -> Option<PendingRelease> {
        match &self.phase {
            Phase::Held(hold, _) if hold.owner_holds.is_empty() => self.pass_on(now, effects),
            _ => {
                let at = self.parallel.iter().position(|(hold, _)| hold.owner_holds.is_empty());
                let at = at.expect("some hold has lost its last one");
                Some(self.parallel.swap_remove(at).1.record.to_release(false))
            }
        }
    }

    /// Ends the hold in hand: the next waiter gets the lock or becomes the queue head. Returns the release of
    /// a lease that no waiter here waits for.
    pub(super) fn pass_on(&mut self, now: Moment, effects: &mut Effects) -> Option<PendingRelease> {
        let Phase::Held(_, lease) = &self.phase else { unreachable!("only a hold can be passed on") };
        let Some(next) = self.queue.first() else {
            let release = lease.record.to_release(true);
            self.transition(Phase::Returning { tenure_used_up: false });
            return Some(release);
        };
        self.known_held = Some(now);
        if self.rules.policy.position().is_some() {
            let release = lease.record.to_release(false);
            let next = self.name_next(now);
            effects.release(release, Some(next));
            return None;
        }
        let tenure_used_up = lease.tenure_ends <= now;
        // If this process died, a lease longer than the next request's would keep others out for longer.
        let too_long = lease.may_exceed(next.lease.unwrap_or(self.rules.renewed_lease), now);
        if tenure_used_up || lease.is_over(now) || too_long {
            effects.release(lease.record.to_release(true), None);
            self.transition(Phase::Returning { tenure_used_up });
            return None;
        }
        // A lease that ends too soon would be lost before its first renewal.
        let fits = lease.sure_until > now + self.third;
        let has_token = !next.fenced || lease.has_token();
        if next.is_watched() && fits && has_token {
            let slot = self.queue.pop().expect("it was there above");
            self.hand_offs += 1;
            effects.handed_off += 1;
            self.grant_to(slot, now, effects);
        } else if let Phase::Held(_, lease) = self.take_phase() {
            self.appoint(Some(lease), 0, now, effects);
        }
        None
    }

    /// Grants the lease in hand to a waiter no longer linked in the queue.
    pub(super) fn grant_to(&mut self, slot: Slot, now: Moment, effects: &mut Effects) {
        let request = self.queue.request(slot);
        let grant = self.begin_hold(&request, false, now);
        effects.wake(self.queue.place_at(slot, Place::Granted(grant, None, now)));
        self.admit(Duration::ZERO, now, effects);
        self.plan_next_look(now, effects);
    }

    /// Begins a hold by a lease of this length, and the holds of waiters admitted with it.
    #[inline(always)]
    pub(super) fn begin_first_hold(
        &mut self,
        request: &Request,
        lease: Duration,
        now: Moment,
        effects: &mut Effects,
    ) -> Grant {
        let grant = self.begin_hold(request, true, now);
        self.acquisitions += 1;
        self.plan_merge(effects);
        self.admit(lease, now, effects);
        self.plan_next_look(now, effects);
        grant
    }

    // Always inlined: without a call in between, the empty hold is never written.
    #[inline(always)]
    pub(super) fn hold_by(
        &mut self,
        attempt: &Attempt,
        tokens: RangeInclusive<u64>,
        tenure_ends: Moment,
        record: StoreRecord,
    ) {
        // Saves a division, which costs as much as the rest: nearly all leases have the rules' length.
        let third = if attempt.lease < self.rules.renewed_lease { attempt.lease / 3 } else { self.third };
        let mut lease = StoreLease::granted(attempt, tokens, third, tenure_ends, record);
        lease.verify = self.forced.is_some_and(|at| attempt.sent <= at);
        self.transition(Phase::Held(Hold::without_owners(), lease));
    }

    /// Begins a hold by the lease in hand: a guard's if `claimed`, else an unclaimed grant.
    // Always inlined, as `hold_by` is.
    #[inline(always)]
    pub(super) fn begin_hold(&mut self, request: &Request, claimed: bool, now: Moment) -> Grant {
        let serial = self.next_serial();
        let Phase::Held(hold, lease) = &mut self.phase else { unreachable!("a hold is by a lease in hand") };
        let token = if request.fenced { lease.tokens.next() } else { None };
        let own_end = (!request.is_watched()).then_some(lease.sure_until);
        let sharer = Sharer::new(request, claimed, own_end, self.rules.max_hold, now);
        *hold = Hold::begun(serial, sharer, token, now);
        Grant::new(serial, token, own_end)
    }

    /// Admits waiters together with the new holder: all of its owner, or, to a shared lock, all whose
    /// requests fit. `extent`: length of a lease just asked for, or zero; those who came since get its rest.
    pub(super) fn admit(&mut self, extent: Duration, now: Moment, effects: &mut Effects) {
        if self.queue.is_empty() {
            return;
        }
        if self.rules.policy.is_shared() {
            // A walk may pass an older waiter whose owner gets the lock only later in that walk: walks again.
            while self.admit_sharers(extent, now, effects) {}
            if !self.queue.is_empty() {
                self.park_current();
                self.appoint(None, 0, now, effects);
            }
            return;
        }
        let Phase::Held(hold, _) = &self.phase else { return };
        let Some(owner) = hold.owner_holds.iter().next().map(|(_, sharer)| sharer.owner) else { return };
        while let Some(slot) = self.queue.pop_of(owner) {
            self.admit_at(slot, now, effects);
        }
    }

    /// Walks over the waiters for a shared lock once. True if the walk has admitted waiters.
    fn admit_sharers(&mut self, extent: Duration, now: Moment, effects: &mut Effects) -> bool {
        let (mut walk, mut some) = (self.queue.walk(), false);
        while let Phase::Held(hold, lease) = &self.phase
            && let is_renewable = lease.is_renewable(self.third, now)
            && let (sent, left) = (lease.confirmed, lease.left(now).min(extent))
            && let Some(slot) = self.queue.pop_that(&mut walk, |request, since| {
                let extent = if since <= sent { extent } else { left };
                hold.suffices(request, extent, is_renewable)
                    || hold.owner_holds.of_owner(request.owner).is_some()
            })
        {
            self.admit_at(slot, now, effects);
            some = true;
        }
        some
    }

    fn admit_at(&mut self, slot: Slot, now: Moment, effects: &mut Effects) {
        let request = self.queue.request(slot);
        let (grant, extension) = self.join_hold(&request, false, now);
        effects.wake(self.queue.place_at(slot, Place::Granted(grant, extension, now)));
    }

    /// Makes the oldest waiter the queue head, with the `inherited` lease if any. Without a waiter: `Free`.
    pub(super) fn appoint(
        &mut self,
        inherited: Option<StoreLease>,
        steps: u32,
        now: Moment,
        effects: &mut Effects,
    ) {
        let Some(slot) = self.queue.pop() else {
            self.transition(Phase::Free);
            return;
        };
        let request = self.queue.request(slot);
        let serial = self.compete(request, inherited, Some(slot), steps, now);
        effects.wake(self.queue.place_at(slot, Place::Appointed(serial)));
        self.look_by(now + self.rules.unpolled_limit, now, effects);
    }

    /// Ends the phase `Returning`: a release that [`appoints`](PendingRelease::appoints) is answered or under
    /// way. `receivers`: count of the other clients that received the release's message.
    pub(in crate::lock_entry) fn appoint_next(
        &mut self,
        receivers: usize,
        now: Moment,
        effects: &mut Effects,
    ) {
        if let Phase::Returning { tenure_used_up: true } = self.phase {
            // A store that does not count receivers reports zero: then the last competition decides.
            let alone = receivers == 0 && !self.contended;
            let most = self.rules.policy.tenure().saturating_mul(if alone { MAX_GROWTH } else { 1 });
            self.tenure = self.tenure.saturating_mul(2).min(most);
        }
        if matches!(self.phase, Phase::Returning { .. }) {
            let steps = self.steps_for(receivers);
            self.appoint(None, steps, now, effects);
        }
    }

    pub(in crate::lock_entry) fn note_receivers(&mut self, receivers: usize, now: Moment) {
        let steps = self.steps_for(receivers);
        self.tenure = self.rules.policy.tenure();
        // A receiver may be a subscription without a waiter: counts only after a refusal, or if
        // the release wakes one waiter only.
        if (self.contended || self.rules.wakes_one) && steps > 0 {
            self.others_first_until = Some(now + BACK_OFF * steps);
        }
    }

    /// Returns the back-off in steps, at most a quarter of the tenure: it must not outweigh a short tenure.
    fn steps_for(&self, receivers: usize) -> u32 {
        let most = self.rules.policy.tenure().as_nanos() / (4 * BACK_OFF.as_nanos());
        // The one waiter woken by a release must not sleep for several back-off steps.
        let at_most = if self.rules.wakes_one { 1 } else { MAX_STEPS };
        most.min(u128::from(at_most)).min(receivers as u128) as u32
    }

    // === Losing ===

    #[inline]
    pub(in crate::lock_entry) fn end_if_over(&mut self, now: Moment, effects: &mut Effects) {
        let lasts = match &self.phase {
            Phase::Held(hold, lease) => hold.lasts(lease, now),
            _ => true,
        };
        if !lasts || !self.parallel.is_empty() {
            self.end_what_is_over(now, effects);
        }
    }

    #[cold]
    fn end_what_is_over(&mut self, now: Moment, effects: &mut Effects) {
        let (mut lost, mut renewals_unsent) = (Vec::new(), 0);
        for (hold, lease) in self.held_mut().filter(|(hold, lease)| !hold.lasts(lease, now)) {
            let over = hold
                .owner_holds
                .iter()
                .filter_map(|(serial, sharer)| Some((serial, sharer.loss(lease, now)?)));
            let is_watched = hold.watched > 0 && lease.is_over(now);
            let over: Vec<_> = over.collect();
            let has_expired = over.iter().any(|(_, reason)| *reason == LossReason::Expired);
            renewals_unsent += u32::from(is_watched && has_expired);
            for (serial, reason) in over {
                lost.push((serial, hold.remove(serial), reason));
            }
            hold.limit =
                hold.owner_holds.iter().map(|(_, sharer)| sharer.due()).min().unwrap_or(Moment::NEVER);
        }
        for (serial, guards, reason) in lost {
            self.note_loss(serial, Some((guards, reason)), effects);
        }
        if renewals_unsent > 0 {
            effects.more().renewals_unsent += renewals_unsent;
        }
        self.end_in_background_if_empty(now, effects);
    }

    /// Ends empty holds in the background. A lease that the store no longer keeps needs no release.
    pub(super) fn end_in_background_if_empty(&mut self, now: Moment, effects: &mut Effects) {
        for (_, lease) in self.parallel.extract_if(.., |(hold, _)| hold.owner_holds.is_empty()) {
            match lease.may_outlast(now) {
                true => effects.release(lease.record.to_release(false), None),
                // Without a release there is no message: the client wakes the sleepers of this name itself.
                false => effects.more().wakes_sleepers = true,
            }
        }
        match &self.phase {
            Phase::Held(hold, _) if !hold.owner_holds.is_empty() => {}
            Phase::Held(_, lease) if lease.may_outlast(now) => {
                if let Some(release) = self.pass_on(now, effects) {
                    effects.release(PendingRelease { appoints: false, ..release }, None);
                    self.transition(Phase::Free);
                }
            }
            Phase::Held(..) => {
                effects.more().wakes_sleepers = true;
                self.appoint(None, 0, now, effects);
            }
            _ => {}
        }
    }

    /// Notes the loss, if there is a guard to hear of it: the count of guards, and the reason.
    pub(super) fn note_loss(&mut self, serial: u64, loss: Option<(u32, LossReason)>, effects: &mut Effects) {
        let Some((guards @ 1.., reason)) = loss else { return };
        self.losses.insert(serial, Loss { reason, guards });
        let more = effects.more();
        more.lost = Some(reason);
        more.holds_lost += 1;
    }

    /// Returns the reason of a loss to one of its guards, and forgets the reason with the last.
    fn hear_of_loss(&mut self, serial: u64) -> LossReason {
        let Some(loss) = self.losses.get_mut(&serial) else { return LossReason::GivenBack };
        let reason = loss.reason;
        loss.guards -= 1;
        if loss.guards == 0 {
            self.losses.remove(&serial);
        }
        reason
    }

    pub(in crate::lock_entry) fn close(&mut self, effects: &mut Effects) {
        self.closed = true;
        while let Some(slot) = self.queue.pop() {
            let waker = self.queue.place_at(slot, Place::Over(Turn::Closed));
            effects.wake(waker);
        }
        if let Phase::Competing(head) = &mut self.phase {
            let (slot, roll_back) = (head.slot, head.to_rollback());
            effects.wake(head.waker.take());
            let is_named = slot.is_some_and(|slot| matches!(self.queue.place(slot), Place::NamedWithRelease));
            if let Some(slot) = slot {
                effects.wake(self.queue.place_at(slot, Place::Over(Turn::Closed)));
            }
            // Rolled back here: the client may end before the head's next poll. (A named waiter's number is
            // rolled back by `answered`, after the answer to the release that names the waiter.)
            if let Some(roll_back) = roll_back.filter(|_| !is_named) {
                effects.release(roll_back, None);
            }
            self.transition(Phase::Free);
        }
        effects.more().wakes_sleepers = true;
    }
}
