//! Events by time: renewals, ends of leases and holds, waiters without polls.

use std::mem;
use std::time::Duration;

use crate::support::moment::Moment;

use super::super::effects::Effects;
use super::super::events::{Extension, LossReason, NO_TOKENS, Turn};
use super::super::queue::Place;
use super::{Hold, Ownership, Phase, Sharer, StoreLease};

/// Interval of verification while others wait: a forced unlock or a lost server may have ended the lease.
const VERIFY: Duration = Duration::from_secs(1);

/// A renewal of a lease, to be sent to the store.
///
/// # Examples
///
/// ```
#[doc = include_str!("../example.md")]
/// use latchwork::lock_entry::{LockEntry, Renewal, Request};
/// let _grant = take(&entry, now); // owner 1 acquires lease 1, for 30 s
/// let due = now + Duration::from_secs(10); // a third of the lease is over
/// let renewal = entry.tick(due, &mut effects).expect("the lease needs a renewal");
/// assert_eq!(renewal, Renewal { number: 1, lease: Some(Duration::from_secs(30)) });
/// // … the store confirms the lease …
/// assert!(entry.renewed(renewal, Some(true), due, due, &mut effects));
/// assert_eq!(entry.each_hold(due).0[0].ends, due + Duration::from_secs(30));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Number of the lease.
    pub number: u64,
    /// Least length of the lease from the command on; `None` to verify only.
    pub lease: Option<Duration>,
}

impl Ownership {
    pub(in crate::lock_entry) fn tick(&mut self, now: Moment, effects: &mut Effects) -> Option<Renewal> {
        self.end_if_over(now, effects);
        if let Phase::Competing(head) = &self.phase
            && head.unpolled_end(&self.rules) <= now
        {
            self.supersede_unpolled(effects);
            self.supersede_head(now, effects);
        }
        self.supersede_grants(now, effects);
        let renewal = self.renewal(now, |ownership, hold, lease| ownership.renewal_due(hold, lease) <= now);
        self.next_look_said = Moment::NEVER;
        self.plan_next_look(now, effects);
        renewal
    }

    /// Returns no verification, and no renewal of a lease that other sharers may have cut.
    pub(in crate::lock_entry) fn renew_early(
        &mut self,
        by: Moment,
        now: Moment,
        effects: &mut Effects,
    ) -> Option<Renewal> {
        self.end_if_over(now, effects);
        let renewal = self.renewal(now, |ownership, hold, lease| {
            hold.watched > 0
                && !lease.renewing
                && lease.renew_at <= by
                && lease.not_before.is_none()
                && !ownership.may_be_cut(lease)
        });
        self.next_look_said = Moment::NEVER;
        self.plan_next_look(now, effects);
        renewal
    }

    fn supersede_grants(&mut self, now: Moment, effects: &mut Effects) {
        let before = now - self.rules.unpolled_limit;
        // The search visits all waiters.
        if !self.held().any(|(hold, _)| hold.unclaimed > 0) {
            return;
        }
        for (slot, since) in self.queue.granted() {
            if since > before {
                // Earlier grants are claimed or superseded: the next look is for this grant.
                self.held_mut().for_each(|(hold, _)| hold.granted = hold.granted.max(since));
                return;
            }
            let Place::Granted(grant, ..) = self.queue.place(slot) else { return };
            let grant = grant.copy();
            self.supersede_unpolled(effects);
            effects.wake(self.queue.place_at(slot, Place::Over(Turn::Superseded)));
            self.drop_grant(&grant, now, effects);
        }
    }

    /// Counts a superseded waiter. With the first of a look, all waiters not polled since their wake are too,
    /// and all others are woken: the next such look finds those that are still not polled.
    fn supersede_unpolled(&mut self, effects: &mut Effects) {
        let is_first = effects.superseded() == 0;
        effects.more().superseded += 1;
        if !is_first {
            return;
        }
        let mut walk = self.queue.walk();
        while let Some(slot) = self.queue.pop_silent(&mut walk) {
            effects.more().superseded += 1;
            self.queue.place_silently_at(slot, Place::Over(Turn::Superseded));
        }
        self.queue.take_wakers().for_each(|waker| effects.wake(Some(waker)));
    }

    pub(super) fn next_look(&self, now: Moment) -> Moment {
        let of_phase = match &self.phase {
            Phase::Free | Phase::Returning { .. } => Moment::NEVER,
            Phase::Competing(head) => head.unpolled_end(&self.rules),
            Phase::Held(hold, lease) => self.next_look_at(hold, lease, now),
        };
        self.parallel.iter().fold(of_phase, |at, (hold, lease)| at.min(self.next_look_at(hold, lease, now)))
    }

    #[inline]
    fn next_look_at(&self, hold: &Hold, lease: &StoreLease, now: Moment) -> Moment {
        let mut at = self.renewal_due(hold, lease).max(now);
        if hold.unclaimed > 0 {
            at = at.min(hold.granted + self.rules.unpolled_limit);
        }
        // A guarded hold that ends with its lease needs no look without waiters: its task has a timer.
        let ends = hold.limit.min(lease.sure_until);
        if lease.is_to_be_ended(ends) || !self.queue.is_empty() || !hold.has_guard() {
            at = at.min(ends);
        }
        at
    }

    fn renewal_due(&self, hold: &Hold, lease: &StoreLease) -> Moment {
        if lease.renewing {
            return Moment::NEVER;
        }
        let renew = match (hold.watched > 0, self.may_be_cut(lease)) {
            // A lease made long by an extension is renewed as often: a forced unlock may have ended it.
            (true, false) => lease.renew_at.min(lease.confirmed + self.third),
            (_, true) => lease.confirmed + self.third,
            (false, false) => Moment::NEVER,
        };
        let verify = match (lease.verify, self.queue.is_empty()) {
            // Not before `begun`: `gone` would not count the answer to a command sent earlier.
            (true, _) => lease.confirmed.max(lease.begun),
            (false, true) => Moment::NEVER,
            (false, false) => lease.confirmed + VERIFY,
        };
        let due = renew.min(verify);
        lease.not_before.map_or(due, |not_before| due.max(not_before))
    }

    /// True if other sharers' renewals, which cut all leases to a renewal's length, may have cut this lease.
    fn may_be_cut(&self, lease: &StoreLease) -> bool {
        self.rules.policy.is_shared() && lease.sure_until > lease.confirmed + self.rules.renewed_lease
    }

    /// Begins the renewal of a lease that `is_due`, if any.
    fn renewal(
        &mut self,
        now: Moment,
        is_due: impl Fn(&Self, &Hold, &StoreLease) -> bool,
    ) -> Option<Renewal> {
        let (hold, lease) = self.held().find(|(hold, lease)| is_due(self, hold, lease))?;
        let renewed = (hold.watched > 0).then_some(self.rules.renewed_lease);
        let (number, whole) = (lease.number(), self.may_be_cut(lease).then(|| lease.left(now)));
        let (_, lease) = self.held_by_number(number)?;
        let wanted = renewed.max(whole);
        lease.renews(now, wanted);
        Some(Renewal { number, lease: wanted })
    }

    pub(in crate::lock_entry) fn renewed(
        &mut self,
        renewal: Renewal,
        held: Option<bool>,
        sent: Moment,
        now: Moment,
        effects: &mut Effects,
    ) -> bool {
        if held.is_some() {
            self.end_if_over(now, effects);
        }
        let (third, soon) = (self.third, (self.rules.renewed_lease / 30).max(Duration::from_millis(1)));
        let Some((_, lease)) = self.held_by_number(renewal.number) else { return false };
        lease.renewing = false;
        let counts = match held {
            Some(true) => {
                lease.confirm(sent, now, renewal.lease, third);
                true
            }
            Some(false) => self.gone(renewal.number, sent, now, effects),
            None => {
                lease.not_before = Some(now + soon);
                // The command may have been sent as late as `now`.
                if let Some(wanted) = renewal.lease {
                    lease.lengthens(now, wanted);
                }
                false
            }
        };
        self.plan_next_look(now, effects);
        counts
    }

    pub(in crate::lock_entry) fn verify_soon(&mut self, now: Moment, effects: &mut Effects) {
        if let Phase::Held(_, lease) = &mut self.phase {
            lease.verify = true;
            self.look_by(now, now, effects);
        }
    }

    pub(in crate::lock_entry) fn extending(
        &mut self,
        extension: Extension,
        sent: Moment,
        effects: &mut Effects,
    ) -> Option<Duration> {
        let Extension { number, lease, fenced } = extension;
        let (_, its) = self.held_by_number(number)?;
        let asked = if fenced {
            its.leases_anew(sent, lease)
        } else {
            its.lengthens(sent, lease);
            lease
        };
        self.plan_next_look(sent, effects);
        Some(asked)
    }

    pub(in crate::lock_entry) fn not_extended(&mut self, extension: Extension) {
        // The hold may be over, and its number the queue head's.
        if extension.fenced
            && let Some(record) = self.record_of(extension.number)
        {
            record.count_answered();
        }
    }

    pub(in crate::lock_entry) fn extended(
        &mut self,
        number: u64,
        sent: Moment,
        extent: Duration,
        token: Option<u64>,
        now: Moment,
        effects: &mut Effects,
    ) -> bool {
        // A late answer does not revive a hold: its holder may know of the end.
        self.end_if_over(now, effects);
        let third = self.third;
        // True, so that the client does not roll the number back: the queue head competes by it.
        if self.competes_by(number, token.is_some(), now + extent) {
            return true;
        }
        let Some((hold, lease)) = self.held_by_number(number) else { return false };
        lease.confirm(sent, now, Some(extent), third);
        if let Some(token) = token {
            lease.record.count_answered();
            lease.begun_anew(sent, now);
            // Answers may come in another order than their commands ran.
            hold.token = hold.token.max(Some(token));
            if *lease.tokens.end() < token {
                lease.tokens = NO_TOKENS;
            }
        }
        self.plan_next_look(now, effects);
        true
    }

    pub(in crate::lock_entry) fn gone(
        &mut self,
        number: u64,
        sent: Moment,
        now: Moment,
        effects: &mut Effects,
    ) -> bool {
        let Some((hold, lease)) = self.held_by_number(number) else { return false };
        if sent < lease.begun {
            // The command may have run before the lease was begun anew: verifies once more.
            lease.verify = true;
            self.plan_next_look(now, effects);
            return false;
        }
        lease.gone(now);
        let owner_holds = mem::replace(hold, Hold::without_owners()).owner_holds;
        let lost = |sharer: Sharer| Some((sharer.guards, LossReason::Gone));
        owner_holds.into_each(|serial, sharer| self.note_loss(serial, lost(sharer), effects));
        self.end_in_background_if_empty(now, effects);
        true
    }

    /// Plans a look at the next due time, unless an earlier plan is valid.
    #[inline]
    pub(super) fn plan_next_look(&mut self, now: Moment, effects: &mut Effects) {
        self.look_by(self.next_look(now), now, effects);
    }

    /// Plans a look at `at` unless an earlier plan is valid: each plan changes a deadline of the client.
    pub(super) fn look_by(&mut self, at: Moment, now: Moment, effects: &mut Effects) {
        let said = self.next_look_said;
        if at < said || said <= now {
            (self.next_look_said, effects.look_at) = (at, at);
        }
    }
}
