//! Acquiring: in memory if this client has the lock, as the queue head at the store otherwise.
//!
//! | answer | of | says |
//! |---|---|---|
//! | [`AcquireOutcome`] | the store | leased, or held by another for so long |
//! | [`AttemptOutcome`](crate::lock_entry::AttemptOutcome) | the engine | the worth of the store's answer |
//! | [`Turn`] | the queue | the lock, the right to compete for it, or why neither |
//! | [`End`] | one competition | the lock, or why not |
//! | `Result<Option<Guard>, LockError>` | the acquisition | the caller's answer |

mod head;
mod rate_limit;

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

/// A waiter with a shorter limit cannot wait until the watchdog verifies the lease anyway.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// The parameters of one call.
#[derive(Clone, Copy)]
pub(super) struct AcquireParams<'a> {
    pub(super) entry: &'a Arc<Entry>,
    /// `None`: an owner of its own.
    pub(super) owner: Option<u64>,
    pub(super) lease: Lease,
    pub(super) fenced: bool,
    /// `None`: without a limit.
    pub(super) wait: Option<Duration>,
}

/// The end of one competition for the lock.
enum End {
    Granted(Guard),
    /// The caller was not polled in time, or was recalled: it enters anew.
    Superseded,
    /// The time to wait is over, and another acquisition has the lock.
    Held,
    /// The time to wait is over, and the store has not said meanwhile whether the lock is held.
    Unanswered,
}

impl<'a> AcquireParams<'a> {
    /// Takes the lock. `time_over`: the outcome once the time to wait is over, if there is a limit.
    ///
    /// Futures that wait for the store are boxed: they take no room in the future of an acquisition that
    /// does not.
    pub(super) async fn acquire<O: From<Guard>>(self, time_over: Option<O>) -> Result<O, LockError> {
        let entry = self.entry;
        // A limit counts from the first poll.
        let begun = entry.now();
        let mut now = begun;
        // Before the lock is taken: a future that is kept and not polled would hold the lock.
        if !budget::take_part() {
            yield_now().await;
            now = entry.now();
        }
        // A caller with a limit waits as long as that for a store that is gone. A caller without a limit
        // gets the error, unless it has waited before.
        let mut patient = self.wait.is_some();
        loop {
            let under = self.check(now)?;
            // An owner and a lease may have the same number.
            let number = entry.context.number();
            let request = self.request(number);
            let end = if let Some(under) = under {
                Box::pin(self.read_under(request, under, begun, patient)).await?
            } else if let Some(grant) = entry.acquire_synchronously(&request, number, now)? {
                return Ok(O::from(self.granted(&request, grant, begun, now)));
            } else {
                let mut turn = poll_fn(|task| Poll::Ready(self.enter(&request, now, task.waker()))).await;
                loop {
                    break match turn {
                        Turn::Granted(grant, None) => {
                            return Ok(O::from(self.granted(&request, grant, begun, now)));
                        }
                        Turn::Granted(grant, Some(extension)) => {
                            let guard = self.guard(&request, grant, now);
                            Box::pin(self.extended(guard, extension, begun)).await?
                        }
                        Turn::Queued(ticket) => {
                            let waiter = Waiter { entry, ticket: Some(ticket), is_entering: self.may_wait() };
                            self.recall_if_beside_itself(now);
                            patient = patient || self.is_behind_a_holder();
                            let told = match self.wait {
                                None => Some(waiter.await),
                                Some(_) => Box::pin(self.wait_queued(waiter, begun)).await,
                            };
                            let Some(told) = told else { break self.at_the_end(begun) };
                            (turn, now) = told;
                            continue;
                        }
                        Turn::Head(ticket) => {
                            let head = Head::new(self, ticket, request);
                            self.recall_if_beside_itself(now);
                            match Box::pin(head.compete(now, patient, self.give_up(begun))).await? {
                                End::Unanswered => self.at_the_end(begun),
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
                    self.waited(begun, guard.since().unwrap_or(begun));
                    return Ok(O::from(guard));
                }
                End::Superseded => (now, patient) = (entry.now(), true),
                // The end of the runtime ends its timers early.
                End::Held | End::Unanswered if entry.context.has_ended() => {
                    return Err(LockError::RuntimeEnded);
                }
                End::Held => {
                    entry.context.recorder.given_up.add_one();
                    return Ok(time_over.expect("only a wait with a limit ends without the lock"));
                }
                End::Unanswered => {
                    let wait = self.wait.unwrap_or_default();
                    return Err(LockError::NoAnswer { name: entry.name.clone(), wait });
                }
            }
        }
    }

    /// In the queue, with a limit. `None`: the time is over.
    async fn wait_queued(self, waiter: Waiter<'a>, begun: Moment) -> Option<(Turn, Moment)> {
        let entry = self.entry;
        if self.wait.is_some_and(|wait| wait < SHORT_WAIT) {
            entry.event(|engine, effects| engine.verify_soon(entry.now(), effects));
        }
        // A try waits for the answer that another caller has asked for.
        let limit = if self.may_wait() { self.limit(begun) } else { begun + SHORT_WAIT };
        entry.context.until(limit, waiter).await
    }

    /// Waits for a holder, here or elsewhere: when the holder leaves, the store may be gone. A caller behind
    /// a queue head that has not reached the store gets the error.
    fn is_behind_a_holder(&self) -> bool {
        // A store that answers by the call is never gone.
        !self.entry.context.is_synchronous && self.entry.engine.is_known_held()
    }

    /// The end of the time to wait.
    fn limit(&self, begun: Moment) -> Moment {
        self.wait.map_or(Moment::NEVER, |wait| begun + wait)
    }

    /// The end of the time for a question: with no time to wait at all, the round trip may take its time.
    fn give_up(&self, begun: Moment) -> Moment {
        if self.may_wait() { self.limit(begun) } else { Moment::NEVER }
    }

    fn may_wait(&self) -> bool {
        self.wait != Some(Duration::ZERO)
    }

    /// A request, by the owner `fresh` if it is to have one of its own.
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

    /// Counts a wait that is over.
    #[inline]
    fn waited(&self, begun: Moment, now: Moment) {
        self.entry.context.recorder.waits.add(now.micros_since(begun));
    }

    /// Checks the request. Returns the lease under which an explicit owner writes, if the owner is to read
    /// beside that: such an owner need not enter.
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

    /// Enters the queue, or gets further at once.
    fn enter(&self, request: &Request, now: Moment, waker: &Waker) -> Turn {
        // A clone of a waker is foreign code, and so made before the event.
        let waker = self.may_wait().then(|| waker.clone());
        self.entry.event(|engine, effects| engine.enter(request, waker, now, effects))
    }

    /// The lease under which an explicit owner has the other side of the same read-write lock, if the owner
    /// reads beside that.
    fn beside_itself(&self, owner: u64, now: Moment) -> Result<Option<LeaseId>, LockError> {
        let entry = self.entry;
        let Some(under) = entry.other_side_of(owner, now) else { return Ok(None) };
        // The owner has this side as well.
        if !entry.engine.holds_of(owner, now).is_empty() {
            return Ok(None);
        }
        match entry.mode {
            Mode::Read => Ok(Some(under)),
            _ => Err(LockError::Upgrade { name: entry.name.clone(), owner: entry.context.owner(owner) }),
        }
    }

    /// The owner may have got the other side since [`beside_itself`](Self::beside_itself) looked, when no
    /// waiter of it was here to be told. From now on there is one.
    fn recall_if_beside_itself(&self, now: Moment) {
        if let Some(owner) = self.owner
            && self.entry.other_side_of(owner, now).is_some()
        {
            self.entry.event(|engine, effects| engine.evict_owner(owner, now, effects));
        }
    }

    /// A waiter of this owner for the other side would wait for itself: a reader need not wait from now on,
    /// and a writer gets an error.
    fn tell_other_side(&self, owner: u64, now: Moment) {
        if let Some(other) = self.entry.other_side() {
            other.event(|engine, effects| engine.evict_owner(owner, now, effects));
        }
    }

    /// Reads beside the owner's own writing, under the lease `under`. No other owner has to be waited for.
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
        let abandon_guard = AbandonGuard::new(entry, OnDrop(Some(rolls_back)), None);
        let answer = entry.acquire(&asked);
        let answered = abandon_guard.until_answered(pin!(context.until(self.give_up(begun), answer))).await;
        let Some((mut unfinished, answer)) = answered else { return Ok(End::Superseded) };
        let Some(outcome) = answer else { return Ok(End::Unanswered) };
        let may_run_yet = entry.may_run_yet(&asked.id, &outcome);
        match outcome {
            Ok(AcquireOutcome::Acquired { last_token }) => {
                unfinished.0 = None;
                let now = entry.now();
                let grant = entry.event(|engine, effects| {
                    let grant = engine.adopt(&request, attempt.copy(), last_token, now, effects);
                    if may_run_yet {
                        // Before wakers are called, whose calls have to find it.
                        engine.may_run_again(attempt.rollback(), effects);
                    }
                    grant
                });
                if !request.is_watched() && sent + lease <= now {
                    return Err(LockError::Lease(LeaseError::OverBeforeAnswer));
                }
                Ok(grant.map_or(End::Superseded, |grant| End::Granted(self.guard(&request, grant, now))))
            }
            Ok(AcquireOutcome::Held { .. }) => {
                if !may_run_yet {
                    unfinished.0 = None;
                }
                // The owner writes no longer, unless its lease was begun anew meanwhile: then the reader asks
                // again. By a clock that stands still the reader would do so for ever.
                if let Some(other) = entry.other_side()
                    && !other.gone(writes, sent)
                    && asked_before
                    && other.engine.lease_numbers().contains(&writes)
                {
                    context.until(sent + Duration::from_nanos(1), pending::<()>()).await;
                }
                Ok(End::Superseded)
            }
            Err(error) => {
                if !may_run_yet {
                    unfinished.0 = None;
                }
                Err(context.failed(&entry.name, error))
            }
        }
    }

    /// The time to wait is over without an answer to this call. An earlier queue head may have had an answer.
    fn at_the_end(&self, begun: Moment) -> End {
        if self.entry.engine.was_known_held(begun) { End::Held } else { End::Unanswered }
    }

    /// Asks for the time or token that the lease in hand lacks, for as long as the caller waits. A guard that
    /// is dropped then leaves the hold as any other guard does.
    async fn extended(self, guard: Guard, extension: Extension, begun: Moment) -> Result<End, LockError> {
        let give_up = self.give_up(begun);
        let (owner, grant) = (*guard.owner(), guard.grant().copy());
        let extended = pin!(self.entry.extend(owner, &grant, extension));
        let abandon_guard = AbandonGuard::new(self.entry, guard, None);
        let answered = abandon_guard.until_answered(pin!(self.entry.context.until(give_up, extended))).await;
        let Some((mut guard, answer)) = answered else { return Ok(End::Superseded) };
        let Some(extended) = answer else { return Ok(End::Unanswered) };
        guard.set_token(extended?);
        guard.lasts()?;
        Ok(End::Granted(guard))
    }

    /// The guard at the end of a wait since `begun`.
    #[inline(always)]
    fn granted(&self, request: &Request, grant: Grant, begun: Moment, now: Moment) -> Guard {
        self.waited(begun, now);
        self.guard(request, grant, now)
    }

    #[inline(always)]
    fn guard(&self, request: &Request, grant: Grant, now: Moment) -> Guard {
        let owner = self.entry.context.owner(request.owner());
        event!(
            DEBUG,
            lock = self.entry.name.as_str(),
            %owner,
            watched = grant.is_watched(),
            "acquired"
        );
        let guard = Guard::new(Arc::clone(self.entry), owner, grant, now);
        if self.owner.is_some() {
            self.tell_other_side(request.owner(), now);
        }
        guard
    }
}

/// A place in the queue of an entry, as a future: ready with the caller's turn, and its time. Dropped before,
/// leaves the queue, or passes on the turn that it was not polled for.
struct Waiter<'a> {
    entry: &'a Arc<Entry>,
    /// `None` once the turn has come.
    ticket: Option<Ticket>,
    /// The first poll is a part of the poll that has entered, whose waker the queue has already.
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
        }
    }
}
