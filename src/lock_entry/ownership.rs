//! The ownership of one name inside of a process: a state machine without I/O, clock or futures.
//!
//! The store leases the name to the process, under a number that is new for each lease. Inside, ownership passes from waiter to waiter in
//! memory. Every event is one method, `(state, event, now) → state, actions`: what is to be done outside is left in [`Actions`].
//!
//! # Phases
//!
//! ```text
//!          enter                acquired              leave, nobody waits
//!   Free ────────► Competing ─────────────► Held ──────────────────────► Returning ─► Free
//!                   ▲  │ abandon             │ │ ▲                           │
//!                   │  └──► next waiter      │ └─┘ leave: granted in memory  │
//!                   └────────────────────────┴──────────────────────────────┘
//!                     leave that the store has to know of; lease lost; returned
//! ```
//!
//! With a store that has a [queue](Rules::position), a lease that is left goes back to it at once, and the oldest waiter is the queue head of
//! the next competition from then on. It sleeps until the release is answered, which has granted it the lock, or a position.
//!
//! * `Free`: no lease, no queue head, the queue is empty.
//! * `Competing`: the queue head, which is no longer in the queue, talks to the store.
//! * `Held`: there is a hold, under the lease in hand.
//! * `Returning`: a release is under way.
//!
//! # Invariants
//!
//! 1. There is at most one of queue head, hold and release under way; a waiter is queued only if there is one. (With a store that has a queue,
//!    the release of the lease before may be under way beside the queue head.)
//! 2. A hold implies a lease whose deadline had not passed when it was granted and when it was claimed.
//! 3. A number is used for one competition and the lease that comes of it, and never again.
//! 4. A number that may be at the store and is not in hand has a release under way, or its lease is over.
//! 5. Serials rise. A grant with another serial than the hold's changes nothing.
//! 6. A hold's count is its guards, its grants that nobody has claimed yet, and its forgotten holds.
//! 7. Tokens rise, and come from the block of the lease in hand.

mod head;
mod leaving;
mod looking;
#[cfg(test)]
mod model;
mod upkeep;

use std::time::Duration;

use crate::fault::fault;
use crate::moment::Moment;

use super::actions::Actions;
use super::outcome::{Entered, HeadTicket, Ticket, Told};
use super::queue::{Place, Queue, Slot};
use super::request::{Extension, Grant, LossReason, Request};

use self::head::Head;
pub use self::upkeep::Renewal;

/// The longest back-off, in steps.
const MAX_STEPS: u32 = 8;
/// While no other process hears of its end, a tenure grows to so many times what it is by the rules: a newcomer waits for that once, which is
/// less than a round of a crowd.
const MAX_GROWTH: u32 = 8;
/// A queue head that had the lock last waits for so long per step, so that other processes ask before it.
pub(crate) const BACK_OFF: Duration = Duration::from_millis(1);

/// By what a [`LockEntry`](super::LockEntry) decides.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How long a lease may stay in this process while somebody waits in another one. If nobody elsewhere heard of its return, the next one
    /// may stay for twice as long, up to eight times.
    pub tenure: Duration,
    /// The lease of requests without one of their own. The client renews it.
    pub renewed_lease: Duration,
    /// How long a hold by such a lease may last.
    pub max_hold: Option<Duration>,
    /// How long a waiter may leave it unnoticed that it has the lock, or is the queue head.
    pub unpolled_limit: Duration,
    /// For how long the store keeps a waiter's position, if it has a queue of its own, over all processes. Every lease goes back to such a
    /// store when it is left, whatever the tenure, and the oldest waiter here is named with the release: see [`Next`](super::Next).
    pub position: Option<Duration>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            tenure: Duration::from_millis(30),
            renewed_lease: Duration::from_secs(30),
            max_hold: None,
            unpolled_limit: Duration::from_secs(1),
            position: None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Ownership {
    rules: Rules,
    /// A third of the lease that is renewed. To divide each time costs as much as the rest of an event.
    third: Duration,
    phase: Phase,
    queue: Queue,
    last_serial: u64,
    /// The last fencing token that was granted.
    last_token: u64,
    /// A competition found the lock held by another process, and none since was won at the first try.
    contended: bool,
    /// That of the next lease.
    tenure: Duration,
    /// Until then other processes go first.
    others_first_until: Option<Moment>,
    /// Holds that were lost while somebody had a guard.
    losses: Vec<Loss>,
    acquisitions: u64,
    hand_offs: u64,
    /// When the client was told to [look](Self::tick); never, if it was not.
    next_look_said: Moment,
    closed: bool,
}

#[derive(Debug)]
enum Phase {
    Free,
    Competing(Head),
    Held(Hold, Lease),
    /// With whether the tenure was used up.
    Returning(bool),
}

#[derive(Debug)]
struct Hold {
    serial: u64,
    owner: u64,
    count: u32,
    guards: u32,
    /// Grants that nobody has claimed.
    unclaimed: u32,
    /// Guards for which the lease is renewed.
    watched: u32,
    /// It was granted a lease that is renewed.
    renewed: bool,
    token: Option<u64>,
    limit: Moment,
    /// When it was granted, and to whom else of its owner waited.
    granted: Moment,
}

/// What the store granted.
#[derive(Debug)]
struct Lease {
    number: u64,
    /// From then on it goes back to the store when it is left. Counted from when it was asked for.
    tenure_ends: Moment,
    /// Counted from before the command was sent, so never later than the store's own.
    deadline: Moment,
    /// Tokens that are left, from the first to the last.
    tokens: (u64, u64),
    /// When the command was sent by which the store confirmed it last.
    confirmed: Moment,
    /// When it is to be renewed.
    renew_at: Moment,
    /// A renewal is under way.
    renewing: bool,
    /// A renewal went out, and none was answered since.
    unanswered: bool,
    /// No renewal before then: the last one failed.
    not_before: Option<Moment>,
    /// Somebody waits who cannot wait for the next renewal.
    verify: bool,
}

#[derive(Debug)]
struct Loss {
    serial: u64,
    reason: LossReason,
    guards: u32,
}

impl Lease {
    fn left(&self, now: Moment) -> Duration {
        self.deadline.saturating_duration_since(now)
    }

    fn is_over(&self, now: Moment) -> bool {
        self.deadline <= now
    }

    fn has_token(&self) -> bool {
        self.tokens.0 <= self.tokens.1
    }
}

impl Hold {
    /// Of nobody yet.
    fn none(now: Moment) -> Self {
        Self {
            serial: 0,
            owner: 0,
            count: 0,
            guards: 0,
            unclaimed: 0,
            watched: 0,
            renewed: false,
            token: None,
            limit: Moment::NEVER,
            granted: now,
        }
    }

    /// Why it is over at `now`.
    fn loss(&self, lease: &Lease, now: Moment) -> Option<LossReason> {
        if self.limit <= now && self.limit <= lease.deadline {
            return Some(LossReason::HeldTooLong);
        }
        if !lease.is_over(now) {
            return None;
        }
        Some(if lease.unanswered { LossReason::Unreachable } else { LossReason::Expired })
    }
}

impl Ownership {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            third: rules.renewed_lease / 3,
            tenure: rules.tenure,
            rules,
            phase: Phase::Free,
            queue: Queue::default(),
            last_serial: 0,
            last_token: 0,
            contended: false,
            others_first_until: None,
            losses: Vec::new(),
            acquisitions: 0,
            hand_offs: 0,
            next_look_said: Moment::NEVER,
            closed: false,
        }
    }

    // === Coming ===

    /// Somebody wants the lock.
    pub(super) fn enter(
        &mut self,
        request: &Request,
        may_wait: bool,
        now: Moment,
        actions: &mut Actions,
    ) -> Entered {
        if self.closed {
            return Entered::Closed;
        }
        self.end_if_over(now, actions);
        match &self.phase {
            Phase::Free => {
                let steps = self.steps_behind_others(now);
                let serial = self.compete(None, None, steps, now);
                Entered::Head(HeadTicket { serial, steps, since: now, has_position: false })
            }
            Phase::Held(hold, _) if hold.owner == request.owner => self.reenter(request, now, actions),
            _ if !may_wait => Entered::Busy,
            _ => {
                let slot = self.queue.push(*request, now);
                // What is due differs only by whether there are some.
                if self.queue.len() == 1 {
                    self.look_behind(now, actions);
                }
                Entered::Queued(Ticket(slot))
            }
        }
    }

    fn steps_behind_others(&mut self, now: Moment) -> u32 {
        let left = self
            .others_first_until
            .take()
            .map_or(0, |until| until.saturating_duration_since(now).as_nanos().div_ceil(BACK_OFF.as_nanos()));
        left.min(u128::from(MAX_STEPS)) as u32
    }

    fn reenter(&mut self, request: &Request, now: Moment, actions: &mut Actions) -> Entered {
        let (grant, extension) = self.join_hold(request, now);
        let Phase::Held(hold, _) = &mut self.phase else { unreachable!("the caller has looked") };
        hold.guards += 1;
        hold.watched += u32::from(grant.watched);
        self.acquisitions += 1;
        self.look_behind(now, actions);
        Entered::Reentered(grant, extension)
    }

    /// One more for the hold in place. The caller counts it among its guards, or as unclaimed.
    fn join_hold(&mut self, request: &Request, now: Moment) -> (Grant, Option<Extension>) {
        let renewed_lease = self.rules.renewed_lease;
        let Phase::Held(hold, lease) = &mut self.phase else { unreachable!("only a hold can be joined") };
        hold.count += 1;
        if request.fenced && hold.token.is_none() && lease.has_token() {
            hold.token = Some(lease.tokens.0);
            self.last_token = lease.tokens.0;
            lease.tokens.0 += 1;
        }
        let ends = request.lease.map_or(Moment::NEVER, |lease| now + lease);
        let token = hold.token.filter(|_| request.fenced);
        let grant = Grant { serial: hold.serial, watched: request.lease.is_none(), token, ends };
        let wanted = request.lease.unwrap_or(renewed_lease);
        let number = lease.number;
        let extension = if request.fenced && token.is_none() {
            Some(Extension::Token { number, lease: wanted.max(lease.left(now)) })
        } else {
            // A lease that is renewed anyway need not be long from the first moment on.
            let renewed = request.lease.is_none() && hold.renewed;
            (!renewed && lease.left(now) < wanted).then_some(Extension::Renew { number, lease: wanted })
        };
        (grant, extension)
    }

    // === Waiting ===

    pub(super) fn is_queued(&self, slot: Slot) -> bool {
        matches!(self.queue.place(slot), Place::Queued | Place::Named)
    }

    /// What a waiter that is not queued any more is told. Its slot is free then.
    pub(super) fn claim(&mut self, slot: Slot, now: Moment, actions: &mut Actions) -> Told {
        let told = match self.queue.place(slot) {
            Place::Queued | Place::Named => unreachable!("the caller has looked"),
            Place::Granted(grant, extension, _) => self.claim_grant(grant, extension, now, actions),
            Place::Appointed(serial) => match &mut self.phase {
                Phase::Competing(head) if head.serial == serial => Told::Head(head.claimed()),
                _ => Told::Superseded,
            },
            Place::Superseded => Told::Superseded,
            Place::Closed => Told::Closed,
        };
        actions.drop_later(self.queue.remove(slot));
        told
    }

    fn claim_grant(
        &mut self,
        grant: Grant,
        extension: Option<Extension>,
        now: Moment,
        actions: &mut Actions,
    ) -> Told {
        // Nobody polled it for that long.
        if !fault!(GrantedAfterDeadline) {
            self.end_if_over(now, actions);
        }
        match &mut self.phase {
            Phase::Held(hold, _) if hold.serial == grant.serial => {
                hold.unclaimed -= 1;
                hold.guards += 1;
                hold.watched += u32::from(grant.watched);
                self.acquisitions += 1;
                self.look_behind(now, actions);
                Told::Granted(grant, extension)
            }
            _ => Told::Superseded,
        }
    }

    pub(super) fn will_wake(&self, slot: Slot, waker: &std::task::Waker) -> bool {
        self.queue.will_wake(slot, waker)
    }

    /// Stores the waker of a waiter that was told nothing yet.
    pub(super) fn register(&mut self, slot: Slot, waker: std::task::Waker, actions: &mut Actions) {
        actions.drop_later(self.queue.register(slot, waker));
    }

    /// A waiter leaves. What it was told and did not hear is passed on.
    pub(super) fn cancel(&mut self, slot: Slot, now: Moment, actions: &mut Actions) {
        let place = self.queue.place(slot);
        actions.drop_later(self.queue.remove(slot));
        match place {
            Place::Granted(grant, ..) => {
                if !fault!(HandOffDiesWithWaiter) {
                    self.drop_grant(grant.serial, now, actions);
                }
            }
            // What is asked for on its behalf is under way, and rolled back once that is answered.
            Place::Named => self.appoint(None, 0, now, actions),
            Place::Appointed(serial) => self.abandon(serial, now, actions),
            Place::Queued | Place::Superseded | Place::Closed => {}
        }
    }

    /// Nobody claims this grant.
    fn drop_grant(&mut self, serial: u64, now: Moment, actions: &mut Actions) {
        self.end_if_over(now, actions);
        let Phase::Held(hold, _) = &mut self.phase else { return };
        if hold.serial != serial {
            return;
        }
        hold.unclaimed -= 1;
        hold.count -= 1;
        if hold.count == 0 {
            self.pass_on_in_background(now, actions);
        }
    }
}
