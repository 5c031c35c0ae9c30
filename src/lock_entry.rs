//! [`LockEntry`]: a re-entrant, fair lock of one name inside of a process, under a lease that a store grants
//! to the process.

mod effects;
mod gate;
mod outcome;
mod ownership;
mod queue;
mod request;
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
use self::gate::Gate;
#[cfg(feature = "lock")]
pub(crate) use self::outcome::BACK_OFF;
pub use self::outcome::{
    Answer, Attempt, AttemptOutcome, HeadTicket, HeldHere, HoldState, LeaveOutcome, PendingRelease, Ticket,
    Turn,
};
use self::ownership::Ownership;
pub use self::ownership::{Policy, Renewal, Rules};
pub use self::request::{Extension, Grant, LossReason, Request};

/// A re-entrant, fair lock of one name inside of a process, and the zero-permit [`Latch`] on which its queue
/// head waits for the store.
///
/// The store grants the lock to the *process*, as a lease under a number; the entry passes it on inside the
/// process. It keeps the queue of waiters, the present owner and how often it holds the lock, the lease in
/// hand with its fencing tokens, and what became of holds that were lost. It sends nothing, keeps no time and
/// spawns nothing: each method is an event, is given the time, and notes in [`Effects`] what is to be done
/// outside, wakers to call among it. So it fits any store and any runtime.
///
/// # How a client uses it
///
/// ```text
/// enter ─► Granted to an owner that has the lock               (0 commands)
///       ├► Queued ─► poll ─► Granted, handed off in memory      (0 commands)
///       │                └─► Head
///       └► Head: attempt ─► ask the store ─► acquired: a grant
///                     ▲                  └─► refused: sleep on the latch, or until the other's lease is over
///                     └──────────────────────────┘
/// leave ─► Passed, Remains                                     (0 commands)
///       └► Return: release at the store, returned
/// ```
///
/// * Only the queue head talks to the store, by the number that [`attempt`](Self::attempt) names.
/// * A message that the lock was released is told to the queue head by `latch().release(1)`, unless it hears
///   them elsewhere: see [`latch`](Self::latch).
/// * [`tick`](Self::tick) is called when [`Effects::look_at`] says so: it ends leases, supersedes waiters
///   that are not polled, and says when a lease is to be renewed.
/// * A command that is never answered may have run, or may run yet: the entry keeps the end of a lease as a
///   range, believes in the earlier one, and has the lease released until the later one. So no command may
///   make a lease shorter at the store.
/// * A release named by [`Effects`] or by [`LeaveOutcome::Return`] is sent until the store has answered, or
///   its lease is over.
/// * If [`Effects::calls`], the client calls all who sleep on the latch, by `latch().release_all()`.
///
/// [`examples/own_lock_client`] is a small lock client over it; the crate's own is `src/lock`.
///
/// [`examples/own_lock_client`]: https://github.com/latchwork/latchwork/tree/main/examples/own_lock_client
///
/// # Events
///
/// | | |
/// |---|---|
/// | a caller enters and waits | [`enter`](Self::enter), [`poll`](Self::poll), [`cancel`](Self::cancel), [`evict_owner`](Self::evict_owner) |
/// | the queue head competes | [`attempt`](Self::attempt), [`poll_head`](Self::poll_head), [`wake_head`](Self::wake_head), [`abandon`](Self::abandon) |
/// | a holder leaves, or extends its lease | [`leave`](Self::leave), [`leave_by_name`](Self::leave_by_name), [`forget`](Self::forget), [`prolong`](Self::prolong), [`extending`](Self::extending), [`verify_soon`](Self::verify_soon) |
/// | the store answers an attempt | [`answered`](Self::answered), [`asks_itself`](Self::asks_itself), [`granted_by_message`](Self::granted_by_message), [`adopt`](Self::adopt) |
/// | the store answers a release | [`returned`](Self::returned), [`note_receivers`](Self::note_receivers), [`forced`](Self::forced) |
/// | the store answers for a lease | [`renewed`](Self::renewed), [`extended`](Self::extended), [`not_extended`](Self::not_extended), [`gone`](Self::gone) |
/// | an answer is not read, or a command may run twice | [`unread`](Self::unread), [`may_run_again`](Self::may_run_again) |
/// | time has come | [`tick`](Self::tick), [`renew_early`](Self::renew_early), [`end_what_is_over`](Self::end_what_is_over) |
/// | the client ends | [`close`](Self::close), [`lose`](Self::lose) |
///
/// All other methods look, and change nothing.
///
/// # Fairness
///
/// Strictly first come, first served, in the order of [`enter`](Self::enter). A released lock goes to the
/// oldest waiter; a newcomer queues behind it. Only the waiters of one [shared owner](Request::shared_owner)
/// get the lock together.
///
/// # At a store with a queue
///
/// A store may keep the order of all processes. [`Policy::Queued`] says for how long it keeps a waiter's
/// position that is not asked for again, and changes this:
///
/// ```text
/// Head: attempt ─► ask, for a position ─► acquired
///          ▲          └─► queued: sleep until a message says that it has the lock, or until the position
///          │                  │     is to be asked for again
///          │                  ├─► granted_by_message: a grant
///          └──────────────────┘
/// leave ─► Passed, pending_release and NextHead: attempt ─► release, which names it ─► answered
/// ```
///
/// * Nothing is handed off in memory: each lease goes back when it is left, whatever the tenure.
/// * The oldest waiter is the queue head as soon as the lock is left, and is [named](NextHead) with the
///   release. It is not told before the answer is there.
/// * How long a waiter has waited, which its place at the store goes by, counts from [`HeadTicket::since`].
/// * A number that may have lost its position is rolled back, and another one is used: the store may have
///   granted it the lock meanwhile, and the message about that may come when it is long over.
///
/// # Shared
///
/// With [`Policy::Shared`] all waiters for the lock may have it together, as readers do, if the store lets
/// them. The client has one lease for all of them:
///
/// * Within the tenure a newcomer joins the holders, in memory. After the tenure the newcomer is the queue
///   head, and asks the store by a number of its own, although others have the lock here: so other processes
///   have their turn.
/// * A queue head's lease serves all holders once the store has granted the lease, and the lease before goes
///   back, unless the earlier lease lasts longer: no owner makes another's lease shorter. All waiters get in.
/// * Each owner has a serial of its own, leaves by itself and is lost by itself.
/// * An owner that has the lock takes the lock again at once, before all waiters.
/// * A lease that is longer than [`Rules::renewed_lease`] is renewed each third of `renewed_lease`, for the
///   rest of its length: other processes may have cut the lease at the store, as Redisson's readers do.
/// * A caller that may not wait is [queued](Turn::Queued) nevertheless while the queue head's first
///   answer is under way: a refusal is told to the caller as [`Turn::Busy`].
///
/// # Examples
///
/// ```
/// use std::task::Waker;
/// use std::time::{Duration, Instant};
/// use latchwork::lock_entry::{
///     Answer, AttemptOutcome, Effects, Turn, LeaveOutcome, LockEntry, Moment, Request, Rules,
/// };
///
/// let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// let (lease, request) = (Duration::from_secs(30), Request::new(1));
/// let (mut effects, waker) = (Effects::default(), Waker::noop());
/// let Turn::Head(head) = entry.enter(&request, Some(waker.clone()), now, &mut effects) else {
///     unreachable!("it is idle")
/// };
/// let attempt = entry.attempt(&head, 1, now, lease).expect("still the queue head");
/// // … the store grants lease 1 …
/// let granted = Answer::Granted { last_token: 0 };
/// let answered = entry.answered(&head, attempt, granted, now, &mut effects);
/// let AttemptOutcome::Granted(outer) = answered else {
///     panic!()
/// };
///
/// // Once more by the same owner: a count in memory.
/// let entered = entry.enter(&request, Some(waker.clone()), now, &mut effects);
/// let Turn::Granted(inner, None) = entered else {
///     panic!()
/// };
/// assert_eq!(entry.leave(inner, now, &mut effects), LeaveOutcome::Remains);
///
/// // Another one waits, and has the lock without a command.
/// let entered = entry.enter(&Request::new(2), Some(waker.clone()), now, &mut effects);
/// let Turn::Queued(ticket) = entered else {
///     panic!()
/// };
/// assert_eq!(entry.leave(outer, now, &mut effects), LeaveOutcome::Passed);
/// assert_eq!(entry.holder(now), Some((2, 1)));
/// # entry.cancel(ticket, now, &mut effects);
/// ```
#[doc(alias = "RedissonLockEntry")]
pub struct LockEntry {
    ownership: Mutex<Ownership>,
    gate: Gate,
    /// How many events have named releases that are not under way yet.
    unsent: AtomicU32,
    latch: Latch,
    lost: Event,
}

impl LockEntry {
    /// An entry without holds.
    pub fn new(rules: Rules) -> Self {
        let (ownership, gate) = (Mutex::new(Ownership::new(rules)), Gate::default());
        Self { ownership, gate, unsent: AtomicU32::new(0), latch: Latch::new(), lost: Event::new() }
    }

    /// Where the queue head sleeps until it is to look again. Born without permits.
    ///
    /// A client that shares its subscriptions by a [`Registry`](crate::subscription::Registry), as the
    /// crate's own client does, hears messages at the channel's latch. The entry's latch is then for calls of
    /// the client itself.
    pub fn latch(&self) -> &Latch {
        &self.latch
    }

    /// Runs an event of the engine. It calls no foreign code: wakers go into the effects.
    // Always inlined, as each event has a closure of its own: otherwise its outcome is copied from frame to
    // frame.
    #[inline(always)]
    fn event<T>(&self, effects: &mut Effects, event: impl FnOnce(&mut Ownership, &mut Effects) -> T) -> T {
        let mut ownership = self.ownership.lock();
        if let Some(claimed) = self.gate.come_in() {
            ownership.settle(claimed);
        }
        self.event_inside(&mut ownership, effects, event)
    }

    /// As [`event`](Self::event), by a caller that has the entry, and its mutex.
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
            // Ordering: Relaxed, as it is looked at under the mutex.
            self.unsent.fetch_add(1, Ordering::Relaxed);
        }
        self.gate.leave(ownership.gate());
        outcome
    }

    /// The engine, for a look, or for what changes nothing of an entry that is idle.
    fn inside(&self) -> impl DerefMut<Target = Ownership> + '_ {
        let mut ownership = self.ownership.lock();
        if let Some(claimed) = self.gate.look() {
            ownership.settle(claimed);
        }
        ownership
    }

    // === What a caller does ===

    /// An owner wants the lock. A place in the queue has the `waker` from the same step on; without one the
    /// caller may not wait.
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

    /// Reserves an idle entry for one call, which asks the store before entering: at a store that answers by
    /// the call, a reservation spares an event. Callers that come meanwhile queue. False if the entry is in
    /// use. After true [`take`](Self::take) is to follow, or [`returned`](Self::returned) if the store has
    /// not granted the lock.
    #[cfg_attr(
        not(any(feature = "lock", latchwork_loom)),
        expect(dead_code, reason = "for the crate's own lock client")
    )]
    #[inline]
    pub(crate) fn claim(&self) -> bool {
        self.gate.claim()
    }

    /// As [`claim`](Self::claim), for the models.
    #[cfg(latchwork_loom)]
    #[doc(hidden)]
    pub fn claims(&self) -> bool {
        self.claim()
    }

    /// The store has granted what was asked for by a [claim](Self::claim), and tokens up to `last_token`.
    /// `None` if the lock is not granted here any more; it is rolled back then.
    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    #[inline(always)]
    pub(crate) fn take(
        &self,
        request: &Request,
        attempt: &Attempt,
        last_token: u64,
        now: Moment,
        effects: &mut Effects,
    ) -> Option<Grant> {
        let mut ownership = self.ownership.lock();
        // The claim is the caller's: no other thread changes the gate while the mutex is locked.
        self.event_inside(&mut ownership, effects, |ownership, effects| {
            ownership.take(request, attempt, last_token, now, effects)
        })
    }

    /// What the waiter with this ticket is told. With `Some` the ticket is used up: from then on it is told
    /// [`Turn::Superseded`], and to cancel it does nothing.
    ///
    /// `None` arranges for the waker to be called when there is something to tell.
    #[inline(always)]
    pub fn poll(&self, ticket: &Ticket, waker: &Waker, now: Moment, effects: &mut Effects) -> Option<Turn> {
        let (mut told, mut is_known) = (None, true);
        self.event(effects, |ownership, effects| match ownership.is_queued(ticket) {
            true => is_known = ownership.will_wake(ticket.slot, waker),
            false => told = Some(ownership.claim(ticket, now, effects)),
        });
        if !is_known {
            return self.poll_anew(ticket, waker.clone(), now, effects);
        }
        told
    }

    /// The waiter is polled with another waker than before.
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

    /// A waiter leaves. What it was told and did not hear is passed on.
    pub fn cancel(&self, ticket: Ticket, now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.cancel(&ticket, now, effects));
    }

    /// The queue head is about to ask the store for `lease`, at `sent`. `fresh` is a number that was never
    /// used; it is taken if the head has none yet. `None`: the caller is the queue head no more.
    pub fn attempt(&self, head: &HeadTicket, fresh: u64, sent: Moment, lease: Duration) -> Option<Attempt> {
        self.inside().attempt(head.serial, fresh, sent, lease)
    }

    /// The queue head is polled. True if it is the queue head still, and its waker is known.
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

    /// What the queue head waits for has come.
    pub fn wake_head(&self, now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.head_woken(now, effects));
    }

    /// The queue head gives up. The next waiter takes its place, and what may be at the store is rolled back.
    pub fn abandon(&self, head: &HeadTicket, now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.abandon(head.serial, now, effects));
    }

    /// An owner may get the lock in another way, beside all others: its waiters here are told to enter anew.
    pub fn evict_owner(&self, owner: u64, now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.evict_owner(owner, now, effects));
    }

    /// A hold is given back.
    #[inline]
    pub fn leave(&self, grant: Grant, now: Moment, effects: &mut Effects) -> LeaveOutcome {
        self.event(effects, |ownership, effects| ownership.leave(&grant, now, effects))
    }

    /// One hold of `owner` is given back: a [forgotten](Self::forget) hold, or else a hold with a grant. The
    /// grant of the owner's last hold is lost then.
    pub fn leave_by_name(&self, owner: u64, now: Moment, effects: &mut Effects) -> LeaveOutcome {
        self.event(effects, |ownership, effects| ownership.leave_by_name(owner, now, effects))
    }

    /// The lease of a grant's own is over at `ends` by now, if it was to be over earlier.
    pub fn prolong(&self, grant: &mut Grant, ends: Moment, now: Moment) {
        self.inside().prolong(grant, ends, now);
    }

    /// A hold stays, unless it is over by now, and its grant is gone.
    pub fn forget(&self, grant: Grant, now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.forget(&grant, now, effects));
    }

    /// The command for an [`Extension`] is about to be sent, at `sent`: for so long it is to lease the lock,
    /// or to renew its lease. From now on the store may keep the lease that long. `None` if the lease is not
    /// in hand any more: nothing is to be sent.
    pub fn extending(&self, extension: Extension, sent: Moment, effects: &mut Effects) -> Option<Duration> {
        self.event(effects, |ownership, effects| ownership.extending(extension, sent, effects))
    }

    /// A waiter cannot wait for the next renewal to learn whether the lease is still held:
    /// [`tick`](Self::tick) sends one at once.
    pub fn verify_soon(&self, now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.verify_soon(now, effects));
    }

    /// The releases that an event has named are under way.
    pub fn sent(&self, effects: &Effects) {
        if effects.has_counted_releases() {
            // Ordering: Release, see `is_returning`.
            self.unsent.fetch_sub(1, Ordering::Release);
        }
    }

    /// The lock is not granted here any more: waiters and newcomers are told so. What is held is not touched.
    pub fn close(&self, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.close(effects));
    }

    // === What the store says ===

    /// The store's answer to an attempt of the queue head, or to an attempt that a release [named](NextHead).
    ///
    /// # Panics
    ///
    /// If the attempt is another queue head's.
    #[inline]
    pub fn answered(
        &self,
        head: &HeadTicket,
        attempt: Attempt,
        answer: Answer,
        now: Moment,
        effects: &mut Effects,
    ) -> AttemptOutcome {
        self.event(effects, |ownership, effects| {
            ownership.answered(head.serial, attempt, answer, now, effects)
        })
    }

    /// A message said that the store has granted the lock to the lease with this number, for which the queue
    /// head has a [position](Policy::Queued). `None` if it has to ask nevertheless: for a lease of its own or
    /// a token, or as it may be too late.
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

    /// A waiter that was to be [named](NextHead) with a release was not: it is the queue head, and asks
    /// itself.
    pub fn asks_itself(&self, head: &HeadTicket, now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.asks_itself(head.serial, now, effects));
    }

    /// The store granted what was asked for [outside of the queue](Attempt::outside_of_queue), at a
    /// [shared](Policy::Shared) lock, and tokens up to `last_token`: its owner has a right to it beside all
    /// others, as a writer has that reads, too. `None` if the lease is over already; it is rolled back then.
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

    /// The release of a lease is under way, or was answered: so many others have heard of it.
    #[inline]
    pub fn returned(&self, receivers: usize, now: Moment, effects: &mut Effects) {
        // No waiter has come that others could go before.
        if !self.gate.unclaim() {
            self.event(effects, |ownership, effects| ownership.returned(receivers, now, effects));
        }
    }

    /// The release of a lease without waiters here was answered: so many others have heard of it.
    pub fn note_receivers(&self, receivers: usize, now: Moment) {
        if receivers > 0 {
            self.event(&mut Effects::default(), |ownership, _| ownership.note_receivers(receivers, now));
        }
    }

    /// A renewal that was sent at `sent` was answered at `now`: the lease is `held` or not, or `None` if that
    /// is not known. False if the lease is not in hand any more, or nothing is known.
    pub fn renewed(
        &self,
        renewal: Renewal,
        held: Option<bool>,
        sent: Moment,
        now: Moment,
        effects: &mut Effects,
    ) -> bool {
        self.event(effects, |ownership, effects| match held {
            Some(held) => ownership.renewed(renewal, held, sent, now, effects),
            None => {
                ownership.renewal_failed(renewal, now, effects);
                false
            }
        })
    }

    /// The command for an [`Extension`] that was sent at `sent` was answered. False if the lease is not in
    /// hand any more.
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

    /// The command for an [`Extension`] did not run, and never will.
    pub fn not_extended(&self, extension: Extension) {
        self.inside().not_extended(extension);
    }

    /// The answer to an extension for a token is not read: its future is dropped, or says that it may have
    /// run. The command may have been sent behind the rollback of a lease that was given back meanwhile; then
    /// `roll_back` is to go behind it. (For a queue head, [`Answer::Unanswered`] says the same.)
    pub fn unread(&self, roll_back: PendingRelease, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.unread(roll_back, effects));
    }

    /// A command that leases the name may run once more when it has been answered: it was sent twice. Said
    /// before the answer to a queue head, or to an extension, is told; after [`adopt`](Self::adopt). What
    /// there is of its number is rolled back in the end, as if one of its commands had not been answered; at
    /// once by `roll_back`, if no queue head and no lease has it.
    pub fn may_run_again(&self, roll_back: PendingRelease, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.may_run_again(roll_back, effects));
    }

    /// By the answer to a command of `sent` the store does not have this lease. False if the lease is not in
    /// hand, or if another answer since `sent` says that the store has begun the lease anew, for a queue head
    /// of the same number or for a token: then [`tick`](Self::tick) asks the store once more.
    pub fn gone(&self, number: u64, sent: Moment, now: Moment, effects: &mut Effects) -> bool {
        self.event(effects, |ownership, effects| ownership.gone(number, sent, now, effects))
    }

    /// A forced unlock was answered at `now`. The unlock may have taken a lease whose grant becomes known
    /// later: of such a lease [`tick`](Self::tick) asks the store at once.
    pub fn forced(&self, now: Moment) {
        self.inside().forced(now);
    }

    /// The lease with this number is gone. False if it is not in hand.
    pub fn lose(&self, number: u64, reason: LossReason, now: Moment, effects: &mut Effects) -> bool {
        self.event(effects, |ownership, effects| ownership.lose(number, reason, now, effects))
    }

    // === What time does ===

    /// Ends a lease that is over at `now`, supersedes waiters that are not polled, and names the renewal to
    /// send. [`Effects::look_at`] says when to call this again.
    pub fn tick(&self, now: Moment, effects: &mut Effects) -> Option<Renewal> {
        self.event(effects, |ownership, effects| ownership.tick(now, effects))
    }

    /// The renewal that is due by `by`, if there is one: sent together with others, it spares a call of its
    /// own.
    pub fn renew_early(&self, by: Moment, now: Moment, effects: &mut Effects) -> Option<Renewal> {
        self.event(effects, |ownership, effects| ownership.renew_early(by, now, effects))
    }

    /// Ends what is over at `now`, as [`tick`](Self::tick) does.
    pub fn end_what_is_over(&self, now: Moment, effects: &mut Effects) {
        self.event(effects, |ownership, effects| ownership.end_if_over(now, effects));
    }

    // === What is asked ===

    /// True if the caller is the queue head still.
    pub fn is_head(&self, head: &HeadTicket) -> bool {
        self.inside().is_head(head.serial)
    }

    /// The hold of a grant, or the reason of its end.
    ///
    /// # Errors
    ///
    /// The [`LossReason`].
    pub fn state_of(&self, grant: &Grant, now: Moment) -> Result<HoldState, LossReason> {
        self.inside().state_of(grant, now)
    }

    /// Waits until some hold of this name is lost before it is given back. Listens from the call on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub fn some_loss(&self) -> impl Future<Output = ()> + Send + use<> {
        self.lost.listen()
    }

    /// The owner that has the lock in this process, and the number of its holds; of a
    /// [shared](Policy::Shared) lock, the owner whose hold lasts longest.
    pub fn holder(&self, now: Moment) -> Option<(u64, u32)> {
        self.inside().holders(now).next().map(|(owner, count, _)| (owner, count))
    }

    /// The holds here, and how many acquisitions wait, at one moment.
    pub fn each_hold(&self, now: Moment) -> (Vec<HeldHere>, usize) {
        let ownership = self.inside();
        (ownership.each_hold(now), ownership.waiting())
    }

    /// True if a lease was left, and its release is not said to be under way; or a call asks for one before
    /// it enters.
    pub fn is_returning(&self) -> bool {
        let ownership = self.inside();
        // Ordering: Acquire. What is not unsent any more is found where it is under way.
        ownership.is_returning() || self.unsent.load(Ordering::Acquire) > 0
    }

    /// How many acquisitions wait, the queue head included, and since when that competes at the store.
    pub fn waiting(&self) -> (usize, Option<Moment>) {
        let ownership = self.inside();
        (ownership.waiting(), ownership.head_waits_since())
    }

    /// When the first of the holders here has it no more, unless its lease is renewed or extended; `None` if
    /// the lock is not held.
    pub fn holds_end(&self, now: Moment) -> Option<Moment> {
        self.inside().holds_end(now)
    }

    /// Under which leases an owner has the lock here, and how often under each: under one at most, unless the
    /// lock is [shared](Policy::Shared).
    pub fn holds_of(&self, owner: u64, now: Moment) -> Vec<(u64, u32)> {
        let ownership = self.inside();
        let holders = ownership.holders(now).filter(|(holder, ..)| *holder == owner);
        holders.map(|(_, count, number)| (number, count)).collect()
    }

    /// The numbers of the leases in hand: one at most, unless the lock is [shared](Policy::Shared).
    pub fn lease_numbers(&self) -> Vec<u64> {
        self.inside().lease_numbers().collect()
    }

    /// True if an acquisition is known to have the lock, here or elsewhere.
    pub fn is_known_held(&self) -> bool {
        self.inside().is_known_held()
    }

    /// As [`is_known_held`](Self::is_known_held), or a queue head that gave up at `since` or later had been
    /// told so by the store.
    pub fn was_known_held(&self, since: Moment) -> bool {
        self.inside().was_known_held(since)
    }

    /// How often the lock was taken, inner holds included.
    pub fn acquisitions(&self) -> u64 {
        self.inside().acquisitions()
    }

    /// How many waiters were handed the lock in memory.
    pub fn hand_offs(&self) -> u64 {
        self.inside().hand_offs()
    }

    /// How many wait in the queue. The queue head is not among them.
    pub fn waiters(&self) -> usize {
        self.inside().waiters()
    }

    /// True if there is a hold without a grant: it was [forgotten](Self::forget).
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
        // Taken out, as what is written to is foreign code.
        let (phase, waiters) = {
            let ownership = self.inside();
            (ownership.phase_name(), ownership.waiters())
        };
        f.debug_struct("LockEntry")
            .field("phase", &phase)
            .field("waiters", &waiters)
            .field("latch", &self.latch)
            .finish_non_exhaustive()
    }
}
