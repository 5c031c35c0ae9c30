//! Acquisitions: in memory if this client has the lock, otherwise as the queue head at the store.
//!
//! | answer | of | says |
//! |---|---|---|
//! | [`AcquireOutcome`] | the store | leased, or held by another for this long |
//! | [`Answer`](crate::lock_entry::Answer) | the client | the store's answer to the engine, or its absence |
//! | [`Turn`] | the engine | the lock, the right to ask the store, or the reason for neither |
//! | [`End`] | one competition | the lock, or the reason why not |
//! | `Result<Option<Guard>, LockError>` | the acquisition | the caller's answer |

mod head;

use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use crate::lock_entry::{Attempt, Extension, Grant, Moment, Request, Ticket, Turn};
use crate::support::budget;

use self::head::Head;
use crate::lock::backend::{AcquireOutcome, AcquireRequest, Mode};
use crate::lock::context::yield_now;
use crate::lock::entry::abandon_guard::AbandonGuard;
use crate::lock::entry::{Entry, OnDrop};
use crate::lock::error::LockError;
use crate::lock::guard::Guard;
use crate::lock::lease::{Lease, LeaseError};
use crate::lock::owner::LeaseId;

/// Limit below which a waiter has the held lease verified at once; longest wait of a try.
const SHORT_WAIT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
pub(super) struct AcquireParams<'a> {
    pub(super) entry: &'a Arc<Entry>,
    /// `None`: a fresh owner.
    pub(super) owner: Option<u64>,
    pub(super) lease: Lease,
    pub(super) fenced: bool,
    pub(super) wait: Option<Duration>,
    /// The call began before the client was drained.
    pub(super) is_admitted: bool,
}

enum End {
    Granted(Guard),
    /// The caller was not polled in time, or was recalled, and enters again.
    Superseded,
    /// The time to wait is over; another acquisition has the lock.
    Held,
    /// The time to wait is over; the store has not said whether the lock is held.
    Unanswered,
}

impl<'a> AcquireParams<'a> {
    /// Takes the lock; returns `time_over()` once the time to wait is over. Futures that wait for the store
    /// are boxed, to keep an acquisition that does not wait small.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` keeps its arguments twice")]
    pub(super) fn acquire<O: From<Guard>>(
        self,
        time_over: impl FnOnce() -> O,
    ) -> impl Future<Output = Result<O, LockError>> {
        async move {
            let entry = self.entry;
            let mut now = entry.now();
            let mut waiting = Waiting::new(entry, now);
            // Yield first: a future that yielded with the lock, and was never polled again, would keep it.
            if !budget::take_part() {
                yield_now().await;
                now = entry.now();
            }
            // A caller with a limit outwaits a store that is gone; without one, only once a wait has begun.
            let mut patient = self.wait.is_some();
            let mut superseded = 0;
            self.check_admitted(now)?;
            loop {
                let number = entry.context.number();
                let request = self.request(number).superseded(superseded);
                let read = |under| Box::pin(self.read_under(request, under, waiting.begun, patient));
                let reads = self.check(now)?.map(read);
                let end = if let Some(reads) = reads {
                    reads.await?
                } else if !self.may_wait() && entry.is_behind_others() {
                    End::Held
                } else if entry.context.is_synchronous
                    && let Some(grant) = entry.acquire_synchronously(&request, number, now)?
                {
                    waiting.acquired(request.owner(), grant.is_watched(), now, false);
                    return Ok(O::from(self.guard(&request, grant, now)));
                } else {
                    let mut turn = poll_fn(|task| Poll::Ready(self.enter(&request, now, task.waker()))).await;
                    loop {
                        break match turn {
                            Turn::Granted(grant, None) => {
                                waiting.acquired(request.owner(), grant.is_watched(), now, true);
                                return Ok(O::from(self.guard(&request, grant, now)));
                            }
                            Turn::Granted(grant, Some(extension)) => {
                                let (guard, begun) = (self.guard(&request, grant, now), waiting.begun);
                                Box::pin(self.extended(guard, extension, begun)).await?
                            }
                            Turn::Queued(ticket) => {
                                let waiter =
                                    Waiter { entry, ticket: Some(ticket), is_entering: self.may_wait() };
                                self.recall_if_beside_itself(now);
                                if self.may_wait() {
                                    waiting.begin(None);
                                }
                                patient = patient || self.is_behind_a_holder();
                                let told = match self.wait {
                                    None => Some(waiter.await),
                                    Some(_) => Box::pin(self.wait_queued(waiter, waiting.begun)).await,
                                };
                                let Some(told) = told else { break self.at_the_end(waiting.begun) };
                                (turn, now) = told;
                                continue;
                            }
                            Turn::Head(ticket) => {
                                self.recall_if_beside_itself(now);
                                let head = Head::new(self, ticket, request);
                                match Box::pin(head.compete(now, patient, &mut waiting)).await? {
                                    End::Unanswered => self.at_the_end(waiting.begun),
                                    end => end,
                                }
                            }
                            Turn::Superseded => End::Superseded,
                            Turn::Busy => End::Held,
                            Turn::Closed => return Err(entry.context.closed()),
                        };
                    }
                };
                match end {
                    End::Granted(guard) => {
                        let (since, watched) = (guard.since().unwrap_or(now), guard.grant().is_watched());
                        waiting.acquired(guard.owner().number, watched, since, false);
                        return Ok(O::from(guard));
                    }
                    End::Superseded => {
                        (now, patient, superseded) = (entry.now(), true, superseded.saturating_add(1))
                    }
                    // The end of the runtime fires its timers early.
                    End::Held | End::Unanswered if entry.context.has_ended() => {
                        return Err(LockError::RuntimeEnded);
                    }
                    End::Held => {
                        entry.context.recorder.given_up.add_one();
                        return Ok(time_over());
                    }
                    End::Unanswered => {
                        let wait = self.wait.unwrap_or_default();
                        return Err(LockError::NoAnswer { name: entry.name.clone(), wait });
                    }
                }
            }
        }
    }

    /// Waits in the queue, with a limit. `None` if the time is over.
    async fn wait_queued(self, waiter: Waiter<'a>, begun: Moment) -> Option<(Turn, Moment)> {
        let entry = self.entry;
        if self.wait.is_some_and(|wait| wait < SHORT_WAIT) {
            entry.event(|engine, effects| engine.verify_soon(entry.now(), effects));
        }
        // A try waits for the answer to another caller's question.
        let limit = if self.may_wait() { self.limit(begun) } else { begun + SHORT_WAIT };
        entry.context.until(limit, waiter).await
    }

    /// True if the caller waits for a holder, here or elsewhere, and so outwaits a store that is gone.
    fn is_behind_a_holder(&self) -> bool {
        !self.entry.context.is_synchronous && self.entry.engine.is_known_held()
    }

    fn limit(&self, begun: Moment) -> Moment {
        self.wait.map_or(Moment::NEVER, |wait| begun + wait)
    }

    /// End of the time for a question: a call with no time to wait allows the whole round trip.
    fn give_up(&self, begun: Moment) -> Moment {
        if self.may_wait() { self.limit(begun) } else { Moment::NEVER }
    }

    fn may_wait(&self) -> bool {
        self.wait != Some(Duration::ZERO)
    }

    /// Builds the request, by the owner `fresh` unless the caller has named an owner.
    fn request(&self, fresh: u64) -> Request {
        let request = match self.owner {
            Some(owner) => Request::new(owner).shared_owner(),
            None => Request::new(fresh),
        };
        let request = match self.lease {
            Lease::Watched => request,
            Lease::For(lease) => request.lease(lease),
        };
        if self.fenced { request.fenced() } else { request }
    }

    /// Checks the request. Returns the lease under which the owner may read at once, as the owner writes.
    #[inline(always)]
    fn check(&self, now: Moment) -> Result<Option<LeaseId>, LockError> {
        self.entry.context.check()?;
        if let Lease::For(lease) = self.lease {
            Lease::check(lease)?;
        }
        match self.owner {
            Some(owner) => self.beside_itself(owner, now),
            None => Ok(None),
        }
    }

    /// Refuses newcomers while the client is drained. An owner that holds the lock has to finish its work.
    #[inline]
    fn check_admitted(&self, now: Moment) -> Result<(), LockError> {
        let entry = self.entry;
        if self.is_admitted || !entry.context.is_draining() {
            return Ok(());
        }
        entry.context.check()?;
        let holds = |owner| entry.of_the_name().any(|side| !side.engine.holds_of(owner, now).is_empty());
        if self.owner.is_some_and(holds) { Ok(()) } else { Err(LockError::ShutDown) }
    }

    fn enter(&self, request: &Request, now: Moment, waker: &Waker) -> Turn {
        // Cloning a waker runs foreign code, so the clone is made before the event.
        let waker = self.may_wait().then(|| waker.clone());
        self.entry.event(|engine, effects| engine.enter(request, waker, now, effects))
    }

    /// Returns the lease under which an owner that asks to read writes. Fails if a reader asks to write.
    fn beside_itself(&self, owner: u64, now: Moment) -> Result<Option<LeaseId>, LockError> {
        let entry = self.entry;
        let Some(under) = entry.other_side_of(owner, now) else { return Ok(None) };
        if !entry.engine.holds_of(owner, now).is_empty() {
            return Ok(None);
        }
        match entry.mode {
            Mode::Read => Ok(Some(under)),
            _ => Err(LockError::Upgrade { name: entry.name.clone(), owner: entry.context.owner(owner) }),
        }
    }

    /// Recalls the owner's waiters if the owner got the other side after `beside_itself` looked.
    fn recall_if_beside_itself(&self, now: Moment) {
        if let Some(owner) = self.owner
            && self.entry.other_side_of(owner, now).is_some()
        {
            self.entry.event(|engine, effects| engine.evict_owner(owner, now, effects));
        }
    }

    /// Recalls this owner's waiters for the other side: a reader then reads at once, and a writer fails.
    fn tell_other_side(&self, owner: u64, now: Moment) {
        if let Some(other) = self.entry.other_side() {
            other.event(|engine, effects| engine.evict_owner(owner, now, effects));
        }
    }

    /// Takes a read lease for an owner that already writes, under `under`; waits for no other owner.
    async fn read_under(
        self,
        request: Request,
        under: LeaseId,
        begun: Moment,
        asked_before: bool,
    ) -> Result<End, LockError> {
        let (entry, context) = (self.entry, &self.entry.context);
        let (number, lease, sent) = (context.number(), context.lease_of(&request), entry.now());
        let attempt = Attempt::outside_of_queue(number, &request, sent, lease);
        let (id, tokens) = (context.lease_id(number), attempt.tokens());
        let (writes, under) = (under.number(), Some(under));
        let asked = AcquireRequest::new(id, lease, sent).tokens(tokens).under(under);
        let pending_release = attempt.rollback();
        let asks = Arc::clone(entry);
        let rolls_back = move || asks.release_in_background(pending_release);
        let abandon_guard = AbandonGuard::new(entry, OnDrop(Some(rolls_back)), None, 0);
        let answer = entry.acquire(&asked);
        let answered = abandon_guard.until_answered(pin!(context.until(self.give_up(begun), answer))).await;
        let Some((mut unfinished, answer)) = answered else { return Ok(End::Superseded) };
        let Some(outcome) = answer else { return Ok(End::Unanswered) };
        let may_still_run = entry.may_still_run(&asked.id, &outcome);
        if !may_still_run || matches!(outcome, Ok(AcquireOutcome::Acquired { .. })) {
            unfinished.0 = None;
        }
        match outcome {
            Ok(AcquireOutcome::Acquired { last_token }) => {
                let now = entry.now();
                let grant = entry.event(|engine, effects| {
                    let grant = engine.adopt(&request, attempt.copy(), last_token, now, effects);
                    if may_still_run {
                        // In the same event: calls of the woken tasks have to find the rollback.
                        engine.may_run_again(attempt.rollback(), effects);
                    }
                    grant
                });
                if !request.is_watched() && sent + lease <= now {
                    return Err(LockError::Lease(LeaseError::OverBeforeAnswer));
                }
                Ok(grant.map_or(End::Superseded, |grant| End::Granted(self.guard(&request, grant, now))))
            }
            Ok(AcquireOutcome::Held { .. } | AcquireOutcome::HeldUncalled { .. }) => {
                // The owner no longer writes, or its lease was begun anew: ask again once the clock has
                // moved.
                if let Some(other) = entry.other_side()
                    && !other.gone(writes, sent)
                    && asked_before
                    && other.engine.lease_numbers().contains(&writes)
                {
                    context.until(sent + Duration::from_nanos(1), pending::<()>()).await;
                }
                Ok(End::Superseded)
            }
            Err(error) => Err(context.failed(&entry.name, error)),
        }
    }

    /// The wait ends without an answer to this call; an earlier queue head may have had an answer.
    fn at_the_end(&self, begun: Moment) -> End {
        if self.entry.engine.was_known_held(begun) { End::Held } else { End::Unanswered }
    }

    /// Extends the lease for this hold, while the caller waits; a guard dropped then leaves the hold.
    async fn extended(self, guard: Guard, extension: Extension, begun: Moment) -> Result<End, LockError> {
        let give_up = self.give_up(begun);
        let (owner, grant) = (*guard.owner(), guard.grant().copy());
        let extended = pin!(self.entry.extend(owner, &grant, extension));
        let abandon_guard = AbandonGuard::new(self.entry, guard, None, 0);
        let answered = abandon_guard.until_answered(pin!(self.entry.context.until(give_up, extended))).await;
        let Some((mut guard, answer)) = answered else { return Ok(End::Superseded) };
        let Some(extended) = answer else { return Ok(End::Unanswered) };
        guard.set_token(extended?);
        guard.lasts()?;
        Ok(End::Granted(guard))
    }

    #[inline(always)]
    fn guard(&self, request: &Request, grant: Grant, now: Moment) -> Guard {
        let owner = self.entry.context.owner(request.owner());
        let guard = Guard::new(Arc::clone(self.entry), owner, grant, now);
        if self.owner.is_some() {
            self.tell_other_side(request.owner(), now);
        }
        guard
    }
}

/// The wait of a call. A call is no waiter as long as memory and store may give it the lock at once.
struct Waiting<'a> {
    entry: &'a Arc<Entry>,
    /// Start of the call.
    begun: Moment,
    is_waiter: bool,
}

impl<'a> Waiting<'a> {
    #[inline]
    fn new(entry: &'a Arc<Entry>, begun: Moment) -> Self {
        Self { entry, begun, is_waiter: false }
    }

    /// Makes the call a waiter. `_left`: the time until the lock may be free, if the store has told.
    fn begin(&mut self, _left: Option<Duration>) {
        if std::mem::replace(&mut self.is_waiter, true) {
            return;
        }
        event!(
            DEBUG,
            lock = self.entry.name.as_str(),
            label = self.entry.context.label.as_deref(),
            holder = self.entry.holder_here().map(tracing::field::display),
            left = _left.map(tracing::field::debug),
            "waiting"
        );
        #[cfg(feature = "tracing")]
        self.entry.watch_wait(self.begun);
    }

    /// Counts and tells an acquisition, from the store or, `in_memory`, from a holder of this client.
    #[inline(always)]
    fn acquired(&mut self, _owner: u64, _watched: bool, now: Moment, in_memory: bool) {
        let (recorder, micros) = (&self.entry.context.recorder, now.micros_since(self.begun));
        recorder.waits.add(micros);
        if std::mem::take(&mut self.is_waiter) {
            let waits = if in_memory { &recorder.waits_local } else { &recorder.waits_remote };
            waits.add(micros);
        }
        event!(
            DEBUG, lock = self.entry.name.as_str(), owner = %self.entry.context.owner(_owner),
            watched = _watched, waited = ?Duration::from_micros(micros), "acquired"
        );
    }
}

/// The time is over, the acquisition has failed, or its future is dropped.
impl Drop for Waiting<'_> {
    #[inline]
    fn drop(&mut self) {
        let context = &self.entry.context;
        // In a child the clock's mutex may stay locked.
        if self.is_waiter && context.is_same_process() {
            let micros = context.now().micros_since(self.begun);
            context.recorder.waits_abandoned.add(micros);
            event!(
                DEBUG, lock = self.entry.name.as_str(), waited = ?Duration::from_micros(micros), "gave up"
            );
        }
    }
}

/// A place in the queue, as a future of the caller's turn; its drop leaves the queue or passes the turn on.
struct Waiter<'a> {
    entry: &'a Arc<Entry>,
    /// `None` once the turn has come.
    ticket: Option<Ticket>,
    /// The first poll belongs to the poll that entered, whose waker is already in the queue.
    is_entering: bool,
}

impl Future for Waiter<'_> {
    type Output = (Turn, Moment);

    #[inline]
    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if std::mem::take(&mut self.is_entering) {
            return Poll::Pending;
        }
        let (entry, now) = (self.entry, self.entry.now());
        let turn = entry.event(|engine, effects| {
            let ticket = self.ticket.as_ref().expect("polled after its end");
            let turn = engine.poll(ticket, task.waker(), now, effects);
            if turn.is_some() {
                self.ticket = None;
            }
            turn
        });
        turn.map_or(Poll::Pending, |turn| Poll::Ready((turn, now)))
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take().filter(|_| self.entry.context.is_same_process()) {
            let entry = self.entry;
            entry.event(|engine, effects| engine.cancel(ticket, entry.now(), effects));
            entry.context.tell_shutdown();
        }
    }
}
