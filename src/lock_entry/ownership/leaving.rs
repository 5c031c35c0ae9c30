//! How a hold ends, by its guards or without them, and which waiter comes next.

use std::time::Duration;

use crate::moment::Moment;

use super::super::effects::Effects;
use super::super::outcome::{BACK_OFF, LeaveOutcome, PendingRelease};
use super::super::queue::{Place, Slot};
use super::super::request::{Grant, LossReason, Request};
use super::{Hold, Loss, MAX_GROWTH, MAX_STEPS, Ownership, Phase, Sharer, StoreLease};

impl Ownership {
    // === Leaving ===

    /// A guard gives its hold back.
    pub(in crate::lock_entry) fn leave(
        &mut self,
        grant: &Grant,
        now: Moment,
        effects: &mut Effects,
    ) -> LeaveOutcome {
        self.end_if_over(now, effects);
        let serial = grant.serial;
        let Some((hold, _)) = self.held_by_serial(serial) else {
            return LeaveOutcome::Lost(self.hear_of_loss(serial));
        };
        hold.drop_guard(grant);
        let left = hold.drop_count(serial, now);
        let is_empty = hold.owner_holds.is_empty();
        self.record_losses(serial, left, effects);
        if is_empty {
            return self.end_empty(now, effects);
        }
        // What is left may be over earlier.
        self.plan_next_look(now, effects);
        LeaveOutcome::Remains
    }

    /// The owner gives one of its holds back by name: a forgotten one, or else one that a guard has, which is
    /// told.
    pub(in crate::lock_entry) fn leave_by_name(
        &mut self,
        owner: u64,
        now: Moment,
        effects: &mut Effects,
    ) -> LeaveOutcome {
        self.end_if_over(now, effects);
        let its = || {
            self.held()
                .flat_map(|(hold, _)| hold.owner_holds.iter())
                .filter(|(_, sharer)| sharer.owner == owner)
        };
        let found = its().find(|(_, sharer)| sharer.is_forgotten()).or_else(|| its().next());
        let Some(serial) = found.map(|(serial, _)| serial) else { return LeaveOutcome::NotHeld };
        let Some((hold, _)) = self.held_by_serial(serial) else { return LeaveOutcome::NotHeld };
        if let Some(sharer) = hold.owner_holds.get_mut(serial) {
            sharer.remove_forgotten();
        }
        let left = hold.drop_count(serial, now);
        let is_empty = hold.owner_holds.is_empty();
        self.record_losses(serial, left, effects);
        if is_empty {
            return self.end_empty(now, effects);
        }
        self.plan_next_look(now, effects);
        LeaveOutcome::Remains
    }

    /// A guard is gone, and its hold stays.
    pub(in crate::lock_entry) fn forget(&mut self, grant: &Grant, now: Moment, effects: &mut Effects) {
        // What is over does not last for longer because it was not looked at.
        self.end_if_over(now, effects);
        match self.held_by_serial(grant.serial) {
            Some((hold, lease)) => {
                hold.forget_guard(grant, lease.sure_until);
                // No guard sees its end any more.
                self.plan_next_look(now, effects);
            }
            None => _ = self.hear_of_loss(grant.serial),
        }
    }

    /// The lease of a guard's own is over at `ends`, if it was to be over earlier.
    ///
    /// Nothing is due earlier by that: the look at the earlier end, which was said, says when to look again.
    pub(in crate::lock_entry) fn prolong(&mut self, grant: &mut Grant, ends: Moment, now: Moment) {
        // What is over does not begin again: its end may have been told.
        if grant.ends() > now
            && let Some((hold, _)) = self.held_by_serial(grant.serial)
        {
            let longer = grant.own_end.map(|own_end| own_end.max(ends));
            hold.prolong(grant, longer);
            grant.own_end = longer;
        }
    }

    /// Ends the hold, current or parallel, whose last owner left.
    #[inline]
    fn end_empty(&mut self, now: Moment, effects: &mut Effects) -> LeaveOutcome {
        match &self.phase {
            Phase::Held(hold, _) if hold.owner_holds.is_empty() => self.pass_on(now, effects),
            _ => {
                let at = self.parallel.iter().position(|(hold, _)| hold.owner_holds.is_empty());
                let at = at.expect("some hold has lost its last one");
                LeaveOutcome::Return(self.parallel.swap_remove(at).1.record.to_release(false))
            }
        }
    }

    /// The hold is over. Which waiter comes next, and how.
    pub(super) fn pass_on(&mut self, now: Moment, effects: &mut Effects) -> LeaveOutcome {
        let Phase::Held(_, lease) = &self.phase else { unreachable!("only a hold can be passed on") };
        let Some(next) = self.queue.first() else {
            let left = LeaveOutcome::Return(lease.record.to_release(true));
            self.transition(Phase::Returning(false));
            return left;
        };
        if self.rules.policy.position().is_some() {
            effects.release_too(lease.record.to_release(false));
            self.name_next(now, effects);
            return LeaveOutcome::Passed;
        }
        let used_up = lease.tenure_ends <= now;
        // No lease is made shorter, so one that the store may keep for longer than the next request wants is
        // none for it: this process is not to keep others out for longer, if it dies.
        let too_long = lease.may_exceed(next.lease.unwrap_or(self.rules.renewed_lease), now);
        if used_up || lease.is_over(now) || too_long {
            effects.release_too(lease.record.to_release(true));
            self.transition(Phase::Returning(used_up));
            return LeaveOutcome::Passed;
        }
        // Not so short that it may end at once.
        let fits = lease.sure_until > now + self.third;
        let has_token = !next.fenced || lease.has_token();
        if next.is_watched() && fits && has_token {
            self.grant_next(now, effects);
        } else if let Phase::Held(_, lease) = self.take_phase() {
            self.appoint(Some(lease), 0, now, effects);
        }
        LeaveOutcome::Passed
    }

    /// As [`pass_on`](Self::pass_on), without a caller to send a release.
    fn pass_on_in_background(&mut self, now: Moment, effects: &mut Effects) {
        if let LeaveOutcome::Return(pending_release) = self.pass_on(now, effects) {
            effects.release_too(PendingRelease { appoints: false, ..pending_release });
            self.transition(Phase::Free);
        }
    }

    /// The oldest waiter has the lock, by the lease in hand.
    fn grant_next(&mut self, now: Moment, effects: &mut Effects) {
        let slot = self.queue.pop().expect("the caller has looked");
        self.hand_offs += 1;
        effects.handed_off += 1;
        self.grant_to(slot, now, effects);
    }

    /// A waiter that is not linked has the lock, by the lease in hand.
    pub(super) fn grant_to(&mut self, slot: Slot, now: Moment, effects: &mut Effects) {
        let request = self.queue.request(slot);
        let grant = self.begin_hold(&request, false, now);
        effects.wake(self.queue.place_at(slot, Place::Granted(grant, None, now)));
        self.admit(Duration::ZERO, now, effects);
        self.plan_next_look(now, effects);
    }

    /// A new hold by the lease in hand: a guard's, or one that is to be claimed.
    // Always inlined, as `hold_by`.
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

    /// The others that get in with the new holder: all other waiters of its owner, as it may wait for all of
    /// them. Of a shared lock, also all that its lease, of `extent`, suffices for; the first of the others
    /// asks for one of its own. A waiter that came after the lease was asked for has what is left of it.
    pub(super) fn admit(&mut self, extent: Duration, now: Moment, effects: &mut Effects) {
        if self.queue.is_empty() {
            return;
        }
        if self.rules.policy.is_shared() {
            // Once more after one that has let some in: an older waiter may be of their owner.
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

    /// One walk over the waiters for a shared lock. Whether it has let in some.
    fn admit_sharers(&mut self, extent: Duration, now: Moment, effects: &mut Effects) -> bool {
        let (mut walk, mut some) = (self.queue.walk(), false);
        while let Some(offer) = self.offer(now)
            && let Phase::Held(hold, lease) = &self.phase
            && let (sent, left) = (lease.confirmed, lease.left(now).min(extent))
            && let Some(slot) = self.queue.pop_that(&mut walk, |request, since| {
                let extent = if since <= sent { extent } else { left };
                offer.suffices(request, extent) || hold.owner_holds.of_owner(request.owner).is_some()
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

    /// The oldest waiter is the queue head, with the lease in hand if there is one. Without a waiter all is
    /// free.
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

    /// A release was answered, or is at least under way: so many others have heard of it.
    pub(in crate::lock_entry) fn returned(&mut self, receivers: usize, now: Moment, effects: &mut Effects) {
        if let Phase::Returning(true) = self.phase {
            // A store that does not know its receivers says that there are none: then what was found at it
            // counts.
            let alone = receivers == 0 && !self.contended;
            let most = self.rules.policy.tenure().saturating_mul(if alone { MAX_GROWTH } else { 1 });
            self.tenure = self.tenure.saturating_mul(2).min(most);
        }
        if matches!(self.phase, Phase::Returning(_)) {
            let steps = self.steps_for(receivers);
            self.appoint(None, steps, now, effects);
        }
    }

    /// The release of a lease without waiters here was answered: some have heard of it.
    pub(in crate::lock_entry) fn note_receivers(&mut self, receivers: usize, now: Moment) {
        let steps = self.steps_for(receivers);
        self.tenure = self.rules.policy.tenure();
        // Otherwise a lone process would wait for as long as another one's subscription lingers.
        if self.contended && steps > 0 {
            self.others_first_until = Some(now + BACK_OFF * steps);
        }
    }

    /// The back-off is capped at a quarter of the tenure, so that a short one does not lower the rate.
    fn steps_for(&self, receivers: usize) -> u32 {
        let most = self.rules.policy.tenure().as_nanos() / (4 * BACK_OFF.as_nanos());
        most.min(u128::from(MAX_STEPS)).min(receivers as u128) as u32
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
            self.record_loss(serial, guards, reason, effects);
        }
        if renewals_unsent > 0 {
            effects.more().renewals_unsent += renewals_unsent;
        }
        self.end_in_background_if_empty(now, effects);
    }

    /// A hold may be empty now. No caller sends its release; none is needed if the store does not keep the
    /// lease.
    pub(super) fn end_in_background_if_empty(&mut self, now: Moment, effects: &mut Effects) {
        for (_, lease) in self.parallel.extract_if(.., |(hold, _)| hold.owner_holds.is_empty()) {
            match lease.may_outlast(now) {
                true => effects.more().parallel.push(lease.record.to_release(false)),
                // No release tells another client's queue head of this process, which may sleep by an earlier
                // holder's lease.
                false => effects.more().call = true,
            }
        }
        match &self.phase {
            Phase::Held(hold, _) if !hold.owner_holds.is_empty() => {}
            Phase::Held(_, lease) if lease.may_outlast(now) => self.pass_on_in_background(now, effects),
            Phase::Held(..) => {
                effects.more().call = true;
                self.appoint(None, 0, now, effects);
            }
            _ => {}
        }
    }

    /// The lease with this number is gone, if it is in hand or beside.
    pub(in crate::lock_entry) fn lose(
        &mut self,
        number: u64,
        reason: LossReason,
        now: Moment,
        effects: &mut Effects,
    ) -> bool {
        let Some((hold, lease)) = self.held_by_number(number) else { return false };
        lease.gone(now);
        let owner_holds = std::mem::replace(hold, Hold::without_owners()).owner_holds;
        owner_holds.into_each(|serial, sharer| self.record_loss(serial, sharer.guards, reason, effects));
        self.end_in_background_if_empty(now, effects);
        true
    }

    /// Guards that have nothing any more are to learn why.
    pub(super) fn record_losses(
        &mut self,
        serial: u64,
        left: Option<(u32, LossReason)>,
        effects: &mut Effects,
    ) {
        if let Some((guards, reason)) = left {
            self.record_loss(serial, guards, reason, effects);
        }
    }

    fn record_loss(&mut self, serial: u64, guards: u32, reason: LossReason, effects: &mut Effects) {
        if guards > 0 {
            self.losses.insert(serial, Loss { reason, guards });
            let more = effects.more();
            more.lost = Some(reason);
            more.holds_lost += 1;
        }
    }

    /// A guard of a hold that is over goes.
    fn hear_of_loss(&mut self, serial: u64) -> LossReason {
        let Some(loss) = self.losses.get_mut(&serial) else { return LossReason::GivenBack };
        let reason = loss.reason;
        loss.guards -= 1;
        if loss.guards == 0 {
            self.losses.remove(&serial);
        }
        reason
    }

    /// The lock is not granted here any more. What is held is not touched.
    pub(in crate::lock_entry) fn close(&mut self, effects: &mut Effects) {
        self.closed = true;
        while let Some(slot) = self.queue.pop() {
            let waker = self.queue.place_at(slot, Place::Closed);
            effects.wake(waker);
        }
        if let Phase::Competing(head) = &mut self.phase {
            let (slot, roll_back) = (head.slot, head.to_rollback());
            effects.wake(head.waker.take());
            let is_named = slot.is_some_and(|slot| matches!(self.queue.place(slot), Place::Named));
            if let Some(slot) = slot {
                effects.wake(self.queue.place_at(slot, Place::Closed));
            }
            // Here, as it may not be polled before the client ends. A waiter that is named is rolled back by
            // the answer.
            if let Some(roll_back) = roll_back.filter(|_| !is_named) {
                effects.roll_back_too(roll_back);
            }
            self.transition(Phase::Free);
        }
        effects.more().call = true;
    }
}
