//! [`Entry`]: one name of a client; carries out what its [`LockEntry`] says.

use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use crate::fault::fault;
use crate::foreign::{Panics, caught};
use crate::lock_entry::{
    Actions, Attempt, Extension, GiveBack, Grant, HeadTicket, Left, LockEntry, LossReason, Moment, Next,
    Request, Rules,
};
use crate::runtime::Runtime;
use crate::sync::Mutex;
use crate::transport::Transport;

use super::alarm::{Alarmed, Due};
use super::backend::{AcquireOutcome, Backend, Failure, Holder, LeaseKey, ReleaseOutcome};
use super::commands::{Ask, Commands, Kind};
use super::context::Context;
use super::error::LockError;
use super::fair::{self, FairReleaseOutcome, Position};
use super::keeper::drop_apart;
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
pub(super) struct Entry<B: Backend> {
    pub(super) context: Arc<Context<B>>,
    tables: Arc<Tables<Entry<B>>>,
    pub(super) commands: Commands<B>,
    pub(super) name: LockName,
    /// Where a queue head listens, and the second one, if there are two.
    channels: (String, Option<String>),
    /// For how long the store remembers a waiter, if it does.
    pub(super) position: Option<Duration>,
    pub(super) state: LockEntry,
    pub(super) counters: Counters,
    /// When the keeper looks at it.
    due: Due,
    /// Releases that callers wait for: a caller may stop polling, and may not. And those for which the runtime has not run a task.
    awaited: Mutex<Vec<Awaited>>,
    /// The subscription under which a waiter that was named with a release waits for its turn, until that waiter takes it over.
    kept: Mutex<Option<Listening<B::Transport>>>,
}

/// A release that the keeper repeats unless it is answered before.
#[derive(Clone, Copy)]
struct Awaited {
    give_back: GiveBack,
    since: Moment,
}

impl<B: Backend> Entry<B> {
    pub(super) fn new(
        context: &Arc<Context<B>>,
        tables: &Arc<Tables<Self>>,
        name: &LockName,
        commands: Commands<B>,
    ) -> Self {
        let (position, kind) = (commands.position(context.rules.renewed_lease), commands.kind());
        let rules = Rules {
            position: position.filter(|_| kind.is_granted()),
            shared: kind == Kind::Read,
            ..context.rules
        };
        Self {
            context: Arc::clone(context),
            tables: Arc::clone(tables),
            commands,
            name: name.clone(),
            channels: commands.channels(&context.backend, name, context.id()),
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
        self.commands.table(&self.tables)
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
            if !fault!(HandOffsNotCounted) {
                self.context.recorder.hand_offs_local.add_one();
            }
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
        if actions.is_quiet() || fault!(OutcomeDiesWithPanic) {
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
        if let Left::Return(give_back) = left
            && !fault!(ReleaseDiesWithPanic)
        {
            self.release_unawaited(give_back, now);
        }
        panics.resume();
        Left::Passed
    }

    /// As [`carry_out`](Self::carry_out), of an event that has granted a hold. A waker is foreign code: should it panic, nobody gets to have that
    /// hold, and it is given back.
    #[inline]
    pub(super) fn carry_out_granted(self: &Arc<Self>, grant: Option<Grant>, actions: Actions) {
        let grant = grant.filter(|_| !fault!(GrantDiesWithPanic));
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
            if !fault!(LossesNotCounted) {
                self.context.recorder.leases_lost.add_one();
            }
            event!(WARN, lock = self.name.as_str(), reason = %_reason, "lost");
            panics.catch(|| self.context.releases.tell());
        }
        if actions.calls() {
            let (own, common) = &self.channels;
            for channel in [own].into_iter().chain(common) {
                panics.catch(|| {
                    if let Some(subscription) = self.context.backend.registry().join(channel) {
                        subscription.latch().release_all();
                    }
                });
            }
        }
        self.context.recorder.superseded.add(actions.superseded() as usize);
        match actions.lost() {
            // By no call: a waker that panics or blocks is not to cost the one that has found it.
            Some(reason) if reason.is_by_time() => panics.catch(|| drop_apart(&self.context, actions)),
            _ => panics.catch(|| drop(actions)),
        };
        panics.resume();
    }

    // === Asking ===

    /// Begins to listen, as a queue head.
    pub(super) fn listen(&self) -> Listening<B::Transport> {
        Listening::new(self.context.backend.registry(), &self.channels)
    }

    /// Whether to listen costs nothing.
    pub(super) fn is_heard(&self) -> bool {
        let (own, common) = &self.channels;
        let transport = self.context.backend.registry().transport();
        [own].into_iter().chain(common).all(|channel| transport.stands(channel))
    }

    /// The entry of the other side of the same read-write lock, if somebody uses it.
    pub(super) fn other_side(&self) -> Option<Arc<Self>> {
        match self.commands.kind() {
            Kind::Read => self.tables.write.find(&self.name),
            Kind::Write => self.tables.read.find(&self.name),
            Kind::Plain | Kind::Fair => None,
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
        self.state.attempt(head, context.number(), request, sent, context.lease_of(request))
    }

    /// Its position in the store's queue, if that has one.
    pub(super) fn position_of(&self, head: &HeadTicket, sent: Moment) -> Option<Position> {
        let since = if fault!(WaitNotCounted) { sent } else { head.since() };
        let waited = sent.saturating_duration_since(since);
        self.position.map(|kept| Position { waited, kept })
    }

    /// What is kept for the queue head.
    pub(super) fn take_kept(&self) -> Option<Listening<B::Transport>> {
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
        let mut release = pin!(self.send_once(&id, give_back.rolls_back));
        let polled = {
            // It is on its way then. Whoever waits by now is not to depend on the caller's polling, nor on a waker that does not panic.
            let _appoints = OnDrop(Some(|| self.carry_out(self.state.returned(0, now))));
            first_poll(release.as_mut())
        };
        let (outcome, repeated) = match polled {
            Poll::Ready(outcome) => (outcome, false),
            Poll::Pending => {
                self.await_release(Awaited { give_back, since: now });
                (release.await, !self.release_answered(give_back))
            }
        };
        if outcome.is_ok() || fault!(AwaitedReleaseNotRepeated) {
            repeat.0 = None;
        }
        self.released(outcome, repeated)
    }

    /// Sends one release. `rolls_back`: not before what is under way by the same id has taken effect.
    async fn send_once(&self, id: &LeaseId, rolls_back: bool) -> Result<ReleaseOutcome, B::Error> {
        let (commands, backend) = (self.commands, &self.context.backend);
        match rolls_back && !fault!(RollsBackByRelease) {
            true => commands.roll_back(backend, &self.name, id).await,
            false => commands.release(backend, &self.name, id).await,
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
        if !B::ANSWERS_AT_ONCE {
            return false;
        }
        let id = self.context.lease_id(give_back.number);
        match first_poll(pin!(self.send_once(&id, give_back.rolls_back))) {
            Poll::Ready(outcome) => self.released(outcome, false).is_ok(),
            Poll::Pending => false,
        }
    }

    /// Counts and tells what a release came to. Whether the store knew the lease, or did until it was released by a repetition.
    fn released(&self, outcome: Result<ReleaseOutcome, B::Error>, repeated: bool) -> Result<bool, LockError> {
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
        let had_it = repeated || matches!(outcome, ReleaseOutcome::Released { .. });
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
            if !fault!(UnpolledReleaseForgotten) {
                self.release_in_background(late.give_back);
            }
        }
    }

    fn release_failed(&self, _error: &B::Error) {
        self.context.recorder.releases_failed.add_one();
        if self.context.releases.failed() {
            event!(
                WARN,
                lock = self.name.as_str(),
                error = _error as &dyn std::error::Error,
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
                self.context.backend.runtime().spawn(release);
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
                let renewed = self.commands.renew(&context.backend, std::slice::from_ref(&key), lease).await;
                renewed.map(|renewed| (renewed.first() == Some(&true), None))
            }
            Extension::Token { .. } => {
                let ask = Ask { id, lease, tokens: 1, position: None, under: None, sent };
                let asked = self.commands.try_acquire(&context.backend, &self.name, &ask).await;
                asked.map(|outcome| match outcome {
                    AcquireOutcome::Acquired { last_token } => (true, Some(last_token)),
                    AcquireOutcome::Held { .. } => (false, None),
                })
            }
        };
        let (held, token) = match answer {
            Ok(answer) => answer,
            Err(error) => {
                if context.failure(&error) != Failure::Indeterminate {
                    self.state.not_extended(extension);
                }
                return Err(context.failed(&self.name, error));
            }
        };
        if !held && !fault!(GoneCountsAsExtended) {
            self.state.not_extended(extension);
            self.lose(number);
            return Ok(Err(LossReason::Gone));
        }
        let (in_hand, actions) = self.state.extended(number, sent, lease, token, self.now());
        self.carry_out(actions);
        if !in_hand {
            // It was given back meanwhile, and the command may have begun it anew.
            let until = sent + lease;
            if !fault!(LateTokenNotUndone) {
                self.release_in_background(GiveBack { number, until, appoints: false, rolls_back: true });
            }
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
            if !is_there(number) && !fault!(EnsuredInMemory) {
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
        let holders = self.commands.holders(&self.context.backend, &self.name).await;
        holders.map_err(|error| self.context.failed(&self.name, error))
    }
}

/// Stores count in milliseconds.
fn whole_millis(lease: Duration) -> Duration {
    let millis = u64::try_from(lease.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    Duration::from_millis(millis).min(super::lease::Lease::MAX)
}

impl<B: Backend> Drop for Entry<B> {
    fn drop(&mut self) {
        // In a child neither mutex is sure to be unlocked ever.
        if self.context.is_here() {
            self.table().remove(&self.name);
            self.tables.alarm.remove(&self.due);
        }
    }
}

impl<B: Backend> Alarmed for Entry<B> {
    fn due(&self) -> &Due {
        &self.due
    }
}

/// What wakes the queue head passes through here, so that it is known since when it could go on.
impl<B: Backend> Wake for Entry<B> {
    fn wake(self: Arc<Self>) {
        self.carry_out(self.state.wake_head(self.now()));
    }
}

/// What is asked for with a release, on behalf of the next queue head.
struct Named<B: Backend> {
    attempt: Attempt,
    next: fair::Next,
    sent: Moment,
    /// For the grant that comes if it is not its turn yet.
    listening: Listening<B::Transport>,
}

impl<B: Backend> Named<B> {
    /// `None` if it is not to be named: it has left, or the store cannot say so with the release.
    fn new(entry: &Entry<B>, next: Next) -> Option<Self> {
        let (context, Commands::Of(kind)) = (&entry.context, entry.commands) else { return None };
        if !kind.grants_suffice(&context.backend) {
            return None;
        }
        let listening = entry.listen();
        let sent = entry.now();
        let position = entry.position_of(&next.head, sent)?;
        let attempt = entry.attempt(&next.head, &next.request, sent)?;
        let (id, lease) = (context.lease_id(attempt.number()), context.lease_of(&next.request));
        let next = fair::Next { id, lease, tokens: attempt.tokens(), position };
        Some(Self { attempt, next, sent, listening })
    }
}

/// A release in the background. However it ends, the next waiter is appointed, and the client is told.
struct ReleaseEnds<B: Backend> {
    entry: Arc<Entry<B>>,
    give_back: GiveBack,
    /// The next waiter is not appointed yet.
    appoints: bool,
    /// The next waiter is the queue head, and has not been told. With what is asked for on its behalf, if it is.
    next: Option<(HeadTicket, Option<Named<B>>)>,
}

impl<B: Backend> ReleaseEnds<B> {
    async fn send(mut self) {
        let entry = Arc::clone(&self.entry);
        let (context, id) = (&entry.context, entry.context.lease_id(self.give_back.number));
        let (commands, backend) = (entry.commands, &entry.context.backend);
        let mut back_off = FIRST_BACK_OFF;
        loop {
            let outcome = match (commands, &self.next) {
                (Commands::Of(kind), Some((_, Some(named)))) => {
                    // Only what comes after the subscription was confirmed comes for sure.
                    let hears_all = named.listening.is_ready() || fault!(NamedBeforeItListens);
                    let outcome = caught(kind.release(backend, &entry.name, &id, Some(&named.next))).await;
                    outcome.map(|outcome| outcome.map(|outcome| self.tell_next(outcome, hears_all)))
                }
                _ => caught(entry.send_once(&id, self.give_back.rolls_back)).await,
            };
            match outcome {
                Ok(Ok(outcome)) => {
                    context.releases.succeeded();
                    event!(DEBUG, lock = entry.name.as_str(), "released");
                    let heard = match outcome {
                        ReleaseOutcome::Released { heard } => heard,
                        ReleaseOutcome::NotHeld => 0,
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
            let (runtime, again) = (backend.runtime(), context.now() + back_off);
            if self.give_back.until <= again || runtime.has_ended() || fault!(ReleaseNotRepeated) {
                return;
            }
            until(runtime, again, pending::<()>()).await;
            back_off = (back_off * 2).min(LONGEST_BACK_OFF);
        }
    }

    /// The release was answered, and may have told what becomes of the next waiter.
    fn tell_next(&mut self, outcome: FairReleaseOutcome, hears_all: bool) -> ReleaseOutcome {
        let (entry, now) = (&self.entry, self.entry.now());
        let tells = match outcome {
            FairReleaseOutcome::GrantedToNext { .. } => true,
            FairReleaseOutcome::Released => hears_all,
            FairReleaseOutcome::NotHeld => false,
        };
        if let (Some((head, Some(_))), false) = (&self.next, tells) {
            entry.state.attempt_answered(head);
        }
        if let Some((head, Some(named))) = self.next.take_if(|_| tells) {
            let Named { attempt, next, sent, listening } = named;
            if let FairReleaseOutcome::GrantedToNext { last_token } = outcome {
                let actions = entry.state.named_granted(&head, attempt, last_token, sent, next.lease, now);
                entry.carry_out(actions);
            } else {
                let _before = entry.kept.lock().replace(listening);
                let (told, actions) = entry.state.named_queued(&head, attempt, now);
                let _kept = if told { None } else { entry.take_kept() };
                entry.carry_out(actions);
            }
        }
        outcome.into()
    }

    fn appoint(&mut self, heard: usize) {
        let (entry, now) = (&self.entry, self.entry.now());
        let mut panics = Panics::NONE;
        if let Some((head, named)) = self.next.take() {
            let attempt = named.as_ref().map(|named| named.attempt);
            panics.catch(|| entry.carry_out(entry.state.named_waits(&head, attempt, now)));
            panics.catch(|| drop(named));
        }
        if std::mem::replace(&mut self.appoints, false) && !fault!(ReturnedToNobody) {
            panics.catch(|| entry.carry_out(entry.state.returned(heard, now)));
        } else if heard > 0 {
            entry.state.heard_by(heard, now);
        }
        panics.resume();
    }
}

impl<B: Backend> Drop for ReleaseEnds<B> {
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
