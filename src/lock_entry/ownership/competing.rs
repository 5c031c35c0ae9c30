//! The queue head: the one waiter of a process that talks to the store.

use std::task::Waker;
use std::time::Duration;

use crate::support::moment::Moment;

use super::super::effects::{Effects, NextHead};
use super::super::events::{Answer, Attempt, Grant, HeadTicket, PendingRelease, Request, Slot, Turn};
use super::super::queue::Place;
use super::{Ownership, Phase, Rules, StoreLease, StoreRecord};

/// Count of tokens reserved at once if others wait: they get tokens without a command.
const TOKENS: u64 = 256;

#[derive(Debug)]
pub(super) struct HeadState {
    pub(super) serial: u64,
    request: Request,
    pub(super) since: Moment,
    /// Slot in the queue until the waiter reads its turn.
    pub(super) slot: Option<Slot>,
    /// The store has queued the number with the release that named the waiter.
    has_position: bool,
    /// Record of the number by which the head competes, if the store may have the number.
    record: Option<StoreRecord>,
    /// The record's `possible_until` before the last attempt, in case the attempt did not run. `None` if the
    /// attempt has begun the record.
    until_before: Option<Moment>,
    /// End of the tenure of the lease inherited from the former hold.
    tenure_ends: Option<Moment>,
    steps: u32,
    /// Time of the oldest event for the head since its last poll.
    pub(super) woken: Option<Moment>,
    pub(super) waker: Option<Waker>,
    pub(super) refused: bool,
    tries: u32,
}

impl HeadState {
    /// Marks the role as read, and returns the ticket.
    pub(super) fn claimed(&mut self) -> HeadTicket {
        (self.slot, self.woken) = (None, None);
        self.ticket()
    }

    fn ticket(&self) -> HeadTicket {
        let Self { serial, steps, since, has_position, .. } = *self;
        HeadTicket { serial, steps, since, has_position }
    }

    /// Time at which the head is superseded unless polled before; never, if no event has come since its poll.
    pub(super) fn unpolled_end(&self, rules: &Rules) -> Moment {
        let limit = rules.unpolled_limit_after(self.request.superseded);
        self.woken.map_or(Moment::NEVER, |woken| woken + limit)
    }

    pub(super) fn inherits(&self) -> bool {
        self.tenure_ends.is_some()
    }

    pub(super) fn has_number(&self, number: u64) -> bool {
        self.record.as_ref().is_some_and(|record| record.number == number)
    }

    /// Records that the store may keep the number until `until`, by the answer to a command.
    fn lengthen(&mut self, until: Moment) {
        if let Some(record) = &mut self.record {
            record.lengthen(until);
            self.until_before = self.until_before.max(Some(until));
        }
    }

    fn count_answered(&mut self) {
        if let Some(record) = &mut self.record {
            record.count_answered();
        }
    }

    pub(super) fn to_rollback(&self) -> Option<PendingRelease> {
        self.record.as_ref().map(|record| record.to_release(false))
    }
}

impl Ownership {
    pub(super) fn compete(
        &mut self,
        request: Request,
        inherited: Option<StoreLease>,
        slot: Option<Slot>,
        steps: u32,
        now: Moment,
    ) -> u64 {
        let serial = self.next_serial();
        let since = slot.map_or(now, |slot| self.queue.since(slot));
        let tenure_ends = inherited.as_ref().map(|lease| lease.tenure_ends);
        self.transition(Phase::Competing(HeadState {
            serial,
            request,
            since,
            slot,
            has_position: false,
            record: inherited.map(|lease| lease.record),
            until_before: None,
            tenure_ends,
            steps,
            woken: slot.map(|_| now),
            waker: None,
            refused: false,
            tries: 0,
        }));
        serial
    }

    fn head(&mut self, serial: u64) -> Option<&mut HeadState> {
        match &mut self.phase {
            Phase::Competing(head) if head.serial == serial => Some(head),
            _ => None,
        }
    }

    /// True if the queue head competes by this number, inherited from the former hold; then records the
    /// answer to a command of that hold. `is_answered`: it was a leasing command, counted until now.
    pub(super) fn competes_by(&mut self, number: u64, is_answered: bool, until: Moment) -> bool {
        let Phase::Competing(head) = &mut self.phase else { return false };
        if !head.has_number(number) {
            return false;
        }
        head.lengthen(until);
        if is_answered {
            head.count_answered();
        }
        true
    }

    pub(in crate::lock_entry) fn may_run_again(&mut self, roll_back: PendingRelease, effects: &mut Effects) {
        let number = roll_back.number;
        match self.record_of(number) {
            Some(record) => record.count_unanswered(),
            None => effects.release(roll_back, None),
        }
    }

    pub(in crate::lock_entry) fn unread(&mut self, roll_back: PendingRelease, effects: &mut Effects) {
        let number = roll_back.number;
        if self.record_of(number).is_none() {
            effects.release(roll_back, None);
        }
    }

    /// Returns the record of a number: the queue head's, or that of a lease in hand.
    pub(super) fn record_of(&mut self, number: u64) -> Option<&mut StoreRecord> {
        let first = match &mut self.phase {
            Phase::Competing(head) => head.record.as_mut(),
            Phase::Held(_, lease) => Some(&mut lease.record),
            Phase::Free | Phase::Returning { .. } => None,
        };
        let beside = self.parallel.iter_mut().map(|(_, lease)| &mut lease.record);
        first.into_iter().chain(beside).find(|record| record.number == number)
    }

    pub(in crate::lock_entry) fn is_head(&self, serial: u64) -> bool {
        matches!(&self.phase, Phase::Competing(head) if head.serial == serial)
    }

    pub(in crate::lock_entry) fn head_will_wake(&self, waker: &Waker) -> bool {
        let Phase::Competing(head) = &self.phase else { return false };
        head.waker.as_ref().is_some_and(|old| old.will_wake(waker))
    }

    pub(in crate::lock_entry) fn register_head(&mut self, serial: u64, waker: Waker, effects: &mut Effects) {
        match self.head(serial) {
            Some(head) => {
                // The polled head sees each earlier event.
                head.woken = None;
                effects.keep_waker(head.waker.replace(waker));
            }
            None => effects.keep_waker(Some(waker)),
        }
    }

    pub(in crate::lock_entry) fn head_woken(&mut self, now: Moment, effects: &mut Effects) {
        if let Phase::Competing(head) = &mut self.phase
            && head.slot.is_none()
        {
            head.woken.get_or_insert(now);
            let ends = head.unpolled_end(&self.rules);
            effects.wake(head.waker.take());
            self.look_by(ends, now, effects);
        }
    }

    pub(in crate::lock_entry) fn attempt(
        &mut self,
        serial: u64,
        fresh: u64,
        sent: Moment,
        lease: Duration,
    ) -> Option<Attempt> {
        let position = self.rules.policy.position();
        // A store with a queue gets each lease back; all sharers have the same token.
        let alone = self.queue.is_empty() || position.is_some() || self.rules.policy.is_shared();
        let head = self.head(serial)?;
        // A short lease's position may last longer than the lease, and become a lease.
        let until = sent + position.map_or(lease, |position| lease.max(position));
        head.until_before = head.record.as_ref().map(|record| record.possible_until);
        let record = head.record.get_or_insert_with(|| StoreRecord::new(fresh, until));
        record.lengthen(until);
        record.queued_at.get_or_insert(sent);
        record.count_unanswered();
        head.tries += 1;
        let tokens = match (head.request.fenced, alone) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => TOKENS,
        };
        Some(Attempt { head: serial, number: record.number, tokens, sent, lease, until })
    }

    // === Answered ===

    #[inline]
    pub(in crate::lock_entry) fn answered(
        &mut self,
        serial: u64,
        attempt: Attempt,
        answer: Answer,
        now: Moment,
        effects: &mut Effects,
    ) -> Option<Turn> {
        let Some(head) = self.head(serial) else {
            // These answers leave nothing at the store.
            if !matches!(answer, Answer::DidNotRun | Answer::Held { kept: None }) {
                // Once more: the rollback of the leaving head may have run before the attempt was sent.
                effects.release(attempt.rollback(), None);
            }
            return Some(Turn::Superseded);
        };
        assert!(attempt.head == serial, "the attempt is another queue head's");
        match answer {
            Answer::Granted { last_token } => return self.granted(serial, attempt, last_token, now, effects),
            Answer::Held { kept } => return self.held_elsewhere(serial, attempt, kept, now, effects),
            // Earlier attempts may have run.
            Answer::DidNotRun => match (head.until_before, &mut head.record) {
                (Some(until), Some(record)) => {
                    record.possible_until = until;
                    record.count_answered();
                }
                _ => head.record = None,
            },
            Answer::Unsaid => head.count_answered(),
            // The next attempt uses the same number, and a head that gives up rolls the number back.
            Answer::Unanswered => {}
        }
        self.asks_itself(serial, now, effects);
        None
    }

    fn granted(
        &mut self,
        serial: u64,
        attempt: Attempt,
        last_token: u64,
        now: Moment,
        effects: &mut Effects,
    ) -> Option<Turn> {
        let named = self.named(serial);
        let Some(head) = self.head(serial) else { return Some(Turn::Superseded) };
        let (request, until_before, inherited) = (head.request, head.until_before, head.tenure_ends.take());
        let mut record = head.record.take().expect("a number of which an attempt is under way is kept");
        // The store began the lease before this answer: it ends at most one length after `now`.
        record.possible_until =
            until_before.map_or(now + attempt.lease, |until| until.max(now + attempt.lease));
        record.queued_at = None;
        record.count_answered();
        if attempt.sent + attempt.lease <= now {
            effects.release(PendingRelease { until: record.possible_until, ..attempt.rollback() }, None);
            let again = Turn::Head(head.ticket());
            if let Some(slot) = named {
                self.appoint_named(slot, now, effects);
            }
            return Some(again);
        }
        effects.keep_waker(head.waker.take());
        let won_at_once = head.steps > 0 && head.tries == 1;
        let tokens = attempt.granted_tokens(last_token);
        if won_at_once {
            self.contended = false;
        }
        let tenure_ends = inherited.unwrap_or(attempt.sent + self.tenure);
        self.hold_by(&attempt, tokens, tenure_ends, record);
        if inherited.is_some()
            && let Phase::Held(_, lease) = &mut self.phase
        {
            lease.begun_anew(attempt.sent, now);
        }
        if let Some(slot) = named {
            self.grant_to(slot, now, effects);
            return None;
        }
        Some(Turn::Granted(self.begin_first_hold(&request, attempt.lease, now, effects), None))
    }

    // === Named with a release ===

    /// Makes the oldest waiter the queue head, to be named with the release of the lease.
    pub(super) fn name_next(&mut self, now: Moment) -> NextHead {
        let slot = self.queue.pop().expect("the caller has looked");
        let request = self.queue.request(slot);
        let serial = self.compete(request, None, Some(slot), 0, now);
        self.queue.place_silently_at(slot, Place::NamedWithRelease);
        let head = self.head(serial).expect("the waiter competes from now on");
        // The head acts only after the release's answer; until then the lock counts as held.
        (head.woken, head.refused) = (None, true);
        NextHead { head: head.ticket(), request }
    }

    pub(in crate::lock_entry) fn asks_itself(&mut self, serial: u64, now: Moment, effects: &mut Effects) {
        if let Some(slot) = self.named(serial) {
            if let Some(head) = self.head(serial) {
                head.refused = false;
            }
            self.appoint_named(slot, now, effects);
        }
    }

    fn appoint_named(&mut self, slot: Slot, now: Moment, effects: &mut Effects) {
        let Phase::Competing(head) = &mut self.phase else { unreachable!("a named waiter competes") };
        head.woken = Some(now);
        let (place, ends) = (Place::Appointed(head.serial), head.unpolled_end(&self.rules));
        effects.wake(self.queue.place_at(slot, place));
        self.look_by(ends, now, effects);
    }

    /// Returns the slot of this queue head, if named with a release that is not answered.
    fn named(&mut self, serial: u64) -> Option<Slot> {
        let slot = self.head(serial)?.slot?;
        matches!(self.queue.place(slot), Place::NamedWithRelease).then_some(slot)
    }

    /// `kept`: time for which the store keeps a position for this number, or remembers the number.
    fn held_elsewhere(
        &mut self,
        serial: u64,
        attempt: Attempt,
        kept: Option<Duration>,
        now: Moment,
        effects: &mut Effects,
    ) -> Option<Turn> {
        match (kept, self.named(serial)) {
            (Some(_), Some(slot)) => {
                if let Some(head) = self.head(serial) {
                    head.has_position = true;
                    head.count_answered();
                }
                self.appoint_named(slot, now, effects);
                None
            }
            (Some(kept), None) if self.rules.policy.position().is_some() => {
                self.queued(serial, attempt, kept, now, effects)
            }
            (kept, _) => {
                self.refused(serial, effects);
                if let (Some(kept), Some(head)) = (kept, self.head(serial)) {
                    // The store may keep the number for longer than the lease would have lasted.
                    let until = attempt.sent + kept;
                    head.record
                        .get_or_insert_with(|| StoreRecord::new(attempt.number, until))
                        .lengthen(until);
                }
                None
            }
        }
    }

    fn refused(&mut self, serial: u64, effects: &mut Effects) {
        let Some(head) = self.head(serial) else { return };
        head.count_answered();
        // The inherited lease is gone, unless an unanswered command, maybe the former hold's, begins it anew.
        head.record.take_if(|record| record.unanswered == 0);
        (head.tenure_ends, head.refused) = (None, true);
        self.contended = true;
        self.tenure = self.rules.policy.tenure();
        let mut walk = self.queue.walk();
        while let Some(slot) = self.queue.pop_try(&mut walk) {
            effects.wake(self.queue.place_at(slot, Place::Over(Turn::Busy)));
        }
    }

    /// Records the store's position for this number. Gives the number up if an earlier position may have
    /// become a lease, over by now, whose message is still on its way.
    fn queued(
        &mut self,
        serial: u64,
        attempt: Attempt,
        kept: Duration,
        now: Moment,
        effects: &mut Effects,
    ) -> Option<Turn> {
        let Some(head) = self.head(serial) else { return Some(Turn::Superseded) };
        head.refused = true;
        let Some(record) = &mut head.record else { return Some(Turn::Superseded) };
        record.count_answered();
        if record.queued_at.is_some_and(|before| before < attempt.sent && before + kept <= now) {
            head.record = None;
            effects.release(attempt.rollback(), None);
            return Some(Turn::Head(head.ticket()));
        }
        record.queued_at = Some(attempt.sent);
        None
    }

    /// Begins a hold by a message. The lease ends when the position would have ended.
    pub(in crate::lock_entry) fn granted_by_message(
        &mut self,
        serial: u64,
        number: u64,
        now: Moment,
        effects: &mut Effects,
    ) -> Option<Grant> {
        let kept = self.rules.policy.position()?;
        let head = self.head(serial)?;
        let record = head.record.as_mut()?;
        let (since, until) = (record.queued_at?, record.possible_until);
        // A lease of the request's own, or a token, has to be asked for.
        let suffices = head.request.is_watched() && !head.request.fenced;
        if record.number != number || !suffices || since + kept <= now {
            return None;
        }
        // The message answers no attempt: the last attempt may still lease the lock, until `until`.
        record.count_unanswered();
        head.until_before = Some(until);
        let attempt = Attempt { head: serial, number, tokens: 0, sent: since, lease: kept, until };
        let Some(Turn::Granted(grant, _)) = self.granted(serial, attempt, 0, now, effects) else {
            return None;
        };
        if let Some((_, lease)) = self.held_by_number(number) {
            lease.record.queued_at = Some(since);
        }
        Some(grant)
    }

    pub(in crate::lock_entry) fn abandon(&mut self, serial: u64, now: Moment, effects: &mut Effects) {
        let Some(head) = self.head(serial) else { return };
        effects.keep_waker(head.waker.take());
        self.drop_head(now, effects);
    }

    /// Rolls the queue head's number back, and appoints the head's successor.
    fn drop_head(&mut self, now: Moment, effects: &mut Effects) {
        let Phase::Competing(head) = &self.phase else { return };
        if let Some(roll_back) = head.to_rollback() {
            effects.release(roll_back, None);
        }
        if head.refused {
            // The head has waited for another process.
            self.known_held = Some(now);
        }
        self.appoint(None, 0, now, effects);
    }

    pub(in crate::lock_entry) fn evict_owner(&mut self, owner: u64, now: Moment, effects: &mut Effects) {
        while let Some(slot) = self.queue.pop_of(owner) {
            effects.wake(self.queue.place_at(slot, Place::Over(Turn::Superseded)));
        }
        if matches!(&self.phase, Phase::Competing(head) if head.request.owner == owner) {
            self.supersede_head(now, effects);
        }
    }

    /// Supersedes a queue head that was not polled in time, or was evicted: the next waiter competes.
    pub(super) fn supersede_head(&mut self, now: Moment, effects: &mut Effects) {
        let Phase::Competing(head) = &mut self.phase else { return };
        // A sleeping head may have consumed a notification: the client wakes other sleepers.
        effects.more().wakes_sleepers = true;
        effects.wake(head.waker.take());
        if let Some(slot) = head.slot {
            effects.wake(self.queue.place_at(slot, Place::Over(Turn::Superseded)));
        }
        self.drop_head(now, effects);
    }
}
