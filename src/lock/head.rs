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

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::fault::fault;
use crate::latch::Notification;
use crate::lock_entry::{Attempt, BACK_OFF, Grant, HeadTicket, Moment, Request, Verdict};
use crate::runtime::Runtime;
use crate::unless::unless;

use super::backend::{AcquireOutcome, Backend, Failure};
use super::commands::{Ask, Commands};
use super::entry::{Entry, first_poll};
use super::error::LockError;
use super::listening::Listening;
use super::pace::Pace;
use super::until::until;

/// Stores say a lease's end in whole milliseconds, rounded down; asking that early would find it still held.
const ROUNDING: Duration = Duration::from_millis(1);

/// How long to wait for a subscription before the store is asked without it.
const UNCONFIRMED: Duration = Duration::from_secs(1);

/// How long to wait before a store that did not answer is asked again, unless its messages are back before.
const STORE_IS_GONE: Duration = Duration::from_millis(500);

/// What a competition came to.
pub(super) enum Competed {
    /// By an answer that came at this time.
    Granted(Grant, Moment),
    /// It was not polled in time, and another waiter is the queue head.
    Superseded,
    /// The time to wait is over, and the store said last that another process has the lock.
    Held,
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

/// A queue head. Dropped before it has the lock, gives up what it may have at the store, and lets the next waiter take its place.
pub(super) struct Head<'a, B: Backend> {
    entry: &'a Arc<Entry<B>>,
    ticket: HeadTicket,
    request: Request,
    /// It waits, and so takes a position if the store has some.
    may_wait: bool,
    /// It has the lock, or is the queue head no more.
    done: bool,
}

impl<B: Backend> Drop for Head<'_, B> {
    fn drop(&mut self) {
        if !self.done && self.entry.context.is_here() {
            self.entry.carry_out(self.entry.state.abandon(&self.ticket, self.entry.now()));
        }
    }
}

impl<'a, B: Backend> Head<'a, B> {
    pub(super) fn new(
        entry: &'a Arc<Entry<B>>,
        ticket: HeadTicket,
        request: Request,
        may_wait: bool,
    ) -> Self {
        Self { entry, ticket, request, may_wait, done: false }
    }

    pub(super) fn request(&self) -> &Request {
        &self.request
    }

    /// Asks a store that answers at once. `None` if it does not, or there is more to it, and it has to [compete](Self::compete).
    pub(super) fn ask_at_once(&mut self, attempt: Attempt, now: Moment) -> Result<Option<Grant>, LockError> {
        let question = self.question_of(attempt, now);
        let Poll::Ready(outcome) = question.put_once(self.entry) else { return Ok(None) };
        Ok(match self.answered(&question, outcome, now)? {
            Asked::Over(Competed::Granted(grant, _)) => Some(grant),
            Asked::Over(_) | Asked::Held(_) | Asked::TooLate => None,
        })
    }

    /// Competes from `now` on until it has the lock, or until `give_up`; if it may not wait, asks once. `patient`: a store that is gone
    /// is waited for from the first question on, and not only once it has answered one.
    pub(super) async fn compete(
        mut self,
        now: Moment,
        patient: bool,
        give_up: Moment,
    ) -> Result<Competed, LockError> {
        let (entry, ticket, may_wait) = (self.entry, self.ticket, self.may_wait);
        let (mut left, mut unanswered) = (None, None);
        // To subscribe first saves asking twice, where it is known to be needed, or costs nothing.
        let subscribes_first =
            may_wait && (!ticket.goes_first() || ticket.has_position() || entry.is_heard());
        if !subscribes_first {
            let Some(question) = self.question(now) else { return Ok(self.superseded()) };
            let mut answer = pin!(question.put(entry));
            // Most are answered at once, or with nobody else about. What waits for the others takes no room here.
            let asked = match first_poll(answer.as_mut()) {
                // An answer that took no waiting took no time.
                Poll::Ready(outcome) => self.answered(&question, outcome, now),
                Poll::Pending => {
                    let answer = as_head(entry, &ticket, answer);
                    match Box::pin(until(entry.context.backend.runtime(), give_up, answer)).await {
                        None => return Ok(Competed::Unanswered),
                        Some(None) => return Ok(self.superseded()),
                        Some(Some(outcome)) => self.answered(&question, outcome, entry.now()),
                    }
                }
            };
            match asked {
                Ok(Asked::Over(competed)) => return Ok(competed),
                Ok(Asked::Held(_)) if !may_wait => return Ok(Competed::Held),
                Ok(Asked::Held(held)) => left = Some(held),
                // Another question would be another wait.
                Ok(Asked::TooLate) if !may_wait => return Ok(Competed::Unanswered),
                Ok(Asked::TooLate) => {}
                Err(error) if may_wait && patient && may_pass(&error) => unanswered = Some(error),
                Err(error) => return Err(error),
            }
        }
        // Seldom, and so it takes no room in the futures of the others.
        Box::pin(self.wait(left, unanswered, patient, give_up)).await
    }

    /// `left`: how long the other lease lasts, if the store has said so; `unanswered`: why it has not.
    async fn wait(
        mut self,
        left: Option<Duration>,
        unanswered: Option<LockError>,
        patient: bool,
        give_up: Moment,
    ) -> Result<Competed, LockError> {
        let (entry, ticket) = (self.entry, self.ticket);
        let competed = as_head(entry, &ticket, async {
            let kept = if ticket.has_position() { entry.take_kept() } else { None };
            let hears_all = kept.is_some() || fault!(NoQuestionOnceItListens);
            let listening = kept.unwrap_or_else(|| entry.listen());
            self.wait_listening(&listening, hears_all, left, unanswered, patient, give_up).await
        })
        .await;
        competed.unwrap_or_else(|| Ok(self.superseded()))
    }

    async fn wait_listening(
        &mut self,
        listening: &Listening<B::Transport>,
        hears_all: bool,
        mut left: Option<Duration>,
        mut unanswered: Option<LockError>,
        patient: bool,
        give_up: Moment,
    ) -> Result<Competed, LockError> {
        let (entry, context) = (self.entry, &self.entry.context);
        let runtime = context.backend.runtime();
        let in_time = |competed: Competed| (give_up <= entry.now()).then_some(competed);
        let over =
            |left: Option<Duration>| if left.is_some() { Competed::Held } else { Competed::Unanswered };
        event!(DEBUG, lock = entry.name.as_str(), ?left, "waiting");
        // Messages count only from the confirmation on, so what was seen before it is looked at once more after it. Or before, if that
        // takes too long.
        let limit = self.look_again(left.unwrap_or(UNCONFIRMED).min(UNCONFIRMED), give_up);
        if let Some(confirmed) = until(runtime, limit, listening.subscribed()).await {
            confirmed.map_err(|failure| LockError::Subscribe(failure.of_lock(entry.name.as_str())))?;
        }
        let mut steps = self.ticket.steps();
        // What was told to the queue head before this one is answered by our first question.
        while let Some(told_before) = entry.state.latch().try_wait() {
            told_before.consume();
        }
        // The notification that woke us. Dropped unanswered, by an error or with this future, it goes to the next waiter.
        let mut notified: Option<Notification<'_>> = None;
        let (mut pace, mut paused) = (Pace::new(entry.commands.kind(), entry.now()), false);
        if hears_all {
            // It is in the store's queue already, and hears of its turn.
            left = entry.position;
            let limit = self.look_again(Duration::MAX, give_up);
            notified = until(runtime, limit, self.sleep(listening, false)).await.flatten();
        }
        loop {
            if steps > 0 {
                // Who has not had its turn since is not to be overtaken.
                let turn = give_up.min(entry.now() + BACK_OFF * steps);
                steps -= 1;
                until(runtime, turn, pending::<()>()).await;
            }
            if let Some(failure) = listening.failure() {
                return Err(LockError::Subscribe(failure.of_lock(entry.name.as_str())));
            }
            if runtime.has_ended() {
                return Err(LockError::RuntimeEnded);
            }
            if context.is_shut_down() {
                return Err(LockError::ShutDown);
            }
            if let Some(competed) = in_time(over(left)) {
                return unanswered.map_or(Ok(competed), Err);
            }
            // What was told while we were not there is answered by this question, our own release's message included.
            notified = notified.or_else(|| listening.try_told());
            if let Some(granted) = self.granted_unasked(listening.granted(), entry.now()) {
                if let Some(notified) = notified {
                    notified.consume();
                    entry.counters.wakes_useful.add_one();
                }
                context.recorder.hand_offs_remote.add_one();
                return Ok(granted);
            }
            // Not more often than it may, whoever publishes what. All that happens meanwhile is looked at
            // again before it asks.
            if notified.is_some() && !std::mem::replace(&mut paused, true) {
                let now = entry.now();
                let at = give_up.min(pace.next(now));
                if at > now {
                    self.pause(listening, at).await;
                    continue;
                }
            }
            paused = false;
            let unconfirmed = !listening.is_ready();
            let Some(asked) = until(runtime, give_up, self.ask(entry.now())).await else {
                return unanswered.map_or(Ok(over(left)), Err);
            };
            let asked = match asked {
                // The store may be back before the lease of the other holder is over, or the caller's limit.
                Err(error) if may_pass(&error) && (patient || left.is_some()) => {
                    unanswered = Some(error).filter(|_| left.is_none());
                    let limit = self.look_again(STORE_IS_GONE, give_up);
                    notified = until(runtime, limit, self.sleep(listening, unconfirmed)).await.flatten();
                    continue;
                }
                asked => asked?,
            };
            unanswered = None;
            match asked {
                Asked::Over(competed) => {
                    if let (Competed::Granted(..), Some(notified)) = (&competed, notified) {
                        notified.consume();
                        entry.counters.wakes_useful.add_one();
                    }
                    if let (Competed::Granted(..), Some(_)) = (&competed, left) {
                        context.recorder.hand_offs_remote.add_one();
                    }
                    return Ok(competed);
                }
                Asked::TooLate => {}
                Asked::Held(held) => {
                    if let Some(notified) = notified.take() {
                        notified.consume_spurious();
                        entry.counters.wakes_spurious.add_one();
                    }
                    left = Some(held);
                    let limit = self.look_again(held, give_up);
                    notified = until(runtime, limit, self.sleep(listening, unconfirmed)).await.flatten();
                    event!(TRACE, lock = entry.name.as_str(), notified = notified.is_some(), "woken");
                }
            }
        }
    }

    /// Sleeps until there is reason to ask: a message, another task of this process that knows of one, or a subscription that was not
    /// confirmed when we asked and is now.
    async fn sleep<'s>(
        &self,
        listening: &'s Listening<B::Transport>,
        unconfirmed: bool,
    ) -> Option<Notification<'s>> {
        let confirmed = async {
            match unconfirmed {
                // A failure is found by who looks.
                true => _ = listening.subscribed().await,
                false => pending().await,
            }
        };
        let told_here = async {
            let called = unless(self.entry.state.latch().wait(), confirmed).await;
            if let Some(called) = called {
                called.consume();
            }
        };
        unless(listening.told(), told_here).await
    }

    /// Waits until then, unless the lock is granted meanwhile.
    async fn pause(&self, listening: &Listening<B::Transport>, at: Moment) {
        let runtime = self.entry.context.backend.runtime();
        if self.entry.commands.kind().is_granted() {
            until(runtime, at, listening.granted_next()).await;
        } else {
            until(runtime, at, pending::<()>()).await;
        }
    }

    /// When to look again if nobody calls. Not later than a watched lease lasts, however long this one does: should its release go
    /// unheard, that is what it costs. And early enough to keep a position in the store's queue, should a look or two be lost.
    fn look_again(&self, left: Duration, give_up: Moment) -> Moment {
        if fault!(LeaseEndNotAwaited) {
            return give_up;
        }
        let context = &self.entry.context;
        let position = self.entry.position.filter(|_| !fault!(PositionNotKept));
        let at_most = position.map_or(context.rules.renewed_lease, |kept| kept / 3);
        let left = left.min(at_most) + ROUNDING;
        give_up.min(context.now() + left)
    }

    /// Asks the store once, at `sent`.
    async fn ask(&mut self, sent: Moment) -> Result<Asked, LockError> {
        let Some(question) = self.question(sent) else { return Ok(Asked::Over(self.superseded())) };
        let outcome = question.put(self.entry).await;
        self.answered(&question, outcome, self.entry.now())
    }

    /// What to ask the store at `sent`. `None` if it is the queue head no more.
    fn question(&self, sent: Moment) -> Option<Question> {
        let attempt = self.entry.attempt(&self.ticket, &self.request, sent)?;
        Some(self.question_of(attempt, sent))
    }

    fn question_of(&self, attempt: Attempt, sent: Moment) -> Question {
        let context = &self.entry.context;
        let (id, lease) = (context.lease_id(attempt.number()), context.lease_of(&self.request));
        let position = self.entry.position_of(&self.ticket, sent).filter(|_| self.may_wait);
        let tokens = attempt.tokens();
        Question { attempt, ask: Ask { id, lease, tokens, position, under: None, sent } }
    }

    /// The store has answered, at `now`.
    fn answered(
        &mut self,
        question: &Question,
        outcome: Result<AcquireOutcome, B::Error>,
        now: Moment,
    ) -> Result<Asked, LockError> {
        let (entry, context) = (self.entry, &self.entry.context);
        let last_token = match outcome {
            Ok(AcquireOutcome::Acquired { last_token }) => last_token,
            Ok(AcquireOutcome::Held { left }) => {
                event!(TRACE, lock = entry.name.as_str(), ?left, "held by another");
                let (attempt, sent) = (question.attempt, question.ask.sent);
                let Some(position) = question.ask.position else {
                    entry.carry_out(entry.state.refused(&self.ticket));
                    return Ok(Asked::Held(left));
                };
                if !entry.commands.kind().is_granted() {
                    entry.carry_out(entry.state.remembered(&self.ticket, attempt, sent + position.kept));
                    return Ok(Asked::Held(left));
                }
                let (queued, actions) = entry.state.queued(&self.ticket, attempt, sent, now);
                entry.carry_out(actions);
                return Ok(if queued { Asked::Held(left) } else { Asked::TooLate });
            }
            Err(error) => {
                if context.failure(&error) != Failure::Indeterminate || fault!(UnansweredNeverRan) {
                    entry.state.did_not_run(&self.ticket);
                }
                return Err(context.failed(&entry.name, error));
            }
        };
        let (attempt, Ask { lease, sent, .. }) = (question.attempt, &question.ask);
        let (verdict, actions) =
            entry.state.acquired(&self.ticket, &self.request, attempt, last_token, *sent, *lease, now);
        self.done = !matches!(verdict, Verdict::TooLate);
        let grant = match verdict {
            Verdict::Granted(grant) => Some(grant),
            Verdict::TooLate | Verdict::Superseded => None,
        };
        entry.carry_out_granted(grant, actions);
        Ok(match verdict {
            Verdict::Granted(grant) => Asked::Over(Competed::Granted(grant, now)),
            Verdict::TooLate => Asked::TooLate,
            Verdict::Superseded => Asked::Over(Competed::Superseded),
        })
    }

    /// What the store has granted without being asked, as a message says. What that leaves open, a lease of its own length or a token, takes
    /// a question, which re-leases the lock by the same id.
    fn granted_unasked(&mut self, number: u64, now: Moment) -> Option<Competed> {
        let (entry, Commands::Of(kind)) = (self.entry, self.entry.commands) else { return None };
        if number == 0 || !kind.grants_suffice(&entry.context.backend) {
            return None;
        }
        let (granted, actions) = entry.state.granted_unasked(&self.ticket, &self.request, number, now);
        self.done = granted.is_some();
        entry.carry_out_granted(granted, actions);
        granted.map(|grant| Competed::Granted(grant, now))
    }

    /// Another waiter is the queue head.
    fn superseded(&mut self) -> Competed {
        self.done = true;
        Competed::Superseded
    }
}

/// One question to the store.
struct Question {
    attempt: Attempt,
    ask: Ask,
}

impl Question {
    async fn put<B: Backend>(&self, entry: &Entry<B>) -> Result<AcquireOutcome, B::Error> {
        entry.commands.try_acquire(&entry.context.backend, &entry.name, &self.ask).await
    }

    /// To a store that answers at once.
    #[inline]
    fn put_once<B: Backend>(&self, entry: &Entry<B>) -> Poll<Result<AcquireOutcome, B::Error>> {
        let (backend, Ask { id, lease, tokens, sent, .. }) = (&entry.context.backend, &self.ask);
        match entry.commands {
            // The usual one, without a future around it.
            Commands::Plain => first_poll(pin!(backend.try_acquire(&entry.name, id, *lease, *tokens, *sent))),
            Commands::Of(_) => first_poll(pin!(self.put(entry))),
        }
    }
}

/// Whether a store may answer later what it does not answer now.
fn may_pass(error: &LockError) -> bool {
    matches!(error, LockError::Backend { failure: Failure::Unreachable | Failure::Indeterminate, .. })
}

/// Polls `future` as the queue head's: what wakes it passes through the entry, which knows then since when it could go on. `None` if
/// another waiter is the queue head by now.
async fn as_head<B: Backend, F: Future>(
    entry: &Arc<Entry<B>>,
    ticket: &HeadTicket,
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::clone(entry));
    poll_fn(|task| match entry.state.poll_head(ticket, task.waker()) {
        Poll::Ready(_) => Poll::Ready(None),
        Poll::Pending => future.as_mut().poll(&mut Context::from_waker(&waker)).map(Some),
    })
    .await
}
