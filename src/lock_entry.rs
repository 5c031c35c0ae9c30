//! [`LockEntry`]: a re-entrant, fair lock of one name inside of a process, under a lease that a store grants
//! to the process.

mod actions;
mod outcome;
mod ownership;
mod queue;
mod request;

use std::fmt;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::event::Event;
use crate::fault::fault;
use crate::latch::Latch;
pub use crate::moment::Moment;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

pub use self::actions::{Actions, Next};
pub use self::outcome::{
    Answer, Attempt, Entered, GiveBack, HeadTicket, HoldState, Left, Ticket, Told, Verdict,
};
#[cfg(feature = "lock")]
pub(crate) use self::outcome::{BACK_OFF, HeldHere};
use self::ownership::Ownership;
pub use self::ownership::{Policy, Renewal, Rules};
pub use self::request::{Extension, Grant, LossReason, Request};

/// A re-entrant, fair lock of one name inside of a process, and the zero-permit [`Latch`] on which its queue
/// head waits for the store.
///
/// The store grants the lock to the *process*, as a lease under a number; the entry passes it on inside the
/// process. It keeps the queue of waiters, the present owner and how often it holds the lock, the lease in
/// hand with its fencing tokens, and what became of holds that were lost. It sends nothing, keeps no time and
/// spawns nothing: each method is an event, is given the time, and returns what is to be done outside as
/// [`Actions`]. So it fits any store and any runtime.
///
/// # How a client uses it
///
/// ```text
/// enter ─► Reentered, a grant                                  (0 commands)
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
/// * A message that the lock was released is told by `latch().release(1)`.
/// * [`tick`](Self::tick) is called when [`Actions::look_at`] says so: it ends leases, supersedes waiters
///   that are not polled, and says when a lease is to be renewed.
/// * A command that is never answered may have run, or may run yet: the entry keeps the end of a lease as a
///   range, believes in the earlier one, and has the lease released until the later one. So no command may
///   make a lease shorter at the store.
/// * A release named by [`Actions`] or by [`Left::Return`] is sent until the store has answered, or its lease
///   is over.
///
/// `examples/own_lock_client` is a lock client of a hundred lines over it; the crate's own is `src/lock`.
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
/// leave ─► Passed, give_back and Next: attempt ─► release, which names it ─► answered
/// ```
///
/// * Nothing is handed off in memory: each lease goes back when it is left, whatever the tenure.
/// * The oldest waiter is the queue head as soon as the lock is left, and is [named](Next) with the release.
///   It is not told before the answer is there.
/// * How long a waiter has waited, which its place at the store goes by, counts from [`HeadTicket::since`].
/// * A number that may have lost its position is rolled back, and another one is used: the store may have
///   granted it the lock meanwhile, and the message about that may come when it is long over.
///
/// # Shared
///
/// With [`Policy::Shared`] all waiters for the lock may have it together, as readers do, if the store lets
/// them. The client has one lease for all of them:
///
/// * Within the tenure a newcomer joins the holders, in memory. After that it is the queue head, and asks the
///   store by a number of its own, although others have the lock here: so others there have their turn.
/// * Once it is granted, all holders go on by its lease, and the one before is given back. Unless that lasts
///   longer: no owner's lease is made shorter by another's. All waiters get in along with it.
/// * Each owner has a serial of its own. It leaves and is lost by itself.
/// * An owner that has the lock takes it again at once, before all waiters.
/// * A lease that is longer than the [renewed one](Rules::renewed_lease) is renewed each third of that, for
///   as long as it has left: others at the store may have cut it to a renewed one, as Redisson's readers do.
/// * A caller that may not wait is [queued](Entered::Queued) nevertheless while the queue head's first answer
///   is awaited: if that is no, it is told so by [`Told::Busy`].
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use latchwork::lock_entry::{Answer, Entered, Left, LockEntry, Moment, Request, Rules, Verdict};
///
/// let (entry, now) = (LockEntry::new(Rules::default()), Moment::from(Instant::now()));
/// let (lease, request) = (Duration::from_secs(30), Request::new(1));
/// let (Entered::Head(head), _) = entry.enter(&request, true, now) else { unreachable!("it is idle") };
/// let attempt = entry.attempt(&head, 1, now, lease).expect("still the queue head");
/// // … the store grants lease 1 …
/// let granted = Answer::Granted { last_token: 0 };
/// let (Verdict::Granted(outer), _) = entry.answered(&head, attempt, granted, now) else { unreachable!() };
///
/// // Once more by the same owner: a count in memory.
/// let (Entered::Reentered(inner, None), _) = entry.enter(&request, true, now) else { panic!() };
/// assert_eq!(entry.leave(&inner, now).0, Left::Remains);
///
/// // Another one waits, and has the lock without a command.
/// let (Entered::Queued(ticket), _) = entry.enter(&Request::new(2), true, now) else { panic!() };
/// assert_eq!(entry.leave(&outer, now).0, Left::Passed);
/// assert_eq!(entry.holder(now), Some((2, 1)));
/// # let _ = entry.cancel(ticket, now);
/// ```
#[doc(alias = "RedissonLockEntry")]
pub struct LockEntry {
    ownership: Mutex<Ownership>,
    /// Whether the entry was in use after the last event, for a look without the mutex.
    busy: AtomicBool,
    latch: Latch,
    lost: Event,
}

impl LockEntry {
    /// An entry without holds.
    pub fn new(rules: Rules) -> Self {
        let (ownership, busy) = (Mutex::new(Ownership::new(rules)), AtomicBool::new(false));
        Self { ownership, busy, latch: Latch::new(), lost: Event::new() }
    }

    /// Where the queue head sleeps until it is to look again. Born without permits.
    pub fn latch(&self) -> &Latch {
        &self.latch
    }

    /// Runs an event, and then, with the mutex free, what the entry itself has to do about it.
    // Always inlined, as each event has a closure of its own: otherwise its outcome is copied from frame to
    // frame.
    #[inline(always)]
    fn event<T>(&self, event: impl FnOnce(&mut Ownership, &mut Actions) -> T) -> (T, Actions) {
        let mut actions = Actions::default();
        let outcome = self.step(&mut actions, event);
        self.call(&mut actions);
        (outcome, actions)
    }

    /// Runs an event, and calls no foreign code: [`call`](Self::call) is to follow.
    #[inline(always)]
    fn step<T>(&self, actions: &mut Actions, event: impl FnOnce(&mut Ownership, &mut Actions) -> T) -> T {
        let mut ownership = self.ownership.lock();
        let outcome = event(&mut ownership, actions);
        // Ordering: Relaxed, a hint.
        self.busy.store(!ownership.is_idle(), Ordering::Relaxed);
        outcome
    }

    /// As [`event`](Self::event), with [`call`](Self::call) to follow.
    fn quiet_event<T>(&self, event: impl FnOnce(&mut Ownership, &mut Actions) -> T) -> (T, Actions) {
        let mut actions = Actions::default();
        let outcome = self.step(&mut actions, event);
        (outcome, actions)
    }

    /// What the entry itself has to do about an event. A panic of a waker goes on when the actions are
    /// dropped, and so after they were carried out.
    #[inline]
    pub(crate) fn call(&self, actions: &mut Actions) {
        if !actions.is_usual() {
            self.call_for(actions);
        }
    }

    #[cold]
    fn call_for(&self, actions: &mut Actions) {
        if actions.lost().is_some() && !fault!(LossNotTold) {
            actions.wake_all(self.lost.tell());
        }
        if actions.calls() {
            actions.catch(|| self.latch.release_all());
        }
    }

    // === Acquiring ===

    /// An owner wants the lock.
    pub fn enter(&self, request: &Request, may_wait: bool, now: Moment) -> (Entered, Actions) {
        self.event(|ownership, actions| ownership.enter(request, may_wait, now, actions))
    }

    /// As [`enter`](Self::enter), and what comes next in the same step: a place in the queue has the `waker`,
    /// and a queue head that is to ask at once makes its first [`attempt`](Self::attempt) by `fresh`, for
    /// this lease.
    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    #[inline]
    pub(crate) fn enter_with(
        &self,
        request: &Request,
        may_wait: bool,
        waker: Option<Waker>,
        asks: Option<(u64, Duration)>,
        now: Moment,
    ) -> ((Entered, Option<Attempt>), Actions) {
        self.event(|ownership, actions| {
            let entered = ownership.enter(request, may_wait, now, actions);
            let mut attempt = None;
            match (&entered, waker) {
                (Entered::Queued(ticket), Some(waker)) => ownership.register(ticket.slot, waker, actions),
                (_, waker) => actions.drop_later(waker),
            }
            if let (Entered::Head(head), Some((fresh, lease))) = (&entered, asks)
                && head.goes_first()
            {
                attempt = ownership.attempt(head.serial, fresh, now, lease);
            }
            (entered, attempt)
        })
    }

    /// Whether an acquisition that enters now is likely to have to wait.
    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    pub(crate) fn seems_busy(&self) -> bool {
        // Ordering: Relaxed, a hint: its readers are right either way.
        self.busy.load(Ordering::Relaxed)
    }

    /// What the waiter with this ticket is told. With `Some` the ticket is used up: from then on it is told
    /// [`Told::Superseded`], and to cancel it does nothing.
    ///
    /// `None` arranges for the context's waker to be called when there is something to tell.
    #[inline]
    pub fn poll(&self, ticket: &Ticket, context: &Context<'_>, now: Moment) -> (Option<Told>, Actions) {
        let (told, actions) = self.event(|ownership, actions| match ownership.is_queued(ticket) {
            true => ownership.will_wake(ticket.slot, context.waker()).then_some(None),
            false => Some(Some(ownership.claim(ticket, now, actions))),
        });
        match told {
            Some(told) => (told, actions),
            None => self.poll_anew(ticket, context.waker().clone(), now),
        }
    }

    /// The waiter is polled with another waker than before.
    fn poll_anew(&self, ticket: &Ticket, waker: Waker, now: Moment) -> (Option<Told>, Actions) {
        self.event(|ownership, actions| {
            if ownership.is_queued(ticket) {
                ownership.register(ticket.slot, waker, actions);
                return None;
            }
            actions.drop_later(Some(waker));
            Some(ownership.claim(ticket, now, actions))
        })
    }

    /// A waiter leaves. What it was told and did not hear is passed on.
    pub fn cancel(&self, ticket: Ticket, now: Moment) -> Actions {
        self.event(|ownership, actions| ownership.cancel(&ticket, now, actions)).1
    }

    // === Competing ===

    /// The queue head is about to ask the store for `lease`, at `sent`. `fresh` is a number that was never
    /// used; it is taken if the head has none yet. `None`: the caller is the queue head no more.
    pub fn attempt(&self, head: &HeadTicket, fresh: u64, sent: Moment, lease: Duration) -> Option<Attempt> {
        self.ownership.lock().attempt(head.serial, fresh, sent, lease)
    }

    /// What became of an attempt by the queue head, or of one that was [named](Next) with a release.
    #[inline]
    pub fn answered(
        &self,
        head: &HeadTicket,
        attempt: Attempt,
        answer: Answer,
        now: Moment,
    ) -> (Verdict, Actions) {
        self.event(|ownership, actions| ownership.answered(head.serial, attempt, answer, now, actions))
    }

    /// A message said that the store has granted the lock to the lease with this number, for which the queue
    /// head has a [position](Policy::Queued). `None` if it has to ask nevertheless: for a lease of its own or
    /// a token, or as it may be too late.
    pub fn granted_by_message(
        &self,
        head: &HeadTicket,
        number: u64,
        now: Moment,
    ) -> (Option<Grant>, Actions) {
        self.event(|ownership, actions| ownership.granted_by_message(head.serial, number, now, actions))
    }

    /// A waiter that was to be [named](Next) with a release was not: it is the queue head, and asks itself.
    pub fn asks_itself(&self, head: &HeadTicket, now: Moment) -> Actions {
        self.event(|ownership, actions| ownership.asks_itself(head.serial, now, actions)).1
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
    ) -> (Option<Grant>, Actions) {
        self.event(|ownership, actions| ownership.adopt(request, attempt, last_token, now, actions))
    }

    /// The queue head gives up. The next waiter takes its place, and what may be at the store is rolled back.
    pub fn abandon(&self, head: &HeadTicket, now: Moment) -> Actions {
        self.event(|ownership, actions| ownership.abandon(head.serial, now, actions)).1
    }

    /// An owner may get the lock in another way, beside all others: its waiters here are told to enter anew.
    pub fn recall(&self, owner: u64, now: Moment) -> Actions {
        self.event(|ownership, actions| ownership.recall(owner, now, actions)).1
    }

    /// Whether the caller is the queue head still.
    pub fn is_head(&self, head: &HeadTicket) -> bool {
        self.ownership.lock().is_head(head.serial)
    }

    /// The queue head is polled. `Pending`: it is the queue head still, and its waker is known.
    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    pub(crate) fn poll_head(&self, head: &HeadTicket, waker: &Waker) -> Poll<Actions> {
        let (is_head, known) = {
            let mut ownership = self.ownership.lock();
            (ownership.head_polled(head.serial), ownership.head_will_wake(waker))
        };
        if !is_head {
            return Poll::Ready(Actions::default());
        }
        if !known {
            let waker = waker.clone();
            drop(self.event(|ownership, actions| ownership.register_head(head.serial, waker, actions)));
        }
        Poll::Pending
    }

    /// What the queue head waits for has come.
    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    pub(crate) fn wake_head(&self, now: Moment) -> Actions {
        self.event(|ownership, actions| ownership.head_woken(now, actions)).1
    }

    // === Releasing ===

    /// A hold is given back.
    #[inline]
    pub fn leave(&self, grant: &Grant, now: Moment) -> (Left, Actions) {
        self.event(|ownership, actions| ownership.leave(grant, now, actions))
    }

    /// One hold of `owner` is given back: one that was [forgotten](Self::forget), or else one that has a
    /// grant, which is lost then if it was the last.
    pub fn leave_by_name(&self, owner: u64, now: Moment) -> (Left, Actions) {
        self.event(|ownership, actions| ownership.leave_by_name(owner, now, actions))
    }

    /// The lease of a grant's own is over at `ends` by now, if it was to be over earlier. Returns the same
    /// hold with that end, which is to be used from now on.
    pub fn prolong(&self, grant: &Grant, ends: Moment, now: Moment) -> (Grant, Actions) {
        self.event(|ownership, actions| ownership.prolong(grant, ends, now, actions))
    }

    /// A hold stays, unless it is over by now, and its grant is gone.
    pub fn forget(&self, grant: &Grant, now: Moment) -> Actions {
        self.event(|ownership, actions| ownership.forget(grant, now, actions)).1
    }

    /// The release of a lease is under way, or was answered: so many others have heard of it.
    #[inline]
    pub fn returned(&self, heard: usize, now: Moment) -> Actions {
        self.event(|ownership, actions| ownership.returned(heard, now, actions)).1
    }

    /// The release of a lease without waiters here was answered: so many others have heard of it.
    pub fn heard_by(&self, heard: usize, now: Moment) {
        self.ownership.lock().heard_by(heard, now);
    }

    // === Keeping ===

    /// Sees to what is due at `now`: ends a lease that is over, supersedes waiters that are not polled, and
    /// names the renewal that is to be sent. [`Actions::look_at`] says when to call it again.
    pub fn tick(&self, now: Moment) -> (Option<Renewal>, Actions) {
        self.event(|ownership, actions| ownership.tick(now, actions))
    }

    /// As [`tick`](Self::tick), with [`call`](Self::call) to follow: whatever a waker does keeps no other
    /// entry from being looked at.
    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    pub(crate) fn tick_quietly(&self, now: Moment) -> (Option<Renewal>, Actions) {
        self.quiet_event(|ownership, actions| ownership.tick(now, actions))
    }

    /// The renewal that is due by `by`, if there is one: sent together with others, it spares a call of its
    /// own. [`call`](Self::call) is to follow.
    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    pub(crate) fn renew_early(&self, by: Moment, now: Moment) -> (Option<Renewal>, Actions) {
        self.quiet_event(|ownership, actions| ownership.renew_early(by, now, actions))
    }

    /// As [`renewed`](Self::renewed), or [`renewal_failed`](Self::renewal_failed) if `held` is `None`, with
    /// [`call`](Self::call) to follow.
    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    pub(crate) fn renewal_ended(
        &self,
        renewal: Renewal,
        held: Option<bool>,
        sent: Moment,
        now: Moment,
    ) -> (bool, Actions) {
        self.quiet_event(|ownership, actions| match held {
            Some(held) => ownership.renewed(renewal, held, sent, now, actions),
            None => {
                ownership.renewal_failed(renewal, now, actions);
                false
            }
        })
    }

    /// A renewal that was sent at `sent` was answered at `now`. False if the lease is not in hand any more.
    pub fn renewed(&self, renewal: Renewal, held: bool, sent: Moment, now: Moment) -> (bool, Actions) {
        self.event(|ownership, actions| ownership.renewed(renewal, held, sent, now, actions))
    }

    /// It is not known what became of a renewal.
    pub fn renewal_failed(&self, renewal: Renewal, now: Moment) -> Actions {
        self.event(|ownership, actions| ownership.renewal_failed(renewal, now, actions)).1
    }

    /// A waiter cannot wait for the next renewal to learn whether the lease is still held:
    /// [`tick`](Self::tick) sends one at once.
    pub fn verify_soon(&self, now: Moment) -> Actions {
        self.event(|ownership, actions| ownership.verify_soon(now, actions)).1
    }

    /// The command for an [`Extension`] is about to be sent, at `sent`: for so long it is to lease the lock,
    /// or to renew its lease. From now on the store may keep the lease that long. `None` if the lease is not
    /// in hand any more: nothing is to be sent.
    pub fn extending(&self, extension: Extension, sent: Moment) -> (Option<Duration>, Actions) {
        self.event(|ownership, actions| ownership.extending(extension, sent, actions))
    }

    /// The command for an [`Extension`] did not run, and never will.
    pub fn not_extended(&self, extension: Extension) {
        self.ownership.lock().not_extended(extension);
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
    ) -> (bool, Actions) {
        self.event(|ownership, actions| ownership.extended(number, sent, lease, token, now, actions))
    }

    /// The store has answered a command that was sent at `sent` that it does not have this lease. False if
    /// the lease is not in hand, or if the store has confirmed it by a command that was sent later: a number
    /// goes on from a hold to the queue head after it, which may have been granted it since.
    pub fn gone(&self, number: u64, sent: Moment, now: Moment) -> (bool, Actions) {
        self.event(|ownership, actions| ownership.gone(number, sent, now, actions))
    }

    /// The lease with this number is gone. False if it is not in hand.
    pub fn lose(&self, number: u64, reason: LossReason, now: Moment) -> (bool, Actions) {
        self.event(|ownership, actions| ownership.lose(number, reason, now, actions))
    }

    /// The lock is not granted here any more: waiters and newcomers are told so. What is held is not touched.
    pub fn close(&self) -> Actions {
        self.event(|ownership, actions| ownership.close(actions)).1
    }

    // === Looking ===

    /// The hold that was granted so, or why it is over.
    ///
    /// # Errors
    ///
    /// The [`LossReason`].
    pub fn state_of(&self, grant: &Grant, now: Moment) -> Result<HoldState, LossReason> {
        self.ownership.lock().state_of(grant, now)
    }

    /// Waits until some hold of this name is lost before it is given back. Listens from the call on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub fn some_loss(&self) -> impl Future<Output = ()> + Send + use<> {
        self.lost.listen()
    }

    /// The holder here, and how many holds it has: one owner, or of a [shared](Policy::Shared) lock the one
    /// that has it for longest.
    pub fn holder(&self, now: Moment) -> Option<(u64, u32)> {
        self.ownership.lock().holders(now).next().map(|(owner, count, _)| (owner, count))
    }

    /// What each holder here has, and since when the queue head waits.
    #[cfg(feature = "lock")]
    pub(crate) fn each_hold(&self, now: Moment) -> (Vec<HeldHere>, Option<Moment>) {
        let ownership = self.ownership.lock();
        (ownership.each_hold(now), ownership.head_waits_since())
    }

    /// When the first of the holders here has it no more, unless its lease is renewed or extended; `None` if
    /// the lock is not held.
    pub fn holds_end(&self, now: Moment) -> Option<Moment> {
        self.ownership.lock().holds_end(now)
    }

    /// Under which leases an owner has the lock here, and how often under each: under one at most, unless the
    /// lock is [shared](Policy::Shared).
    pub fn holds_of(&self, owner: u64, now: Moment) -> Vec<(u64, u32)> {
        let ownership = self.ownership.lock();
        let holders = ownership.holders(now).filter(|(holder, ..)| *holder == owner);
        holders.map(|(_, count, number)| (number, count)).collect()
    }

    /// The numbers of the leases in hand: one at most, unless the lock is [shared](Policy::Shared).
    pub fn lease_numbers(&self) -> Vec<u64> {
        self.ownership.lock().lease_numbers().collect()
    }

    /// Whether an acquisition is known to have the lock, here or elsewhere.
    pub fn is_known_held(&self) -> bool {
        self.ownership.lock().is_known_held()
    }

    /// As [`is_known_held`](Self::is_known_held), or it was at `since` or later, by what the store had told a
    /// queue head that has given up.
    #[cfg_attr(not(feature = "lock"), expect(dead_code, reason = "for the crate's own lock client"))]
    pub(crate) fn was_known_held(&self, since: Moment) -> bool {
        self.ownership.lock().was_known_held(since)
    }

    /// How often the lock was taken, inner holds included.
    pub fn acquisitions(&self) -> u64 {
        self.ownership.lock().acquisitions()
    }

    /// How many waiters were handed the lock in memory.
    pub fn hand_offs(&self) -> u64 {
        self.ownership.lock().hand_offs()
    }

    /// How many wait in the queue. The queue head is not among them.
    pub fn waiters(&self) -> usize {
        self.ownership.lock().waiters()
    }

    /// Whether there is a hold without a grant: it was [forgotten](Self::forget).
    pub fn is_forgotten(&self) -> bool {
        self.ownership.lock().is_forgotten()
    }

    /// Whether there are no holds and no waiters here.
    pub fn is_idle(&self) -> bool {
        self.ownership.lock().is_idle()
    }
}

impl fmt::Debug for LockEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Taken out, as what is written to is foreign code.
        let (phase, waiters) = {
            let ownership = self.ownership.lock();
            (ownership.phase_name(), ownership.waiters())
        };
        f.debug_struct("LockEntry")
            .field("phase", &phase)
            .field("waiters", &waiters)
            .field("latch", &self.latch)
            .finish_non_exhaustive()
    }
}
