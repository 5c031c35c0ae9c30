//! [`Entry`]: one name of a client; carries out what its [`LockEntry`] says.

pub(in crate::lock) mod abandon_guard;
pub(in crate::lock) mod deadlines;
pub(in crate::lock) mod listening;
pub(in crate::lock) mod table;

mod extend;
mod release;

use std::mem;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use crate::lock_entry::{
    Attempt, Effects, HeadTicket, LockEntry, LossReason, Moment, PendingRelease, Policy, Request, Rules,
};
use crate::support::foreign;
use crate::support::sync::Mutex;
use crate::support::sync::atomic::{AtomicBool, Ordering};

use self::abandon_guard::Abandonable;
use self::deadlines::Due;
use self::listening::Listening;
use self::table::{Table, Tables};
use crate::lock::backend::{
    AcquireOutcome, AcquireRequest, Channels, CommandFuture, Failed, Failure, Mode, QueuePosition,
};
use crate::lock::context::Context;
use crate::lock::metrics::Counters;
use crate::lock::name::LockName;
use crate::lock::owner::LeaseId;

/// One name of a client.
pub(super) struct Entry {
    pub(super) context: Arc<Context>,
    pub(super) tables: Arc<Tables<Entry>>,
    pub(super) mode: Mode,
    pub(super) name: LockName,
    /// Where a queue head listens, and the second one, if there are two. Once one does: most names have none.
    channels: OnceLock<Box<Channels>>,
    /// For how long the store remembers a waiter, if it does.
    pub(super) position: Option<Duration>,
    pub(super) engine: LockEntry,
    pub(super) counters: Counters,
    /// When the watchdog looks at it.
    pub(super) due: Due,
    /// The table keeps it, or has done so: only then it has to be asked. Most are never kept.
    was_kept: AtomicBool,
    /// Once there is any.
    unpolled: OnceLock<Box<Unpolled>>,
}

/// What there is of callers that may stop polling, and of waiters that have not been polled.
#[derive(Default)]
struct Unpolled {
    /// Releases that were dropped before they were answered, by a runtime that has not run their task.
    unreleased: Mutex<Vec<PendingRelease>>,
    /// What futures have that wait for the store.
    abandon_guards: Mutex<Vec<Weak<dyn Abandonable>>>,
    /// The subscription under which a waiter that was named with a release waits for its turn, until that
    /// waiter takes it over.
    kept: Mutex<Option<Listening>>,
}

impl Entry {
    pub(super) fn new(
        context: &Arc<Context>,
        tables: &Arc<Tables<Self>>,
        name: &LockName,
        mode: Mode,
    ) -> Self {
        let position = mode.position(context.rules.renewed_lease);
        let policy = match (mode, position) {
            (Mode::Read, _) => context.rules.policy.shared(),
            (_, Some(position)) => Policy::Queued { position },
            (_, None) => context.rules.policy,
        };
        let rules = Rules { policy, ..context.rules };
        Self {
            context: Arc::clone(context),
            tables: Arc::clone(tables),
            mode,
            name: name.clone(),
            channels: OnceLock::new(),
            position,
            engine: LockEntry::new(rules),
            counters: Counters::default(),
            due: tables.deadlines.due(),
            was_kept: AtomicBool::new(false),
            unpolled: OnceLock::new(),
        }
    }

    /// The table that it is in.
    pub(super) fn table(&self) -> &Table<Self> {
        self.tables.of(self.mode)
    }

    /// Has the table keep it, though there may be no handle of it, for a forgotten hold or a release that is
    /// to be repeated. The caller has seen to that before, and it may be over by now.
    pub(super) fn keep(self: &Arc<Self>) {
        // Ordering: Relaxed. What is kept is decided under the table's mutex, and the end of a reason that
        // was found there comes after this.
        self.was_kept.store(true, Ordering::Relaxed);
        self.table().keep(&self.name, self);
        self.let_go_unless_needed();
    }

    /// Has the table keep it no longer, if there is no reason any more.
    #[inline]
    pub(super) fn let_go(&self) {
        // Ordering: Relaxed, as above.
        if self.was_kept.load(Ordering::Relaxed) {
            self.let_go_unless_needed();
        }
    }

    #[cold]
    fn let_go_unless_needed(&self) {
        let is_needed = || self.engine.is_forgotten() || self.is_unreleased();
        self.table().let_go_unless(&self.name, is_needed);
        // A guard was forgotten, or has left forgotten holds behind.
        self.context.tell_shutdown();
    }

    pub(super) fn now(&self) -> Moment {
        self.context.now()
    }

    /// The watchdog is to look at this entry at `at`, or earlier.
    #[inline]
    pub(super) fn schedule(self: &Arc<Self>, at: Moment) {
        self.tables.deadlines.schedule(self, at);
    }

    /// Runs an event of the engine, and does what it leaves to be done.
    #[inline(always)]
    pub(super) fn event<T>(self: &Arc<Self>, event: impl FnOnce(&LockEntry, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let outcome = event(&self.engine, &mut effects);
        self.apply(effects);
        outcome
    }

    /// Does what an event has left to be done, and then wakes the waiters that it concerns.
    #[inline(always)]
    pub(super) fn apply(self: &Arc<Self>, effects: Effects) {
        match effects.is_nothing() {
            // Most events leave nothing. To drop it would ask once more.
            true => mem::forget(effects),
            false => self.apply_some(effects),
        }
    }

    fn apply_some(self: &Arc<Self>, effects: Effects) {
        self.schedule(effects.look_at);
        if effects.handed_off > 0 {
            event!(DEBUG, lock = self.name.as_str(), "handed off");
            self.context.recorder.hand_offs_local.add_one();
        }
        if !effects.is_usual() {
            self.apply_more(effects);
        }
    }

    /// Cold: out of line.
    #[cold]
    fn apply_more(self: &Arc<Self>, effects: Effects) {
        if let Some(pending_release) = effects.pending_release() {
            self.send_release(pending_release, effects.next());
        }
        for pending_release in effects.more_pending_releases() {
            self.send_release(*pending_release, None);
        }
        if let Some(roll_back) = effects.roll_back() {
            // It may be that of a waiter that was named with a release, and has not taken it over.
            drop(self.take_kept());
            self.release_in_background(roll_back);
        }
        self.engine.sent(&effects);
        // It has looked for what was not under way, or is held no more.
        self.context.tell_shutdown();
        if let Some(_reason) = effects.lost() {
            self.context.recorder.leases_lost.add(effects.holds_lost() as usize);
            event!(WARN, lock = self.name.as_str(), reason = %_reason, "lost");
        }
        if effects.calls() {
            self.engine.latch().release_all();
            self.call_queue_heads(0);
        }
        self.context.recorder.superseded.add(effects.superseded() as usize);
        self.context.recorder.renewals_late.add(effects.renewals_unsent() as usize);
        // By no call: a waker that blocks is not to cost the call that has found the loss.
        if effects.lost().is_some_and(LossReason::is_by_time) {
            self.context.drop_apart(effects);
        }
    }

    // === Asking ===

    pub(super) fn acquire<'a>(&'a self, request: &'a AcquireRequest) -> CommandFuture<'a, AcquireOutcome> {
        self.context.store.acquire(self.mode, &self.name, request)
    }

    /// Whether the attempt with this id may run yet, of which the store has said that.
    pub(super) fn may_run_yet<T>(&self, id: &LeaseId, said: &Result<T, Failed>) -> bool {
        // Asked first: the store forgets it by that.
        self.context.store.may_run_again(id)
            || said.as_ref().is_err_and(|error| error.failure == Failure::Indeterminate)
    }

    /// Whether the store grants the lock unasked, and its message may be taken for the lease.
    pub(super) fn believes_grants(&self) -> bool {
        self.mode.is_queued() && self.context.store.grants_suffice()
    }

    fn channels(&self) -> &Channels {
        self.channels.get().unwrap_or_else(|| {
            // Made, and dropped if another thread was quicker, where foreign code may run.
            let made = Box::new(self.context.store.channels(self.mode, &self.name, &self.context.id));
            self.channels.get_or_init(|| made)
        })
    }

    /// Begins to listen, as a queue head.
    pub(super) fn listen(&self) -> Listening {
        Listening::new(&self.context.registry, self.channels())
    }

    /// Whether to listen costs nothing.
    pub(super) fn is_subscribed(&self) -> bool {
        let transport = self.context.registry.transport();
        let is_active = |channel| foreign::call("a transport", || transport.is_active(channel));
        self.channels().all().all(|channel| is_active(channel).unwrap_or(false))
    }

    /// Has the queue heads of this process that listen for the name ask again, those of other clients
    /// included; but as many as `besides` says, which are not to sleep.
    pub(super) fn call_queue_heads(&self, besides: usize) {
        for channel in self.channels().all() {
            if let Some(subscription) = self.context.registry.join(channel) {
                subscription.call_all(besides + 1);
            }
        }
    }

    /// The entry of the other side of the same read-write lock, if it is in use.
    pub(super) fn other_side(&self) -> Option<Arc<Self>> {
        match self.mode {
            Mode::Read => self.tables.of(Mode::Write).find(&self.name),
            Mode::Write => self.tables.of(Mode::Read).find(&self.name),
            Mode::Plain | Mode::Fair => None,
        }
    }

    /// The lease under which `owner` has the other side of the same read-write lock.
    pub(super) fn other_side_of(&self, owner: u64, now: Moment) -> Option<LeaseId> {
        let (number, _) = *self.other_side()?.engine.holds_of(owner, now).first()?;
        Some(self.context.lease_id(number))
    }

    /// This entry, and that of the other side of a read-write lock.
    pub(super) fn both_sides(self: &Arc<Self>) -> impl Iterator<Item = Arc<Self>> + use<> {
        [Some(Arc::clone(self)), self.other_side()].into_iter().flatten()
    }

    /// The leases in hand of this name, of both sides of a read-write lock.
    pub(super) fn leases_in_hand(self: &Arc<Self>) -> Vec<(Arc<Self>, u64)> {
        let numbers = |entry: Arc<Self>| {
            entry.engine.lease_numbers().into_iter().map(move |number| (Arc::clone(&entry), number))
        };
        self.both_sides().flat_map(numbers).collect()
    }

    /// The store has said in answer to a command of `sent` that it does not have a lease. False if that is
    /// not in hand, or if it was heard since that it is begun anew: the store is asked once more then.
    pub(super) fn gone(self: &Arc<Self>, number: u64, sent: Moment) -> bool {
        self.event(|engine, effects| engine.gone(number, sent, self.now(), effects))
    }

    /// An attempt by the queue head, or for it. `None` if it is the queue head no more.
    pub(super) fn attempt(&self, head: &HeadTicket, request: &Request, sent: Moment) -> Option<Attempt> {
        let context = &self.context;
        self.engine.attempt(head, context.number(), sent, context.lease_of(request))
    }

    /// Its position in the store's queue, if that has one.
    pub(super) fn position_of(&self, head: &HeadTicket, sent: Moment) -> Option<QueuePosition> {
        let waited = sent.saturating_duration_since(head.since());
        self.position.map(|kept| QueuePosition { waited, kept })
    }

    /// What is kept for the queue head.
    pub(super) fn take_kept(&self) -> Option<Listening> {
        self.unpolled.get()?.kept.lock().take()
    }

    fn unpolled(&self) -> &Unpolled {
        self.unpolled.get_or_init(Box::default)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // In a child neither mutex is sure to be unlocked ever.
        if self.context.is_same_process() {
            self.table().remove(&self.name);
            self.tables.deadlines.remove(&self.due);
        }
    }
}

/// What wakes the queue head passes through here, so that it is known since when it could go on.
impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        self.event(|engine, effects| engine.wake_head(self.now(), effects));
    }
}

/// Runs unless it is taken out before.
pub(super) struct OnDrop<F: FnOnce()>(pub(super) Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run();
        }
    }
}

/// Awaits `answer`. Dropped before it has come, does `unread`, behind what the answer's future has sent.
pub(super) async fn read_or<T>(answer: impl Future<Output = T>, unread: impl FnOnce()) -> T {
    let mut unread = OnDrop(Some(unread));
    let answer = answer.await;
    unread.0 = None;
    answer
}

/// What one poll of `future` comes to, with a waker that wakes no task: it is to be polled again.
#[inline]
pub(super) fn first_poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut TaskContext::from_waker(Waker::noop()))
}
