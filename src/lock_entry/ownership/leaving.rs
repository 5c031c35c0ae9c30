//! How a hold ends, by its guards or without them, and which waiter comes next.

use std::time::Duration;

use crate::fault::fault;
use crate::moment::Moment;

use super::super::actions::Actions;
use super::super::outcome::{BACK_OFF, Left};
use super::super::queue::{Place, Slot};
use super::super::request::{Grant, LossReason, Request};
use super::{Hold, Lease, Loss, MAX_GROWTH, MAX_STEPS, Ownership, Phase, Sharer};

impl Ownership {
    // === Leaving ===

    /// A guard gives its hold back.
    pub(in crate::lock_entry) fn leave(&mut self, grant: &Grant, now: Moment, actions: &mut Actions) -> Left {
        self.end_if_over(now, actions);
        let any = || self.held().find_map(|(hold, _)| hold.sharers.iter().next().map(|(serial, _)| serial));
        let serial = if fault!(NoSerialCheck) { any().unwrap_or(grant.serial) } else { grant.serial };
        let Some((hold, _)) = self.held_by_serial(serial) else {
            return Left::Lost(self.hear_of_loss(grant.serial));
        };
        hold.drop_guard(&Grant { serial, ..*grant });
        let left = hold.drop_count(serial, now);
        let is_empty = hold.sharers.is_empty();
        self.record_losses(serial, left, actions);
        match is_empty || fault!(OneLeavesForAll) {
            false => {
                // What is left may be over earlier.
                self.look_behind(now, actions);
                Left::Remains
            }
            true => self.end_empty(now, actions),
        }
    }

    /// The owner gives one of its holds back by name: a forgotten one, or else one that a guard has, which is
    /// told.
    pub(in crate::lock_entry) fn leave_by_name(
        &mut self,
        owner: u64,
        now: Moment,
        actions: &mut Actions,
    ) -> Left {
        self.end_if_over(now, actions);
        let its = || {
            self.held()
                .flat_map(|(hold, _)| hold.sharers.iter())
                .filter(|(_, sharer)| sharer.owner == owner || fault!(GivenBackForAnother))
        };
        let found = its().find(|(_, sharer)| sharer.is_forgotten()).or_else(|| its().next());
        let Some(serial) = found.map(|(serial, _)| serial) else { return Left::NotHeld };
        let Some((hold, _)) = self.held_by_serial(serial) else { return Left::NotHeld };
        if let Some(sharer) = hold.sharers.get_mut(serial) {
            sharer.remove_forgotten();
        }
        let left = hold.drop_count(serial, now);
        let is_empty = hold.sharers.is_empty();
        self.record_losses(serial, left, actions);
        if is_empty {
            return self.end_empty(now, actions);
        }
        self.look_behind(now, actions);
        Left::Remains
    }

    /// A guard is gone, and its hold stays.
    pub(in crate::lock_entry) fn forget(&mut self, grant: &Grant, now: Moment, actions: &mut Actions) {
        // What is over does not last for longer because it was not looked at.
        self.end_if_over(now, actions);
        match self.held_by_serial(grant.serial) {
            Some((hold, lease)) => hold.forget_guard(grant, lease.sure_until),
            None => _ = self.hear_of_loss(grant.serial),
        }
    }

    /// The lease of a guard's own is over at `ends`, if it was to be over earlier.
    pub(in crate::lock_entry) fn prolong(
        &mut self,
        grant: &Grant,
        ends: Moment,
        now: Moment,
        actions: &mut Actions,
    ) -> Grant {
        // What is over does not begin again: its end may have been told.
        self.end_if_over(now, actions);
        if grant.ends() <= now {
            return *grant;
        }
        let longer = grant.lasting_until(ends);
        if let Some((hold, _)) = self.held_by_serial(grant.serial) {
            hold.prolong(grant, longer.ends);
            self.look_behind(now, actions);
        }
        longer
    }

    /// Ends the hold, current or parallel, whose last owner left.
    #[inline]
    fn end_empty(&mut self, now: Moment, actions: &mut Actions) -> Left {
        match &self.phase {
            Phase::Held(hold, _) if hold.sharers.is_empty() || fault!(OneLeavesForAll) => {
                self.pass_on(now, actions)
            }
            _ => {
                let at = self.beside.iter().position(|(hold, _)| hold.sharers.is_empty());
                let at = at.expect("some hold has lost its last one");
                Left::Return(self.beside.swap_remove(at).1.give_back(false))
            }
        }
    }

    /// The hold is over. Which waiter comes next, and how.
    pub(super) fn pass_on(&mut self, now: Moment, actions: &mut Actions) -> Left {
        let Phase::Held(_, lease) = &self.phase else { unreachable!("only a hold can be passed on") };
        let Some(next) = self.queue.first() else {
            let left = Left::Return(lease.give_back(false));
            self.transition(Phase::Returning(false));
            return left;
        };
        if self.rules.policy.position().is_some() {
            actions.more().give_back = Some(lease.give_back(false));
            self.name_next(now, actions);
            return Left::Passed;
        }
        let used_up = lease.tenure_ends <= now && !fault!(TenureNeverUsedUp);
        // No lease is made shorter, so one that the store may keep for longer than the next request wants is
        // none for it: this process is not to keep others out for longer, if it dies.
        let too_long = lease.may_exceed(next.lease.unwrap_or(self.rules.renewed_lease), now);
        if used_up || lease.is_over(now) || too_long && !fault!(LongerLeasePassedOn) {
            actions.more().give_back = Some(lease.give_back(true));
            self.transition(Phase::Returning(used_up));
            return Left::Passed;
        }
        // Not so short that it may end at once.
        let fits = lease.sure_until > now + self.third;
        let has_token = !next.fenced || lease.has_token() || fault!(TokenBlockKept);
        if next.is_watched() && fits && has_token {
            self.grant_next(now, actions);
        } else if let Phase::Held(_, lease) = self.take_phase() {
            self.appoint(Some(lease), 0, now, actions);
        }
        Left::Passed
    }

    /// As [`pass_on`](Self::pass_on), without a caller to send a release.
    pub(super) fn pass_on_in_background(&mut self, now: Moment, actions: &mut Actions) {
        if let Left::Return(give_back) = self.pass_on(now, actions) {
            actions.more().give_back = Some(give_back);
            self.transition(Phase::Free);
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
        let grant = self.begin_hold(&request, false, now);
        actions.wake(self.queue.place_at(slot, Place::Granted(grant, None, now)));
        self.admit(Duration::ZERO, now, actions);
        self.look_behind(now, actions);
    }

    /// A new hold by the lease in hand: a guard's, or one that is to be claimed.
    // Always inlined, as `hold_by`.
    #[inline(always)]
    pub(super) fn begin_hold(&mut self, request: &Request, claimed: bool, now: Moment) -> Grant {
        let Phase::Held(hold, lease) = &mut self.phase else { unreachable!("a hold is by a lease in hand") };
        self.last_serial += 1;
        let token = request.fenced.then(|| {
            let token =
                if fault!(TokenBlockKept) { lease.tokens.0.min(self.last_token + 1) } else { lease.tokens.0 };
            lease.tokens.0 += 1;
            self.last_token = token;
            token
        });
        let watched = request.is_watched();
        let ends = if watched { Moment::NEVER } else { lease.sure_until };
        let sharer = Sharer::new(request, claimed, ends, self.rules.max_hold, now);
        *hold = Hold::begun(self.last_serial, sharer, token, now);
        Grant { serial: self.last_serial, watched, token, ends }
    }

    /// The others that get in with the new holder: all other waiters of its owner, as it may wait for all of
    /// them. Of a shared lock, also all that its lease, of `extent`, suffices for; the first of the others
    /// asks for one of its own.
    pub(super) fn admit(&mut self, extent: Duration, now: Moment, actions: &mut Actions) {
        if self.queue.is_empty() {
            return;
        }
        if self.rules.policy.is_shared() {
            while let Some(offer) = self.offer(extent, now)
                && let Phase::Held(hold, _) = &self.phase
                && let Some(slot) = self.queue.pop_that(|request| {
                    offer.suffices(request) || hold.sharers.of_owner(request.owner).is_some()
                })
            {
                self.admit_at(slot, now, actions);
            }
            if !self.queue.is_empty() {
                self.set_aside();
                self.appoint(None, 0, now, actions);
            }
            return;
        }
        let Phase::Held(hold, _) = &self.phase else { return };
        let Some(owner) = hold.sharers.iter().next().map(|(_, sharer)| sharer.owner) else { return };
        while !fault!(NoSameOwnerGrant)
            && let Some(slot) = self.queue.pop_of(owner)
        {
            self.admit_at(slot, now, actions);
        }
    }

    fn admit_at(&mut self, slot: Slot, now: Moment, actions: &mut Actions) {
        let request = self.queue.request(slot);
        let (grant, extension) = self.take_part(&request, false, now);
        actions.wake(self.queue.place_at(slot, Place::Granted(grant, extension, now)));
    }

    /// The oldest waiter is the queue head, with the lease in hand if there is one. Without a waiter all is
    /// free.
    pub(super) fn appoint(
        &mut self,
        inherited: Option<Lease>,
        steps: u32,
        now: Moment,
        actions: &mut Actions,
    ) {
        let Some(slot) = self.queue.pop() else {
            self.transition(Phase::Free);
            return;
        };
        let request = self.queue.request(slot);
        let serial = self.compete(request, inherited, Some(slot), steps, now);
        actions.wake(self.queue.place_at(slot, Place::Appointed(serial)));
        self.look_by(now + self.rules.unpolled_limit, now, actions);
    }

    /// A release was answered, or is at least under way: so many others have heard of it.
    pub(in crate::lock_entry) fn returned(&mut self, heard: usize, now: Moment, actions: &mut Actions) {
        if let Phase::Returning(true) = self.phase {
            // A store that does not know its receivers says that there are none: then what was found at it
            // counts.
            let alone = heard == 0 && !self.contended;
            let most = self.rules.policy.tenure().saturating_mul(if alone { MAX_GROWTH } else { 1 });
            self.tenure = self.tenure.saturating_mul(2).min(most);
        }
        if matches!(self.phase, Phase::Returning(_)) || fault!(NoPhaseCheck) {
            let steps = self.steps_for(heard);
            self.appoint(None, steps, now, actions);
        }
    }

    /// The release of a lease without waiters here was answered.
    pub(in crate::lock_entry) fn heard_by(&mut self, heard: usize, now: Moment) {
        let steps = self.steps_for(heard);
        if heard > 0 {
            self.tenure = self.rules.policy.tenure();
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
        let most = (self.rules.policy.tenure().as_nanos() / (4 * BACK_OFF.as_nanos()))
            .min(u128::from(MAX_STEPS)) as u32;
        u32::try_from(heard).unwrap_or(u32::MAX).min(most)
    }

    // === Losing ===

    #[inline]
    pub(in crate::lock_entry) fn end_if_over(&mut self, now: Moment, actions: &mut Actions) {
        let lasts = match &self.phase {
            Phase::Held(hold, lease) => hold.lasts(lease, now),
            _ => true,
        };
        if !lasts || !self.beside.is_empty() {
            self.end_what_is_over(now, actions);
        }
    }

    #[cold]
    fn end_what_is_over(&mut self, now: Moment, actions: &mut Actions) {
        if self.held().all(|(hold, lease)| hold.lasts(lease, now)) {
            return;
        }
        let mut lost = Vec::new();
        for (hold, lease) in self.held_mut().filter(|(hold, lease)| !hold.lasts(lease, now)) {
            let over =
                hold.sharers.iter().filter_map(|(serial, sharer)| Some((serial, sharer.loss(lease, now)?)));
            for (serial, reason) in over.collect::<Vec<_>>() {
                lost.push((serial, hold.remove(serial), reason));
            }
            hold.limit = hold.sharers.iter().map(|(_, sharer)| sharer.due()).min().unwrap_or(Moment::NEVER);
        }
        for (serial, guards, reason) in lost {
            self.record_loss(serial, guards, reason, actions);
        }
        self.end_in_background_if_empty(now, actions);
    }

    /// A hold may be empty now. No caller sends its release; none is needed if the store does not keep the
    /// lease.
    pub(super) fn end_in_background_if_empty(&mut self, now: Moment, actions: &mut Actions) {
        for (_, lease) in self.beside.extract_if(.., |(hold, _)| hold.sharers.is_empty()) {
            match lease.may_outlast(now) {
                true => actions.more().beside.push(lease.give_back(false)),
                // No release tells another client's queue head of this process, which may sleep by an earlier
                // holder's lease.
                false => actions.more().call = true,
            }
        }
        match &self.phase {
            Phase::Held(hold, _) if !hold.sharers.is_empty() => {}
            Phase::Held(_, lease) if lease.may_outlast(now) => self.pass_on_in_background(now, actions),
            Phase::Held(..) => {
                actions.more().call = true;
                self.appoint(None, 0, now, actions);
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
        actions: &mut Actions,
    ) -> bool {
        let Some((hold, lease)) = self.held_by_number(number) else { return false };
        if !fault!(GoneLeasePassedOn) {
            lease.gone(now);
        }
        let sharers = std::mem::replace(hold, Hold::of_nobody()).sharers;
        sharers.into_each(|serial, sharer| self.record_loss(serial, sharer.guards, reason, actions));
        self.end_in_background_if_empty(now, actions);
        true
    }

    /// Guards that have nothing any more are to learn why.
    pub(super) fn record_losses(
        &mut self,
        serial: u64,
        left: Option<(u32, LossReason)>,
        actions: &mut Actions,
    ) {
        if let Some((guards, reason)) = left {
            self.record_loss(serial, guards, reason, actions);
        }
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

    /// The lock is not granted here any more. What is held is not touched.
    pub(in crate::lock_entry) fn close(&mut self, actions: &mut Actions) {
        self.closed = true;
        while let Some(slot) = self.queue.pop() {
            let waker = self.queue.place_at(slot, Place::Closed);
            actions.wake(waker.filter(|_| !fault!(ClosedInSilence)));
        }
        if let Phase::Competing(head) = &mut self.phase {
            let (slot, roll_back) = (head.slot(), head.to_roll_back());
            actions.wake(head.take_waker());
            let is_named = slot.is_some_and(|slot| matches!(self.queue.place(slot), Place::Named));
            if let Some(slot) = slot {
                actions.wake(self.queue.place_at(slot, Place::Closed));
            }
            // Here, as it may not be polled before the client ends. A waiter that is named is rolled back by
            // the answer.
            if let Some(roll_back) = roll_back.filter(|_| !is_named && !fault!(ClosedHeadLeavesItsTrace)) {
                actions.more().roll_back = Some(roll_back);
            }
            self.transition(Phase::Free);
        }
        actions.more().call = true;
    }
}
