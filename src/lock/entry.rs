//! [`Entry`]: one name of a client; carries out what its [`LockEntry`] says.

use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use crate::lock_entry::{
    Actions, Attempt, Extension, GiveBack, Grant, HeadTicket, Left, LockEntry, LossReason, Moment, Next,
    Request, Rules,
};
use crate::runtime::Runtime;
use crate::sync::Mutex;
use crate::transport::Transport;

use super::backend::{AcquireOutcome, Backend, Holder, LeaseKey, ReleaseOutcome};
use super::commands::{Ask, Commands, Kind};
use super::context::Context;
use super::error::LockError;
use super::fair::{self, FairReleaseOutcome, Position};
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
    /// Releases that callers wait for, and since when: a caller may stop polling, and may not.
    awaited: Mutex<Vec<(GiveBack, Moment)>>,
    /// The subscription under which a waiter that was named with a release waits for its turn, until that waiter takes it over.
    kept: Mutex<Option<Listening<B::Transport>>>,
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

    /// Does what an event has left to be done, and then wakes whom it concerns.
    #[inline]
    pub(super) fn carry_out(self: &Arc<Self>, actions: Actions) {
        self.context.alarm.ring(actions.look_at);
        if actions.handed_off > 0 {
            event!(DEBUG, lock = self.name.as_str(), "handed off");
            self.context.recorder.hand_offs_local.add_one();
        }
        if !actions.is_usual() {
            self.carry_out_more(actions);
        }
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
    fn give_back(self: &Arc<Self>, grant: &Grant) {
        let now = self.now();
        let (left, actions) = self.state.leave(grant, now);
        self.carry_out(actions);
        if let Left::Return(give_back) = left {
            self.release_unawaited(give_back, now);
        }
    }

    /// Apart, so that it costs the others nothing.
    #[cold]
    fn carry_out_more(self: &Arc<Self>, actions: Actions) {
        if let Some(give_back) = actions.give_back() {
            self.send_release(give_back, false, actions.next());
        }
        for give_back in actions.more_give_backs() {
            self.send_release(*give_back, false, None);
        }
        if let Some(roll_back) = actions.roll_back() {
            // It may be that of a waiter that was named with a release, and has not taken it over.
            let _kept = self.take_kept();
            self.release_in_background(roll_back, true);
        }
        if let Some(_reason) = actions.lost() {
            self.context.recorder.leases_lost.add_one();
            event!(WARN, lock = self.name.as_str(), reason = %_reason, "lost");
            self.context.releases.tell();
        }
        if actions.calls() {
            let (own, common) = &self.channels;
            for channel in [own].into_iter().chain(common) {
                if let Some(subscription) = self.context.backend.registry().join(channel) {
                    subscription.latch().release_all();
                }
            }
        }
        self.context.recorder.superseded.add(actions.superseded() as usize);
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
        let waited = sent.saturating_duration_since(head.since());
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
        let mut repeat = OnDrop(Some(|| self.release_in_background(give_back, false)));
        let mut release = pin!(self.commands.release(&self.context.backend, &self.name, &id));
        let polled = {
            // It is on its way then. Whoever waits by now is not to depend on the caller's polling, nor on a waker that does not panic.
            let _appoints = OnDrop(Some(|| self.carry_out(self.state.returned(0, now))));
            first_poll(release.as_mut())
        };
        let (outcome, repeated) = match polled {
            Poll::Ready(outcome) => (outcome, false),
            Poll::Pending => {
                self.await_release(give_back, now);
                (release.await, !self.release_answered(give_back))
            }
        };
        if outcome.is_ok() {
            repeat.0 = None;
        }
        self.released(outcome, repeated)
    }

    /// Sends a release that nobody waits for.
    pub(super) fn release_unawaited(self: &Arc<Self>, give_back: GiveBack, now: Moment) {
        let _appoints = OnDrop(Some(|| self.carry_out(self.state.returned(0, now))));
        if !self.release_at_once(give_back) {
            self.release_in_background(give_back, false);
        }
    }

    /// Releases a lease if the store answers at once. False if that is to be repeated.
    fn release_at_once(&self, give_back: GiveBack) -> bool {
        if !B::ANSWERS_AT_ONCE {
            return false;
        }
        let id = self.context.lease_id(give_back.number);
        match first_poll(pin!(self.commands.release(&self.context.backend, &self.name, &id))) {
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
                return Err(context.failed(&self.name, error));
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

    /// A caller waits for this release, and may leave it unpolled.
    fn await_release(&self, give_back: GiveBack, now: Moment) {
        self.awaited.lock().push((give_back, now));
        self.context.alarm.ring(now + self.context.rules.unpolled_limit);
    }

    /// False if the release was repeated in the background, since it took too long.
    fn release_answered(&self, give_back: GiveBack) -> bool {
        let mut awaited = self.awaited.lock();
        match awaited.iter().position(|(other, _)| other.number == give_back.number) {
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
                    awaited.iter().position(|(_, since)| now.saturating_duration_since(*since) >= limit)
                else {
                    // The others come later.
                    awaited.iter().for_each(|(_, since)| self.context.alarm.ring(*since + limit));
                    return;
                };
                awaited.swap_remove(at).0
            };
            self.release_in_background(late, false);
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
    pub(super) fn release_in_background(self: &Arc<Self>, give_back: GiveBack, rolls_back: bool) {
        self.send_release(give_back, rolls_back, None);
    }

    fn send_release(self: &Arc<Self>, give_back: GiveBack, rolls_back: bool, next: Option<Next>) {
        if self.context.check_origin().is_err() {
            return;
        }
        self.context.releases.begin(give_back.number, &self.name);
        let next_head = next.map(|next| (next.head, None));
        let mut ends =
            ReleaseEnds { entry: Arc::clone(self), give_back, appoints: give_back.appoints, next: next_head };
        // A transport may panic; the next waiter is told then, too.
        if let (Some(next), Some((_, named))) = (next, &mut ends.next) {
            *named = Named::new(self, next);
        }
        let mut release = Box::pin(span::here(ends.send(rolls_back)));
        if first_poll(release.as_mut()).is_pending() {
            self.context.backend.runtime().spawn(release);
        }
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
        let (context, sent) = (&self.context, self.now());
        let (Extension::Renew { number, lease } | Extension::Token { number, lease }) = extension;
        let id = context.lease_id(number);
        let (held, token) = match extension {
            Extension::Renew { .. } => {
                let key = LeaseKey { name: self.name.clone(), id };
                let renewed = self.commands.renew(&context.backend, std::slice::from_ref(&key), lease).await;
                (renewed.map_err(|error| context.failed(&self.name, error))?.first() == Some(&true), None)
            }
            Extension::Token { .. } => {
                let ask =
                    Ask { id, lease: whole_millis(lease), tokens: 1, position: None, under: None, sent };
                match self.commands.try_acquire(&context.backend, &self.name, &ask).await {
                    Ok(AcquireOutcome::Acquired { last_token }) => (true, Some(last_token)),
                    Ok(AcquireOutcome::Held { .. }) => (false, None),
                    Err(error) => return Err(context.failed(&self.name, error)),
                }
            }
        };
        if !held {
            self.lose(number);
            return Ok(Err(LossReason::Gone));
        }
        let (in_hand, actions) = self.state.extended(number, sent, lease, token, self.now());
        self.carry_out(actions);
        if !in_hand {
            // It was given back meanwhile, and the command may have begun it anew.
            self.release_in_background(GiveBack { number, until: sent + lease, appoints: false }, true);
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
        self.table().remove(&self.name);
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
    async fn send(mut self, rolls_back: bool) {
        let entry = Arc::clone(&self.entry);
        let (context, id) = (&entry.context, entry.context.lease_id(self.give_back.number));
        let (commands, backend) = (entry.commands, &entry.context.backend);
        let mut back_off = FIRST_BACK_OFF;
        loop {
            let outcome = match (commands, &self.next) {
                (Commands::Of(kind), Some((_, Some(named)))) => {
                    // Only what comes after the subscription was confirmed comes for sure.
                    let hears_all = named.listening.is_ready();
                    let outcome = kind.release(backend, &entry.name, &id, Some(&named.next)).await;
                    outcome.map(|outcome| self.tell_next(outcome, hears_all))
                }
                _ if rolls_back => commands.roll_back(backend, &entry.name, &id).await,
                _ => commands.release(backend, &entry.name, &id).await,
            };
            let error = match outcome {
                Ok(outcome) => {
                    context.releases.succeeded();
                    event!(DEBUG, lock = entry.name.as_str(), "released");
                    let heard = match outcome {
                        ReleaseOutcome::Released { heard } => heard,
                        ReleaseOutcome::NotHeld => 0,
                    };
                    self.appoint(heard);
                    return;
                }
                Err(error) => error,
            };
            entry.release_failed(&error);
            // The next waiter has a lease of its own to ask for.
            self.appoint(0);
            let (runtime, again) = (backend.runtime(), context.now() + back_off);
            if self.give_back.until <= again || runtime.has_ended() {
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
        if let Some((head, Some(named))) = self.next.take_if(|_| tells) {
            let Named { attempt, next, sent, listening } = named;
            if let FairReleaseOutcome::GrantedToNext { last_token } = outcome {
                let actions = entry.state.named_granted(&head, attempt, last_token, sent, next.lease, now);
                entry.carry_out(actions);
            } else {
                let _before = entry.kept.lock().replace(listening);
                let (told, actions) = entry.state.named_queued(&head, attempt, now);
                entry.carry_out(actions);
                if !told {
                    let _kept = entry.take_kept();
                }
            }
        }
        outcome.into()
    }

    fn appoint(&mut self, heard: usize) {
        let (entry, now) = (&self.entry, self.entry.now());
        if let Some((head, named)) = self.next.take() {
            entry.carry_out(entry.state.named_waits(&head, named.map(|named| named.attempt), now));
        }
        if std::mem::replace(&mut self.appoints, false) {
            entry.carry_out(entry.state.returned(heard, now));
        } else if heard > 0 {
            entry.state.heard_by(heard, now);
        }
    }
}

impl<B: Backend> Drop for ReleaseEnds<B> {
    fn drop(&mut self) {
        self.appoint(0);
        self.entry.context.releases.end(self.give_back.number);
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
