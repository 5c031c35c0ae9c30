//! The queue head: the one waiter of a name in this process that talks to the store.
//!
//! ```text
//! must wait? ──no──► ask ──granted───────────────────────────────────► guard
//!      │ yes          │ held by another, for this long
//!      ▼              ▼
//!     join the channel's subscription, wait until it is confirmed
//!      ▼
//! ┌─► back off, a step less each round ──► ended? ──granted by a message──► guard
//! │                                          │ no
//! │                                          ▼
//! │                                         ask, as the rate limit allows ──granted──► guard
//! │                                          │ held, for this long
//! └── a message, the lease's end ◄── sleep ◄─┘
//! ```
//!
//! A head subscribes first if the client lets other processes go first after a release, if a release has
//! placed the head in the store's queue, or if the channel is still subscribed to. `ended?` also finds the
//! caller's limit and errors. A head that leaves, with the lock or without, leaves the subscription.

mod wait;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::lock_entry::{Answer, Attempt, Grant, HeadTicket, Moment, Request, Turn};

use super::{AcquireParams, End, Waiting};
use crate::lock::backend::{AcquireOutcome, AcquireRequest, Failed, Failure};
use crate::lock::entry::listening::Listening;
use crate::lock::entry::{Entry, read_or};
use crate::lock::error::LockError;
use crate::lock::lease::LeaseError;

/// Stores round the end of a lease down to milliseconds; a question that early would find the lease held.
const ROUNDING: Duration = Duration::from_millis(1);

/// A queue head. Dropped without the lock, the head rolls back, and the next waiter takes over.
pub(super) struct Head<'a> {
    wanted: AcquireParams<'a>,
    ticket: HeadTicket,
    request: Request,
    /// Number by which the head asked; `None` before its first question.
    number: Option<u64>,
    /// Latest answer: time until the lock may be free, or the store's error. `None` before any answer.
    says: Option<Result<Duration, LockError>>,
    /// The client had the lock last, and lets others go first with its next question.
    yields: bool,
    /// The last refusal named a holder whose release calls no client: the head listens to the common channel,
    /// too.
    uncalled: bool,
    has_lock: bool,
}

impl Drop for Head<'_> {
    fn drop(&mut self) {
        let entry = self.wanted.entry;
        if !self.has_lock && entry.context.is_same_process() {
            // No effect if another waiter is already the queue head.
            entry.event(|engine, effects| engine.abandon(&self.ticket, entry.now(), effects));
            entry.context.tell_shutdown();
        }
        if entry.context.is_same_process() {
            entry.leave_place();
        }
    }
}

impl<'a> Head<'a> {
    pub(super) fn new(wanted: AcquireParams<'a>, ticket: HeadTicket, request: Request) -> Self {
        Self {
            wanted,
            ticket,
            request,
            number: None,
            says: None,
            yields: false,
            uncalled: false,
            has_lock: false,
        }
    }

    fn held_for(&self) -> Option<Duration> {
        self.says.as_ref()?.as_ref().ok().copied()
    }

    fn time_over(&mut self) -> Result<End, LockError> {
        match self.says.take() {
            None => Ok(End::Unanswered),
            Some(Ok(_)) => Ok(End::Held),
            Some(Err(error)) => Err(error),
        }
    }

    fn granted(&self, grant: Grant, at: Moment) -> End {
        if self.wanted.entry.is_called {
            self.wanted.entry.had_its_turn();
        }
        End::Granted(self.wanted.guard(&self.request, grant, at))
    }

    /// Competes from `now` until the caller has the lock, or its time is over. A caller that may not wait
    /// asks once. `patient`: the caller waits for a store that is gone even before the first answer.
    pub(super) async fn compete(
        mut self,
        now: Moment,
        patient: bool,
        waiting: &mut Waiting<'_>,
    ) -> Result<End, LockError> {
        let (entry, ticket, may_wait) = (self.wanted.entry, self.ticket, self.wanted.may_wait());
        let give_up = self.wanted.give_up(waiting.begun);
        if may_wait && entry.takes_place() {
            let mut passes = pin!(entry.take_place());
            let passes = poll_fn(|task| {
                let passed = passes.as_mut().poll(task);
                if passed.is_pending() {
                    waiting.begin(None);
                }
                passed
            });
            match entry.context.until(give_up, pin!(as_head(entry, &ticket, passes))).await {
                None => return Ok(End::Held),
                Some(None) => return Ok(End::Superseded),
                Some(Some(())) => {}
            }
        }
        // The first question enters no list of waiters of a plain lock: a release calls those that listen.
        // Subscribe first if the head has to wait anyway, which saves a question, or if subscribing is free.
        let subscribes_first =
            may_wait && (!ticket.back_off().is_zero() || ticket.has_position() || entry.is_subscribed());
        if !subscribes_first {
            let asked =
                entry.context.until(give_up, pin!(as_head(entry, &ticket, pin!(self.ask(now, None))))).await;
            let Some(asked) = asked else { return Ok(End::Unanswered) };
            match asked.unwrap_or(Ok((Some(Turn::Superseded), now))) {
                Ok((Some(Turn::Granted(grant, _)), at)) => return Ok(self.granted(grant, at)),
                // Refused, or granted a lease that was over before its answer: asks anew.
                Ok((None | Some(Turn::Head(_)), _)) if may_wait => {}
                Ok((None | Some(Turn::Head(_)), _)) => return self.time_over(),
                Ok((Some(_), _)) => return Ok(End::Superseded),
                Err(error) if may_wait && patient && may_pass(&error) => self.says = Some(Err(error)),
                Err(error) => return Err(error),
            }
        }
        waiting.begin(self.held_for());
        // Boxed, as waits are rare: futures that do not wait have no room for one.
        Box::pin(self.wait(patient, give_up)).await
    }

    /// Returns the time of the next question without a message: at the latest when a watched lease would end,
    /// to bound the cost of a lost message, and in time to keep a position in the store's queue.
    fn look_again(&self, left: Duration, give_up: Moment) -> Moment {
        let context = &self.wanted.entry.context;
        let at_most = self.wanted.entry.position.map_or(context.rules.renewed_lease, |kept| kept / 3);
        // Of a semaphore's heads, one asks at the end of the earliest lease, called by the watchdog.
        let left = if self.wanted.entry.takes_place() { at_most } else { left.min(at_most) } + ROUNDING;
        give_up.min(context.now() + left)
    }

    /// Has a grant of the head's number wake the head.
    fn expect_grant(&self, listening: &Listening) {
        if let Some(number) = self.number.filter(|_| self.wanted.entry.mode.is_queued()) {
            listening.expect(number);
        }
    }

    async fn ask(
        &mut self,
        sent: Moment,
        listening: Option<&Listening>,
    ) -> Result<(Option<Turn>, Moment), LockError> {
        let (entry, ticket) = (self.wanted.entry, self.ticket);
        let Some(attempt) = entry.attempt(&ticket, &self.request, sent) else {
            return Ok((Some(Turn::Superseded), sent));
        };
        self.number = Some(attempt.number());
        if let Some(listening) = listening {
            self.expect_grant(listening);
        }
        let position = match listening {
            Some(_) if entry.is_called => Some(entry.place_among_called(sent)),
            _ => entry.position_of(&ticket, sent).filter(|_| self.wanted.may_wait()),
        };
        let asked = AcquireRequest::new(entry.context.lease_id(attempt.number()), attempt.lease(), sent);
        let asked = asked.tokens(attempt.tokens()).position(position).yields(self.yields);
        let asked = asked.permits(entry.permits());
        // The question of a dropped attempt may follow the attempt's rollback: roll back again.
        let dropped = attempt.copy();
        let unread = move || {
            if entry.context.is_same_process() {
                let (answer, now) = (Answer::Unanswered, entry.now());
                entry.event(|engine, effects| _ = engine.answered(&ticket, dropped, answer, now, effects));
            }
        };
        let outcome = read_or(entry.acquire(&asked), unread).await;
        let at = entry.now();
        Ok((self.answered(attempt, &asked, outcome, at)?, at))
    }

    fn answered(
        &mut self,
        attempt: Attempt,
        asked: &AcquireRequest,
        outcome: Result<AcquireOutcome, Failed>,
        now: Moment,
    ) -> Result<Option<Turn>, LockError> {
        let entry = self.wanted.entry;
        let may_still_run = entry.may_still_run(&asked.id, &outcome);
        if may_still_run && outcome.is_ok() {
            entry.event(|engine, effects| engine.may_run_again(attempt.rollback(), effects));
        }
        self.uncalled = matches!(outcome, Ok(AcquireOutcome::HeldUncalled { .. }));
        let answer = match outcome {
            Ok(AcquireOutcome::Acquired { last_token }) => Answer::Granted { last_token },
            Ok(AcquireOutcome::Held { left } | AcquireOutcome::HeldUncalled { left }) => {
                event!(TRACE, lock = entry.name.as_str(), ?left, "held by another");
                if asked.position.is_some() && left < Duration::MAX {
                    entry.note_earliest_end(now + left + ROUNDING);
                }
                (self.says, self.yields) = (Some(Ok(left)), false);
                Answer::Held { kept: asked.position.map(|position| position.kept) }
            }
            Err(error) => {
                let answer = if may_still_run { Answer::Unanswered } else { Answer::DidNotRun };
                entry.event(|engine, effects| {
                    _ = engine.answered(&self.ticket, attempt, answer, now, effects)
                });
                return Err(entry.context.failed(&entry.name, error));
            }
        };
        let turn = entry.event(|engine, effects| {
            let turn = engine.answered(&self.ticket, attempt, answer, now, effects);
            self.has_lock = matches!(turn, Some(Turn::Granted(..)));
            turn
        });
        if let (Some(Turn::Head(_)), Answer::Granted { .. }) = (&turn, answer) {
            // Further attempts would take as long, and all waiters of this process queue behind this head.
            if !self.request.is_watched() {
                return Err(LockError::Lease(LeaseError::OverBeforeAnswer));
            }
            // The store has answered, so the store is back in reach.
            self.says.take_if(|says| says.is_err());
        }
        Ok(turn)
    }

    /// Takes a lock that a message has granted; a lease of the caller's own, or a token, takes a question.
    fn granted_by_message(&mut self, number: u64, now: Moment) -> Option<End> {
        let entry = self.wanted.entry;
        if !entry.believes_grants() {
            return None;
        }
        let granted = entry.event(|engine, effects| {
            let granted = engine.granted_by_message(&self.ticket, number, now, effects);
            self.has_lock = granted.is_some();
            granted
        });
        granted.map(|grant| self.granted(grant, now))
    }
}

fn may_pass(error: &LockError) -> bool {
    matches!(error, LockError::Backend { failure: Failure::Unreachable | Failure::Indeterminate, .. })
}

/// Polls `future` for the queue head: wake-ups pass through the entry, which notes since when the head could
/// go on. `None` if another waiter is already the queue head. Pinned by the caller, to be stored once.
async fn as_head<F>(entry: &Arc<Entry>, ticket: &HeadTicket, mut future: F) -> Option<F::Output>
where
    F: Future + Unpin,
{
    let waker = Waker::from(Arc::clone(entry));
    poll_fn(|task| {
        if !entry.event(|engine, effects| engine.poll_head(ticket, task.waker(), effects)) {
            return Poll::Ready(None);
        }
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            // The future may have sent a command after the head's rollback; do not poll it again.
            Poll::Pending if !entry.engine.is_head(ticket) => Poll::Ready(None),
            polled => polled.map(Some),
        }
    })
    .await
}
