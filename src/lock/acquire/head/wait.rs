//! [`Wait`]: a queue head that waits for its turn at the store: `ended? → pause → ask → sleep`, again and
//! again.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use crate::latch::Notification;
use crate::lock_entry::BACK_OFF;
use crate::support::unless::unless;

use super::super::End;
use super::{AttemptOutcome, Head, Moment, may_pass};
use crate::lock::acquire::rate_limit::RateLimit;
use crate::lock::entry::listening::Listening;
use crate::lock::error::LockError;

/// How long to wait for a subscription before the store is asked without it.
const UNCONFIRMED: Duration = Duration::from_secs(1);

/// How long to wait before a store that did not answer is asked again, unless its messages are back before.
const STORE_IS_GONE: Duration = Duration::from_millis(500);

/// A queue head that waits.
pub(super) struct Wait<'w, 'a> {
    head: &'w mut Head<'a>,
    listening: &'w Listening,
    /// See [`Head::compete`].
    patient: bool,
    give_up: Moment,
    /// Steps for which the head lets other processes go first.
    steps: u32,
    rate_limit: RateLimit,
    /// The head has waited before its next question, as there were too many.
    paused: bool,
    /// The subscription was not confirmed when the store was asked.
    unconfirmed: bool,
    /// The notification that woke the head. Dropped unconsumed, by an error or with this future, the
    /// notification goes to the next waiter.
    notified: Option<Notification<'w>>,
}

impl<'w, 'a> Wait<'w, 'a> {
    pub(super) fn new(
        head: &'w mut Head<'a>,
        listening: &'w Listening,
        patient: bool,
        give_up: Moment,
    ) -> Self {
        let (steps, rate_limit) =
            (head.ticket.steps(), RateLimit::new(head.wanted.entry.mode, head.wanted.entry.now()));
        Self {
            head,
            listening,
            patient,
            give_up,
            steps,
            rate_limit,
            paused: false,
            unconfirmed: false,
            notified: None,
        }
    }

    /// `hears_all`: the head is in the store's queue already, and hears of its turn.
    pub(super) async fn run(mut self, hears_all: bool) -> Result<End, LockError> {
        self.subscribed().await?;
        if hears_all {
            self.head.says = Some(Ok(self.head.wanted.entry.position.unwrap_or_default()));
            self.sleep(Duration::MAX).await;
        }
        loop {
            self.let_others_go_first().await;
            self.take_what_was_told();
            if let Some(competed) = self.ended()? {
                return Ok(competed);
            }
            // The head looks at all that has happened meanwhile before it asks.
            if self.pause().await {
                continue;
            }
            if let Some(competed) = self.ask().await? {
                return Ok(competed);
            }
        }
    }

    /// Waits for the confirmation of the subscription, but not for too long. Messages count only from then
    /// on, so the head asks once more after the confirmation.
    async fn subscribed(&mut self) -> Result<(), LockError> {
        let entry = self.head.wanted.entry;
        let held_for = self.head.held_for();
        let left = held_for.unwrap_or(UNCONFIRMED);
        event!(DEBUG, lock = entry.name.as_str(), left = ?held_for, "waiting");
        let limit = self.head.look_again(left.min(UNCONFIRMED), self.give_up);
        if let Some(confirmed) = entry.context.until(limit, pin!(self.listening.subscribed())).await {
            confirmed.map_err(|failure| LockError::Subscribe(failure.of_lock(entry.name.as_str())))?;
        }
        // The first question answers the notifications of the queue head before; or the release has answered
        // them that has put this head into the store's queue, which grants to the head from then on.
        while let Some(told_before) = entry.engine.latch().try_wait() {
            told_before.consume();
        }
        Ok(())
    }

    /// Lets processes go first that have not had their turn since this process had.
    async fn let_others_go_first(&mut self) {
        if self.steps > 0 {
            let turn = self.give_up.min(self.head.wanted.entry.now() + BACK_OFF * self.steps);
            self.steps -= 1;
            self.head.wanted.entry.context.until(turn, pending::<()>()).await;
        }
    }

    /// Takes the notification of a message that came while the head did not sleep, the message of our own
    /// release included: the next question answers it. Without this a release that was published between the
    /// last answer and the sleep would go unheard.
    fn take_what_was_told(&mut self) {
        if self.notified.is_none() {
            self.notified = self.listening.try_told();
        }
    }

    /// The end of the wait, by an error, by its limit, or because a message has granted the lock; `None` if
    /// the wait goes on.
    fn ended(&mut self) -> Result<Option<End>, LockError> {
        let (entry, context) = (self.head.wanted.entry, &self.head.wanted.entry.context);
        if let Some(failure) = self.listening.failure() {
            return Err(LockError::Subscribe(failure.of_lock(entry.name.as_str())));
        }
        if context.has_ended() {
            return Err(LockError::RuntimeEnded);
        }
        if self.give_up <= entry.now() {
            return self.head.time_over().map(Some);
        }
        let granted = self.head.granted_by_message(self.listening.granted(), entry.now());
        if granted.is_some() {
            self.was_useful();
            context.recorder.hand_offs_remote.add_one();
        }
        Ok(granted)
    }

    /// Consumes the notification that has brought the lock.
    fn was_useful(&mut self) {
        if let Some(notified) = self.notified.take() {
            notified.consume();
            self.head.wanted.entry.counters.wakes_useful.add_one();
            if !self.head.request.is_watched() {
                // Another client of this process sleeps until the end of the lease before, and this lease may
                // end sooner, unheard.
                self.head.wanted.entry.call_queue_heads(1);
            }
        }
    }

    /// Keeps the rate limit of questions, whatever is published. True if the head has waited for that.
    async fn pause(&mut self) -> bool {
        let has_paused = std::mem::take(&mut self.paused);
        if has_paused {
            return false;
        }
        let (entry, now) = (self.head.wanted.entry, self.head.wanted.entry.now());
        let at = self.give_up.min(self.rate_limit.next(now));
        if at <= now {
            return false;
        }
        // A grant ends the pause.
        if entry.mode.is_queued() {
            entry.context.until(at, pin!(self.listening.granted_next())).await;
        } else {
            entry.context.until(at, pending::<()>()).await;
        }
        self.paused = true;
        true
    }

    /// Asks the store. `None` if the store has refused: then the head has slept until there is reason to ask
    /// again.
    async fn ask(&mut self) -> Result<Option<End>, LockError> {
        let (entry, context) = (self.head.wanted.entry, &self.head.wanted.entry.context);
        self.unconfirmed = !self.listening.is_ready();
        let was_held = self.head.held_for().is_some();
        let Some(asked) = context.until(self.give_up, pin!(self.head.ask(entry.now()))).await else {
            return self.head.time_over().map(Some);
        };
        match asked {
            // The store may be back before the lease of the other holder is over, or the caller's limit.
            Err(error) if may_pass(&error) && (self.patient || was_held) => {
                if !was_held {
                    self.head.says = Some(Err(error));
                }
                self.sleep(STORE_IS_GONE).await;
            }
            Err(error) => return Err(error),
            Ok((AttemptOutcome::Granted(grant), at)) => {
                self.was_useful();
                if was_held {
                    context.recorder.hand_offs_remote.add_one();
                }
                return Ok(Some(self.head.granted(grant, at)));
            }
            Ok((AttemptOutcome::Superseded, _)) => return Ok(Some(End::Superseded)),
            Ok((AttemptOutcome::TooLate, _)) => {}
            Ok((AttemptOutcome::Refused, _)) => {
                if let Some(notified) = self.notified.take() {
                    notified.consume_spurious();
                    entry.counters.wakes_spurious.add_one();
                }
                self.sleep(self.head.held_for().unwrap_or_default()).await;
                event!(TRACE, lock = entry.name.as_str(), notified = self.notified.is_some(), "woken");
            }
        }
        Ok(None)
    }

    /// Sleeps for `left` at most, until there is reason to ask: a message, whose notification is kept; a call
    /// from inside of this client by the entry's own latch; or the confirmation of a subscription that was
    /// missing when the store was asked.
    async fn sleep(&mut self, left: Duration) {
        let (entry, listening, unconfirmed) = (self.head.wanted.entry, self.listening, self.unconfirmed);
        let confirmed = pin!(async {
            match unconfirmed {
                // `ended` reports its failure.
                true => _ = listening.subscribed().await,
                false => pending().await,
            }
        });
        let called = pin!(entry.engine.latch().wait());
        let told_here = pin!(async {
            if let Some(called) = unless(called, confirmed).await {
                called.consume();
            }
        });
        let limit = self.head.look_again(left, self.give_up);
        let told = pin!(listening.told());
        let told = pin!(unless(told, told_here));
        self.notified = entry.context.until(limit, told).await.flatten();
    }
}
