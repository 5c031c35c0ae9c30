//! The queue head: the one waiter of a name in this process that talks to the store.
//!
//! ```text
//! back off ─► try ──granted──────────────────────────────► guard
//!              │ held by another, for so long
//!              ▼
//!             join the channel's subscription, wait until it stands
//!              ▼
//!             try again ──granted─► leave the subscription ─► guard
//!              │ held, for so long      ▲
//!              ▼                        │
//!             sleep until a message comes, the lease is over, or the caller's limit
//! ```

mod wait;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::lock_entry::{Answer, Attempt, AttemptOutcome, Grant, HeadTicket, Moment, Request};

use super::{AcquireParams, End};
use crate::lock::backend::{AcquireOutcome, AcquireRequest, Failed, Failure};
use crate::lock::entry::{Entry, read_or};
use crate::lock::error::LockError;
use crate::lock::lease::LeaseError;

use self::wait::Wait;

/// Stores say a lease's end in whole milliseconds, rounded down; asking that early would find it still held.
const ROUNDING: Duration = Duration::from_millis(1);

/// A queue head. Dropped before it has the lock, gives up what it may have at the store, and lets the next
/// waiter take its place.
pub(super) struct Head<'a> {
    wanted: AcquireParams<'a>,
    ticket: HeadTicket,
    request: Request,
    /// The time for which another process has the lock if it is not renewed, or the error of a store that
    /// could not be asked; `None` before the first answer.
    says: Option<Result<Duration, LockError>>,
    has_lock: bool,
}

impl Drop for Head<'_> {
    fn drop(&mut self) {
        let entry = self.wanted.entry;
        if !self.has_lock && entry.context.is_same_process() {
            // Changes nothing once another waiter is the queue head.
            entry.event(|engine, effects| engine.abandon(&self.ticket, entry.now(), effects));
        }
    }
}

impl<'a> Head<'a> {
    pub(super) fn new(wanted: AcquireParams<'a>, ticket: HeadTicket, request: Request) -> Self {
        Self { wanted, ticket, request, says: None, has_lock: false }
    }

    /// The time for which another process has the lock, as the store said last.
    fn held_for(&self) -> Option<Duration> {
        self.says.as_ref()?.as_ref().ok().copied()
    }

    /// The end of a caller whose time to wait is over.
    fn time_over(&mut self) -> Result<End, LockError> {
        match self.says.take() {
            None => Ok(End::Unanswered),
            Some(Ok(_)) => Ok(End::Held),
            Some(Err(error)) => Err(error),
        }
    }

    fn granted(&self, grant: Grant, at: Moment) -> End {
        End::Granted(self.wanted.guard(&self.request, grant, at))
    }

    /// Competes from `now` on until the caller has the lock, or until `give_up`; a caller that may not wait
    /// asks once. `patient`: the caller waits for a store that is gone from the first question on, and not
    /// only once the store has answered.
    pub(super) async fn compete(
        mut self,
        now: Moment,
        patient: bool,
        give_up: Moment,
    ) -> Result<End, LockError> {
        let (entry, ticket, may_wait) = (self.wanted.entry, self.ticket, self.wanted.may_wait());
        // To subscribe first saves asking twice, where a wait is known to be needed, or costs nothing.
        let subscribes_first =
            may_wait && (ticket.steps() > 0 || ticket.has_position() || entry.is_subscribed());
        if !subscribes_first {
            let Some(question) = self.question(now) else { return Ok(End::Superseded) };
            let mut answer = entry.acquire(&question.asked);
            let (outcome, at) = match answer.take_done() {
                // An answer by the call took no time.
                Some(outcome) => (outcome, now),
                None => {
                    let answer = pin!(read_or(answer, self.unread(&question)));
                    let answer = pin!(as_head(entry, &ticket, answer));
                    match entry.context.until(give_up, answer).await {
                        None => return Ok(End::Unanswered),
                        Some(None) => return Ok(End::Superseded),
                        Some(Some(outcome)) => (outcome, entry.now()),
                    }
                }
            };
            match self.answered(&question, outcome, at) {
                Ok(AttemptOutcome::Granted(grant)) => return Ok(self.granted(grant, at)),
                Ok(AttemptOutcome::Superseded) => return Ok(End::Superseded),
                Ok(AttemptOutcome::Refused) if !may_wait => return Ok(End::Held),
                // Another question would be another wait.
                Ok(AttemptOutcome::TooLate) if !may_wait => return Ok(End::Unanswered),
                Ok(AttemptOutcome::Refused | AttemptOutcome::TooLate) => {}
                Err(error) if may_wait && patient && may_pass(&error) => self.says = Some(Err(error)),
                Err(error) => return Err(error),
            }
        }
        // Cold, and so boxed: the wait takes no room in the futures of the others.
        Box::pin(self.wait(patient, give_up)).await
    }

    async fn wait(mut self, patient: bool, give_up: Moment) -> Result<End, LockError> {
        let (entry, ticket) = (self.wanted.entry, self.ticket);
        let waits = pin!(async {
            let kept = if ticket.has_position() { entry.take_kept() } else { None };
            let hears_all = kept.is_some();
            let listening = kept.unwrap_or_else(|| entry.listen());
            Wait::new(&mut self, &listening, patient, give_up).run(hears_all).await
        });
        as_head(entry, &ticket, waits).await.unwrap_or(Ok(End::Superseded))
    }

    /// Time to ask again without a message. At the latest when a watched lease would be over, however long
    /// the holder's lease is, which bounds the cost of a release that goes unheard; and early enough to keep
    /// a position in the store's queue, should a question or two be lost.
    fn look_again(&self, left: Duration, give_up: Moment) -> Moment {
        let context = &self.wanted.entry.context;
        let at_most = self.wanted.entry.position.map_or(context.rules.renewed_lease, |kept| kept / 3);
        let left = left.min(at_most) + ROUNDING;
        give_up.min(context.now() + left)
    }

    /// Asks the store once, at `sent`. With the time of the answer.
    async fn ask(&mut self, sent: Moment) -> Result<(AttemptOutcome, Moment), LockError> {
        let Some(question) = self.question(sent) else { return Ok((AttemptOutcome::Superseded, sent)) };
        let outcome = read_or(self.wanted.entry.acquire(&question.asked), self.unread(&question)).await;
        let at = self.wanted.entry.now();
        Ok((self.answered(&question, outcome, at)?, at))
    }

    /// Tells the engine that the answer to the question is not read. The question may have been sent behind
    /// the rollback of a queue head that was superseded just then.
    fn unread(&self, question: &Question) -> impl FnOnce() + use<'a> {
        let (entry, ticket, attempt) = (self.wanted.entry, self.ticket, question.attempt.copy());
        move || {
            if entry.context.is_same_process() {
                let answer = Answer::Unanswered;
                entry.event(|engine, effects| {
                    _ = engine.answered(&ticket, attempt, answer, entry.now(), effects)
                });
            }
        }
    }

    /// The question to the store at `sent`. `None` if another waiter is the queue head by now.
    fn question(&self, sent: Moment) -> Option<Question> {
        let attempt = self.wanted.entry.attempt(&self.ticket, &self.request, sent)?;
        let context = &self.wanted.entry.context;
        let (id, lease) = (context.lease_id(attempt.number()), context.lease_of(&self.request));
        let position = self.wanted.entry.position_of(&self.ticket, sent).filter(|_| self.wanted.may_wait());
        let asked = AcquireRequest::new(id, lease, sent).tokens(attempt.tokens()).position(position);
        Some(Question { attempt, asked })
    }

    /// The store's answer, at `now`.
    fn answered(
        &mut self,
        question: &Question,
        outcome: Result<AcquireOutcome, Failed>,
        now: Moment,
    ) -> Result<AttemptOutcome, LockError> {
        let (entry, attempt) = (self.wanted.entry, question.attempt.copy());
        let may_run_yet = entry.may_run_yet(&question.asked.id, &outcome);
        if may_run_yet && outcome.is_ok() {
            entry.event(|engine, effects| engine.may_run_again(attempt.rollback(), effects));
        }
        let answer = match outcome {
            Ok(AcquireOutcome::Acquired { last_token }) => Answer::Granted { last_token },
            Ok(AcquireOutcome::Held { left }) => {
                event!(TRACE, lock = entry.name.as_str(), ?left, "held by another");
                self.says = Some(Ok(left));
                Answer::Held { kept: question.asked.position.map(|position| position.kept) }
            }
            Err(error) => {
                let answer = if may_run_yet { Answer::Unanswered } else { Answer::DidNotRun };
                entry.event(|engine, effects| {
                    _ = engine.answered(&self.ticket, attempt, answer, now, effects)
                });
                return Err(entry.context.failed(&entry.name, error));
            }
        };
        let verdict = entry.event(|engine, effects| {
            let verdict = engine.answered(&self.ticket, attempt, answer, now, effects);
            // A head that was granted the lock has nothing to abandon.
            self.has_lock = matches!(verdict, AttemptOutcome::Granted(_));
            verdict
        });
        if let (AttemptOutcome::TooLate, Answer::Granted { .. }) = (&verdict, answer) {
            // Each further attempt would take as long, and all others of this process wait behind it.
            if !self.request.is_watched() {
                return Err(LockError::Lease(LeaseError::OverBeforeAnswer));
            }
            // The store has answered: it is not out of reach any more.
            self.says.take_if(|says| says.is_err());
        }
        Ok(verdict)
    }

    /// The lock that the store has granted without being asked, as a message says. A lease of the caller's
    /// own length, or a token, takes a question, which re-leases the lock by the same id.
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

/// One question to the store.
struct Question {
    attempt: Attempt,
    asked: AcquireRequest,
}

/// True if a store may answer the question later.
fn may_pass(error: &LockError) -> bool {
    matches!(error, LockError::Backend { failure: Failure::Unreachable | Failure::Indeterminate, .. })
}

/// Polls `future` as the queue head's: wake-ups pass through the entry, which notes the time since which the
/// head could go on. `None` if another waiter is the queue head by now. Pinned by the caller, to have room
/// once.
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
            // The future may have sent a command behind the head's rollback, and is not polled again.
            Poll::Pending if !entry.engine.is_head(ticket) => Poll::Ready(None),
            polled => polled.map(Some),
        }
    })
    .await
}
