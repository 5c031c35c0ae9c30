//! The ownership of one name inside of a process: a state machine without I/O, clock or futures.
//!
//! The store leases the name to the process, under a new number for each lease. In the process, ownership
//! passes from waiter to waiter in memory. Every event is one method, `(state, event, now) → state, effects`.
//!
//! # Phases
//!
//! ```text
//!          enter                acquired              leave, no waiters
//!   Free ────────► Competing ─────────────► Held ──────────────────────► Returning ─► Free
//!                   ▲  │ abandon             │ │ ▲                           │
//!                   │  └──► next waiter      │ └─┘ leave: granted in memory  │
//!                   └────────────────────────┴──────────────────────────────┘
//!                     leave that the store has to know of; lease lost; returned
//! ```
//!
//! A [shared](Policy::Shared) lock has any number of owners at a time, by one lease. Within the tenure a
//! newcomer joins the holders. A later newcomer is a queue head, and asks for another lease, so that other
//! processes have their turn: the hold in hand becomes a parallel hold, and merges into the new hold once the
//! store has confirmed both leases.
//!
//! At a store with a [queue](Policy::Queued), a lease goes back when its holder leaves, and the oldest waiter
//! becomes the queue head, which sleeps until the release's answer brings the lock or a position.
//!
//! Transitions by [policy](Policy):
//!
//! | phase | event | exclusive | queued | shared |
//! |---|---|---|---|---|
//! | `Free` | enter | `Competing` | `Competing` | `Competing` |
//! | | claimed: a call asks the store for a newcomer | `Returning` | `Returning` | `Returning` |
//! | `Competing` | answered: granted | `Held` | `Held`, also by a waiter that was named | `Held`; parallel holds that end earlier are to be merged |
//! | | answered: held | `Competing` | `Competing`, with a position | `Competing` |
//! | | abandoned, superseded, evicted | the oldest waiter competes, or `Free` | as exclusive | as exclusive |
//! | `Held` | enter, by its owner | `Held` | `Held` | `Held` |
//! | | enter, by others | they queue | they queue | `Held` within the tenure; later the hold is parked, and they compete |
//! | | the last owner leaves, with no waiter | `Returning` | `Returning` | `Returning` |
//! | | the last owner leaves, with waiters | `Held` by the oldest; or the oldest competes by the same lease, if the lease is too short for its request | the oldest competes, named with the release | as exclusive |
//! | | the last owner leaves after the tenure, with waiters | `Returning` | | `Returning` |
//! | | its lease is over, or lost | the oldest waiter competes, or `Free` | as exclusive | as exclusive |
//! | `Returning` | taken: the store has granted the lock to the newcomer | `Held` | `Held` | `Held` |
//! | | the release is under way, or answered; or the newcomer's question brought no lease | the oldest waiter competes, or `Free` | as exclusive | as exclusive |
//! | any | closed | the queue head is removed, holds stay | as exclusive | as exclusive |
//!
//! * `Free`: no lease, no queue head, the queue is empty.
//! * `Competing`: the queue head, which is no longer in the queue, talks to the store.
//! * `Held`: there is a hold, under the lease in hand.
//! * `Returning`: a release is under way, or the call of a newcomer asks the store before entering.
//! * In any phase of a shared lock: parallel holds under leases of their own.
//!
//! # Invariants
//!
//! 1. There is at most one of queue head, hold, release that appoints the next head, and newcomer whose call
//!    asks the store; a waiter is queued only if there is one. (Other releases may be under way beside it. A
//!    shared lock has parallel holds.)
//! 2. A hold implies a lease that was sure when the hold was granted and when it was claimed.
//! 3. A number is used for one competition, its lease, and competitions that inherit it; never again.
//! 4. A number that may be at the store is in hand, or the queue head's, or of a call that asks the store
//!    outside of the queue, or has a release under way, or its lease is over.
//! 5. Serials rise, and no two entries share one. A grant of another serial than the hold's has no effect.
//! 6. A hold's count is its guards, unclaimed grants and forgotten holds, less the holds left by name. No
//!    owner of a shared lock ends another owner's hold, or shortens its lease.
//! 7. Tokens rise, and come from the block of the lease in hand.
//! 8. A hold ends for its owner when its lease is no longer sure or, without renewals, when the owner's own
//!    leases are over. A lease without a hold is released if the store may still keep it: see [`lease`].

// Where to look: `enter` and `claim` are here; `attempt`, `answered` and `abandon` in `competing`; `leave`,
// `appoint` and `returned` in `held`; `tick` and `renewed` in `timers`.

mod competing;
mod held;
mod lease;
#[cfg(test)]
mod model;
mod owner_holds;
mod queries;
mod timers;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::fault::fault;
use crate::support::moment::Moment;
use crate::support::sync::atomic::{AtomicU64, Ordering};
use crate::support::sync::shared_static;

use super::effects::Effects;
use super::events::{
    Attempt, BACK_OFF, Extension, Grant, HeadTicket, LossReason, Request, Slot, Ticket, Turn,
};
use super::gate::{CLAIMED, IN_USE, OPEN};
use super::queue::{Place, Queue};

use self::competing::HeadState;
use self::lease::{StoreLease, StoreRecord};
use self::owner_holds::{OwnerHolds, Sharer};
pub use self::timers::Renewal;

// Last serial of the last block that an entry of this process has taken.
shared_static!(SERIALS: AtomicU64 = AtomicU64::new(0));

/// Count of serials that an entry takes at once: a power of two.
const BLOCK: u64 = 1 << 12;

/// Count of leases verified by one command before their holds are merged.
const MERGED_AT_ONCE: usize = 4096;

const MAX_STEPS: u32 = 8;
/// Largest factor by which a tenure grows while no other process waits: a later process waits for one tenure.
const MAX_GROWTH: u32 = 8;

/// The rules of a [`LockEntry`](super::LockEntry).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use latchwork::lock_entry::{LockEntry, Policy, Rules};
/// let rules = Rules {
///     policy: Policy::Exclusive { tenure: Duration::from_millis(5) },
///     renewed_lease: Duration::from_secs(10),
///     ..Rules::default()
/// };
/// assert!(LockEntry::new(rules).is_idle());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Rule by which the lock passes between processes, and inside of this one.
    pub policy: Policy,
    /// Lease of requests without a lease of their own. The client renews it.
    pub renewed_lease: Duration,
    /// Longest hold by a renewed lease.
    pub max_hold: Option<Duration>,
    /// Longest time for which a waiter may have the lock, or be the queue head, without a poll.
    pub unpolled_limit: Duration,
    /// A release at the store wakes one waiter of all clients, which goes first.
    pub wakes_one: bool,
}

impl Rules {
    /// Returns the unpolled limit of a call that was superseded this often: see
    /// [`superseded`](super::Request::superseded).
    #[must_use]
    pub fn unpolled_limit_after(&self, superseded: u32) -> Duration {
        let longer = self.unpolled_limit.saturating_mul(1 << superseded.min(31));
        longer.min(self.renewed_lease / 3).max(self.unpolled_limit)
    }
}

/// Rules by which a lock passes between processes, and inside of a process.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use latchwork::lock_entry::Policy;
/// let tenure = Duration::from_millis(30);
/// assert_eq!(Policy::Exclusive { tenure }.shared(), Policy::Shared { tenure });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// One owner at a time. A lease passes from waiter to waiter in memory.
    Exclusive {
        /// Longest time for which a lease stays in this process while other processes wait. Doubles, up to
        /// eight times the length, as long as no other client hears of the release.
        tenure: Duration,
    },
    /// One owner at a time, by the store's queue over all processes. Each lease goes back to the store when
    /// its holder leaves, and the release [names](super::NextHead) the oldest waiter here.
    Queued {
        /// Time for which the store keeps a waiter's position.
        position: Duration,
    },
    /// Any number of owners at a time, like readers, as long as the store grants this process the lock.
    Shared {
        /// Time for which newcomers may join a lease in memory. Later newcomers ask the store.
        tenure: Duration,
    },
}

impl Policy {
    /// Returns the same policy for any number of owners.
    #[must_use]
    pub fn shared(self) -> Self {
        Self::Shared { tenure: self.tenure() }
    }

    fn tenure(self) -> Duration {
        match self {
            Self::Exclusive { tenure } | Self::Shared { tenure } => tenure,
            Self::Queued { .. } => Duration::ZERO,
        }
    }

    fn position(self) -> Option<Duration> {
        match self {
            Self::Queued { position } => Some(position),
            Self::Exclusive { .. } | Self::Shared { .. } => None,
        }
    }

    fn is_shared(self) -> bool {
        matches!(self, Self::Shared { .. })
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            policy: Policy::Exclusive { tenure: Duration::from_millis(30) },
            renewed_lease: Duration::from_secs(30),
            max_hold: None,
            unpolled_limit: Duration::from_secs(1),
            wakes_one: false,
        }
    }
}

#[derive(Debug)]
pub(super) struct Ownership {
    rules: Rules,
    /// A third of the renewed lease. A division in each event would cost as much as the rest of the event.
    third: Duration,
    phase: Phase,
    /// Holds of a shared lock that newcomers may not join, each with a lease of its own.
    parallel: Vec<(Hold, StoreLease)>,
    /// The client knows of parallel holds to be merged.
    merging: bool,
    pub(super) queue: Queue,
    last_serial: u64,
    /// A competition was refused, and none since was won by its first attempt after a back-off.
    contended: bool,
    /// Time at which waiters of this client last knew of a holder: a hold here ended, or a refused queue head
    /// gave up.
    known_held: Option<Moment>,
    /// Time of the answer to this client's last forced unlock.
    pub(super) forced: Option<Moment>,
    tenure: Duration,
    /// End of the back-off in which other processes go first.
    others_first_until: Option<Moment>,
    /// Losses of holds that had a guard, by serial. A shared lock may have thousands at a time.
    losses: BTreeMap<u64, Loss>,
    pub(super) acquisitions: u64,
    pub(super) hand_offs: u64,
    /// Time of the next [look](Self::tick) known to the client; `NEVER` if the client knows of none.
    next_look_said: Moment,
    closed: bool,
}

#[derive(Debug)]
enum Phase {
    Free,
    Competing(HeadState),
    Held(Hold, StoreLease),
    /// A lease goes back, or a call has claimed the entry to take one.
    Returning {
        tenure_used_up: bool,
    },
}

#[derive(Debug)]
struct Hold {
    owner_holds: OwnerHolds,
    /// Sums over all sharers, which each event needs.
    unclaimed: u32,
    watched: u32,
    guards: u32,
    token: Option<u64>,
    /// Lower bound on the earliest [`Sharer::due`], maybe too early.
    limit: Moment,
    /// Lower bound on the time of the oldest unclaimed grant.
    granted: Moment,
}

#[derive(Debug)]
struct Loss {
    reason: LossReason,
    guards: u32,
}

impl Hold {
    #[inline]
    fn without_owners() -> Self {
        Self {
            owner_holds: OwnerHolds::default(),
            unclaimed: 0,
            watched: 0,
            guards: 0,
            token: None,
            limit: Moment::NEVER,
            granted: Moment::NEVER,
        }
    }

    #[inline]
    fn begun(serial: u64, sharer: Sharer, token: Option<u64>, now: Moment) -> Self {
        Self {
            unclaimed: sharer.unclaimed,
            watched: sharer.watched,
            guards: sharer.guards,
            token,
            limit: sharer.due(),
            granted: now,
            owner_holds: OwnerHolds::of_one(serial, sharer),
        }
    }

    #[inline]
    fn add(&mut self, serial: u64, sharer: Sharer) {
        self.unclaimed += sharer.unclaimed;
        self.watched += sharer.watched;
        self.guards += sharer.guards;
        self.limit = self.limit.min(sharer.due());
        self.owner_holds.add(serial, sharer);
    }

    fn remove(&mut self, serial: u64) -> u32 {
        let sharer = self.owner_holds.remove(serial).expect("the caller has looked");
        self.unclaimed -= sharer.unclaimed;
        self.watched -= sharer.watched;
        self.guards -= sharer.guards;
        sharer.guards
    }

    /// Merges a parallel hold into this hold, under this hold's lease. Newcomers do not get the other hold's
    /// token: a writer may have got a greater token since then, and may now read, too.
    fn take_in(&mut self, mut other: Self) {
        let token = self.token;
        let granted = self.granted.min(other.granted);
        // Moves the smaller of both: there may be thousands of sharers.
        if other.owner_holds.len() > self.owner_holds.len() {
            std::mem::swap(self, &mut other);
        }
        other.owner_holds.into_each(|serial, sharer| self.add(serial, sharer));
        (self.token, self.granted) = (token, granted);
    }

    #[inline]
    fn drop_guard(&mut self, grant: &Grant) {
        let Some(sharer) = self.owner_holds.get_mut(grant.serial) else { return };
        sharer.guards -= 1;
        sharer.remove_end(grant.own_end);
        self.guards -= 1;
        self.watched -= u32::from(grant.is_watched());
    }

    /// Removes a guard and keeps its hold: until the lease ends, if the lease was renewed for the guard.
    fn forget_guard(&mut self, grant: &Grant, lease_ends: Moment) {
        self.drop_guard(grant);
        let Some(sharer) = self.owner_holds.get_mut(grant.serial) else { return };
        sharer.add_forgotten(grant.own_end.unwrap_or(lease_ends));
        self.limit = self.limit.min(sharer.due());
    }

    fn drop_claim(&mut self, grant: &Grant, now: Moment) -> Option<(u32, LossReason)> {
        let sharer = self.owner_holds.get_mut(grant.serial)?;
        sharer.unclaimed -= 1;
        sharer.remove_end(grant.own_end);
        self.unclaimed -= 1;
        self.watched -= u32::from(grant.is_watched());
        self.drop_count(grant.serial, now)
    }

    fn add_count(&mut self, grant: &Grant, claimed: bool, max_hold: Option<Duration>, now: Moment) {
        let Some(sharer) = self.owner_holds.get_mut(grant.serial) else { return };
        sharer.count += 1;
        sharer.unclaimed += 1;
        sharer.add_end(grant.own_end);
        if grant.is_watched() && sharer.watched == 1 {
            // The sharer's other holds have ends of their own, or are forgotten.
            sharer.limit_hold(max_hold, now);
        }
        self.unclaimed += 1;
        self.watched += u32::from(grant.is_watched());
        if claimed {
            self.claim(grant.serial);
        }
    }

    #[inline]
    fn claim(&mut self, serial: u64) {
        let Some(sharer) = self.owner_holds.get_mut(serial) else { return };
        sharer.unclaimed -= 1;
        sharer.guards += 1;
        self.unclaimed -= 1;
        self.guards += 1;
    }

    fn prolong(&mut self, grant: &Grant, ends: Option<Moment>) {
        if let Some(sharer) = self.owner_holds.get_mut(grant.serial) {
            sharer.remove_end(grant.own_end);
            sharer.add_end(ends);
        }
    }

    /// Removes a hold of a sharer. If no other lasts, returns the count of lost guards, and the reason.
    #[inline]
    fn drop_count(&mut self, serial: u64, now: Moment) -> Option<(u32, LossReason)> {
        let sharer = self.owner_holds.get_mut(serial)?;
        sharer.count -= 1;
        let reason = if sharer.count == 0 {
            LossReason::GivenBack
        } else if sharer.due() <= now {
            LossReason::Expired
        } else {
            self.limit = self.limit.min(sharer.due());
            return None;
        };
        Some((self.remove(serial), reason))
    }

    /// True if a newcomer with this request may share the hold. `extent`: longest lease of the newcomer's.
    fn suffices(&self, request: &Request, extent: Duration, is_renewable: bool) -> bool {
        request.lease.map_or(is_renewable, |wanted| wanted <= extent)
            && (!request.fenced || self.token.is_some())
    }

    fn has_guard(&self) -> bool {
        self.guards > 0
    }

    fn lasts(&self, lease: &StoreLease, now: Moment) -> bool {
        now < self.limit && !lease.is_over(now)
    }
}

impl Ownership {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            third: rules.renewed_lease / 3,
            tenure: rules.policy.tenure(),
            rules,
            phase: Phase::Free,
            parallel: Vec::new(),
            merging: false,
            queue: Queue::default(),
            last_serial: 0,
            contended: false,
            known_held: None,
            forced: None,
            others_first_until: None,
            losses: BTreeMap::new(),
            acquisitions: 0,
            hand_offs: 0,
            next_look_said: Moment::NEVER,
            closed: false,
        }
    }

    /// Changes the phase. Only this function and [`take_phase`](Self::take_phase) do.
    #[inline]
    fn transition(&mut self, next: Phase) {
        debug_assert!(
            !matches!(&self.phase, Phase::Competing(head) if head.waker.is_some()),
            "the queue head's waker, which is foreign code, is dropped under the entry's mutex"
        );
        self.phase = next;
    }

    fn take_phase(&mut self) -> Phase {
        std::mem::replace(&mut self.phase, Phase::Free)
    }

    /// Returns a serial that no hold, queue head or waiter of any entry has had.
    fn next_serial(&mut self) -> u64 {
        if self.last_serial.is_multiple_of(BLOCK) {
            // Ordering: Relaxed, as only the number counts, which is unique.
            self.last_serial = SERIALS.fetch_add(BLOCK, Ordering::Relaxed);
        }
        self.last_serial += 1;
        self.last_serial
    }

    // === Entering ===

    pub(super) fn enter(
        &mut self,
        request: &Request,
        may_wait: bool,
        now: Moment,
        effects: &mut Effects,
    ) -> Turn {
        if self.closed {
            return Turn::Closed;
        }
        self.end_if_over(now, effects);
        if let Some(entered) = self.join(request, now, effects) {
            return entered;
        }
        if self.rules.policy.is_shared() {
            self.park_current();
        }
        match &self.phase {
            Phase::Free => {
                let steps = self.steps_behind_others(now);
                let serial = self.compete(*request, None, None, steps, now);
                Turn::Head(HeadTicket { serial, steps, since: now, has_position: false })
            }
            _ if !may_wait && !self.awaits_answer() => Turn::Busy,
            _ => {
                let serial = self.next_serial();
                let slot = self.queue.push(serial, *request, now, !may_wait);
                // Waiters behind the first need no earlier look.
                if self.queue.len() == 1 {
                    self.plan_next_look(now, effects);
                }
                Turn::Queued(Ticket { slot, serial })
            }
        }
    }

    /// True if the answer that the queue head waits for may admit more waiters.
    fn awaits_answer(&self) -> bool {
        let is_no = matches!(&self.phase, Phase::Competing(head) if head.refused);
        self.rules.policy.is_shared() && !is_no
    }

    fn steps_behind_others(&mut self, now: Moment) -> u32 {
        let left = self
            .others_first_until
            .take()
            .map_or(0, |until| until.saturating_duration_since(now).as_nanos().div_ceil(BACK_OFF.as_nanos()));
        left.min(u128::from(MAX_STEPS)) as u32
    }

    // === Re-entering and sharing ===

    /// Returns holds with their leases: the hold in hand first.
    fn held(&self) -> impl Iterator<Item = (&Hold, &StoreLease)> {
        let in_hand = match &self.phase {
            Phase::Held(hold, lease) => Some((hold, lease)),
            _ => None,
        };
        in_hand.into_iter().chain(self.parallel.iter().map(|(hold, lease)| (hold, lease)))
    }

    fn held_mut(&mut self) -> impl Iterator<Item = (&mut Hold, &mut StoreLease)> {
        let in_hand = match &mut self.phase {
            Phase::Held(hold, lease) => Some((hold, lease)),
            _ => None,
        };
        in_hand.into_iter().chain(self.parallel.iter_mut().map(|(hold, lease)| (hold, lease)))
    }

    #[inline]
    fn held_by_serial(&mut self, serial: u64) -> Option<(&mut Hold, &mut StoreLease)> {
        self.held_mut().find(|(hold, _)| hold.owner_holds.has(serial))
    }

    fn held_by_number(&mut self, number: u64) -> Option<(&mut Hold, &mut StoreLease)> {
        self.held_mut().find(|(_, lease)| lease.number() == number)
    }

    fn join(&mut self, request: &Request, now: Moment, effects: &mut Effects) -> Option<Turn> {
        if self.has_nothing() {
            return None;
        }
        let has_it = self.held().any(|(hold, _)| hold.owner_holds.of_owner(request.owner).is_some());
        if !has_it && !self.admits(request, now) {
            return None;
        }
        let (grant, extension) = self.join_hold(request, true, now);
        self.acquisitions += 1;
        self.plan_next_look(now, effects);
        Some(Turn::Granted(grant, extension))
    }

    #[inline]
    fn has_nothing(&self) -> bool {
        self.parallel.is_empty() && !matches!(self.phase, Phase::Held(..))
    }

    fn admits(&self, request: &Request, now: Moment) -> bool {
        let Phase::Held(hold, lease) = &self.phase else { return false };
        self.rules.policy.is_shared()
            && now < lease.tenure_ends
            && hold.suffices(request, lease.left(now), lease.is_renewable(self.third, now))
    }

    /// Adds one more hold of a holder, or an owner to the hold in hand: a guard if `claimed`, else a grant.
    fn join_hold(&mut self, request: &Request, claimed: bool, now: Moment) -> (Grant, Option<Extension>) {
        let (renewed_lease, third, max_hold) = (self.rules.renewed_lease, self.third, self.rules.max_hold);
        let its = |hold: &Hold| hold.owner_holds.of_owner(request.owner).map(|(serial, _)| serial);
        let its = self.held().find_map(|(hold, _)| its(hold));
        let serial = its.unwrap_or_else(|| self.next_serial());
        let held = match its {
            Some(serial) => self.held_by_serial(serial),
            None => self.held_mut().next(),
        };
        let (hold, lease) = held.expect("only a hold can be joined");
        if request.fenced && hold.token.is_none() {
            hold.token = lease.tokens.next();
        }
        let (watched, is_renewed) =
            (request.is_watched(), hold.watched > 0 || lease.is_renewable(third, now));
        let own_end = request.lease.map(|lease| now + lease);
        let token = hold.token.filter(|_| request.fenced);
        let grant = Grant::new(serial, token, own_end);
        match its {
            Some(_) => hold.add_count(&grant, claimed, max_hold, now),
            None => hold.add(serial, Sharer::new(request, claimed, own_end, max_hold, now)),
        }
        let wanted = request.lease.unwrap_or(renewed_lease);
        let number = lease.number();
        // A newcomer fits the lease; a lease to be renewed in time need not be long from the start.
        let suffices = its.is_none() || watched && is_renewed || wanted <= lease.left(now);
        let fenced = request.fenced && token.is_none();
        let extension = (fenced || !suffices).then_some(Extension { number, lease: wanted, fenced });
        (grant, extension)
    }

    /// Makes the hold in hand a parallel hold: newcomers ask the store.
    fn park_current(&mut self) {
        if let Phase::Held(..) = self.phase
            && let Phase::Held(hold, lease) = self.take_phase()
        {
            self.parallel.push((hold, lease));
        }
    }

    /// Returns the number of the newest lease, and those of the parallel leases that end no later, ascending.
    pub(super) fn older_leases(&self) -> (u64, Vec<u64>) {
        let leases = self.held().map(|(_, lease)| lease);
        let Some(newest) = leases.max_by_key(|lease| (lease.begun, lease.number())) else {
            return (0, Vec::new());
        };
        let is_older =
            |lease: &&StoreLease| lease.sure_until <= newest.sure_until && lease.number() != newest.number();
        let older = self.parallel.iter().map(|(_, lease)| lease).filter(is_older).take(MERGED_AT_ONCE);
        let mut older: Vec<u64> = older.map(StoreLease::number).collect();
        older.sort_unstable();
        (newest.number(), older)
    }

    fn plan_merge(&mut self, effects: &mut Effects) {
        if !self.parallel.is_empty() && !std::mem::replace(&mut self.merging, true) {
            effects.more().has_older_leases = true;
        }
    }

    /// Merges the holds of `older` leases into the hold by the lease `into`. The store has confirmed all of
    /// them by one command, sent after the last was granted: their holders have had the lock all the time.
    pub(super) fn merge(&mut self, into: u64, older: &[u64], now: Moment, effects: &mut Effects) {
        self.merging = false;
        self.end_if_over(now, effects);
        let until = self.held_by_number(into).map(|(_, lease)| lease.sure_until);
        let is_merged = |(_, theirs): &mut (Hold, StoreLease)| {
            until.is_some_and(|until| theirs.sure_until <= until)
                && older.binary_search(&theirs.number()).is_ok()
        };
        for (theirs, their_lease) in self.parallel.extract_if(.., is_merged).collect::<Vec<_>>() {
            effects.release(their_lease.record.to_release(false), None);
            let (hold, _) = self.held_by_number(into).expect("not among the older leases");
            hold.take_in(theirs);
        }
        if !older.is_empty() {
            self.plan_merge(effects);
        }
        self.plan_next_look(now, effects);
    }

    pub(super) fn adopt(
        &mut self,
        request: &Request,
        attempt: Attempt,
        last_token: u64,
        now: Moment,
        effects: &mut Effects,
    ) -> Option<Grant> {
        if attempt.until <= now || self.closed {
            effects.release(attempt.rollback(), None);
            return None;
        }
        let phase = self.take_phase();
        let record = StoreRecord::new(attempt.number, now + attempt.lease);
        self.hold_by(&attempt, attempt.granted_tokens(last_token), attempt.sent, record);
        let grant = self.begin_hold(request, true, now);
        self.park_current();
        self.transition(phase);
        // The owner's waiters enter anew and join: the new holder may be waiting for one of them.
        self.evict_owner(request.owner, now, effects);
        self.acquisitions += 1;
        self.plan_next_look(now, effects);
        Some(grant)
    }

    // === Claims of an idle entry ===

    /// Returns the gate's state that stands for the phase.
    #[inline]
    pub(in crate::lock_entry) fn gate(&self) -> u32 {
        let is_bare = || self.parallel.is_empty() && self.others_first_until.is_none() && !self.closed;
        match &self.phase {
            Phase::Free if is_bare() => OPEN,
            Phase::Returning { tenure_used_up: false } if self.queue.is_empty() && is_bare() => CLAIMED,
            _ => IN_USE,
        }
    }

    /// Enters the phase that the gate's state stands for: claimed or free.
    pub(super) fn settle(&mut self, claimed: bool) {
        let claimed = claimed && !fault!(ClaimOverlooked);
        self.transition(if claimed { Phase::Returning { tenure_used_up: false } } else { Phase::Free });
    }

    pub(super) fn take(
        &mut self,
        request: &Request,
        attempt: &Attempt,
        last_token: u64,
        now: Moment,
        effects: &mut Effects,
    ) -> Option<Grant> {
        if attempt.until <= now || self.closed {
            effects.release(attempt.rollback(), None);
            self.appoint(None, 0, now, effects);
            return None;
        }
        let record = StoreRecord::new(attempt.number, now + attempt.lease);
        self.hold_by(attempt, attempt.granted_tokens(last_token), attempt.sent + self.tenure, record);
        Some(self.begin_first_hold(request, attempt.lease, now, effects))
    }

    // === Waiting ===

    pub(super) fn is_queued(&self, ticket: &Ticket) -> bool {
        self.queue.is_current(ticket.slot, ticket.serial)
            && matches!(self.queue.place(ticket.slot), Place::Queued | Place::NamedWithRelease)
    }

    /// Returns the turn of a waiter that is no longer queued, and frees its slot.
    pub(super) fn claim(&mut self, ticket: &Ticket, now: Moment, effects: &mut Effects) -> Turn {
        let slot = ticket.slot;
        if !self.queue.is_current(slot, ticket.serial) {
            return Turn::Superseded;
        }
        let (place, waker) = self.queue.remove(slot);
        effects.keep_waker(waker);
        match place {
            Place::Queued | Place::NamedWithRelease => unreachable!("the caller has looked"),
            Place::Granted(grant, extension, _) => self.claim_grant(grant, extension, now, effects),
            Place::Appointed(serial) => match &mut self.phase {
                Phase::Competing(head) if head.serial == serial => Turn::Head(head.claimed()),
                _ => Turn::Superseded,
            },
            Place::Over(turn) => turn,
        }
    }

    fn claim_grant(
        &mut self,
        grant: Grant,
        extension: Option<Extension>,
        now: Moment,
        effects: &mut Effects,
    ) -> Turn {
        // The waiter may have been polled late.
        self.end_if_over(now, effects);
        if grant.ends() <= now {
            // A lease of the waiter's own is over, while another lease of its owner lasts.
            self.drop_grant(&grant, now, effects);
            return Turn::Superseded;
        }
        let Some((hold, _)) = self.held_by_serial(grant.serial) else { return Turn::Superseded };
        hold.claim(grant.serial);
        self.acquisitions += 1;
        // A claim makes no look due earlier than planned.
        Turn::Granted(grant, extension)
    }

    pub(super) fn register(&mut self, slot: Slot, waker: std::task::Waker, effects: &mut Effects) {
        effects.keep_waker(self.queue.register(slot, waker));
    }

    pub(super) fn cancel(&mut self, ticket: &Ticket, now: Moment, effects: &mut Effects) {
        let slot = ticket.slot;
        // After the waiter's turn was claimed, its slot may be another waiter's.
        if !self.queue.is_current(slot, ticket.serial) {
            return;
        }
        let (place, waker) = self.queue.remove(slot);
        effects.keep_waker(waker);
        match place {
            Place::Granted(grant, ..) => {
                self.drop_grant(&grant, now, effects);
            }
            // The release under way names the waiter: `answered` rolls the number back if need be. Until its
            // answer the lock counts as held.
            Place::NamedWithRelease => {
                self.known_held = Some(now);
                self.appoint(None, 0, now, effects);
            }
            Place::Appointed(serial) => self.abandon(serial, now, effects),
            Place::Queued | Place::Over(_) => {}
        }
    }

    fn drop_grant(&mut self, grant: &Grant, now: Moment, effects: &mut Effects) {
        self.end_if_over(now, effects);
        let Some((hold, _)) = self.held_by_serial(grant.serial) else { return };
        let left = hold.drop_claim(grant, now);
        self.note_loss(grant.serial, left, effects);
        self.end_in_background_if_empty(now, effects);
        // The holds that are left may end earlier.
        self.plan_next_look(now, effects);
    }
}
