//! [`Entry`]: one name of a client; carries out the effects of its [`LockEntry`].

pub(in crate::lock) mod abandon_guard;
pub(in crate::lock) mod deadlines;
pub(in crate::lock) mod listening;
pub(in crate::lock) mod table;

mod extend;
mod places;
mod release;
#[cfg(feature = "tracing")]
mod slow;

use std::mem;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Wake;
use std::time::Duration;

use crate::latch::NotificationFigures;
use crate::lock_entry::{
    Attempt, Effects, HeadTicket, LockEntry, LossReason, Moment, PendingRelease, Policy, Request, Rules,
};
use crate::support::foreign;
use crate::support::sync::Mutex;
use crate::support::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use self::abandon_guard::Abandonable;
use self::deadlines::Due;
use self::listening::Listening;
use self::places::{Place, Places};
use self::table::{Table, Tables};
use crate::lock::backend::{
    AcquireOutcome, AcquireRequest, Channels, CommandFuture, Failed, Failure, LONGEST_POSITION, Mode,
    Permits, QueuePosition,
};
use crate::lock::context::Context;
use crate::lock::name::LockName;
use crate::lock::owner::LeaseId;

pub(super) struct Entry {
    pub(super) context: Arc<Context>,
    pub(super) tables: Arc<Tables<Entry>>,
    pub(super) mode: Mode,
    pub(super) name: LockName,
    /// Permits that this entry is made for; `None` for a lock, and for a semaphore's handles.
    acquisition: Option<Box<Acquisition>>,
    /// Channels that a queue head listens to, made on first use: most names need none.
    channels: OnceLock<Box<Channels>>,
    /// Time for which the store's queue keeps a waiter; `None` if the mode has no queue. At a store that
    /// calls waiters, the question of a waiting head has a position all the same.
    pub(super) position: Option<Duration>,
    /// The store calls one waiter with a release, and has to know the waiters for that.
    pub(super) is_called: bool,
    pub(super) engine: LockEntry,
    pub(super) counters: NotificationFigures,
    pub(super) due: Due,
    /// The table keeps the entry or once did. Most entries are never kept, and need not ask the table.
    was_kept: AtomicBool,
    rare: OnceLock<Box<Rare>>,
}

/// One acquisition of a semaphore's permits, with an entry of its own: holds do not share leases.
pub(super) struct Acquisition {
    number: u64,
    permits: Permits,
    /// The entry of the semaphore's handles, which has the places and the channels.
    handles: Arc<Entry>,
    place: Mutex<Option<Place>>,
}

/// State that most entries never need, made on first use.
#[derive(Default)]
struct Rare {
    unreleased: Mutex<Vec<PendingRelease>>,
    /// Guards of futures that wait for the store outside of the queue.
    abandon_guards: Mutex<Vec<Weak<dyn Abandonable>>>,
    /// Subscription of a waiter that a release has named, until the waiter takes the subscription over.
    named_listening: Mutex<Option<Listening>>,
    /// Count of sets that wait for this name without other names in hand.
    waiting_bare: AtomicUsize,
    /// Start of this client's competition at a store that calls waiters, and time of its latest question.
    competes: Mutex<Option<(Moment, Moment)>>,
    places: Places,
    /// Time of the next look for slow waits.
    #[cfg(feature = "tracing")]
    slow_look: Mutex<Option<Moment>>,
}

impl Entry {
    pub(super) fn new(
        context: &Arc<Context>,
        tables: &Arc<Tables<Self>>,
        name: &LockName,
        mode: Mode,
        acquisition: Option<Box<Acquisition>>,
    ) -> Self {
        let position = mode.position(context.rules.renewed_lease);
        let is_called = mode == Mode::Plain && context.store.calls_waiters();
        let policy = match (mode, position) {
            (Mode::Read, _) => context.rules.policy.shared(),
            (_, Some(position)) => Policy::Queued { position },
            (_, None) => context.rules.policy,
        };
        let rules = Rules { policy, wakes_one: is_called, ..context.rules };
        Self {
            context: Arc::clone(context),
            tables: Arc::clone(tables),
            mode,
            name: name.clone(),
            acquisition,
            channels: OnceLock::new(),
            position,
            is_called,
            engine: LockEntry::new(rules),
            counters: NotificationFigures::default(),
            due: tables.deadlines.due(),
            was_kept: AtomicBool::new(false),
            rare: OnceLock::new(),
        }
    }

    /// Makes the entry of one acquisition of permits, for a handle's entry.
    pub(super) fn acquisition(self: &Arc<Self>, permits: Permits) -> Arc<Self> {
        let (number, handles) = (self.context.number(), Arc::clone(self));
        let acquisition = Acquisition { number, permits, handles, place: Mutex::default() };
        let (context, tables) = (&self.context, &self.tables);
        self.table().get(&self.name, number, || {
            Self::new(context, tables, &self.name, self.mode, Some(Box::new(acquisition)))
        })
    }

    pub(super) fn permits(&self) -> Option<Permits> {
        self.acquisition.as_ref().map(|acquisition| acquisition.permits)
    }

    /// Number in the table: of the acquisition, or 0.
    fn number(&self) -> u64 {
        self.acquisition.as_ref().map_or(0, |acquisition| acquisition.number)
    }

    pub(super) fn table(&self) -> &Table<Self> {
        self.tables.of(self.mode)
    }

    /// Keeps the entry in the table without a handle, unless the caller's reason has ended meanwhile.
    pub(super) fn keep(self: &Arc<Self>) {
        // Ordering: Relaxed. The table's mutex decides, and a reason found there ends after this store.
        self.was_kept.store(true, Ordering::Relaxed);
        self.table().keep(&self.name, self.number(), self);
        self.let_go_unless_needed();
    }

    /// Lets the table drop the entry, unless there is still a reason to keep it.
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
        self.table().let_go_unless(&self.name, self.number(), is_needed);
        // For a shutdown: a guard was forgotten, or has left forgotten holds behind.
        self.context.tell_shutdown();
    }

    pub(super) fn now(&self) -> Moment {
        self.context.now()
    }

    #[inline]
    pub(super) fn schedule(self: &Arc<Self>, at: Moment) {
        self.tables.deadlines.schedule(self, at);
    }

    /// Does what is due by `now` beside the engine's work, and schedules the rest.
    pub(super) fn look_after_calls(self: &Arc<Self>, now: Moment) {
        self.repeat_releases();
        self.give_back_abandoned(now);
        self.ask_at_earliest_end(now);
    }

    #[inline(always)]
    pub(super) fn event<T>(self: &Arc<Self>, event: impl FnOnce(&LockEntry, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let outcome = event(&self.engine, &mut effects);
        self.apply(effects);
        outcome
    }

    /// Carries out the effects of an event; dropping them at the end wakes the waiters.
    #[inline(always)]
    pub(super) fn apply(self: &Arc<Self>, effects: Effects) {
        match effects.look_at == Moment::NEVER && !effects.must_be_applied() {
            // Most events have no effects; forgetting saves the check at the drop.
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

    #[cold]
    fn apply_more(self: &Arc<Self>, effects: Effects) {
        let mut releases = effects.releases().peekable();
        if releases.peek().is_some() {
            // A waiter named with an earlier release may have left without its subscription.
            drop(self.take_kept());
        }
        releases.for_each(|(pending_release, next)| self.send_release(pending_release, next));
        self.engine.sent(&effects);
        // A shutdown may have looked before the releases were under way, or while the hold lasted.
        self.context.tell_shutdown();
        if let Some(_reason) = effects.lost() {
            self.context.recorder.leases_lost.add(effects.holds_lost() as usize);
            event!(WARN, lock = self.name.as_str(), reason = %_reason, "lost");
        }
        if effects.wakes_sleepers() {
            self.engine.latch().release_all();
            self.wake_queue_heads();
        }
        if effects.has_older_leases() {
            self.merge_leases();
        }
        if effects.superseded() > 0 {
            self.context.recorder.superseded.add(effects.superseded() as usize);
            self.leave_place();
            self.wake_all_heads();
        }
        self.context.recorder.renewals_late.add(effects.renewals_unsent() as usize);
        // In a task: a waker that blocks must not hold up the call that found the loss.
        if effects.lost().is_some_and(LossReason::is_by_time) {
            self.context.drop_apart(effects);
        }
    }

    pub(super) fn acquire<'a>(&'a self, request: &'a AcquireRequest) -> CommandFuture<'a, AcquireOutcome> {
        self.context.store.acquire(self.mode, &self.name, request)
    }

    /// True if the store says that the attempt with this id may still run.
    pub(super) fn may_still_run<T>(&self, id: &LeaseId, said: &Result<T, Failed>) -> bool {
        // Asked in any case, as the store forgets the id by answering.
        self.context.store.may_run_again(id)
            || said.as_ref().is_err_and(|error| error.failure == Failure::Indeterminate)
    }

    /// True if the store grants the lock by messages, and a message may count as the lease.
    pub(super) fn believes_grants(&self) -> bool {
        self.mode.is_queued() && self.context.store.grants_suffice()
    }

    fn channels(&self) -> &Channels {
        if let Some(acquisition) = &self.acquisition {
            return acquisition.handles.channels();
        }
        self.channels.get().unwrap_or_else(|| {
            // Made outside of the cell, as foreign code runs here; dropped if another thread was quicker.
            let made = Box::new(self.context.store.channels(self.mode, &self.name, &self.context.id));
            self.channels.get_or_init(|| made)
        })
    }

    /// The client's own channel, and the common one unless a release calls this client.
    fn wait_channels(&self) -> (&str, Option<&str>) {
        let Channels { own, common } = self.channels();
        (own, common.as_deref().filter(|_| !self.is_called))
    }

    pub(super) fn listen(&self) -> Listening {
        let (own, common) = self.wait_channels();
        Listening::new(&self.context.registry, own, common)
    }

    /// Has a queue head that no release calls listen to the common channel, too. False if it does so already.
    pub(super) fn listen_to_all(&self, listening: &Listening) -> bool {
        let common = self.channels().common.as_deref();
        common.is_some_and(|common| listening.add(&self.context.registry, common))
    }

    pub(super) fn is_subscribed(&self) -> bool {
        let transport = self.context.registry.transport();
        let is_active = |channel| foreign::call("a transport", || transport.is_active(channel));
        let (own, common) = self.wait_channels();
        [Some(own), common].into_iter().flatten().all(|channel| is_active(channel).unwrap_or(false))
    }

    /// The position of this client among the waiters that the store calls, for a question at `sent`.
    pub(super) fn place_among_called(&self, sent: Moment) -> QueuePosition {
        let mut competes = self.rare().competes.lock();
        let since =
            competes.filter(|(_, asked)| sent < *asked + LONGEST_POSITION).map_or(sent, |(since, _)| since);
        *competes = Some((since, sent));
        QueuePosition { waited: sent.saturating_duration_since(since), kept: LONGEST_POSITION }
    }

    pub(super) fn had_its_turn(&self) {
        if let Some(rare) = self.rare.get() {
            *rare.competes.lock() = None;
        }
    }

    /// Makes each queue head here that listens for the name ask again.
    pub(super) fn wake_queue_heads(&self) {
        // The store grants permits by number, and one head asks when the earliest lease ends.
        if self.mode == Mode::Permits {
            return;
        }
        for channel in self.channels().all() {
            if let Some(subscription) = self.context.registry.join(channel) {
                subscription.wake_all();
            }
        }
    }

    pub(super) fn other_side(&self) -> Option<Arc<Self>> {
        match self.mode {
            Mode::Read => self.tables.of(Mode::Write).find_name(&self.name),
            Mode::Write => self.tables.of(Mode::Read).find_name(&self.name),
            Mode::Plain | Mode::Fair | Mode::Permits => None,
        }
    }

    /// Returns the lease under which `owner` has the read-write lock's other side.
    pub(super) fn other_side_of(&self, owner: u64, now: Moment) -> Option<LeaseId> {
        let (number, _) = *self.other_side()?.engine.holds_of(owner, now).first()?;
        Some(self.context.lease_id(number))
    }

    /// The entries that may hold the name: of both sides of a read-write lock, of all acquired permits.
    pub(super) fn of_the_name(self: &Arc<Self>) -> impl Iterator<Item = Arc<Self>> + use<> {
        let acquired = if self.mode == Mode::Permits { self.table().all_of(&self.name) } else { Vec::new() };
        let sides = [Some(Arc::clone(self)).filter(|_| acquired.is_empty()), self.other_side()];
        sides.into_iter().flatten().chain(acquired)
    }

    pub(super) fn leases_in_hand(self: &Arc<Self>) -> Vec<(Arc<Self>, u64)> {
        let numbers = |entry: Arc<Self>| {
            entry.engine.lease_numbers().into_iter().map(move |number| (Arc::clone(&entry), number))
        };
        self.of_the_name().flat_map(numbers).collect()
    }

    /// Records that the store lacks a lease, by a command of `sent`. False if not in hand, or begun anew.
    pub(super) fn gone(self: &Arc<Self>, number: u64, sent: Moment) -> bool {
        self.event(|engine, effects| engine.gone(number, sent, self.now(), effects))
    }

    pub(super) fn attempt(&self, head: &HeadTicket, request: &Request, sent: Moment) -> Option<Attempt> {
        let context = &self.context;
        self.engine.attempt(head, context.number(), sent, context.lease_of(request))
    }

    pub(super) fn position_of(&self, head: &HeadTicket, sent: Moment) -> Option<QueuePosition> {
        let waited = sent.saturating_duration_since(head.since());
        self.position.map(|kept| QueuePosition { waited, kept })
    }

    pub(super) fn take_kept(&self) -> Option<Listening> {
        self.rare.get()?.named_listening.lock().take()
    }

    /// True if a set waits for this name after giving its other names back.
    pub(super) fn is_waited_for_bare(&self) -> bool {
        // Ordering: Relaxed, a hint: a set that misses it keeps its names for a while.
        self.rare.get().is_some_and(|rare| rare.waiting_bare.load(Ordering::Relaxed) > 0)
    }

    /// Counts a set that waits without other names in hand, until the returned value is dropped.
    pub(super) fn wait_bare(&self) -> OnDrop<impl FnOnce() + Send> {
        // Ordering: Relaxed, as above.
        self.rare().waiting_bare.fetch_add(1, Ordering::Relaxed);
        OnDrop(Some(|| _ = self.rare().waiting_bare.fetch_sub(1, Ordering::Relaxed)))
    }

    fn rare(&self) -> &Rare {
        self.rare.get_or_init(Box::default)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // In a child the mutexes may stay locked forever, those of the places, too.
        if !self.context.is_same_process() {
            mem::forget(self.acquisition.take());
        } else {
            self.table().remove(&self.name, self.number());
            self.tables.deadlines.remove(&self.due);
        }
    }
}

/// The queue head's waker: the engine notes since when the head could go on, and wakes its task.
impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        self.event(|engine, effects| engine.wake_head(self.now(), effects));
    }
}

/// Runs the closure when dropped, unless the closure is taken out before.
pub(super) struct OnDrop<F: FnOnce()>(pub(super) Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run();
        }
    }
}

/// Awaits `answer`. If dropped earlier, runs `unread`, behind the commands that `answer` has sent.
pub(super) async fn read_or<T>(answer: impl Future<Output = T>, unread: impl FnOnce()) -> T {
    let mut unread = OnDrop(Some(unread));
    let answer = answer.await;
    unread.0 = None;
    answer
}
