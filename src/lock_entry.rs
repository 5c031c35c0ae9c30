//! [`LockEntry`]: a re-entrant, fair lock of one name inside of a process, leased from a store.

mod effects;
mod events;
mod gate;
mod ownership;
mod queue;
#[cfg(all(test, feature = "lock", not(latchwork_loom)))]
mod tests;

use std::fmt;
use std::ops::DerefMut;
use std::task::Waker;
use std::time::Duration;

use crate::latch::Latch;
use crate::support::event::Event;
pub use crate::support::moment::Moment;
use crate::support::sync::Mutex;
use crate::support::sync::atomic::{AtomicU32, Ordering};

pub use self::effects::{Effects, NextHead};
#[cfg(feature = "lock")]
pub(crate) use self::events::BACK_OFF;
pub use self::events::{
    Answer, Attempt, Extension, Grant, HeadTicket, HeldHere, HoldState, LossReason, PendingRelease, Request,
    Ticket, Turn,
};
use self::gate::Gate;
use self::ownership::Ownership;
pub use self::ownership::{Policy, Renewal, Rules};

/// A re-entrant, fair lock of one name inside of a process, to be driven by a lock client of your own.
///
/// The store grants the lock to the *process*, as a lease under a number, and the entry passes the lock on
/// inside. Each method is an event: the caller gives the time, and the entry notes the client's work in
/// [`Effects`]. An entry sends nothing, reads no clock and spawns nothing: it fits any store and runtime.
///
/// # Examples
///
/// An owner acquires the lock from the store, re-enters it in memory, and hands it off to another owner:
///
/// ```
/// use std::task::Waker;
/// use std::time::{Duration, Instant};
/// use latchwork::lock_entry::{Answer, Effects, LockEntry, Moment, Request, Rules, Turn};
///
/// let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// let (lease, request) = (Duration::from_secs(30), Request::new(1));
/// let (mut effects, waker) = (Effects::default(), Waker::noop());
/// let Turn::Head(head) = entry.enter(&request, Some(waker.clone()), now, &mut effects) else { panic!() };
/// let attempt = entry.attempt(&head, 1, now, lease).expect("still the queue head");
/// // … the store grants lease 1 …
/// let answered = entry.answered(&head, attempt, Answer::Granted { last_token: 0 }, now, &mut effects);
/// let Some(Turn::Granted(outer, None)) = answered else { panic!() };
///
/// // The same owner re-enters: a count in memory.
/// let entered = entry.enter(&request, Some(waker.clone()), now, &mut effects);
/// let Turn::Granted(inner, None) = entered else { panic!() };
/// assert_eq!(entry.leave(inner, now, &mut effects), Ok(None));
///
/// // Owner 2 waits, and gets the lock without a command.
/// let entered = entry.enter(&Request::new(2), Some(waker.clone()), now, &mut effects);
/// let Turn::Queued(ticket) = entered else { panic!() };
/// assert_eq!(entry.leave(outer, now, &mut effects), Ok(None));
/// assert_eq!(entry.holder(now), Some((2, 1)));
/// # entry.cancel(ticket, now, &mut effects);
/// ```
///
/// [`examples/own_lock_client`] is a small lock client over an entry.
///
/// [`examples/own_lock_client`]: https://github.com/latchwork/latchwork/tree/main/examples/own_lock_client
///
/// # How a client uses it
///
/// ```text
/// enter ─► Granted to an owner that has the lock               (0 commands)
///       ├► Queued ─► poll ─► Granted, handed off in memory      (0 commands)
///       │                └─► Head
///       └► Head: attempt ─► ask the store ─► acquired: a grant
///                     ▲                  └─► refused: sleep on the latch, or until the holder's lease ends
///                     └──────────────────────────┘
/// leave ─► None: passed on, or held by the owner still           (0 commands)
///       └► a release at the store, returned
/// ```
///
/// * Only the queue head asks the store, under the number that [`attempt`](Self::attempt) returns.
/// * When a message reports a release of the lock, the client calls `latch().release(1)`, unless the queue
///   head hears messages elsewhere: see [`latch`](Self::latch).
/// * At [`Effects::look_at`] the client calls [`tick`](Self::tick), which ends leases, supersedes waiters
///   that are not polled, and returns the renewal to send.
/// * The client repeats a release until the store answers or the lease is over.
/// * If [`Effects::wakes_sleepers`] is true, the client wakes all sleepers of the latch by
///   `latch().release_all()`.
/// * No command may shorten a lease at the store. An unanswered command may run late: a hold ends at the
///   earliest possible end of its lease, and a release is repeated until the latest.
///
/// # Events
///
/// | when | call |
/// |---|---|
/// | a caller asks the store before it enters | [`claim`](Self::claim), [`take`](Self::take) |
/// | a caller enters and waits | [`enter`](Self::enter), [`poll`](Self::poll), [`cancel`](Self::cancel), [`evict_owner`](Self::evict_owner) |
/// | the queue head competes | [`attempt`](Self::attempt), [`poll_head`](Self::poll_head), [`wake_head`](Self::wake_head), [`abandon`](Self::abandon) |
/// | a holder leaves, or extends its lease | [`leave`](Self::leave), [`leave_by_name`](Self::leave_by_name), [`forget`](Self::forget), [`prolong`](Self::prolong), [`extending`](Self::extending), [`verify_soon`](Self::verify_soon) |
/// | the store answers an attempt | [`answered`](Self::answered), [`asks_itself`](Self::asks_itself), [`granted_by_message`](Self::granted_by_message), [`adopt`](Self::adopt) |
/// | the store answers a release | [`appoint_next`](Self::appoint_next), [`note_receivers`](Self::note_receivers), [`forced`](Self::forced) |
/// | the store answers for a lease | [`renewed`](Self::renewed), [`extended`](Self::extended), [`not_extended`](Self::not_extended), [`gone`](Self::gone), [`merge`](Self::merge) |
/// | an answer is not read, or a command may run twice | [`unread`](Self::unread), [`may_run_again`](Self::may_run_again) |
/// | time has come | [`tick`](Self::tick), [`renew_early`](Self::renew_early), [`end_what_is_over`](Self::end_what_is_over) |
/// | the client ends | [`close`](Self::close) |
///
/// # Fairness
///
/// First come, first served, in the order of [`enter`](Self::enter): a released lock goes to the oldest
/// waiter. Only the waiters of one [shared owner](Request::shared_owner) get the lock together.
///
/// # At a store with a queue
///
/// A store may keep a queue of all processes, and a waiter's position for the time of [`Policy::Queued`]:
///
/// ```text
/// Head: attempt ─► ask, for a position ─► acquired
///          ▲          └─► queued: sleep until a message grants the lock, or until the next question, which
///          │                  │     renews the position
///          │                  ├─► granted_by_message: a grant
///          └──────────────────┘
/// leave ─► None, a release with NextHead: attempt ─► release that names the waiter ─► answered
/// ```
///
/// * Nothing is handed off in memory: each lease goes back to the store when its holder leaves.
/// * The oldest waiter becomes the queue head when the holder leaves, and is [named](NextHead) with the
///   release. [`poll`](Self::poll) returns the role only after the store's answer to that release.
/// * [`HeadTicket::since`] is the start of the wait, which decides the position at the store.
/// * If a number's position may be over, the client rolls it back, and the queue head takes another: the old
///   number may have got the lock meanwhile, and that grant's message may come too late.
///
/// # Shared
///
/// With [`Policy::Shared`] waiters hold the lock together, like readers, by one lease of the client:
///
/// * Within the [tenure](Policy::Shared) a newcomer joins the holders, in memory. Later a newcomer is the
///   queue head, and asks the store under another number, so that other processes have their turn.
/// * The store's grant to that queue head admits all waiters whose requests fit the lease. Holders
///   [move](Self::merge) to the new lease, unless theirs lasts longer, and the client releases the older
///   one: first the store confirms both, as one may have been lost before the other began.
/// * Each owner has a serial of its own, leaves by itself and is lost by itself.
/// * An owner that holds the lock re-enters at once, before all waiters.
/// * A lease longer than [`Rules::renewed_lease`] is renewed each third of `renewed_lease`: other processes
///   may have cut the lease at the store, as Redisson's readers do.
/// * A caller that may not wait is [queued](Turn::Queued) only until the queue head's first answer; after a
///   refusal the caller gets [`Turn::Busy`].
#[doc(alias = "RedissonLockEntry")]
pub struct LockEntry {
    ownership: Mutex<Ownership>,
    gate: Gate,
    /// Count of events whose releases are not yet reported as [sent](Self::sent).
    unsent: AtomicU32,
    latch: Latch,
    lost: Event,
}

impl LockEntry {
    /// An entry without holds.
    pub fn new(rules: Rules) -> Self {
        let (ownership, gate) = (Mutex::new(Ownership::new(rules)), Gate::default());
        Self { ownership, gate, unsent: AtomicU32::new(0), latch: Latch::new(), lost: Event::default() }
    }

    /// Latch on which the queue head sleeps. A client with a [`Registry`](crate::subscription::Registry)
    /// hears messages at the channel's latch instead, and uses this one for wakes of its own.
    pub fn latch(&self) -> &Latch {
        &self.latch
    }

    /// Runs an event of the engine, [`Ownership`]. It calls no foreign code: wakers go into the effects.
    #[inline(always)]
    fn event<T>(&self, effects: &mut Effects, event: impl FnOnce(&mut Ownership, &mut Effects) -> T) -> T {
        let mut ownership = self.ownership.lock();
        if let Some(claimed) = self.gate.come_in() {
            ownership.settle(claimed);
        }
        self.event_inside(&mut ownership, effects, event)
    }

    /// Runs an event for a caller that has locked the mutex, and has claimed the entry or passed the gate.
    #[inline(always)]
    fn event_inside<T>(
        &self,
        ownership: &mut Ownership,
        effects: &mut Effects,
        event: impl FnOnce(&mut Ownership, &mut Effects) -> T,
    ) -> T {
        let outcome = event(ownership, effects);
        if effects.lost().is_some() {
            effects.wake_all(self.lost.tell());
        }
        if effects.count_releases() {
            // Ordering: Relaxed, as every read happens under the mutex.
            self.unsent.fetch_add(1, Ordering::Relaxed);
        }
        self.gate.leave(ownership.gate());
        outcome
    }

    /// Locks the engine, for queries and for changes that leave the gate's state as it is.
    fn inside(&self) -> impl DerefMut<Target = Ownership> + '_ {
        let mut ownership = self.ownership.lock();
        if let Some(claimed) = self.gate.look() {
            ownership.settle(claimed);
        }
        ownership
    }

    // === Callers and holders ===

    /// Enters an owner that wants the lock. A queued caller's `waker` is registered; no waker: may not wait.
    #[inline]
    pub fn enter(&self, request: &Request, waker: Option<Waker>, now: Moment, effects: &mut Effects) -> Turn {
        self.event(effects, |ownership, effects| {
            let entered = ownership.enter(request, waker.is_some(), now, effects);
            match (&entered, waker) {
                (Turn::Queued(ticket), Some(waker)) => ownership.register(ticket.slot, waker, effects),
                (_, waker) => effects.keep_waker(waker),
            }
            entered
        })
    }

    /// Reserves an idle entry for one call, which asks the store before it enters: an acquisition then takes
    /// one event instead of two. Newcomers queue meanwhile. False if the entry is in use. After true the
    /// caller calls [`take`](Self::take), or, without a lease, [`appoint_next`](Self::appoint_next).
    #[inline]
    pub fn claim(&self) -> bool {
        self.gate.claim()
    }

    /// Reports that the store has granted the lock to a [claim](Self::claim), with tokens up to `last_token`.
    /// `None` if the lease is over or the entry closed; the lease is rolled back then.
    #[inline(always)]
    pub fn take(
        &self,
        request: &Request,
        attempt: &Attempt,
        last_token: u64,
        now: Moment,
        effects: &mut Effects,
    ) -> Option<Grant> {
        let mut ownership = self.ownership.lock();
        // The caller has the claim: no other thread changes the gate while the mutex is locked.
        self.event_inside(&mut ownership, effects, |ownership, effects| {
            ownership.take(request, attempt, last_token, now, effects)
        })
    }

    /// Returns the waiter's [`Turn`] after its wait; until then `waker` is registered. `Some` uses up the
    /// ticket: later polls return [`Turn::Superseded`], and [`cancel`](Self::cancel) does nothing.
    #[inline(always)]
    pub fn poll(&self, ticket: &Ticket, waker: &Waker, now: Moment, effects: &mut Effects) -> Option<Turn> {
        let (mut told, mut is_known) = (None, true);
        self.event(effects, |ownership, effects| match ownership.is_queued(ticket) {
            true => is_known = ownership.queue.will_wake(ticket.slot, waker),
            false => told = Some(ownership.claim(ticket, now, effects)),
        });
        if !is_known {
            return self.poll_anew(ticket, waker.clone(), now, effects);
        }
        told
    }

    /// Polls a waiter with another waker than before.
    fn poll_anew(&self, ticket: &Ticket, waker: Waker, now: Moment, effects: &mut Effects) -> Option<Turn> {
        self.event(effects, |ownership, effects| {
            if ownership.is_queued(ticket) {
                ownership.register(ticket.slot, waker, effects);
                return None;
            }
            effects.keep_waker(Some(waker));
            Some(ownership.claim(ticket, now, effects))
        })
    }

    /// Removes a waiter. An unclaimed grant, or role as queue head, passes to the next waiter.
    pub fn cancel(&self, ticket: Ticket, now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.cancel(&ticket, now, effects));
    }

    /// Returns the attempt to send at `sent`, for `lease`, by the head's number or else by `fresh`, a number
    /// never used before. `None` if the caller is no longer the queue head.
    pub fn attempt(&self, head: &HeadTicket, fresh: u64, sent: Moment, lease: Duration) -> Option<Attempt> {
        self.inside().attempt(head.serial, fresh, sent, lease)
    }

    /// Polls the queue head, and registers `waker`. False if the caller is no longer the queue head.
    pub fn poll_head(&self, head: &HeadTicket, waker: &Waker, effects: &mut Effects) -> bool {
        let (is_head, known) = {
            let ownership = self.inside();
            (ownership.is_head(head.serial), ownership.head_will_wake(waker))
        };
        if is_head && !known {
            let waker = waker.clone();
            self.event(effects, |ownership, effects| ownership.register_head(head.serial, waker, effects));
        }
        is_head
    }

    /// Wakes the queue head: an answer or a message for it has come.
    pub fn wake_head(&self, now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.head_woken(now, effects));
    }

    /// Removes the queue head, and rolls its number back. The next waiter takes its place.
    pub fn abandon(&self, head: &HeadTicket, now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.abandon(head.serial, now, effects));
    }

    /// Supersedes a sharing owner's waiters and queue head: they enter anew, and may join.
    pub fn evict_owner(&self, owner: u64, now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.evict_owner(owner, now, effects));
    }

    /// Gives a hold back. Returns a release if there are no waiters here, or the hold was parallel to others:
    /// the caller sends the release, and calls [`appoint_next`](Self::appoint_next) if the release
    /// [`appoints`](PendingRelease::appoints). `None` if the owner has other holds, or if the next waiter has
    /// the lock or competes, maybe after the answer to the effects' release.
    ///
    /// # Errors
    ///
    /// The [`LossReason`] if the hold was lost before.
    #[inline]
    pub fn leave(
        &self,
        grant: Grant,
        now: Moment,
        effects: &mut Effects,
    ) -> Result<Option<PendingRelease>, LossReason> {
        self.event(effects, |ownership, effects| ownership.leave(&grant, now, effects))
    }

    /// As [`leave`](Self::leave), for one hold of `owner`: a [forgotten](Self::forget) hold, or else a hold
    /// with a grant. With the owner's last hold, all its grants not yet given back are lost.
    ///
    /// # Errors
    ///
    /// [`LossReason::GivenBack`] if the owner has no hold.
    pub fn leave_by_name(
        &self,
        owner: u64,
        now: Moment,
        effects: &mut Effects,
    ) -> Result<Option<PendingRelease>, LossReason> {
        self.event(effects, |ownership, effects| ownership.leave_by_name(owner, now, effects))
    }

    /// Moves the end of a grant's own lease to a later time, unless the lease is over at `now`.
    pub fn prolong(&self, grant: &mut Grant, ends: Moment, now: Moment) {
        self.inside().prolong(grant, ends, now);
    }

    /// Drops a grant and keeps its hold, unless the hold is over at `now`.
    pub fn forget(&self, grant: Grant, now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.forget(&grant, now, effects));
    }

    /// Announces the command of an [`Extension`], sent at `sent`, and returns the lease to ask for, which the
    /// store may keep from now on. `None` if the lease is no longer in hand: send nothing.
    pub fn extending(&self, extension: Extension, sent: Moment, effects: &mut Effects) -> Option<Duration> {
        self.event(effects, |ownership, effects| ownership.extending(extension, sent, effects))
    }

    /// Makes [`tick`](Self::tick) verify the lease now, for a waiter with a short limit.
    pub fn verify_soon(&self, now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.verify_soon(now, effects));
    }

    /// Reports that the releases in `effects` are under way.
    pub fn sent(&self, effects: &Effects) {
        if effects.has_counted_releases() {
            // Ordering: Release, see `is_returning`.
            self.unsent.fetch_sub(1, Ordering::Release);
        }
    }

    /// Closes the entry: waiters and newcomers get [`Turn::Closed`]. Holds stay.
    pub fn close(&self, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.close(effects));
    }

    // === Answers of the store ===

    /// Reports the answer to an attempt, sent by the queue head or [named](NextHead) with a release. Returns
    /// `None` if the store has refused or not answered: the caller is still the queue head. A named waiter
    /// gets `None` for a grant, too, and [polls](Self::poll) for its turn.
    ///
    /// # Panics
    ///
    /// If the attempt belongs to another queue head.
    #[inline]
    pub fn answered(
        &self,
        head: &HeadTicket,
        attempt: Attempt,
        answer: Answer,
        now: Moment,
        effects: &mut Effects,
    ) -> Option<Turn> {
        self.event(effects, |ownership, effects| {
            ownership.answered(head.serial, attempt, answer, now, effects)
        })
    }

    /// Reports a message: the store has granted the lock to this number's [position](Policy::Queued). `None`
    /// if the lease may be over, or if the request asks for a lease of its own or a token: the head asks.
    pub fn granted_by_message(
        &self,
        head: &HeadTicket,
        number: u64,
        now: Moment,
        effects: &mut Effects,
    ) -> Option<Grant> {
        self.event(effects, |ownership, effects| {
            ownership.granted_by_message(head.serial, number, now, effects)
        })
    }

    /// Lets the waiter of a [`NextHead`] ask the store itself, if the release does not name the waiter.
    pub fn asks_itself(&self, head: &HeadTicket, now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.asks_itself(head.serial, now, effects));
    }

    /// Reports a lease granted [outside of the queue](Attempt::outside_of_queue) of a
    /// [shared](Policy::Shared) lock, with tokens up to `last_token`. `None`, with a rollback, if it is over
    /// or the entry closed.
    pub fn adopt(
        &self,
        request: &Request,
        attempt: Attempt,
        last_token: u64,
        now: Moment,
        effects: &mut Effects,
    ) -> Option<Grant> {
        self.event(effects, |ownership, effects| ownership.adopt(request, attempt, last_token, now, effects))
    }

    /// Reports that a release that [`appoints`](PendingRelease::appoints) is under way, or was answered.
    /// `receivers`: count of the other clients that heard of the release.
    #[inline]
    pub fn appoint_next(&self, receivers: usize, now: Moment, effects: &mut Effects) {
        // While the gate is `CLAIMED` there is no waiter here, and so no back-off to compute.
        if !self.gate.unclaim() {
            self.event(effects, |ownership, effects| ownership.appoint_next(receivers, now, effects));
        }
    }

    /// Reports how many other clients heard of a release, by the release's answer.
    pub fn note_receivers(&self, receivers: usize, now: Moment) {
        if receivers > 0 {
            self.event(&mut Effects::default(), |ownership, _| ownership.note_receivers(receivers, now));
        }
    }

    /// Reports the answer, at `now`, to a renewal sent at `sent`: `held`, or `None` if unknown. False if the
    /// answer is unknown, is for no lease in hand, or denies a lease begun anew after `sent`.
    pub fn renewed(
        &self,
        renewal: Renewal,
        held: Option<bool>,
        sent: Moment,
        now: Moment,
        effects: &mut Effects,
    ) -> bool {
        self.event(effects, |ownership, effects| ownership.renewed(renewal, held, sent, now, effects))
    }

    /// Reports the answer to an [`Extension`] sent at `sent`. False if the lease is no longer in hand: the
    /// client rolls back a token command, which may have begun the lease anew.
    pub fn extended(
        &self,
        number: u64,
        sent: Moment,
        lease: Duration,
        token: Option<u64>,
        now: Moment,
        effects: &mut Effects,
    ) -> bool {
        self.event(effects, |ownership, effects| ownership.extended(number, sent, lease, token, now, effects))
    }

    /// Returns the number of a [shared](Policy::Shared) lock's newest lease, and the numbers of older leases
    /// whose holds may be [merged](Self::merge). The client asks the store for all these leases, by one
    /// command that prolongs no lease, and reports the lost leases as [gone](Self::gone).
    pub fn older_leases(&self) -> (u64, Vec<u64>) {
        self.inside().older_leases()
    }

    /// Reports which of the [`older_leases`](Self::older_leases) the store has, ascending; none if the store
    /// has not answered. Their holds go on by the lease `into`.
    pub fn merge(&self, into: u64, older: &[u64], now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.merge(into, older, now, effects));
    }

    /// Reports that the command for an [`Extension`] did not run, and never will.
    pub fn not_extended(&self, extension: Extension) {
        self.inside().not_extended(extension);
    }

    /// Reports that the answer to an extension for a token is not read: its future was dropped, or it failed
    /// while the command may have run. If the lease was released meanwhile, the command may follow the
    /// release, and `roll_back` is among the effects. (For a queue head, report [`Answer::Unanswered`].)
    pub fn unread(&self, roll_back: PendingRelease, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.unread(roll_back, effects));
    }

    /// Reports that a leasing command was sent twice, and may run again after its answer. Call before that
    /// answer is reported, but for an [adopted](Self::adopt) lease afterwards. The number's release becomes a
    /// rollback; if neither the queue head nor a lease has the number, `roll_back` is among the effects.
    pub fn may_run_again(&self, roll_back: PendingRelease, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.may_run_again(roll_back, effects));
    }

    /// Reports that, by its answer to a command sent at `sent`, the store lacks this lease. False if the
    /// lease is not in hand, or was begun anew after `sent`: then [`tick`](Self::tick) verifies the lease.
    pub fn gone(&self, number: u64, sent: Moment, now: Moment, effects: &mut Effects) -> bool {
        self.event(effects, |ownership, effects| ownership.gone(number, sent, now, effects))
    }

    /// Reports a forced unlock: if a lease asked for before is granted, [`tick`](Self::tick) verifies it.
    pub fn forced(&self, now: Moment) {
        self.inside().forced = Some(now);
    }

    // === Time ===

    /// Ends leases that are over at `now`, supersedes waiters that are not polled, and returns the renewal to
    /// send. Call again at [`Effects::look_at`].
    pub fn tick(&self, now: Moment, effects: &mut Effects) -> Option<Renewal> {
        self.event(effects, |ownership, effects| ownership.tick(now, effects))
    }

    /// Returns a renewal that is due by `by`, for a client that sends several renewals in one command. Plans
    /// the next [`tick`](Self::tick) anew, as a tick does.
    pub fn renew_early(&self, by: Moment, now: Moment, effects: &mut Effects) -> Option<Renewal> {
        self.event(effects, |ownership, effects| ownership.renew_early(by, now, effects))
    }

    /// Ends leases and holds that are over at `now`, as [`tick`](Self::tick) does.
    pub fn end_what_is_over(&self, now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.end_if_over(now, effects));
    }

    // === Queries ===

    /// True if the caller is still the queue head.
    pub fn is_head(&self, head: &HeadTicket) -> bool {
        self.inside().is_head(head.serial)
    }

    /// Returns the hold of a grant, or the reason of its loss.
    ///
    /// # Errors
    ///
    /// The [`LossReason`].
    pub fn state_of(&self, grant: &Grant, now: Moment) -> Result<HoldState, LossReason> {
        self.inside().state_of(grant, now)
    }

    /// Waits until some hold of this name is lost before its guard gives it back. Listens from the call on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub fn some_loss(&self) -> impl Future<Output = ()> + Send + use<> {
        self.lost.listen()
    }

    /// Returns the owner that holds the lock in this process (or one of them), and the number of its holds.
    pub fn holder(&self, now: Moment) -> Option<(u64, u32)> {
        self.inside().each_hold(now).first().map(|hold| (hold.owner, hold.holds))
    }

    /// Returns the holds here and the count of waiting acquisitions, at one moment.
    pub fn each_hold(&self, now: Moment) -> (Vec<HeldHere>, usize) {
        let ownership = self.inside();
        (ownership.each_hold(now), ownership.waiting())
    }

    /// True if a release is due and not yet under way, or a newcomer's call asks the store.
    pub fn is_returning(&self) -> bool {
        let ownership = self.inside();
        // Ordering: Acquire, of the Release in `sent`: a release no longer counted is visible as under way.
        ownership.is_returning() || self.unsent.load(Ordering::Acquire) > 0
    }

    /// Returns how many acquisitions wait, the queue head included, and the start of the queue head's wait.
    pub fn waiting(&self) -> (usize, Option<Moment>) {
        let ownership = self.inside();
        (ownership.waiting(), ownership.head_waits_since())
    }

    /// Returns the start of the longest wait; `None` without a waiter.
    pub fn waits_since(&self) -> Option<Moment> {
        self.inside().waits_since()
    }

    /// Returns the leases by which an owner holds the lock here, each with its count of holds.
    pub fn holds_of(&self, owner: u64, now: Moment) -> Vec<(u64, u32)> {
        let holds = self.inside().each_hold(now).into_iter().filter(|hold| hold.owner == owner);
        holds.map(|hold| (hold.number, hold.holds)).collect()
    }

    /// Returns the numbers of the leases in hand: one at most, unless the lock is [shared](Policy::Shared).
    pub fn lease_numbers(&self) -> Vec<u64> {
        self.inside().lease_numbers().collect()
    }

    /// True if the lock counts as held, here or elsewhere, or a release or a claiming call is under way.
    pub fn is_known_held(&self) -> bool {
        self.inside().is_known_held()
    }

    /// True if [`is_known_held`](Self::is_known_held), or if a refused head gave up at or after `since`.
    pub fn was_known_held(&self, since: Moment) -> bool {
        self.inside().was_known_held(since)
    }

    /// Returns how often the lock was taken, re-entries included.
    pub fn acquisitions(&self) -> u64 {
        self.inside().acquisitions
    }

    /// Returns how many waiters were handed the lock in memory.
    pub fn hand_offs(&self) -> u64 {
        self.inside().hand_offs
    }

    /// Returns how many acquisitions are queued, without the queue head.
    pub fn waiters(&self) -> usize {
        self.inside().queue.len()
    }

    /// True if a hold has no grant, because the grant was [forgotten](Self::forget).
    pub fn is_forgotten(&self) -> bool {
        self.inside().is_forgotten()
    }

    /// True if there are no holds and no waiters here.
    pub fn is_idle(&self) -> bool {
        self.inside().is_idle()
    }
}

impl fmt::Debug for LockEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Read first: the formatter is foreign code.
        let (phase, waiters) = {
            let ownership = self.inside();
            (ownership.phase_name(), ownership.queue.len())
        };
        f.debug_struct("LockEntry")
            .field("phase", &phase)
            .field("waiters", &waiters)
            .field("latch", &self.latch)
            .finish_non_exhaustive()
    }
}
