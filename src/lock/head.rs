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
use std::time::{Duration, Instant};

use crate::latch::Call;
use crate::lock_entry::{BACK_OFF, Grant, HeadTicket, Request, Verdict};
use crate::registry::Subscription;
use crate::runtime::Runtime;
use crate::transport::Transport;
use crate::unless::unless;

use super::backend::{AcquireOutcome, Backend, Failure};
use super::entry::{Entry, first_poll};
use super::error::LockError;
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
    Granted(Grant, Instant),
    /// It was not polled in time, and another waiter is the queue head.
    Superseded,
    /// The time to wait is over, and the store said last that another process has the lock.
    Held,
    /// The time to wait is over, and the store has not said anything.
    Unanswered,
}

/// What one question to the store came to.
enum Asked {
    Granted(Grant, Instant),
    Held(Duration),
    /// The lease was over before its reply was read: to be asked again.
    TooLate,
    Superseded,
}

/// A queue head. Dropped before it has the lock, gives up what it may have at the store, and lets the next waiter take its place.
pub(super) struct Head<'a, B: Backend> {
    entry: &'a Arc<Entry<B>>,
    ticket: HeadTicket,
    request: Request,
    /// It has the lock, or is the queue head no more.
    done: bool,
}

impl<B: Backend> Drop for Head<'_, B> {
    fn drop(&mut self) {
        if !self.done {
            self.entry.carry_out(self.entry.state.abandon(&self.ticket, self.entry.now()));
        }
    }
}

impl<'a, B: Backend> Head<'a, B> {
    pub(super) fn new(entry: &'a Arc<Entry<B>>, ticket: HeadTicket, request: Request) -> Self {
        Self { entry, ticket, request, done: false }
    }

    /// Competes from `now` on until it has the lock, or until `give_up`; without `may_wait` asks once. `patient`: a store that is gone
    /// is waited for from the first question on, and not only once it has answered one.
    pub(super) async fn compete(
        mut self,
        now: Instant,
        may_wait: bool,
        patient: bool,
        give_up: Option<Instant>,
    ) -> Result<Competed, LockError> {
        let registry = self.entry.context.backend.registry();
        let (mut left, mut unanswered) = (None, None);
        // To subscribe first saves asking twice, where it is known to be needed, or costs nothing.
        let subscribes_first = may_wait
            && (!self.ticket.back_off().is_zero() || registry.transport().stands(&self.entry.channel));
        if !subscribes_first {
            match self.ask_first(now, give_up).await {
                Ok(None) => return Ok(Competed::Unanswered),
                Ok(Some(Asked::Granted(grant, at))) => return Ok(Competed::Granted(grant, at)),
                Ok(Some(Asked::Superseded)) => return Ok(Competed::Superseded),
                Ok(Some(Asked::Held(_))) if !may_wait => return Ok(Competed::Held),
                Ok(Some(Asked::Held(held))) => left = Some(held),
                Ok(Some(Asked::TooLate)) => {}
                Err(error) if may_wait && patient && may_pass(&error) => unanswered = Some(error),
                Err(error) => return Err(error),
            }
        }
        // Seldom, and so it takes no room in the futures of the others.
        Box::pin(self.wait(left, unanswered, patient, give_up)).await
    }

    /// The first question. Most are answered at once, or with nobody else about.
    async fn ask_first(
        &mut self,
        now: Instant,
        give_up: Option<Instant>,
    ) -> Result<Option<Asked>, LockError> {
        let (entry, ticket) = (self.entry, self.ticket);
        let mut ask = pin!(self.ask(now));
        if let Poll::Ready(asked) = first_poll(ask.as_mut()).await {
            return asked.map(Some);
        }
        // The question stays where it is; what waits for it takes no room here.
        let asked = as_head(entry, &ticket, ask);
        match Box::pin(until(entry.context.backend.runtime(), give_up, asked)).await {
            None => Ok(None),
            Some(None) => Ok(Some(Asked::Superseded)),
            Some(Some(asked)) => asked.map(Some),
        }
    }

    /// `left`: how long the other lease lasts, if the store has said so; `unanswered`: why it has not.
    async fn wait(
        mut self,
        left: Option<Duration>,
        unanswered: Option<LockError>,
        patient: bool,
        give_up: Option<Instant>,
    ) -> Result<Competed, LockError> {
        let (entry, ticket) = (self.entry, self.ticket);
        let competed = as_head(entry, &ticket, async {
            let subscription = entry.context.backend.registry().subscribe(&entry.channel);
            self.wait_subscribed(&subscription, left, unanswered, patient, give_up).await
        })
        .await;
        match competed {
            Some(competed) => competed,
            None => {
                self.done = true;
                Ok(Competed::Superseded)
            }
        }
    }

    async fn wait_subscribed(
        &mut self,
        subscription: &Subscription<B::Transport>,
        mut left: Option<Duration>,
        mut unanswered: Option<LockError>,
        patient: bool,
        give_up: Option<Instant>,
    ) -> Result<Competed, LockError> {
        let (entry, context) = (self.entry, &self.entry.context);
        let runtime = context.backend.runtime();
        let in_time = |competed: Competed| give_up.is_some_and(|at| at <= runtime.now()).then_some(competed);
        let over =
            |left: Option<Duration>| if left.is_some() { Competed::Held } else { Competed::Unanswered };
        event!(DEBUG, lock = entry.name.as_str(), ?left, "waiting");
        // Messages count only from the confirmation on, so what was seen before it is looked at once more after it. Or before, if that
        // takes too long.
        let limit = self.look_again(left.unwrap_or(UNCONFIRMED).min(UNCONFIRMED), give_up);
        if let Some(confirmed) = until(runtime, limit, subscription.subscribed()).await {
            confirmed.map_err(LockError::Subscribe)?;
        }
        let mut steps = (self.ticket.back_off().as_nanos() / BACK_OFF.as_nanos()) as u32;
        // What was told to the queue head before this one is answered by our first question.
        while let Some(told_before) = entry.state.latch().try_wait() {
            told_before.consume();
        }
        // The notification that woke us. Dropped unanswered, by an error or with this future, it goes to the next waiter.
        let mut notified: Option<Call<'_>> = None;
        loop {
            if steps > 0 {
                // Who has not had its turn since is not to be overtaken.
                let until = earliest(give_up, runtime.now().checked_add(BACK_OFF * steps));
                steps -= 1;
                runtime.sleep_until(until.unwrap_or_else(|| runtime.now())).await;
            }
            if let Some(failure) = subscription.failure() {
                return Err(LockError::Subscribe(failure));
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
            notified = notified.or_else(|| subscription.latch().try_wait());
            let unconfirmed = !subscription.is_ready();
            let Some(asked) = until(runtime, give_up, self.ask(runtime.now())).await else {
                return unanswered.map_or(Ok(over(left)), Err);
            };
            let asked = match asked {
                // The store may be back before the lease of whoever has the lock is over, or the caller's limit.
                Err(error) if may_pass(&error) && (patient || left.is_some()) => {
                    unanswered = Some(error).filter(|_| left.is_none());
                    let limit = self.look_again(STORE_IS_GONE, give_up);
                    notified = until(runtime, limit, self.sleep(subscription, unconfirmed)).await.flatten();
                    continue;
                }
                asked => asked?,
            };
            unanswered = None;
            match asked {
                Asked::Granted(grant, at) => {
                    if let Some(notified) = notified {
                        notified.consume();
                        entry.counters.wakes_wanted.add_one();
                    }
                    if left.is_some() {
                        context.recorder.hand_offs_remote.add_one();
                    }
                    return Ok(Competed::Granted(grant, at));
                }
                Asked::Superseded => return Ok(Competed::Superseded),
                Asked::TooLate => {}
                Asked::Held(held) => {
                    if let Some(notified) = notified.take() {
                        notified.waste();
                        entry.counters.wakes_wasted.add_one();
                    }
                    left = Some(held);
                    let limit = self.look_again(held, give_up);
                    notified = until(runtime, limit, self.sleep(subscription, unconfirmed)).await.flatten();
                    event!(TRACE, lock = entry.name.as_str(), notified = notified.is_some(), "woken");
                }
            }
        }
    }

    /// Sleeps until there is reason to ask: a message, another task of this process that knows of one, or a subscription that was not
    /// confirmed when we asked and is now.
    async fn sleep<'s>(
        &self,
        subscription: &'s Subscription<B::Transport>,
        unconfirmed: bool,
    ) -> Option<Call<'s>> {
        let confirmed = async {
            match unconfirmed {
                // A failure is found by who looks.
                true => _ = subscription.subscribed().await,
                false => pending().await,
            }
        };
        let told_here = async {
            let called = unless(self.entry.state.latch().wait(), confirmed).await;
            if let Some(called) = called {
                called.consume();
            }
        };
        unless(subscription.latch().wait(), told_here).await
    }

    /// When to look again if nobody calls. Not later than a watched lease lasts, however long this one does: should its release go
    /// unheard, that is what it costs.
    fn look_again(&self, left: Duration, give_up: Option<Instant>) -> Option<Instant> {
        let context = &self.entry.context;
        let left = left.min(context.rules.renewed_lease) + ROUNDING;
        earliest(give_up, context.backend.runtime().now().checked_add(left))
    }

    /// Asks the store once, at `sent`.
    async fn ask(&mut self, sent: Instant) -> Result<Asked, LockError> {
        let (entry, context) = (self.entry, &self.entry.context);
        let lease = context.lease_of(&self.request);
        let fresh = context.number();
        let Some(attempt) = entry.state.attempt(&self.ticket, fresh, &self.request, sent, lease) else {
            return Ok(self.superseded());
        };
        let id = context.lease_id(attempt.number());
        let outcome = {
            let mut asks = pin!(context.backend.try_acquire(&entry.name, &id, lease, attempt.tokens()));
            let mut polls = 0;
            let outcome = poll_fn(|task| {
                polls += 1;
                asks.as_mut().poll(task)
            })
            .await;
            (outcome, polls)
        };
        let last_token = match outcome.0 {
            Ok(AcquireOutcome::Acquired { last_token }) => last_token,
            Ok(AcquireOutcome::Held { left }) => {
                event!(TRACE, lock = entry.name.as_str(), ?left, "held by another");
                entry.state.refused(&self.ticket);
                return Ok(Asked::Held(left));
            }
            Err(error) => {
                if context.failure(&error) != Failure::Indeterminate {
                    entry.state.did_not_run(&self.ticket);
                }
                return Err(context.failed(error));
            }
        };
        // An answer that took no waiting took no time.
        let now = if outcome.1 == 1 { sent } else { entry.now() };
        let (verdict, actions) =
            entry.state.acquired(&self.ticket, &self.request, attempt, last_token, sent, lease, now);
        if !matches!(verdict, Verdict::TooLate) {
            self.done = true;
        }
        entry.carry_out(actions);
        Ok(match verdict {
            Verdict::Granted(grant) => Asked::Granted(grant, now),
            Verdict::TooLate => Asked::TooLate,
            Verdict::Superseded => Asked::Superseded,
        })
    }

    fn superseded(&mut self) -> Asked {
        self.done = true;
        Asked::Superseded
    }
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

/// Whether a store may answer later what it does not answer now.
fn may_pass(error: &LockError) -> bool {
    matches!(error, LockError::Backend { failure: Failure::Unreachable | Failure::Indeterminate, .. })
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
