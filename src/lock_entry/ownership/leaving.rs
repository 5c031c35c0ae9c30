//! How a hold ends, by its guards or without them, and who comes next.

use crate::fault::fault;
use crate::moment::Moment;

use super::super::actions::{Actions, GiveBack};
use super::super::outcome::Left;
use super::super::queue::{Place, Slot};
use super::super::request::{Grant, LossReason, Request};
use super::{BACK_OFF, Hold, Lease, Loss, MAX_GROWTH, MAX_STEPS, Ownership, Phase};

impl Ownership {
    // === Leaving ===

    /// A guard gives its hold back.
    pub(in crate::lock_entry) fn leave(&mut self, grant: &Grant, now: Moment, actions: &mut Actions) -> Left {
        self.end_if_over(now, actions);
        match &mut self.phase {
            Phase::Held(hold, _) if hold.serial == grant.serial || fault!(NoSerialCheck) => {
                hold.guards -= 1;
                hold.watched -= u32::from(grant.watched);
                hold.count -= 1;
                if hold.count > 0 {
                    return Left::Remains;
                }
                self.pass_on(now, actions)
            }
            _ => Left::Lost(self.hear_of_loss(grant.serial)),
        }
    }

    /// The owner gives one of its holds back by name: a forgotten one, or else one that a guard has, which is told.
    pub(in crate::lock_entry) fn leave_by_name(
        &mut self,
        owner: u64,
        now: Moment,
        actions: &mut Actions,
    ) -> Left {
        self.end_if_over(now, actions);
        let Phase::Held(hold, _) = &mut self.phase else { return Left::NotHeld };
        if hold.owner != owner {
            return Left::NotHeld;
        }
        hold.count -= 1;
        if hold.count > 0 {
            return Left::Remains;
        }
        let (serial, guards) = (hold.serial, hold.guards);
        self.record_loss(serial, guards, LossReason::GivenBack, actions);
        self.pass_on(now, actions)
    }

    /// A guard is gone, and its hold stays.
    pub(in crate::lock_entry) fn forget(&mut self, grant: &Grant) {
        match &mut self.phase {
            Phase::Held(hold, _) if hold.serial == grant.serial => {
                hold.guards -= 1;
                hold.watched -= u32::from(grant.watched);
            }
            _ => _ = self.hear_of_loss(grant.serial),
        }
    }

    /// The hold is over. Who comes next, and how.
    pub(super) fn pass_on(&mut self, now: Moment, actions: &mut Actions) -> Left {
        let Phase::Held(_, lease) = &self.phase else { unreachable!("only a hold can be passed on") };
        let give_back = |appoints| GiveBack { number: lease.number, until: lease.deadline, appoints };
        let Some(next) = self.queue.first() else {
            let left = Left::Return(give_back(false));
            self.phase = Phase::Returning(false);
            return left;
        };
        if self.rules.position.is_some() {
            actions.more().give_back = Some(give_back(false));
            self.name_next(now, actions);
            return Left::Passed;
        }
        let used_up = lease.tenure_ends <= now;
        // It could lengthen a lease that is to end when its request says so.
        let unsafe_renewal = lease.renewing && next.lease.is_some();
        if used_up || unsafe_renewal {
            actions.more().give_back = Some(give_back(true));
            self.phase = Phase::Returning(used_up);
            return Left::Passed;
        }
        // Neither so short that it may end at once, nor longer than the process is to keep others out if it dies.
        let fits = lease.deadline > now + self.third && lease.deadline <= now + self.rules.renewed_lease;
        let has_token = !next.fenced || lease.has_token() || fault!(TokenBlockKept);
        if next.lease.is_none() && fits && has_token {
            self.grant_next(now, actions);
        } else if let Phase::Held(_, lease) = std::mem::replace(&mut self.phase, Phase::Free) {
            self.appoint(Some(lease), 0, now, actions);
        }
        Left::Passed
    }

    /// As [`pass_on`](Self::pass_on), with nobody there to send a release.
    pub(super) fn pass_on_in_background(&mut self, now: Moment, actions: &mut Actions) {
        if let Left::Return(give_back) = self.pass_on(now, actions) {
            actions.more().give_back = Some(give_back);
            self.phase = Phase::Free;
        }
    }

    /// The oldest waiter has the lock, by the lease in hand.
    fn grant_next(&mut self, now: Moment, actions: &mut Actions) {
        let slot = self.queue.pop().expect("the caller has looked");
        self.hand_offs += 1;
        actions.handed_off += 1;
        self.grant_to(slot, now, actions);
    }

    /// A waiter that is not linked has the lock, by the lease in hand.
    pub(super) fn grant_to(&mut self, slot: Slot, now: Moment, actions: &mut Actions) {
        let request = self.queue.request(slot);
        let grant = self.begin_hold(&request, now);
        if let Phase::Held(hold, _) = &mut self.phase {
            (hold.unclaimed, hold.guards, hold.watched) = (1, 0, 0);
        }
        actions.wake(self.queue.place_at(slot, Place::Granted(grant, None, now)));
        self.admit_same_owner(now, actions);
        self.look_by(now + self.rules.unpolled_limit, now, actions);
    }

    /// A new hold by the lease in hand, with one guard.
    pub(super) fn begin_hold(&mut self, request: &Request, now: Moment) -> Grant {
        let Phase::Held(hold, lease) = &mut self.phase else { unreachable!("a hold is by a lease in hand") };
        self.last_serial += 1;
        let token = request.fenced.then(|| {
            let token =
                if fault!(TokenBlockKept) { lease.tokens.0.min(self.last_token + 1) } else { lease.tokens.0 };
            lease.tokens.0 += 1;
            self.last_token = token;
            token
        });
        let watched = request.lease.is_none();
        let limit = self.rules.max_hold.filter(|_| watched).map_or(Moment::NEVER, |limit| now + limit);
        let ends = if watched { Moment::NEVER } else { lease.deadline };
        *hold = Hold {
            serial: self.last_serial,
            owner: request.owner,
            count: 1,
            guards: 1,
            unclaimed: 0,
            watched: u32::from(watched),
            renewed: watched,
            token,
            limit,
            granted: now,
        };
        Grant { serial: hold.serial, watched, token, ends }
    }

    /// All other waiters of the owner that has it now get in as well: it may wait for all of them.
    pub(super) fn admit_same_owner(&mut self, now: Moment, actions: &mut Actions) {
        let Phase::Held(Hold { owner, .. }, _) = self.phase else { return };
        while !fault!(NoSameOwnerGrant)
            && let Some(slot) = self.queue.pop_of(owner)
        {
            let request = self.queue.request(slot);
            let (grant, extension) = self.join_hold(&request, now);
            if let Phase::Held(hold, _) = &mut self.phase {
                hold.unclaimed += 1;
            }
            actions.wake(self.queue.place_at(slot, Place::Granted(grant, extension, now)));
        }
    }

    /// The oldest waiter is the queue head, with the lease in hand if there is one. Without a waiter all is free.
    pub(super) fn appoint(
        &mut self,
        inherited: Option<Lease>,
        steps: u32,
        now: Moment,
        actions: &mut Actions,
    ) {
        let Some(slot) = self.queue.pop() else {
            self.phase = Phase::Free;
            return;
        };
        let serial = self.compete(inherited, Some(slot), steps, now);
        actions.wake(self.queue.place_at(slot, Place::Appointed(serial)));
        self.look_by(now + self.rules.unpolled_limit, now, actions);
    }

    /// A release was answered, or is at least under way: so many others have heard of it.
    pub(in crate::lock_entry) fn returned(&mut self, heard: usize, now: Moment, actions: &mut Actions) {
        if let Phase::Returning(true) = self.phase {
            // A store that does not know who heard of it says that nobody did: then what was found at it counts.
            let alone = heard == 0 && !self.contended;
            let most = self.rules.tenure.saturating_mul(if alone { MAX_GROWTH } else { 1 });
            self.tenure = self.tenure.saturating_mul(2).min(most);
        }
        if matches!(self.phase, Phase::Returning(_)) || fault!(NoPhaseCheck) {
            let steps = self.steps_for(heard);
            self.appoint(None, steps, now, actions);
        }
    }

    /// The release of a lease that nobody waited for here was answered.
    pub(in crate::lock_entry) fn heard_by(&mut self, heard: usize, now: Moment) {
        let steps = self.steps_for(heard);
        if heard > 0 {
            self.tenure = self.rules.tenure;
        }
        // Otherwise a lone process would wait for as long as another one's subscription lingers.
        if self.contended && steps > 0 {
            self.others_first_until = Some(now + BACK_OFF * steps);
        }
    }

    /// Longer than the tenure is not worth waiting, so that a short one does not cost the rate.
    pub(super) fn steps_for(&self, heard: usize) -> u32 {
        if heard == 0 {
            return 0;
        }
        let most =
            (self.rules.tenure.as_nanos() / (4 * BACK_OFF.as_nanos())).min(u128::from(MAX_STEPS)) as u32;
        u32::try_from(heard).unwrap_or(u32::MAX).min(most)
    }

    // === Losing ===

    pub(super) fn end_if_over(&mut self, now: Moment, actions: &mut Actions) {
        if let Phase::Held(hold, lease) = &self.phase
            && let Some(reason) = hold.loss(lease, now)
        {
            self.revoke(reason, now, actions);
        }
    }

    /// The hold is over, and the lease as well unless it only was held for too long.
    pub(super) fn revoke(&mut self, reason: LossReason, now: Moment, actions: &mut Actions) {
        let Phase::Held(hold, _) = &self.phase else { return };
        let (serial, guards) = (hold.serial, hold.guards);
        self.record_loss(serial, guards, reason, actions);
        match reason {
            LossReason::HeldTooLong => self.pass_on_in_background(now, actions),
            _ => self.appoint(None, 0, now, actions),
        }
    }

    /// The lease with this number is gone, if it is the one in hand.
    pub(in crate::lock_entry) fn lose(
        &mut self,
        number: u64,
        reason: LossReason,
        now: Moment,
        actions: &mut Actions,
    ) -> bool {
        let is_ours = matches!(&self.phase, Phase::Held(_, lease) if lease.number == number);
        if is_ours {
            self.revoke(reason, now, actions);
        }
        is_ours
    }

    pub(super) fn record_loss(
        &mut self,
        serial: u64,
        guards: u32,
        reason: LossReason,
        actions: &mut Actions,
    ) {
        if guards > 0 {
            self.losses.push(Loss { serial, reason, guards });
            actions.more().lost = Some(reason);
        }
    }

    /// A guard of a hold that is over goes.
    pub(super) fn hear_of_loss(&mut self, serial: u64) -> LossReason {
        let Some(at) = self.losses.iter().position(|loss| loss.serial == serial) else {
            return LossReason::GivenBack;
        };
        let loss = &mut self.losses[at];
        let reason = loss.reason;
        loss.guards -= 1;
        if loss.guards == 0 {
            self.losses.swap_remove(at);
        }
        reason
    }

    /// Nobody gets the lock here any more. What is held is not touched.
    pub(in crate::lock_entry) fn close(&mut self, actions: &mut Actions) {
        self.closed = true;
        while let Some(slot) = self.queue.pop() {
            actions.wake(self.queue.place_at(slot, Place::Closed));
        }
        if let Phase::Competing(head) = &mut self.phase {
            let (slot, roll_back) = (head.slot(), head.to_roll_back());
            actions.wake(head.take_waker());
            let is_named = slot.is_some_and(|slot| matches!(self.queue.place(slot), Place::Named));
            if let Some(slot) = slot {
                actions.wake(self.queue.place_at(slot, Place::Closed));
            }
            // Here, as nobody may poll it before the client ends. Who is named is rolled back by the answer.
            if let Some(roll_back) = roll_back.filter(|_| !is_named) {
                actions.more().roll_back = Some(roll_back);
            }
            self.phase = Phase::Free;
        }
        actions.more().call = true;
    }
}
