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

use crate::lock::backend::{AcquireOutcome, AcquireRequest, Failed, Failure};
use crate::lock::entry::{Entry, read_or};
use crate::lock::error::LockError;
use crate::lock::lease::LeaseError;

use self::wait::Wait;

/// Stores say a lease's end in whole milliseconds, rounded down; asking that early would find it still held.
const ROUNDING: Duration = Duration::from_millis(1);

/// What a competition came to.
pub(super) enum Competed {
    /// By an answer that came at this time.
    Granted(Grant, Moment),
    /// It was not polled in time, and another waiter is the queue head.
    Superseded,
    /// The time to wait is over, and the store said last that another process has the lock.
    TimeOverHeld,
    /// The time to wait is over, and the store has not said anything.
    Unanswered,
}

/// What one question to the store came to.
enum Asked {
    Over(Competed),
    Held(Duration),
    /// The lease, or the position, may have been over before the reply was read: to be asked again.
    TooLate,
}

/// What the store has said to a queue head so far.
enum StoreSays {
    Nothing,
    /// It could not be asked.
    Unreachable(LockError),
    /// Another process has the lock, for so long if it is not renewed.
    Held(Duration),
}

impl StoreSays {
    /// What that is to a caller whose time to wait is over.
    fn at_the_end(self) -> Result<Competed, LockError> {
        match self {
            Self::Nothing => Ok(Competed::Unanswered),
            Self::Unreachable(error) => Err(error),
            Self::Held(_) => Ok(Competed::TimeOverHeld),
        }
    }

    fn is_held(&self) -> bool {
        matches!(self, Self::Held(_))
    }
}

/// A queue head. Dropped before it has the lock, gives up what it may have at the store, and lets the next
/// waiter take its place.
pub(super) struct Head<'a> {
    entry: &'a Arc<Entry>,
    ticket: HeadTicket,
    request: Request,
    /// It waits, and so takes a position if the store has some.
    may_wait: bool,
    /// It has the lock.
    done: bool,
}

impl Drop for Head<'_> {
    fn drop(&mut self) {
        if !self.done && self.entry.context.is_here() {
            // Which changes nothing if it is the queue head no more.
            let entry = self.entry;
            entry.event(|state, effects| state.abandon(&self.ticket, entry.now(), effects));
        }
    }
}

impl<'a> Head<'a> {
    pub(super) fn new(entry: &'a Arc<Entry>, ticket: HeadTicket, request: Request, may_wait: bool) -> Self {
        Self { entry, ticket, request, may_wait, done: false }
    }

    pub(super) fn request(&self) -> &Request {
        &self.request
    }

    /// Competes from `now` on until it has the lock, or until `give_up`; if it may not wait, asks once.
    /// `patient`: a store that is gone is waited for from the first question on, and not only once it has
    /// answered one.
    pub(super) async fn compete(
        mut self,
        now: Moment,
        patient: bool,
        give_up: Moment,
    ) -> Result<Competed, LockError> {
        let (entry, ticket, may_wait) = (self.entry, self.ticket, self.may_wait);
        let mut says = StoreSays::Nothing;
        // To subscribe first saves asking twice, where it is known to be needed, or costs nothing.
        let subscribes_first =
            may_wait && (ticket.steps() > 0 || ticket.has_position() || entry.is_subscribed());
        if !subscribes_first {
            let Some(question) = self.question(now) else { return Ok(Competed::Superseded) };
            let mut answer = entry.acquire(&question.asked);
            // What is answered by the call takes no room for a wait here.
            let asked = match answer.take_done() {
                // An answer that took no waiting took no time.
                Some(outcome) => self.answered(&question, outcome, now),
                None => {
                    let answer = pin!(read_or(answer, self.unread(&question)));
                    let answer = pin!(as_head(entry, &ticket, answer));
                    match entry.context.until(give_up, answer).await {
                        None => return Ok(Competed::Unanswered),
                        Some(None) => return Ok(Competed::Superseded),
                        Some(Some(outcome)) => self.answered(&question, outcome, entry.now()),
                    }
                }
            };
            match asked {
                Ok(Asked::Over(competed)) => return Ok(competed),
                Ok(Asked::Held(_)) if !may_wait => return Ok(Competed::TimeOverHeld),
                Ok(Asked::Held(left)) => says = StoreSays::Held(left),
                // Another question would be another wait.
                Ok(Asked::TooLate) if !may_wait => return Ok(Competed::Unanswered),
                Ok(Asked::TooLate) => {}
                Err(error) if may_wait && patient && may_pass(&error) => says = StoreSays::Unreachable(error),
                Err(error) => return Err(error),
            }
        }
        // Cold, and so boxed: it takes no room in the futures of the others.
        Box::pin(self.wait(says, patient, give_up)).await
    }

    async fn wait(mut self, says: StoreSays, patient: bool, give_up: Moment) -> Result<Competed, LockError> {
        let (entry, ticket) = (self.entry, self.ticket);
        let competed = {
            let waits = pin!(async {
                let kept = if ticket.has_position() { entry.take_kept() } else { None };
                let hears_all = kept.is_some();
                let listening = kept.unwrap_or_else(|| entry.listen());
                Wait::new(&mut self, &listening, says, patient, give_up).run(hears_all).await
            });
            as_head(entry, &ticket, waits).await
        };
        competed.unwrap_or_else(|| Ok(Competed::Superseded))
    }

    /// When to look again without a call. Not later than a watched lease lasts, however long this one does:
    /// should its release go unheard, that is what it costs. And early enough to keep a position in the
    /// store's queue, should a look or two be lost.
    fn look_again(&self, left: Duration, give_up: Moment) -> Moment {
        let context = &self.entry.context;
        let at_most = self.entry.position.map_or(context.rules.renewed_lease, |kept| kept / 3);
        let left = left.min(at_most) + ROUNDING;
        give_up.min(context.now() + left)
    }

    /// Asks the store once, at `sent`.
    async fn ask(&mut self, sent: Moment) -> Result<Asked, LockError> {
        let Some(question) = self.question(sent) else { return Ok(Asked::Over(Competed::Superseded)) };
        let outcome = read_or(self.entry.acquire(&question.asked), self.unread(&question)).await;
        self.answered(&question, outcome, self.entry.now())
    }

    /// Says that the answer to the question is not read, which may have been sent behind the rollback of a
    /// queue head that was superseded just then.
    fn unread(&self, question: &Question) -> impl FnOnce() + use<'a> {
        let (entry, ticket, attempt) = (self.entry, self.ticket, question.attempt.copy());
        move || {
            if entry.context.is_here() {
                let answer = Answer::Unanswered;
                entry.event(|state, effects| {
                    _ = state.answered(&ticket, attempt, answer, entry.now(), effects)
                });
            }
        }
    }

    /// What to ask the store at `sent`. `None` if it is the queue head no more.
    fn question(&self, sent: Moment) -> Option<Question> {
        let attempt = self.entry.attempt(&self.ticket, &self.request, sent)?;
        let context = &self.entry.context;
        let (id, lease) = (context.lease_id(attempt.number()), context.lease_of(&self.request));
        let position = self.entry.position_of(&self.ticket, sent).filter(|_| self.may_wait);
        let asked = AcquireRequest::new(id, lease, sent).tokens(attempt.tokens()).position(position);
        Some(Question { attempt, asked })
    }

    /// The store has answered, at `now`.
    fn answered(
        &mut self,
        question: &Question,
        outcome: Result<AcquireOutcome, Failed>,
        now: Moment,
    ) -> Result<Asked, LockError> {
        let (entry, attempt) = (self.entry, question.attempt.copy());
        let may_run_yet = entry.may_run_yet(&question.asked.id, &outcome);
        if may_run_yet && outcome.is_ok() {
            entry.event(|state, effects| state.may_run_again(attempt.rollback(), effects));
        }
        let (answer, left) = match outcome {
            Ok(AcquireOutcome::Acquired { last_token }) => (Answer::Granted { last_token }, Duration::ZERO),
            Ok(AcquireOutcome::Held { left }) => {
                event!(TRACE, lock = entry.name.as_str(), ?left, "held by another");
                let kept = question.asked.position.map(|position| position.kept);
                (Answer::Held { kept }, left)
            }
            Err(error) => {
                let answer = if may_run_yet { Answer::Unanswered } else { Answer::DidNotRun };
                entry.event(|state, effects| _ = state.answered(&self.ticket, attempt, answer, now, effects));
                return Err(entry.context.failed(&entry.name, error));
            }
        };
        let verdict = entry.event(|state, effects| {
            let verdict = state.answered(&self.ticket, attempt, answer, now, effects);
            // A head that was granted the lock has nothing to abandon.
            self.done = matches!(verdict, AttemptOutcome::Granted(_));
            verdict
        });
        match verdict {
            AttemptOutcome::Granted(grant) => Ok(Asked::Over(Competed::Granted(grant, now))),
            AttemptOutcome::Refused => Ok(Asked::Held(left)),
            // Each further attempt would take as long, and all others of this process wait behind it.
            AttemptOutcome::TooLate
                if matches!(answer, Answer::Granted { .. }) && !self.request.is_watched() =>
            {
                Err(LockError::Lease(LeaseError::OverBeforeAnswer))
            }
            AttemptOutcome::TooLate => Ok(Asked::TooLate),
            AttemptOutcome::Superseded => Ok(Asked::Over(Competed::Superseded)),
        }
    }

    /// What the store has granted without being asked, as a message says. What that leaves open, a lease of
    /// its own length or a token, takes a question, which re-leases the lock by the same id.
    fn granted_by_message(&mut self, number: u64, now: Moment) -> Option<Competed> {
        let entry = self.entry;
        if !entry.believes_grants() {
            return None;
        }
        let granted = entry.event(|state, effects| {
            let granted = state.granted_by_message(&self.ticket, number, now, effects);
            self.done = granted.is_some();
            granted
        });
        granted.map(|grant| Competed::Granted(grant, now))
    }
}

/// One question to the store.
struct Question {
    attempt: Attempt,
    asked: AcquireRequest,
}

/// Whether a store may answer later what it does not answer now.
fn may_pass(error: &LockError) -> bool {
    matches!(error, LockError::Backend { failure: Failure::Unreachable | Failure::Indeterminate, .. })
}

/// Polls `future` as the queue head's: what wakes it passes through the entry, which knows then since when it
/// could go on. `None` if another waiter is the queue head by now. Pinned by the caller, to have room once.
async fn as_head<F>(entry: &Arc<Entry>, ticket: &HeadTicket, mut future: F) -> Option<F::Output>
where
    F: Future + Unpin,
{
    let waker = Waker::from(Arc::clone(entry));
    poll_fn(|task| {
        if !entry.event(|state, effects| state.poll_head(ticket, task.waker(), effects)) {
            return Poll::Ready(None);
        }
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            // It may have sent a command behind the rollback of what it was, and not be polled again.
            Poll::Pending if !entry.state.is_head(ticket) => Poll::Ready(None),
            polled => polled.map(Some),
        }
    })
    .await
}
