//! [`Entry`]: one name of a client; carries out what its [`LockEntry`] says.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use crate::foreign::{Panics, caught};
use crate::lock_entry::{
    Actions, Answer, Attempt, Extension, GiveBack, Grant, HeadTicket, Left, LockEntry, LossReason, Moment, Next,
    Policy, Request, Rules, Verdict,
};
use crate::sync::Mutex;

use super::alarm::{Alarmed, Due};
use super::backend::{
    AcquireOutcome, AcquireRequest, Channels, Command, Failed, Failure, Holder, LeaseKey, Mode, NextWaiter,
    QueuePosition, ReleaseOutcome,
};
use super::context::Context;
use super::error::LockError;
use super::listening::Listening;
use super::name::LockName;
use super::owner::{LeaseId, Owner};
use super::span;
use super::stats::Counters;
use super::table::{Table, Tables};
use super::until::until;

/// The longest time between two releases of one lease.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(1);
const FIRST_BACK_OFF: Duration = Duration::from_millis(10);

/// One name of a client.
pub(super) struct Entry {
    pub(super) context: Arc<Context>,
    tables: Arc<Tables<Entry>>,
    pub(super) mode: Mode,
    pub(super) name: LockName,
    /// Where a queue head listens, and the second one, if there are two.
    channels: Channels,
    /// For how long the store remembers a waiter, if it does.
    pub(super) position: Option<Duration>,
    pub(super) state: LockEntry,
    pub(super) counters: Counters,
    /// When the keeper looks at it.
    due: Due,
    /// Releases that callers wait for: a caller may stop polling, and may not. And those for which the runtime has not run a task.
    awaited: Mutex<Vec<Awaited>>,
    /// The subscription under which a waiter that was named with a release waits for its turn, until that waiter takes it over.
    kept: Mutex<Option<Listening>>,
}

/// A release that the keeper repeats unless it is answered before.
#[derive(Clone, Copy)]
struct Awaited {
    give_back: GiveBack,
    since: Moment,
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
            channels: context.store.channels(mode, name, context.id()),
            position,
            state: LockEntry::new(rules),
            counters: Counters::default(),
            due: tables.alarm.due(),
            awaited: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    /// The table that it is in.
    pub(super) fn table(&self) -> &Table<Self> {
        self.tables.of(self.mode)
    }

    pub(super) fn now(&self) -> Moment {
        self.context.now()
    }

    /// The keeper is to look at this entry at `at`, or earlier.
    #[inline]
    pub(super) fn ring(self: &Arc<Self>, at: Moment) {
        self.tables.alarm.ring(self, at);
    }

    /// Does what an event has left to be done, and then wakes whom it concerns.
    #[inline]
    pub(super) fn carry_out(self: &Arc<Self>, actions: Actions) {
        self.ring(actions.look_at);
        if actions.handed_off > 0 {
            event!(DEBUG, lock = self.name.as_str(), "handed off");
            self.context.recorder.hand_offs_local.add_one();
        }
        if !actions.is_usual() {
            self.carry_out_more(actions);
        }
    }

    /// As [`carry_out`](Self::carry_out). A panic of foreign code is kept, and is to go on once the event's outcome has an owner: dropped by the
    /// panic, a queue head, a grant or a release that only the outcome names would leave the name dead.
    #[inline]
    #[must_use = "the panic goes on when the outcome has an owner"]
    pub(super) fn carry_out_caught(self: &Arc<Self>, actions: Actions) -> Panics {
        let mut panics = Panics::NONE;
        if actions.is_quiet() {
            self.carry_out(actions);
        } else {
            panics.catch(|| self.carry_out(actions));
        }
        panics
    }

    /// What leaving a hold has come to, for a caller that sends the release. If foreign code has panicked meanwhile, the panic goes on, and the
    /// release is sent without the caller.
    #[inline]
    pub(super) fn left_after(self: &Arc<Self>, left: Left, panics: Panics, now: Moment) -> Left {
        if !panics.is_some() {
            return left;
        }
        if let Left::Return(give_back) = left {
            self.release_unawaited(give_back, now);
        }
        panics.resume();
        Left::Passed
    }

    /// As [`carry_out`](Self::carry_out), of an event that has granted a hold. A waker is foreign code: should it panic, nobody gets to have that
    /// hold, and it is given back.
    #[inline]
    pub(super) fn carry_out_granted(self: &Arc<Self>, grant: Option<Grant>, actions: Actions) {
        let mut unheard = OnDrop(grant.map(|grant| move || self.give_back(&grant)));
        self.carry_out(actions);
        unheard.0 = None;
    }

    #[cold]
    pub(super) fn give_back(self: &Arc<Self>, grant: &Grant) {
        let now = self.now();
        let (left, actions) = self.state.leave(grant, now);
        let panics = self.carry_out_caught(actions);
        if let Left::Return(give_back) = self.left_after(left, panics, now) {
            self.release_unawaited(give_back, now);
        }
    }

    /// Apart, so that it costs the others nothing. Each part is done, whatever the foreign code in another one does.
    #[cold]
    fn carry_out_more(self: &Arc<Self>, actions: Actions) {
        let mut panics = Panics::NONE;
        if let Some(give_back) = actions.give_back() {
            panics.catch(|| self.send_release(give_back, actions.next()));
        }
        for give_back in actions.more_give_backs() {
            panics.catch(|| self.send_release(*give_back, None));
        }
        if let Some(roll_back) = actions.roll_back() {
            // It may be that of a waiter that was named with a release, and has not taken it over.
            let kept = self.take_kept();
            panics.catch(|| self.release_in_background(roll_back));
            panics.catch(|| drop(kept));
        }
        if let Some(_reason) = actions.lost() {
            self.context.recorder.leases_lost.add_one();
            event!(WARN, lock = self.name.as_str(), reason = %_reason, "lost");
            panics.catch(|| self.context.releases.tell());
        }
        if actions.calls() {
            for channel in self.channels.all() {
                panics.catch(|| {
                    if let Some(subscription) = self.context.registry.join(channel) {
                        subscription.latch().release_all();
                    }
                });
            }
        }
        self.context.recorder.superseded.add(actions.superseded() as usize);
        panics.catch(|| drop(actions));
        panics.resume();
    }

    // === Asking ===

    pub(super) fn acquire<'a>(&'a self, request: &'a AcquireRequest) -> Command<'a, AcquireOutcome> {
        self.context.store.acquire(self.mode, &self.name, request)
    }

    /// Whether the store grants the lock unasked, and its message may be taken for the lease.
    pub(super) fn believes_grants(&self) -> bool {
        self.mode.is_queued() && self.context.store.grants_suffice()
    }

    /// Begins to listen, as a queue head.
    pub(super) fn listen(&self) -> Listening {
        Listening::new(&self.context.registry, &self.channels)
    }

    /// Whether to listen costs nothing.
    pub(super) fn is_heard(&self) -> bool {
        let transport = self.context.registry.transport();
        self.channels.all().all(|channel| transport.stands(channel))
    }

    /// The entry of the other side of the same read-write lock, if somebody uses it.
    pub(super) fn other_side(&self) -> Option<Arc<Self>> {
        match self.mode {
            Mode::Read => self.tables.write.find(&self.name),
            Mode::Write => self.tables.read.find(&self.name),
            Mode::Plain | Mode::Fair => None,
        }
    }

    /// The lease under which `owner` has the other side of the same read-write lock.
    pub(super) fn other_side_of(&self, owner: u64, now: Moment) -> Option<LeaseId> {
        let (number, _) = *self.other_side()?.state.holds_of(owner, now).first()?;
        Some(self.context.lease_id(number))
    }

    /// The leases in hand of this name, of both sides of a read-write lock.
    pub(super) fn leases_in_hand(self: &Arc<Self>) -> Vec<(Arc<Self>, u64)> {
        let entries = [Some(Arc::clone(self)), self.other_side()].into_iter().flatten();
        let numbers = |entry: Arc<Self>| {
            entry.state.lease_numbers().into_iter().map(move |number| (Arc::clone(&entry), number))
        };
        entries.flat_map(numbers).collect()
    }

    /// A lease is gone, if it is in hand.
    pub(super) fn lose(self: &Arc<Self>, number: u64) {
        let (_, actions) = self.state.lose(number, LossReason::Gone, self.now());
        self.carry_out(actions);
    }

    /// An attempt by the queue head, or for it. `None` if it is the queue head no more.
    pub(super) fn attempt(&self, head: &HeadTicket, request: &Request, sent: Moment) -> Option<Attempt> {
        let context = &self.context;
        self.state.attempt(head, context.number(), sent, context.lease_of(request))
    }

    /// Its position in the store's queue, if that has one.
    pub(super) fn position_of(&self, head: &HeadTicket, sent: Moment) -> Option<QueuePosition> {
        let waited = sent.saturating_duration_since(head.since());
        self.position.map(|kept| QueuePosition { waited, kept })
    }

    /// What is kept for the queue head.
    pub(super) fn take_kept(&self) -> Option<Listening> {
        self.kept.lock().take()
    }

    // === Releasing ===

    /// Sends a release that the caller waits for. Should it fail, or the caller go away, it is repeated in the background. False if the
    /// store did not know the lease.
    pub(super) async fn release(
        self: &Arc<Self>,
        give_back: GiveBack,
        now: Moment,
    ) -> Result<bool, LockError> {
        let id = self.context.lease_id(give_back.number);
        let mut repeat = OnDrop(Some(|| self.release_in_background(give_back)));
        let mut release;
        let polled = {
            // It is on its way then. Whoever waits by now is not to depend on the caller's polling, nor on a waker that does not panic.
            let _appoints = OnDrop(Some(|| self.carry_out(self.state.returned(0, now))));
            release = self.send_once(&id, give_back.rolls_back);
            first_poll(Pin::new(&mut release))
        };
        let (outcome, repeated) = match polled {
            Poll::Ready(outcome) => (outcome, false),
            Poll::Pending => {
                self.await_release(Awaited { give_back, since: now });
                (release.await, !self.release_answered(give_back))
            }
        };
        if outcome.is_ok() {
            repeat.0 = None;
        }
        self.released(outcome, repeated)
    }

    /// Sends one release. `rolls_back`: not before what is under way by the same id has taken effect.
    fn send_once<'a>(&'a self, id: &'a LeaseId, rolls_back: bool) -> Command<'a, ReleaseOutcome> {
        let store = &self.context.store;
        match rolls_back {
            true => store.roll_back(self.mode, &self.name, id),
            false => store.release(self.mode, &self.name, id, None),
        }
    }

    /// Sends a release that nobody waits for.
    pub(super) fn release_unawaited(self: &Arc<Self>, give_back: GiveBack, now: Moment) {
        let mut panics = Panics::NONE;
        if panics.catch(|| self.release_at_once(give_back)) != Some(true) {
            panics.catch(|| self.release_in_background(give_back));
        }
        panics.catch(|| self.carry_out(self.state.returned(0, now)));
        panics.resume();
    }

    /// Releases a lease if the store answers at once. False if that is to be repeated.
    fn release_at_once(&self, give_back: GiveBack) -> bool {
        if !self.context.at_once {
            return false;
        }
        let id = self.context.lease_id(give_back.number);
        let outcome = self.send_once(&id, give_back.rolls_back).at_once();
        outcome.is_some_and(|outcome| self.released(outcome, false).is_ok())
    }

    /// Counts and tells what a release came to. Whether the store knew the lease, or did until it was released by a repetition.
    fn released(&self, outcome: Result<ReleaseOutcome, Failed>, repeated: bool) -> Result<bool, LockError> {
        let context = &self.context;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                self.release_failed(&error);
                return Err(match context.failed(&self.name, error) {
                    LockError::Backend { name, failure, source } => {
                        LockError::ReleasePending { name, failure, source }
                    }
                    other => other,
                });
            }
        };
        context.releases.succeeded();
        if context.is_shut_down() {
            context.releases.tell();
        }
        if let ReleaseOutcome::Released { heard: heard @ 1.. } = outcome {
            self.state.heard_by(heard, self.now());
        }
        let had_it = repeated || outcome != ReleaseOutcome::NotHeld;
        if had_it {
            event!(DEBUG, lock = self.name.as_str(), "released");
        } else {
            context.recorder.leases_lost.add_one();
            event!(WARN, lock = self.name.as_str(), reason = %LossReason::Gone, "lost");
        }
        Ok(had_it)
    }

    /// Whether a caller waits for a release of this name.
    pub(super) fn awaits_release(&self) -> bool {
        !self.awaited.lock().is_empty()
    }

    /// A caller waits for this release, and may leave it unpolled.
    fn await_release(self: &Arc<Self>, release: Awaited) {
        self.awaited.lock().push(release);
        self.ring(release.since + self.context.rules.unpolled_limit);
    }

    /// False if the release was repeated in the background, since it took too long.
    fn release_answered(&self, give_back: GiveBack) -> bool {
        let mut awaited = self.awaited.lock();
        match awaited.iter().position(|other| other.give_back.number == give_back.number) {
            Some(at) => {
                awaited.swap_remove(at);
                true
            }
            None => false,
        }
    }

    /// Repeats releases in the background that were begun by callers, and not answered for too long.
    pub(super) fn repeat_releases(self: &Arc<Self>, now: Moment) {
        let limit = self.context.rules.unpolled_limit;
        loop {
            let late = {
                let mut awaited = self.awaited.lock();
                let Some(at) =
                    awaited.iter().position(|other| now.saturating_duration_since(other.since) >= limit)
                else {
                    // The others come later.
                    let first = awaited.iter().map(|other| other.since + limit).min();
                    drop(awaited);
                    first.into_iter().for_each(|first| self.ring(first));
                    return;
                };
                awaited.swap_remove(at)
            };
            self.release_in_background(late.give_back);
        }
    }

    fn release_failed(&self, _error: &Failed) {
        self.context.recorder.releases_failed.add_one();
        if self.context.releases.failed() {
            event!(
                WARN,
                lock = self.name.as_str(),
                error = &*_error.source as &dyn std::error::Error,
                "release failed"
            );
        }
    }

    /// Sends a release until the store has answered, or the lease is over. Begun here, so that a store in memory needs no task.
    pub(super) fn release_in_background(self: &Arc<Self>, give_back: GiveBack) {
        self.send_release(give_back, None);
    }

    fn send_release(self: &Arc<Self>, give_back: GiveBack, next: Option<Next>) {
        if self.context.check_origin().is_err() {
            return;
        }
        self.context.releases.begin(give_back.number, &self.name);
        let next_head = next.map(|next| (next.head, None));
        let mut ends =
            ReleaseEnds { entry: Arc::clone(self), give_back, appoints: give_back.appoints, next: next_head };
        let mut panics = Panics::NONE;
        if let (Some(next), Some((_, named)), false) = (next, &mut ends.next, give_back.rolls_back) {
            // Without its name it asks for itself.
            *named = panics.catch(|| Named::new(self, next)).flatten();
        }
        let mut release = Box::pin(span::here(ends.send()));
        let begun = panics.catch(|| {
            if first_poll(release.as_mut()).is_pending() {
                self.context.spawn(release);
            }
        });
        if begun.is_none() {
            // It may not have been sent. The entry stays until the keeper has repeated it.
            self.table().keep(&self.name, self);
            panics.catch(|| self.await_release(Awaited { give_back, since: self.now() }));
        }
        panics.resume();
    }

    // === Renewing ===

    /// Sees to it that the lease in hand is enough for an owner's further hold. The hold's token, if that is new.
    pub(super) async fn extend(
        self: &Arc<Self>,
        owner: Owner,
        grant: &Grant,
        extension: Extension,
    ) -> Result<Option<u64>, LockError> {
        let mut extension = extension;
        loop {
            let number = extension.number();
            let reason = match self.extend_once(extension).await? {
                Ok(token) => return Ok(token),
                Err(reason) => reason,
            };
            // A shared hold may go on by another lease meanwhile.
            match self.state.state_of(grant, self.now()) {
                Ok(hold) if hold.number != number => extension = extension.of(hold.number),
                _ => return Err(LockError::lost(&self.name, owner, reason)),
            }
        }
    }

    async fn extend_once(
        self: &Arc<Self>,
        extension: Extension,
    ) -> Result<Result<Option<u64>, LossReason>, LockError> {
        let (context, sent, number) = (&self.context, self.now(), extension.number());
        // Said before it is sent: this future may be dropped, or never answered, and the store have the lease for as long all the same.
        let (lease, actions) = self.state.extending(extension, sent);
        self.carry_out(actions);
        let Some(lease) = lease.map(whole_millis) else { return Ok(Err(LossReason::Expired)) };
        let id = context.lease_id(number);
        let answer = match extension {
            Extension::Renew { .. } => {
                let key = LeaseKey { name: self.name.clone(), id };
                let renewed = context.store.renew(self.mode, std::slice::from_ref(&key), lease).await;
                renewed.map(|renewed| (renewed.first() == Some(&true), None))
            }
            Extension::Token { .. } => {
                let asked = AcquireRequest::new(id, lease, sent).tokens(1);
                let asked = self.acquire(&asked).await;
                asked.map(|outcome| match outcome {
                    AcquireOutcome::Acquired { last_token } => (true, Some(last_token)),
                    AcquireOutcome::Held { .. } => (false, None),
                })
            }
        };
        let (held, token) = match answer {
            Ok(answer) => answer,
            Err(error) => {
                if error.failure != Failure::Indeterminate {
                    self.state.not_extended(extension);
                }
                return Err(context.failed(&self.name, error));
            }
        };
        if !held {
            self.state.not_extended(extension);
            self.lose(number);
            return Ok(Err(LossReason::Gone));
        }
        let (in_hand, actions) = self.state.extended(number, sent, lease, token, self.now());
        self.carry_out(actions);
        if !in_hand {
            // It was given back meanwhile, and the command may have begun it anew.
            let until = sent + lease;
            self.release_in_background(GiveBack { number, until, appoints: false, rolls_back: true });
            return Ok(Err(LossReason::Expired));
        }
        Ok(Ok(token))
    }

    /// Asks the store whether the hold is there; if not, it is lost.
    pub(super) async fn verify(self: &Arc<Self>, grant: &Grant) -> Result<Result<(), LossReason>, LockError> {
        self.context.check_origin()?;
        loop {
            let number = match self.state.state_of(grant, self.now()) {
                Ok(hold) => hold.number,
                Err(reason) => return Ok(Err(reason)),
            };
            let is_there = self.lease_check().await?;
            if !is_there(number) {
                self.lose(number);
            }
            // The lease may have ended while we asked, or a shared hold have gone on by another one.
            match self.state.state_of(grant, self.now()) {
                Ok(hold) if hold.number != number => {}
                state => return Ok(state.map(|_| ())),
            }
        }
    }

    /// Asks the store which leases there are.
    pub(super) async fn lease_check(&self) -> Result<impl Fn(u64) -> bool, LockError> {
        let holders = self.holders().await?;
        Ok(move |number| {
            let id = Some(self.context.lease_id(number));
            holders.iter().any(|holder| holder.id == id)
        })
    }

    /// Who has the lock, of all clients.
    pub(super) async fn holders(&self) -> Result<Vec<Holder>, LockError> {
        self.context.check_origin()?;
        let holders = self.context.store.holders(self.mode, &self.name).await;
        holders.map_err(|error| self.context.failed(&self.name, error))
    }
}

/// Stores count in milliseconds.
fn whole_millis(lease: Duration) -> Duration {
    let millis = u64::try_from(lease.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    Duration::from_millis(millis).min(super::lease::Lease::MAX)
}

impl Drop for Entry {
    fn drop(&mut self) {
        // In a child neither mutex is sure to be unlocked ever.
        if self.context.is_here() {
            self.table().remove(&self.name);
            self.tables.alarm.remove(&self.due);
        }
    }
}

impl Alarmed for Entry {
    fn due(&self) -> &Due {
        &self.due
    }
}

/// What wakes the queue head passes through here, so that it is known since when it could go on.
impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        self.carry_out(self.state.wake_head(self.now()));
    }
}

/// What is asked for with a release, on behalf of the next queue head.
struct Named {
    attempt: Attempt,
    next: NextWaiter,
    /// For the grant that comes if it is not its turn yet.
    listening: Listening,
}

impl Named {
    /// `None` if it is not to be named: it has left, or the store cannot say so with the release.
    fn new(entry: &Entry, next: Next) -> Option<Self> {
        if !entry.believes_grants() {
            return None;
        }
        let context = &entry.context;
        let listening = entry.listen();
        let sent = entry.now();
        let position = entry.position_of(&next.head, sent)?;
        let attempt = entry.attempt(&next.head, &next.request, sent)?;
        let (id, lease) = (context.lease_id(attempt.number()), attempt.lease());
        let next = NextWaiter { id, lease, tokens: attempt.tokens(), position };
        Some(Self { attempt, next, listening })
    }
}

/// A release in the background. However it ends, the next waiter is appointed, and the client is told.
struct ReleaseEnds {
    entry: Arc<Entry>,
    give_back: GiveBack,
    /// The next waiter is not appointed yet.
    appoints: bool,
    /// The next waiter is the queue head, and has not been told. With what is asked for on its behalf, if it is.
    next: Option<(HeadTicket, Option<Named>)>,
}

impl ReleaseEnds {
    async fn send(mut self) {
        let entry = Arc::clone(&self.entry);
        let (context, id) = (&entry.context, entry.context.lease_id(self.give_back.number));
        let (mode, store) = (entry.mode, &context.store);
        let mut back_off = FIRST_BACK_OFF;
        loop {
            let outcome = match &self.next {
                Some((_, Some(named))) => {
                    // Only what comes after the subscription was confirmed comes for sure.
                    let hears_all = named.listening.is_ready();
                    let release = async { store.release(mode, &entry.name, &id, Some(&named.next)).await };
                    let outcome = caught(release).await;
                    outcome.inspect(|outcome| {
                        if let Ok(outcome) = outcome {
                            self.tell_next(*outcome, hears_all);
                        }
                    })
                }
                _ => caught(async { entry.send_once(&id, self.give_back.rolls_back).await }).await,
            };
            match outcome {
                Ok(Ok(outcome)) => {
                    context.releases.succeeded();
                    event!(DEBUG, lock = entry.name.as_str(), "released");
                    let heard = match outcome {
                        ReleaseOutcome::Released { heard } => heard,
                        ReleaseOutcome::GrantedToNext { .. } | ReleaseOutcome::NotHeld => 0,
                    };
                    self.appoint(heard);
                    return;
                }
                Ok(Err(error)) => entry.release_failed(&error),
                // It may have run, and is repeated as one that was not answered.
                Err(panics) => {
                    context.recorder.releases_failed.add_one();
                    panics.report("releasing a lock");
                }
            }
            // The next waiter has a lease of its own to ask for. Whatever its waker does, the release is repeated.
            let mut panics = Panics::NONE;
            panics.catch(|| self.appoint(0));
            panics.report("waking a waiter");
            let again = context.now() + back_off;
            if self.give_back.until <= again || context.has_ended() {
                return;
            }
            until(context, again, pending::<()>()).await;
            back_off = (back_off * 2).min(LONGEST_BACK_OFF);
        }
    }

    /// The release was answered, and may have said what becomes of the waiter that was named with it.
    fn tell_next(&mut self, outcome: ReleaseOutcome, hears_all: bool) {
        let (entry, now) = (&self.entry, self.entry.now());
        let Some((head, Some(Named { attempt, next, listening }))) = self.next.take() else { return };
        let answer = match outcome {
            ReleaseOutcome::GrantedToNext { last_token } => Answer::Granted { last_token },
            ReleaseOutcome::Released { .. } if hears_all => Answer::Held { kept: Some(next.position.kept) },
            ReleaseOutcome::Released { .. } | ReleaseOutcome::NotHeld => Answer::Unsaid,
        };
        let mut listening = Some(listening);
        if let Answer::Held { .. } = answer {
            let _before = std::mem::replace(&mut *entry.kept.lock(), listening.take());
        }
        let (verdict, actions) = entry.state.answered(&head, attempt, answer, now);
        // It has left.
        let _kept = if let Verdict::Superseded = verdict { entry.take_kept() } else { None };
        entry.carry_out(actions);
    }

    fn appoint(&mut self, heard: usize) {
        let (entry, now) = (&self.entry, self.entry.now());
        let mut panics = Panics::NONE;
        if let Some((head, named)) = self.next.take() {
            panics.catch(|| {
                entry.carry_out(match &named {
                    Some(named) => entry.state.answered(&head, named.attempt, Answer::Unanswered, now).1,
                    None => entry.state.asks_itself(&head, now),
                });
            });
            panics.catch(|| drop(named));
        }
        if std::mem::replace(&mut self.appoints, false) {
            panics.catch(|| entry.carry_out(entry.state.returned(heard, now)));
        } else if heard > 0 {
            entry.state.heard_by(heard, now);
        }
        panics.resume();
    }
}

impl Drop for ReleaseEnds {
    fn drop(&mut self) {
        let mut panics = Panics::NONE;
        panics.catch(|| self.appoint(0));
        panics.catch(|| self.entry.context.releases.end(self.give_back.number));
        panics.resume();
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

/// What one poll of `future` comes to, with nobody to be woken for it: it is to be polled again.
#[inline]
pub(super) fn first_poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut TaskContext::from_waker(Waker::noop()))
}
